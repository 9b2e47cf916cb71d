"""What arrives in one iteration of the event loop is handled after the last of it, in order, in
one read transaction; nothing of it is lost, counted twice or kept."""

import asyncio
import random
import re
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from storekeeper.domain.stores import Payload
from storekeeper.http.arrivals import MAX_NOTED_BYTES
from storekeeper.http.connection import Connection
from storekeeper.http.plain import PlainReader
from storekeeper.storage import clock
from storekeeper.storage.sqlite import connections as connections_to
from storekeeper.storage.sqlite import reads
from storekeeper.storage.sqlite.statements import STATE
from tests.harness.client import fill, load
from tests.harness.in_process import (
    Inside,
    Line,
    exchange,
    inside,
    last_response,
    settled,
    some_stores,
    statuses,
    tick,
    until,
)
from tests.harness.process import Running
from tests.harness.wire import create, dial, request, responses

ONE = request("GET", "/api/stores/1")
READ = 256_000
"""Bytes that uvloop brings at most at once."""


def connections(service: Inside, count: int) -> list[tuple[Connection, Line]]:
    return [service.connect() for _ in range(count)]


# Order, framing, memory.


def test_sixty_thousand_pipelined_requests_in_one_burst_get_their_responses_in_order(
    service: Running,
) -> None:
    chance = random.Random(1)
    numbers = [chance.randrange(10**6, 10**12) for _ in range(60_000)]
    burst = b"".join([request("GET", f"/api/stores/{number}") for number in numbers])
    with dial(service) as wire:
        sending = threading.Thread(target=wire.send, args=(burst,))
        sending.start()
        received, found = b"", list[int]()
        while len(found) < len(numbers):
            received += wire.client.recv(2**20)
            end = received.rfind(b"not found")
            found += map(int, re.findall(rb'"Store (\d+) ', received[: max(0, end)]))
            received = received[max(0, end) :]
        sending.join()
        assert found == numbers
        wire.send(request("GET", "/test", None, "Connection: close"))
        assert wire.rest().endswith(b"OK")


