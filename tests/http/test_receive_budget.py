"""What requests take while they are not whole, wait, or are being answered: counted from their
first byte."""

from pathlib import Path

import pytest

from storekeeper.http.connection import Connection
from tests.harness.client import locked
from tests.harness.in_process import (
    Inside,
    Line,
    inside,
    last_response,
    receive,
    settled,
    statuses,
    tick,
)
from tests.harness.linux import peak_memory
from tests.harness.process import Running
from tests.harness.wire import HOST, SLOW, assert_error, create, request

MANY_FIELDS = b"GET /test HTTP/1.1\r\n" + HOST + b"ab:cd\r\n" * 570
"""The beginning of a head of 4 KiB, which takes 100 KiB in Python."""

LARGE_HEAD = b"POST /api/stores HTTP/1.1\r\n" + HOST + b"X: %b\r\n" % (b"x" * 150) * 90
LIMIT = 2**18


@pytest.fixture(autouse=True)
def _little_may_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storekeeper.http.limits.MAX_RECEIVED_BYTES", LIMIT)
    monkeypatch.setattr("storekeeper.http.limits.RESERVED_BYTES", LIMIT)


def held(service: Inside) -> int:
    return service.service.runtime.limits.receive_budget.size


def send(service: Inside, data: bytes, count: int) -> list[tuple[Connection, Line]]:
    """Send the same on many connections, in one read each."""
    made = [service.connect() for _ in range(count)]
    for connection, _ in made:
        receive(connection, data)
    return made


@pytest.mark.parametrize(
    ("data", "least"),
    [
        (b"GET /te", 7),
        (create("Cut")[:-1], 500),
        (LARGE_HEAD, 2 * 14_000),
        (LARGE_HEAD + b"Content-Length: 9\r\n\r\n", 14_000 + 90 * 100),
        (request("POST", "/api/stores", b"x" * 60_000)[:-1], 60_000),
    ],
    ids=["few bytes", "small body", "large head", "large head without its body", "large body"],
)
async def test_what_is_not_whole_counts_from_its_first_byte_and_is_bounded(
    tmp_path: Path, data: bytes, least: int
) -> None:
    async with inside(tmp_path) as service:
        made = send(service, data, 1)
        assert held(service) >= least
        made += send(service, data, 3 * LIMIT // max(least, 500))
        assert held(service) <= 2 * LIMIT + 70_000
        refused = [line for _, line in made if line.sent]
        assert bool(refused) == (least > 10)
        for line in refused:
            assert_error(last_response(line), 503, "Too many large requests", outcome="none")
        for connection, _ in made:
            connection.transport.abort()
        await tick()
        assert held(service) == 0


@pytest.mark.parametrize("again", [False, True], ids=["new head", "known head"])
async def test_large_writes_that_wait_for_the_database_are_bounded(
    tmp_path: Path, again: bool
) -> None:
    """Though each came in one read; and small ones continue."""
    large = request("POST", "/api/stores", b'{"name":"Large","address":"%b"}' % (b"x" * 60_000))
    async with inside(tmp_path) as service:
        for _ in range(2 * again):
            [(connection, _)] = send(service, large, 1)
            await settled(connection)
        with locked(tmp_path):
            made = send(service, large, 40)
            small = send(service, create("Small"), 10)
            assert LIMIT - 70_000 < held(service) < LIMIT + 100_000
            assert [last_response(line).status for _, line in made if line.sent] == [503] * (40 - 4)
        for connection, line in (*made, *small):
            await settled(connection)
            assert last_response(line).status in (200, 503)
        assert {last_response(line).status for _, line in small} == {200}
        assert held(service) == 0


async def test_a_refusal_that_waits_counts_with_what_was_read_of_its_request(
    tmp_path: Path,
) -> None:
    """Its target is kept until the responses before it are sent."""
    refused = request("GET", "/" + "x" * 8000, None, "Host: another")
    async with inside(tmp_path) as service:
        with locked(tmp_path):
            [(connection, line)] = send(service, create("Waits"), 1)
            before = held(service)
            receive(connection, refused)
            assert held(service) - before > 8000
        await settled(connection)
        assert statuses(line) == [200, 400]
        assert held(service) == 0


async def test_behind_a_response_that_is_not_complete_little_is_read_on(tmp_path: Path) -> None:
    """Else one client could use up what there is for all."""
    large = request("POST", "/api/stores", b'{"name":"Large","address":"%b"}' % (b"x" * 40_000))
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        with locked(tmp_path):
            receive(connection, create("First"))
            receive(connection, large[:1000])
            assert line.reading, "a client that leaves is seen"
            receive(connection, large[1000:] + large)
            assert not line.reading
        await settled(connection)
        assert line.reading
        assert statuses(line)[1:] == [200, 200]


@pytest.mark.parametrize(
    "data", [request("GET", SLOW), create("A"), request("GET", SLOW) * 3 + create("B")]
)
async def test_nothing_is_held_for_what_has_its_response_or_was_left(
    tmp_path: Path, data: bytes
) -> None:
    async with inside(tmp_path) as service:
        [(connection, _)] = send(service, data, 1)
        assert held(service) > 0
        await settled(connection)
        assert held(service) == 0
        [(_, line)] = send(service, data, 1)
        line.abort()
        await tick()
        await settled(connection)
        assert held(service) == 0


def test_more_fields_than_there_may_be_are_refused_before_the_head_ends(fresh: Running) -> None:
    before = peak_memory(fresh)
    clients = [fresh.socket() for _ in range(500)]
    for client in clients:
        client.sendall(MANY_FIELDS)
    for client in clients:
        assert client.recv(100).startswith(b"HTTP/1.1 431 ")
        client.close()
    assert peak_memory(fresh) - before < 20 * 2**20
