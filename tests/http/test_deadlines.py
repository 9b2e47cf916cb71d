"""How long the service waits for a client (decision 27), and what a client that does not read
can cost it.

Time is told to the connection, but for one test in which it really passes.
"""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from storekeeper.http import deadlines, limits
from storekeeper.log.events import Event
from tests.harness import weakened
from tests.harness.client import locked
from tests.harness.client import until as until_so
from tests.harness.in_process import (
    HIGH_WATER,
    Line,
    inside,
    last_response,
    receive,
    settled,
    some_stores,
    statuses,
    stuck,
    tick,
    until,
)
from tests.harness.process import serving
from tests.harness.wire import SLOW, assert_error, create, dial, request, responses

WHOLE = 10
IDLE = 65
STALL = 10

UNFINISHED = [
    b"G",
    b"GET /test HT",
    request("GET", "/test")[:-2],
    create("Cut")[:-1],
    create("Cut", "Expect: 100-continue")[:-20],
]


@pytest.fixture(autouse=True)
def short_discard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused client's remaining bytes are not waited for."""
    monkeypatch.setattr(deadlines, "DISCARD_TIMEOUT", 0.0)


@pytest.mark.parametrize("sent", UNFINISHED)
async def test_a_request_that_is_not_whole_in_time_is_refused(tmp_path: Path, sent: bytes) -> None:
    """10 s from its first byte to its last, however many bytes come in between."""
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        receive(connection, sent[:1])
        begun = connection.reader.began = (
            connection.reader.began - WHOLE / 2
        )  # so much time has passed
        connection.sweep(begun + WHOLE - 1)
        for at in range(1, len(sent)):
            receive(connection, sent[at : at + 1])
        told = len(line.sent)  # to continue, if it asked
        connection.sweep(begun + WHOLE - 0.1)
        assert len(line.sent) == told
        connection.sweep(begun + WHOLE + 0.1)
        assert_error(last_response(line), 408, "The request was not whole within 10 seconds")
        assert line.ended
        before = line.sent
        receive(connection, sent[-1:] + request("GET", "/test"))
        await tick()
        assert line.sent == before
        connection.sweep(begun + WHOLE + 0.2)
        assert line.aborted


async def test_the_time_of_a_request_begins_with_its_own_first_byte(tmp_path: Path) -> None:
    """Not with that of the one before it, in whose last packet it began."""
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        first, second = create("First"), create("Second")
        receive(connection, first[:50])
        connection.reader.began -= WHOLE - 1  # so much time has passed
        receive(connection, first[50:] + second[:50])
        await settled(connection)
        connection.sweep(asyncio.get_running_loop().time() + WHOLE - 1)
        assert statuses(line) == [200]
        receive(connection, second[50:])
        await settled(connection)
        assert statuses(line) == [200, 200]