async def test_many_large_bodies_in_one_iteration_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is noted is handled before it is too much; what does not fit is refused, not begun."""
    limit = 2**22
    monkeypatch.setattr("storekeeper.http.limits.MAX_RECEIVED_BYTES", limit)
    body = b'{"name":"Large","address":"%b"}' % (b"x" * 400_000)
    large = request("POST", "/api/stores", body)
    async with inside(tmp_path) as service:
        budget = service.service.runtime.limits.receive_budget
        made = connections(service, 40)
        for connection, _ in made:
            connection.data_received(large[:READ])
            assert sum(len(each.unread) for each, _ in made) <= MAX_NOTED_BYTES + READ
            assert budget.size <= limit + READ
        await tick()
        for connection, _ in made:
            connection.data_received(large[READ:])
        for connection, _ in made:
            await settled(connection)
        got = [last_response(line).status for _, line in made]
        assert set(got) == {200, 503}
        assert service.collection.state().total == got.count(200)
        for _, line in made:
            line.abort()
        await until(lambda: not service.server_state.connections)
        assert budget.size == 0


async def test_a_request_whose_parts_arrive_in_one_iteration_is_whole(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        data = create("In parts") + request("GET", "/api/stores/1") + request("GET", "/test")
        for start in range(0, len(data), 7):
            connection.data_received(data[start : start + 7])
        await settled(connection)
        created, read, test = responses(line.sent, "POST", "GET", "GET")
        assert created.body == read.body
        assert test.body == b"OK"
        assert line.reading
        assert service.service.runtime.limits.receive_budget.size == 0


# Clients that say no more, or are gone, before their bytes are handled.


@pytest.mark.parametrize("data", [ONE, create("Half closed"), ONE * 3 + create("Last")])
async def test_a_client_that_sends_and_half_closes_gets_its_responses(
    tmp_path: Path, data: bytes
) -> None:
    some_stores(tmp_path, 1)
    async with inside(tmp_path) as service:
        await exchange(service, ONE)  # so that it is in the cache
        connection, line = service.connect()
        connection.data_received(data)
        assert connection.eof_received(), "the transport must stay open"
        await until(line.is_closing)
        assert statuses(line) == [200] * (4 if data.startswith(ONE * 3) else 1)
        assert not line.aborted
        assert last_response(line).headers["connection"] == "close"


@pytest.mark.parametrize("data", [ONE, create("Never"), create("Never") * 2, b"x" * 20_000])
async def test_of_a_client_that_resets_before_its_bytes_are_handled_nothing_is_left(
    tmp_path: Path, data: bytes
) -> None:
    some_stores(tmp_path, 1)
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        connection.data_received(data)
        line.abort()
        await tick()
        assert line.sent == b""
        assert not connection.unread
        assert service.server_state.connections == set()
        assert service.service.runtime.limits.receive_budget.size == 0
        assert service.collection.state().total == 1


async def test_at_a_stop_what_has_arrived_gets_its_response_before_the_connection_closes(
    tmp_path: Path,
) -> None:
    some_stores(tmp_path, 1)
    async with inside(tmp_path) as service:
        made = connections(service, 3)
        for (connection, _), data in zip(made, (ONE, create("Late"), ONE * 2), strict=True):
            connection.data_received(data)
            connection.shutdown()
            connection.advance()
        for _, line in made:
            await until(line.is_closing)
        assert [statuses(line) for _, line in made] == [[200], [200], [200, 200]]
        assert last_response(made[2][1]).headers["connection"] == "close"


async def test_a_connection_with_bytes_that_are_not_handled_yet_is_not_idle(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        service.service.runtime.limits.connections.maximum = 1
        connection, line = service.connect()
        await exchange_on(connection, request("GET", "/test"))
        connection.data_received(request("GET", "/test"))
        assert last_response(service.connect()[1]).status == 503
        assert not line.is_closing()
        await settled(connection)
        assert statuses(line) == [200, 200]


async def exchange_on(connection: Connection, data: bytes) -> None:
    connection.data_received(data)
    await settled(connection)


# One transaction.


@pytest.fixture(autouse=True)
def _batches_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr("storekeeper.storage.sqlite.MAX_BATCH_TIME", 60.0)


def traced(service: Inside) -> list[str]:
    """Return the statements that the connection for reads carries out from now on."""
    statements = list[str]()

    def note(_cursor: apsw.Cursor, statement: str, _values: Any) -> bool:
        statements.append(statement)
        return True

    service.collection._connection.exec_trace = note
    return statements


async def test_the_requests_of_one_iteration_are_read_in_one_transaction(tmp_path: Path) -> None:
    fill(tmp_path, [Payload(f"Store {number}") for number in range(10)])
    async with inside(tmp_path) as service:
        statements = traced(service)
        for number, (connection, _) in enumerate(connections(service, 9), start=1):
            connection.data_received(request("GET", f"/api/stores/{number}"))
        connection.data_received(request("GET", "/api/stores?name=Store+1"))
        await settled(connection)
        assert statements[0] == STATE
        assert statements.count(STATE) == 1
        assert len(statements) == 1 + 10, "the numbers, and one statement for each request"
        assert service.collection._reader.known is None


async def test_a_request_without_a_read_begins_no_transaction(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        statements = traced(service)
        for data in (request("HEAD", "/test"), request("POST", "/api/stores", b"{"), b"no HTTP"):
            connection, _ = service.connect()
            connection.data_received(data)
            await tick()
        assert statements == []


async def test_what_was_acknowledged_before_a_request_arrived_is_read(tmp_path: Path) -> None:
    """By another process, though other requests of the same iteration arrived before."""
    some_stores(tmp_path, 2)
    async with inside(tmp_path) as service:
        for id in range(3, 13):
            (first, early), (second, late), (third, listed) = connections(service, 3)
            first.data_received(ONE)
            load(f"sqlite:///{tmp_path}/stores.db", [Payload(f"Name {id}")])
            second.data_received(request("GET", f"/api/stores/{id}"))
            third.data_received(request("GET", "/api/stores"))
            await settled(third)
            assert statuses(early) == [200]
            assert last_response(late).json["name"] == f"Name {id}"
            assert len(last_response(listed).json) == id


async def test_if_the_numbers_cannot_be_read_each_read_of_the_batch_fails_at_once(
    tmp_path: Path,
) -> None:
    """With one lock timeout for all of them; what needs no database is responded to."""
    fill(tmp_path, [Payload("A")])
    async with inside(tmp_path) as service:
        tried = list[str]()

        def refuse(_cursor: apsw.Cursor, statement: str, _values: Any) -> bool:
            tried.append(statement)
            if statement == STATE:
                raise apsw.BusyError("database is locked")
            return True

        service.collection._connection.exec_trace = refuse
        made = connections(service, 6)
        for number, (connection, _) in enumerate(made[:5], start=1):
            connection.data_received(request("GET", f"/api/stores/{number}"))
        made[5][0].data_received(request("GET", "/test"))
        await settled(made[5][0])
        assert [last_response(line).status for _, line in made] == [503] * 5 + [200]
        assert tried == [STATE]
        service.collection._connection.exec_trace = None
        assert (await exchange(service, ONE)).status == 200


async def test_a_read_that_fails_ends_the_transaction_and_the_next_begins_another(
    tmp_path: Path,
) -> None:
    fill(tmp_path, [Payload("A"), Payload("B")])
    async with inside(tmp_path) as service:
        failed = list[str]()

        def refuse_once(_cursor: apsw.Cursor, statement: str, _values: Any) -> bool:
            if statement == reads._GET and not failed:
                failed.append(statement)
                raise apsw.BusyError("database is locked")
            return True

        service.collection._connection.exec_trace = refuse_once
        made = connections(service, 2)
        for number, (connection, _) in enumerate(made, start=1):
            connection.data_received(request("GET", f"/api/stores/{number}"))
        await settled(made[1][0])
        assert [last_response(line).status for _, line in made] == [503, 200]
        assert service.collection._reader.known is None


async def test_a_bug_ends_its_connection_and_not_the_others_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_stores(tmp_path, 1)
    read = PlainReader.read

    def fails_once(reader: PlainReader, data: bytes) -> Any:
        if b"/bug" in data:
            raise RuntimeError("a bug")
        return read(reader, data)

    monkeypatch.setattr(PlainReader, "read", fails_once)
    async with inside(tmp_path) as service:
        made = connections(service, 3)
        for (connection, _), path in zip(made, ("/test", "/bug", "/api/stores/1"), strict=True):
            connection.data_received(request("GET", path))
        await settled(made[2][0])
        assert [last_response(line).status for _, line in made] == [200, 500, 200]


async def test_a_long_log_gives_each_request_a_transaction_of_its_own(tmp_path: Path) -> None:
    """Else it would never begin again."""
    some_stores(tmp_path, 10)
    async with inside(tmp_path) as service:
        service.collection._reader.log_is_long = lambda: True
        statements = traced(service)
        for number, (connection, _) in enumerate(connections(service, 5), start=1):
            connection.data_received(request("GET", f"/api/stores/{number}"))
        await settled(connection)
        assert statements.count(STATE) == 5


def test_whether_the_log_is_long_is_known_of_what_any_process_wrote(tmp_path: Path) -> None:
    fill(tmp_path, [Payload("A")])
    path = str(tmp_path / "stores.db")
    reader = reads.Reader(connections_to.connect(Path(path), reader=True))
    assert not reader.log_is_long()
    other = apsw.Connection(path)
    other.wal_autocheckpoint(0)
    other.execute("CREATE TABLE filler (filling)")
    for _ in range(20):
        other.execute("INSERT INTO filler VALUES (zeroblob(1048576))")
    assert reader.log_is_long()
    other.wal_checkpoint()
    other.execute("INSERT INTO filler VALUES (1)")
    assert not reader.log_is_long()


# The past.


@pytest.mark.parametrize("offset", [-5, -1, 0])
async def test_a_moment_that_is_past_when_a_request_arrives_can_be_read(
    tmp_path: Path, offset: int
) -> None:
    """And has all that was acknowledged by then, also in the millisecond of a change."""
    async with inside(tmp_path) as service:
        for number in range(20):
            await exchange(service, create(f"Store {number}"))
            await asyncio.sleep(0.006)
            at = clock.now() + offset
            target = f"/api/stores?at={in_utc(at)}"
            first = await exchange(service, request("GET", target))
            assert first.status == 200
            assert len(first.json) == number + 1


async def test_no_moment_behind_the_clock_of_the_transaction_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside(tmp_path) as service:
        await exchange(service, create("Now"))
        now = clock.now() + 10_000
        monkeypatch.setattr(clock, "now", lambda: now)
        for later, status in ((0, 200), (1, 400)):
            target = f"/api/stores/1?at={in_utc(now + later)}"
            assert (await exchange(service, request("GET", target))).status == status


def in_utc(at: int) -> str:
    moment = datetime.fromtimestamp(at // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at % 1000:03}Z"
