"""How much may wait for clients that do not read, over all connections, and who is given up for
the others."""

import asyncio
from pathlib import Path

import pytest

from storekeeper.http import flow, limits
from storekeeper.http.connection import Connection
from storekeeper.log import events
from tests.harness.in_process import Inside, Line, inside, settled, tick, until
from tests.harness.wire import create, request

LONG = 100_000
"""Characters of an address: more than a line holds."""


async def store(service: Inside, address: str) -> None:
    """Create store 1, or write it again."""
    connection, line = service.connect()
    connection.data_received(create("First"))
    await settled(connection)
    connection.data_received(
        request("PUT", "/api/stores/1", b'{"name":"Long","address":"%b"}' % address.encode())
    )
    await settled(connection)
    assert line.sent.count(b"HTTP/1.1 200 ") == 2
    line.close()


async def ask(service: Inside, *fields: str) -> tuple[Connection, Line]:
    """Return a connection whose client asked for the long store and reads nothing."""
    connection, line = service.connect()
    line.stuck = True
    connection.data_received(request("GET", "/api/stores/1", None, *fields))
    await until(lambda: line.unread > LONG)
    await tick()
    return connection, line


@pytest.fixture(autouse=True)
def _little_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_UNSENT_BYTES", 3 * LONG)
    monkeypatch.setattr(flow, "MAX_UNCOUNTED_BYTES", 0)


@pytest.mark.parametrize("fields", [[], ["Connection: close"]])
async def test_who_has_been_reading_for_longest_makes_room(
    tmp_path: Path, fields: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(events, "write_line", said.append)
    monkeypatch.setattr(events, "_due", {})
    async with inside(tmp_path) as service:
        lines = []
        for version in range(5):
            await store(service, str(version) * LONG)
            lines.append((await ask(service, *fields))[1])
        assert [line.aborted for line in lines] == [True, True, True, False, False]
    assert ["send budget used up" in line for line in said] == [True]


async def test_who_reads_or_leaves_takes_no_room_any_more(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        kept = service.service.runtime.limits.send_budget
        for version in range(9):
            await store(service, str(version) * LONG)
            connection, line = await ask(service)
            assert LONG < kept.size < 2 * LONG
            if version % 2:
                line.client_reads(2 * LONG)
            else:
                line.abort()
                await tick()
            assert kept.size == 0
            connection.transport.close()


async def test_one_that_is_longer_than_all_may_be_is_sent(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        await store(service, "x" * 5 * LONG)
        _, line = await ask(service)
        await asyncio.sleep(0)
        assert not line.aborted
        assert b'xxx"' in line.sent[-100:]
        assert line.sent.endswith(b"}")


@pytest.mark.parametrize("size", [100, 15_000])
async def test_many_small_responses_count_from_their_first_byte(tmp_path: Path, size: int) -> None:
    """Of a hundred clients that ask eight times and read nothing."""
    async with inside(tmp_path) as service:
        unsent = service.service.runtime.limits.send_budget
        await store(service, "x" * size)
        lines = []
        for _ in range(100):
            connection, line = service.connect()
            lines.append(line)
            line.stuck = True
            connection.data_received(request("GET", "/api/stores/1") * 8)
            await until(lambda: lines[-1].unread)
            await tick()
            assert sum(line.unread for line in lines) <= unsent.size <= 3 * LONG
        assert any(line.aborted for line in lines) == (size > 1000)
        for line in lines:
            line.abort()
        await tick()
        assert unsent.size == 0


async def test_a_connection_may_leave_one_small_response_uncounted_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    async with inside(tmp_path) as service:
        unsent = service.service.runtime.limits.send_budget
        await store(service, "small")
        connection, line = service.connect()
        line.stuck = True
        while not connection.flow.write_paused:
            assert unsent.size == 0
            assert line.unread <= 1024
            connection.data_received(request("GET", "/api/stores/1"))
            await settled(connection)
        assert unsent.size > limits.OVERHEAD
        assert line.unread < 1500
