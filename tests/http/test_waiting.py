"""A request whose connection's earlier responses are not complete takes nothing that others
need."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from storekeeper.http.connection import Connection
from tests.harness.in_process import (
    Inside,
    Line,
    exchange,
    inside,
    last_response,
    some_stores,
    tick,
    until,
)
from tests.harness.wire import create, request

STREAM = request("GET", "/api/changes?after=now", None, "Accept: text/event-stream")
LIST = request("GET", "/api/stores")


def an_import(rows: int) -> bytes:
    data = request("POST", "/api/imports?add", b"name\n" + b"Imported\n" * rows)
    return data.replace(b"application/json", b"text/csv")


IMPORT = an_import(1)
HALF_AN_IMPORT = an_import(2000)[:-1]


def a_body(size: int) -> bytes:
    return request("PUT", "/api/stores/1", b'{"name":"Large","address":"%b"}' % (b"x" * size))


LARGE, OTHERS = a_body(900_000), a_body(20_000)


async def listens(service: Inside, behind: bytes) -> tuple[Connection, Line]:
    """Return a connection with a stream, and bytes behind it."""
    connection, line = service.connect()
    connection.data_received(STREAM)
    await until(lambda: b"retry" in line.sent)
    connection.data_received(behind)
    return connection, line


async def reads_slowly(service: Inside, behind: bytes) -> tuple[Connection, Line]:
    """Return a connection with a list that its client does not read, and bytes behind it."""
    connection, line = service.connect()
    line.stuck = True
    connection.data_received(LIST)
    await until(lambda: connection.flow.write_paused)
    connection.data_received(behind)
    return connection, line


Busy = Callable[[Inside, bytes], Awaitable[tuple[Connection, Line]]]
BUSY: list[Busy] = [listens, reads_slowly]


@pytest.mark.parametrize("behind", [IMPORT, HALF_AN_IMPORT], ids=["whole", "half"])
async def test_an_import_behind_a_response_takes_no_slot(tmp_path: Path, behind: bytes) -> None:
    some_stores(tmp_path, 3000)
    async with inside(tmp_path) as service:
        _, line = await reads_slowly(service, behind)
        for _ in range(3):
            assert (await exchange(service, IMPORT)).status == 200
        line.stuck = False
        line.client_reads(line.unread)
        await until(lambda: line.sent.count(b"HTTP/1.1 200") == (2 if behind == IMPORT else 1))


async def test_an_import_behind_a_stream_ends_it_and_is_carried_out(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        _, line = await listens(service, IMPORT)
        await until(lambda: line.sent.count(b"HTTP/1.1 200") == 2)
        assert last_response(line).json["created"] == 1
        assert (await exchange(service, IMPORT)).status == 200


@pytest.mark.parametrize("whole", [False, True], ids=["half", "whole"])
@pytest.mark.parametrize("busy", BUSY)
async def test_bodies_behind_responses_keep_no_other_body_out(
    tmp_path: Path, busy: Busy, whole: bool
) -> None:
    some_stores(tmp_path, 3000)
    async with inside(tmp_path) as service:
        budget = service.service.runtime.limits.receive_budget
        made = []
        for size in [900_000] * 100 + [15_000] * 100:  # until there is no room for even a small one
            body = a_body(size)
            made.append(await busy(service, body if whole else body[:-1]))
            await tick()
        for _ in range(3):
            assert (await exchange(service, OTHERS)).status == 200
        assert budget.size < 65 * 2**20
        for connection, _ in made:
            connection.transport.abort()
        await until(lambda: budget.size == 0)


async def test_bodies_that_do_not_come_to_an_end_keep_no_other_body_out(tmp_path: Path) -> None:
    """Those that have been on their way for longest are refused."""
    async with inside(tmp_path) as service:
        assert (await exchange(service, create("First"))).status == 200
        made = [service.connect() for _ in range(100)]
        for connection, _ in made:
            connection.data_received(LARGE[:-1])
        assert (await exchange(service, OTHERS)).status == 200
        refused = [bool(line.sent) for _, line in made]
        assert refused == sorted(refused, reverse=True)
        assert 0 < sum(refused) < 100
        assert {last_response(line).status for _, line in made if line.sent} == {503}
        made[-1][0].data_received(LARGE[-1:])
        await until(lambda: made[-1][1].sent)
        assert last_response(made[-1][1]).status == 200