async def test_a_connection_that_says_nothing_is_closed_without_a_word(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        for sent in (b"", b"\r\n"):
            connection, line = service.connect()
            receive(connection, sent)
            connection.sweep(connection.reader.began + WHOLE - 0.1)
            assert not line.is_closing()
            connection.sweep(connection.reader.began + WHOLE + 0.1)
            assert line.is_closing()
            assert line.sent == b""


@pytest.mark.parametrize("target", ["/test", "/api/stores", SLOW, "/nowhere"])
async def test_a_connection_that_was_served_is_kept_for_longer(tmp_path: Path, target: str) -> None:
    """Longer than the 60 s of common load balancers."""
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        now = connection.reader.began
        for _ in range(3):
            receive(connection, request("GET", target))
            await settled(connection)
            now += IDLE - 1
            connection.sweep(now)
            assert not line.is_closing()
        connection.sweep(now + IDLE - 1)
        assert not line.is_closing()
        connection.sweep(now + IDLE + 1)
        assert line.is_closing()


async def test_a_client_that_was_not_yet_told_to_continue_is_not_late(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        head, _, body = create("Second", "Expect: 100-continue").partition(b"\r\n\r\n")
        with locked(tmp_path):
            receive(connection, create("First") + head + b"\r\n\r\n")
            connection.sweep(connection.reader.began + WHOLE + 5)
            assert line.sent == b""
        await settled(connection)
        assert statuses(line) == [200, 100]
        receive(connection, body)
        await settled(connection)
        assert statuses(line) == [200, 100, 200]


async def test_a_bug_in_the_sweep_of_a_connection_ends_it_and_leaves_the_others_their_timeouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[object] = []
    monkeypatch.setattr(limits, "emit", lambda event, **_: logged.append(event))
    async with inside(tmp_path) as service:
        made = [service.connect() for _ in range(9)]
        monkeypatch.setattr(made[4][0], "sweep", lambda _now: 1 / 0)
        now = made[0][0].reader.began
        for seconds in (0, 0.5, WHOLE + 1, WHOLE + 1.5):
            await service.service.runtime.limits.connections.sweep(now + seconds)
            await tick()
            assert [line.aborted for _, line in made] == [
                seconds > 0 and at == 4 for at in range(9)
            ]
        assert all(line.is_closing() for _, line in made)
        assert logged == [Event.BUG]


# A client that does not read.


@pytest.mark.parametrize("count", [500, 2500], ids=["whole", "streamed"])
async def test_a_client_that_reads_nothing_is_dropped_and_one_that_reads_slowly_is_not(
    tmp_path: Path, count: int
) -> None:
    some_stores(tmp_path, count)
    async with inside(tmp_path) as service:
        connection, line = await stuck(service)
        assert not line.reading
        assert len(line.sent) < 20 * HIGH_WATER
        receive(connection, b"GET /te")  # came in the same read
        now = asyncio.get_running_loop().time()
        for _ in range(10):
            connection.sweep(now)
            line.client_reads(1000)
            connection.sweep(now + STALL - 1)
            now += STALL + 1
        assert not line.aborted
        # Not refused for what the service does not read.
        assert connection.unread.data.endswith(b"GET /te")
        connection.sweep(now)
        connection.sweep(now + STALL + 1)
        assert line.aborted
        await tick()
        assert not service.server_state.connections
        assert not service.server_state.tasks


@contextmanager
def accepted() -> Iterator[tuple[socket.socket, socket.socket, Line]]:
    """Return a client, the service's end of its connection, and a transport over that."""

    class Accepted(Line):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return server if name == "socket" else default

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
        listener.accept()[0] as server,
    ):
        yield client, server, Accepted()


def test_a_client_that_has_acknowledged_nothing_yet_has_its_time_from_the_response_on() -> None:
    """However long it was connected before its first request: the acknowledgement is still on
    its way."""
    with accepted() as (_, _, line):
        line.unread = 200_000
        waits = deadlines.Deadlines(0.0)
        assert not waits.is_over(line, STALL + 1)
        assert not waits.is_over(line, 2 * STALL)
        assert waits.is_over(line, 2 * STALL + 2)


def test_a_refused_client_gets_what_is_in_the_kernel_before_its_connection_ends() -> None:
    """A reset would drop the refusal, and the responses before it."""
    with accepted() as (client, server, line):
        server.setblocking(False)
        sent = server.send(bytes(2**24))
        waits = deadlines.Deadlines(0.0)
        waits.refused_at = 0.0
        assert not waits.is_over(line, 1.0)
        client.recv(sent, socket.MSG_WAITALL)
        until_so(lambda: waits.is_over(line, 2.0))


@pytest.mark.parametrize(
    "asked", [create("Unread"), request("GET", "/test")], ids=["write", "read"]
)
async def test_nothing_more_is_read_of_a_client_while_the_response_to_its_only_request_waits(
    tmp_path: Path, asked: bytes
) -> None:
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        line.stuck, line.high = True, 0
        receive(connection, asked)
        await until(lambda: line.unread)
        await settled(connection)
        assert not line.reading
        line.client_reads(line.unread)
        assert line.reading


# A service that stops.


async def test_a_stopping_service_reads_what_came_while_it_stood_still(tmp_path: Path) -> None:
    """As in a container without processor time: a proxy has sent a request on a connection that
    was idle."""
    async with inside(tmp_path) as service:
        loop = asyncio.get_running_loop()
        connection = service.protocol()
        server = await loop.create_server(lambda: connection, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(request("GET", "/test"))
        await reader.readuntil(b"\r\n\r\nOK")

        def stand_still() -> None:
            loop.remove_reader(waking)
            writer.write(request("GET", "/test"))
            time.sleep(2 * deadlines.DRAIN_TIMEOUT)

        waking, waker = socket.socketpair()
        with waking, waker, closing(writer), closing(server):
            loop.add_reader(waking, stand_still)
            connection.shutdown()
            waker.send(b".")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")


async def test_what_was_begun_before_a_stop_is_carried_out_and_the_last_response_says_so(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        connection.shutdown()
        receive(connection, request("GET", "/test") + create("First") + b"\r\n")
        await settled(connection)
        assert line.is_closing()
        test, first = responses(line.sent, "GET", "POST")
        assert "connection" not in test.headers
        assert first.headers["connection"] == "close"
        assert service.collection.state()[0] == 1


# The real thing.


def test_the_deadlines_hold_on_a_real_connection(tmp_path: Path) -> None:
    """The only test that waits for time to pass: a tenth of it."""
    env = weakened.environment("is_impatient")
    with serving(tmp_path, env=env, program=weakened.PROGRAM) as service, ExitStack() as stack:
        cut, served, silent = (
            [stack.enter_context(dial(service)) for _ in sizes]
            for sizes in ((1, 30, 100), (0,), (0,))
        )
        served[0].send(request("GET", "/test"))
        assert served[0].response().body == b"OK"
        for wire, size in zip(cut, (1, 30, 100), strict=True):
            wire.send(create("Cut")[:size])
        for wire in cut:
            assert_error(wire.response(), 408)
        for wire in (*cut, *silent):
            wire.assert_closed()
        served[0].send(request("GET", "/test"))
        assert served[0].response().body == b"OK"
