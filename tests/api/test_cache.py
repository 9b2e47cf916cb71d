"""Cached responses beside another process that writes, one loop iteration after another."""

import asyncio
from pathlib import Path

import apsw
import pytest

from storekeeper.api.cache import LARGE_READ, MAX_POLLED_CONNECTIONS
from storekeeper.api.fastlane import FastLane
from storekeeper.sqlite import SqliteCollection
from storekeeper.sqlite.schema import CHANGES
from storekeeper.stores import Payload
from tests.harness.in_process import Inside, inside, settled

ONE = b"GET /api/stores/1 HTTP/1.1\r\nHost: a\r\n\r\n"
OTHER = b"GET /api/stores/2 HTTP/1.1\r\nHost: a\r\n\r\n"
LIST = b"GET /api/stores HTTP/1.1\r\nHost: a\r\n\r\n"
STORES = 1500
"""More than one page, so that the list is streamed."""


def post(body: bytes) -> bytes:
    return b"POST /api/stores HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def rename(folder: Path, name: str) -> None:
    """Write as another process does, acknowledged when this returns."""
    connection = apsw.Connection(str(folder / "stores.db"))
    with connection:
        version, count = connection.execute("SELECT max(seq) + 1, max(count) FROM changes").get
        before = connection.execute("SELECT version FROM stores WHERE id = 1").get
        connection.execute("UPDATE stores SET name = ?, version = ? WHERE id = 1", (name, version))
        row = (version, 1, name, None, 0, before, count)
        connection.execute(f"INSERT INTO {CHANGES} VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    connection.close()


async def filled(here: Inside, folder: Path, stores: int = 2) -> None:
    """Create stores, and have the heads of all that is asked below known."""
    other = SqliteCollection(folder / "stores.db", pytest.fail)
    await other.load([Payload("first")] * stores)
    await other.close()
    for data in (ONE, OTHER, ONE):
        assert b'"first"' in await ask(here, data)


async def ask(here: Inside, data: bytes) -> bytes:
    """Ask in the next tick."""
    await asyncio.sleep(0)
    connection, line = here.connect()
    connection.data_received(data)
    await settled(connection)
    return line.sent


def test_a_write_by_another_process_is_seen_in_the_next_tick(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path)
            for number in range(20):
                rename(tmp_path, f"name {number}")
                assert f"name {number}".encode() in await ask(here, ONE)

    asyncio.run(scene())


def test_a_request_behind_another_in_one_read_may_have_come_later_and_misses_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path)
            (early, _), (late, line) = here.connect(), here.connect()
            early.data_received(ONE)
            rename(tmp_path, "second")
            late.data_received(OTHER + ONE)
            await settled(late)
            assert b'"second"' in line.sent

    asyncio.run(scene())


def test_a_request_that_waited_for_its_turn_vouches_for_no_other(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path)
            (waiting, its), (reader, line) = here.connect(), here.connect()
            waiting.data_received(post(b'{"name":"third"}') + ONE)
            while b'"id":1' not in its.sent:  # noqa: ASYNC110 - not one tick later
                await asyncio.sleep(0)
            # The very next thing that the loop does is to read what comes now.
            rename(tmp_path, "second")
            reader.data_received(ONE)
            await settled(reader)
            assert b'"second"' in line.sent

    asyncio.run(scene())


@pytest.mark.parametrize("crowded", [True, False])
def test_a_list_is_cached_as_of_the_moment_when_its_beginning_was_read(tmp_path: Path, *, crowded: bool) -> None:
    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path, STORES)
            for _ in range(crowded * MAX_POLLED_CONNECTIONS):
                here.connect()
            lister, line = here.connect()
            lister.data_received(LIST)
            rename(tmp_path, "second")
            here.connect()[0].data_received(post(b"x" * LARGE_READ))
            here.connect()[0].data_received(ONE)
            await settled(lister)
            assert b'{"id":1,"name":"first"' in line.sent
            assert b'{"id":1,"name":"second"' in await ask(here, LIST)

    asyncio.run(scene())


def test_a_long_list_is_cached_until_somebody_writes(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path, STORES)
            connection, line = here.connect()
            assert isinstance(connection, FastLane)
            connection.data_received(LIST)
            await settled(connection)
            assert b"/api/stores" in connection.cache._responses
            whole = line.sent
            assert await ask(here, LIST) == whole
            rename(tmp_path, "second")
            assert b'{"id":1,"name":"second"' in await ask(here, LIST)

    asyncio.run(scene())
