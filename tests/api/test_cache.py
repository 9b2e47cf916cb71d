"""Cached responses beside another process that writes, one loop iteration after another."""

import asyncio
import random
import socket
from pathlib import Path
from typing import Any

import apsw
import pytest
import uvloop
from storekeeper.api.fastlane import FastLane

from storekeeper import databases
from storekeeper.commands import Replace
from storekeeper.http.limits import raise_files_limit
from storekeeper.sqlite import SqliteCollection
from storekeeper.sqlite.migrations import CHANGES_TABLE
from storekeeper.stores import Payload
from storekeeper.tables import CHANGES
from tests.harness.in_process import Inside, inside, settled, until
from tests.harness.stores import a_change

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
        row = a_change(version, 1, Payload(name), 0, before, count)
        connection.execute(
            f"INSERT INTO {CHANGES_TABLE} ({', '.join(CHANGES)}) VALUES ({', '.join('?' * len(row))})", row
        )
    connection.close()


async def filled(here: Inside, folder: Path, stores: int = 2) -> None:
    """Create stores, and have all that is asked below known: at the second time it is."""
    other = SqliteCollection(folder / "stores.db", pytest.fail)
    await other.load([Payload("first")] * stores)
    await other.close()
    for data in (ONE, OTHER, LIST) * 2:
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


def test_a_store_that_nobody_changed_stays_cached(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path)
            cache = here.service.runtime.cache
            rename(tmp_path, "second")
            assert cache.get(b"/api/stores/2") is not None
            assert cache.get(b"/api/stores/1") is None
            assert cache.get(b"/api/stores") is None

    asyncio.run(scene())


def test_a_response_with_the_tag_of_another_epoch_is_not_used(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path)
            renewed = databases.epoch(f"sqlite:///{tmp_path}/stores.db", renew=True)
            for data in (OTHER, LIST):
                assert renewed.encode() in await ask(here, data)

    asyncio.run(scene())


TARGETS = b"/1 /01 /1?x /2 /3 /%31".split()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_written_a_response_is_what_the_database_says(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path, 3)
            other = SqliteCollection(tmp_path / "stores.db", pytest.fail)
            kept = 0
            for number in range(300):
                match chance.randrange(20):
                    case 0:
                        databases.epoch(f"sqlite:///{tmp_path}/stores.db", renew=True)
                    case 1:
                        await other.load([Payload("More")] * 300)
                    case 2 | 3 | 4 | 5:
                        for _ in range(chance.randrange(1, 3)):
                            await other.write(Replace(chance.randrange(1, 5), Payload(f"Name {number}")))
                path = b"/api/stores" + chance.choice(TARGETS)
                kept += here.service.runtime.cache.get(path) is not None
                found = await ask(here, b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
                store = other.get(3 if path.endswith(b"3") else 2 if path.endswith(b"2") else 1)
                assert store is not None
                assert f'"name":"{store.name}"'.encode() in found
                assert f'etag: "{store.version}.{store.epoch}"'.encode() in found.lower()
            await other.close()
            assert kept > 50, "the cache was of use"

    asyncio.run(scene())


def test_a_list_is_cached_as_of_the_moment_when_its_beginning_was_read(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path, STORES)
            rename(tmp_path, "second")
            lister, line = here.connect()
            lister.data_received(LIST)
            rename(tmp_path, "third")
            here.connect()[0].data_received(OTHER)  # is cached, so that the cache learns of the change
            await settled(lister)
            assert b'{"id":1,"name":"second"' in line.sent
            assert b'{"id":1,"name":"third"' in await ask(here, LIST)

    asyncio.run(scene())


def test_a_long_list_is_cached_until_somebody_writes(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path, STORES)
            connection, line = here.connect()
            assert isinstance(connection, FastLane)
            connection.data_received(LIST)
            await settled(connection)
            assert connection.cache.get(b"/api/stores") is not None
            whole = line.sent
            assert await ask(here, LIST) == whole
            rename(tmp_path, "second")
            assert b'{"id":1,"name":"second"' in await ask(here, LIST)

    asyncio.run(scene())


@pytest.mark.parametrize("stores", [100, STORES], ids=["whole", "streamed"])
def test_a_response_that_is_too_long_is_not_cached(
    tmp_path: Path, stores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storekeeper.api.cache.MAX_RESPONSE_BYTES", 1000)

    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path, stores)
            cache = here.service.runtime.cache
            assert (await ask(here, LIST)).count(b'"id"') == stores
            assert cache.get(b"/api/stores/1") is not None
            assert cache.get(b"/api/stores") is None

    asyncio.run(scene())


def test_a_client_that_leaves_in_the_middle_of_a_long_list_keeps_it_from_no_cache(tmp_path: Path) -> None:
    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path, STORES)
            rename(tmp_path, "second")
            lister, line = here.connect()
            assert isinstance(lister, FastLane)
            lister.data_received(LIST)
            await until(lambda: line.sent)
            line.abort()
            await until(lambda: not lister.tasks)
            await ask(here, LIST)
            assert lister.cache.get(b"/api/stores") is not None

    asyncio.run(scene())


class Crowd:
    """A service in this process whose clients have real connections, more than libuv takes from one poll (1024)."""

    SIZE = 1100

    def __init__(self, here: Inside) -> None:
        self._here = here
        self.clients: list[socket.socket] = []

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        before = len(self._here.server_state.connections)
        given: Any = self._here.service.runtime, self._here._config, self._here.server_state, {}, loop
        self._server = await loop.create_server(lambda: FastLane(*given), "127.0.0.1", 0, backlog=2 * self.SIZE)
        for _ in range(self.SIZE):
            self.clients.append(client := socket.socket())
            client.setblocking(False)
            await loop.sock_connect(client, self._server.sockets[0].getsockname())
        await until(lambda: len(self._here.server_state.connections) == before + self.SIZE)

    async def receive(self, client: socket.socket) -> bytes:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 4096), 10)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self._server.close()


def test_a_second_poll_of_one_iteration_sees_what_was_written_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libuv polls again, before any callback of the loop runs, when 1024 connections were ready at once."""
    iterations: list[object] = []
    read: list[int] = []
    on_read: list[Any] = []
    data_received = FastLane.data_received

    def reads(connection: FastLane, data: bytes) -> None:
        read.append(len(iterations))
        for act in on_read[len(read) - 1 : len(read)]:
            act()
        data_received(connection, data)

    async def scene() -> None:
        async with inside(tmp_path) as here:
            await filled(here, tmp_path)
            monkeypatch.setattr(FastLane, "data_received", reads)
            crowd = Crowd(here)
            await crowd.connect()
            try:
                *early, late = crowd.clients
                on_read.append(lambda: asyncio.get_running_loop().call_soon(iterations.append, None))
                on_read.append(lambda: rename(tmp_path, "second"))
                # Behind 1024 that are ready before it, so that the poll that finds it is not the first.
                on_read.append(lambda: late.send(ONE))
                for client in early:
                    client.send(ONE)
                responses = [await crowd.receive(client) for client in (*early, late)]
            finally:
                crowd.close()
                await asyncio.sleep(0.1)
            assert read[: Crowd.SIZE] == [0] * Crowd.SIZE, "all of them in one iteration"
            assert b'"first"' in responses[0]
            assert b'"second"' in responses[-1]

    raise_files_limit()
    uvloop.run(scene())
