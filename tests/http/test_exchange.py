"""Bugs and oddities behind a connection: a client never takes half a response for a whole one.
Real connections."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import pytest
from uvicorn.server import ServerState

from storekeeper.api.plan import RequestPlan
from storekeeper.http import deadlines
from storekeeper.http import request as heads
from storekeeper.http.arrivals import Arrivals
from storekeeper.http.cache import ResponseCache
from storekeeper.http.connection import Connection
from storekeeper.http.limits import Limits
from storekeeper.http.plain import PlainReader
from storekeeper.http.request import BodyLimit, Request
from storekeeper.http.response import (
    MAX_BODY_BYTES,
    TEXT,
    Deferred,
    Fields,
    Response,
    StreamAborted,
)
from storekeeper.http.runtime import Observer, Runtime, Served
from tests.harness.client import locked
from tests.harness.garbage import no_garbage
from tests.harness.in_process import (
    Careful,
    Line,
    inside,
    last_response,
    receive,
    settled,
    some_stores,
    statuses,
    tick,
    until,
)
from tests.harness.wire import SLOW, assert_error, assert_invalid, chunked, create, request
from tests.harness.wire import responses as responses_in

BUG = "An internal server error occurred"


class Odd:
    """An application that does what the path says."""

    def __init__(self) -> None:
        self.stopped = 0

    def respond(self, request: Request) -> Response | Deferred:
        """Respond as the path says; only plain requests have a route."""
        if request.head is not None:
            request.plan = RequestPlan(self.respond, cacheable=True, route=request.target.decode())
        match request.target:
            case b"/parts":
                return Response(b"", TEXT, stream=self._parts(b"one, ", b"", b"two"))
            case b"/bug":
                return Response(b"", TEXT, stream=self._parts(b"half", RuntimeError("a bug")))
            case b"/bug-at-once":
                return Response(b"", TEXT, stream=self._parts(RuntimeError("a bug")))
            case b"/unavailable":
                return Response(b"", TEXT, stream=self._parts(b"half", StreamAborted()))
            case b"/endless":
                stop = asyncio.Event()
                return Response(b"", TEXT, stream=self._wait(stop), stop=stop.set)
            case b"/later":
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_soon(future.set_result, None)
                return Deferred(future, lambda _: Response(b"later", TEXT))
            case b"/no-encoding":
                return Response(b"", ((b"x", 1),))  # type: ignore[arg-type]  # a bug
        return Response(request.body or b"OK", TEXT, cacheable=True)

    async def _parts(self, *parts: bytes | Exception) -> AsyncGenerator[bytes, None]:
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part

    async def _wait(self, stop: asyncio.Event) -> AsyncGenerator[bytes, None]:
        try:
            yield b"begun"
            await stop.wait()
            yield b"ended"
        finally:
            self.stopped += 1

    def complete(self, deferred: Deferred) -> Response:
        return deferred.render(deferred.future.result())

    def early_refusal(self, _request: Request) -> Response | None:
        return None

    def fields(self, _headers: Fields) -> bytes:
        return b""

    def body_limit(self, target: bytes) -> BodyLimit:
        return BodyLimit(2 * MAX_BODY_BYTES, 60.0) if target == b"/large" else BodyLimit()


def runtime_of(application: Odd, observe: Observer = lambda _: None) -> Runtime:
    arrivals = Arrivals(lambda _: inf, lambda: None)
    cache = ResponseCache(lambda: 1)
    return Runtime(application, arrivals, PlainReader(), cache, Limits(), observe)


def connection_of(runtime: Runtime) -> Connection:
    state = ServerState()
    state.default_headers = [(b"date", b"Sat, 21 Nov 2026 12:00:00 GMT")]
    return Connection(runtime, state, asyncio.get_running_loop())


class Connected:
    """A connection to the odd application, and what its observer was told."""

    def __init__(self) -> None:
        self.odd = Odd()
        self.told: list[tuple[str | None, str, int]] = []
        self.sizes: list[int] = []
        self.connection = connection_of(runtime_of(self.odd, self._observe))
        self.line = Line()
        self.line.protocol = self.connection
        self.connection.connection_made(self.line)

    @property
    def connected(self) -> bool:
        return bool(self.connection.server_state.connections)

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        return self.connection.server_state.tasks

    def _observe(self, served: Served) -> None:
        assert 0 <= served.seconds < 60
        self.told.append((served.route, served.method, served.status))
        self.sizes.append(served.size)

    async def ask(self, *data: bytes) -> None:
        for each in data:
            self.connection.data_received(each)
            await settled(self.connection)


# One observer of all responses.


ENDS: dict[str, tuple[list[bytes], list[tuple[str | None, str, int]]]] = {
    "whole": ([request("GET", "/a")], [("/a", "GET", 200)]),
    "cached": ([request("GET", "/a")] * 3, [("/a", "GET", 200)] * 3),
    "HEAD": (
        [request("HEAD", "/a"), request("HEAD", "/parts")],
        [("/a", "HEAD", 200), ("/parts", "HEAD", 200)],
    ),
    "stream": ([request("GET", "/parts")] * 2, [("/parts", "GET", 200)] * 2),
    "later": ([request("GET", "/later")], [("/later", "GET", 200)]),
    "pipelined": (
        [request("GET", "/later") + request("PUT", "/parts", b"x")],
        [(None, "GET", 200), (None, "PUT", 200)],
    ),
    "broken off by a bug": ([request("GET", "/bug")], [("/bug", "GET", 200)]),
    "broken off by the database": (
        [request("GET", "/unavailable")],
        [("/unavailable", "GET", 200)],
    ),
    "not encoded": ([request("GET", "/no-encoding")], [("/no-encoding", "GET", 0)]),
    "no HTTP": ([b"no HTTP\r\n\r\n"], [(None, "", 400)]),
    "too long a target": ([request("GET", "/" + "x" * 9000)], [(None, "", 414)]),
    "too large a head": (
        [request("HEAD", "/a", None, "A: " + "b" * 17_000)],
        [(None, "HEAD", 431)],
    ),
    "too large a body": ([request("PUT", "/a", b"x" * (MAX_BODY_BYTES + 1))], [(None, "PUT", 413)]),
    "refused behind another": (
        [request("GET", "/later") + b"no HTTP\r\n\r\n"],
        [(None, "GET", 200), (None, "", 400)],
    ),
    "closed": ([request("GET", "/a", None, "Connection: close")], [(None, "GET", 200)]),
}


@pytest.mark.parametrize("end", ENDS)
async def test_the_observer_is_called_once_for_each_response(end: str) -> None:
    """Of a refused request it learns what was read of it."""
    data, expected = ENDS[end]
    connected = Connected()
    await connected.ask(*data)
    assert connected.told == expected
    assert sum(connected.sizes) == len(connected.line.sent)
    assert connected.connection.responses_sent == len(expected)
    connected.line.abort()
    await until(lambda: not connected.connected)
    assert connected.told == expected


@pytest.mark.parametrize("target", ["/later", "/endless"])
async def test_the_observer_is_called_once_if_the_client_leaves(target: str) -> None:
    connected = Connected() if target == "/later" else await listening()
    connected.connection.data_received(request("GET", target))
    await asyncio.sleep(0)  # it is handled, and "/later" waits
    connected.line.abort()
    await until(lambda: not connected.connected and not connected.tasks)
    begun = target == "/endless"
    assert connected.told == [(target, "GET", 200 if begun else 0)]
    assert connected.odd.stopped == begun


@pytest.mark.parametrize("kind", [Connection, Careful])
async def test_the_observer_learns_who_asked_and_the_response_has_the_id_of_its_request(
    tmp_path: Path, kind: type[Connection]
) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    longest = "a" * 128
    cases = {
        "x-request-id: a-1._B": "a-1._B",
        "X-REQUEST-ID:\t7 ": "7",
        f"X-Request-Id: {longest}": longest,
        f"X-Request-Id: {longest}a": "",
        "X-Request-Id: a b": "",
        "X-Request-Id: a,b": "",
        "X-Request-Id:": "",
        "A-X-Request-Id: a": "",
        f"traceparent: 00-{trace}-00f067aa0ba902b7-01": trace,
        f"traceparent: 00-{trace.upper()}-00f067aa0ba902b7-01": "",
        f"traceparent: {trace}": "",
    }
    told: list[tuple[Any, ...]] = []
    async with inside(tmp_path) as service:
        connect = partial(
            service.connect, kind, observe=lambda of: told.append((of.client, of.request_id))
        )
        connection, line = connect()
        for fields, id in cases.items():
            for _ in range(2):
                connection.data_received(request("GET", "/test", None, fields))
                await settled(connection)
                assert last_response(line).headers.get("x-request-id", "") == id, fields
                assert told.pop() == (("127.0.0.1", 40_000), id.encode())
        bad = request("POST", "/api/stores", b"{", "x-request-id: bad")
        for wrong in (b"Content-Length: 1", b"Content-Length: 9999999", b"Content Length: 1"):
            connection, line = connect()
            connection.data_received(bad.replace(b"Content-Length: 1", wrong))
            await settled(connection)
            assert last_response(line).headers["x-request-id"] == "bad"
            assert told.pop()[1] == b"bad"


# Streams.


async def test_a_response_in_parts_is_chunked_or_to_an_old_client_ends_with_the_connection() -> (
    None
):
    connected = Connected()
    await connected.ask(request("GET", "/parts") + request("HEAD", "/parts") + request("GET", "/a"))
    parts, head, after = responses_in(connected.line.sent, "GET", "HEAD", "GET")
    assert (parts.body, head.body, after.body) == (b"one, two", b"", b"OK")
    assert parts.headers == head.headers
    connected = Connected()
    connected.connection.data_received(b"GET /parts HTTP/1.0\r\n\r\n")
    await until(connected.line.is_closing)
    assert connected.line.sent.endswith(b"connection: close\r\n\r\none, two")


@pytest.mark.parametrize("path", ["/bug", "/bug-at-once", "/unavailable", "/no-encoding"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_response_that_cannot_be_completed_breaks_the_connection(
    path: str, version: str
) -> None:
    connected = Connected()
    data = request("GET", path) + request("GET", "/parts")
    connected.connection.data_received(data.replace(b"HTTP/1.1", b"HTTP/" + version.encode()))
    await until(connected.line.is_closing)
    assert connected.line.aborted
    assert connected.line.sent.count(b"HTTP/1.1") <= 1
    assert not connected.line.sent.endswith(b"0\r\n\r\n")


async def listening() -> Connected:
    """Return a connection on which an endless stream has begun."""
    connected = Connected()
    connected.connection.data_received(request("GET", "/endless"))
    await until(lambda: b"begun" in connected.line.sent)
    return connected


async def test_an_endless_stream_ends_when_the_service_drains() -> None:
    """And the connection closes behind it."""
    connected = await listening()
    await asyncio.sleep(0.01)
    assert b"ended" not in connected.line.sent
    connected.connection.shutdown()
    await until(connected.line.is_closing)
    [response] = responses_in(connected.line.sent, "GET")
    assert response.body == b"begunended"
    assert not connected.line.aborted
    assert connected.odd.stopped == 1
    assert connected.told == [("/endless", "GET", 200)]


async def test_an_endless_stream_whose_client_reads_nothing_is_cut_when_the_service_drains() -> (
    None
):
    connected = await listening()
    connected.connection.pause_writing()
    connected.connection.shutdown()
    assert connected.line.aborted
    await until(lambda: not connected.tasks)
    assert connected.told == [("/endless", "GET", 200)]


async def test_no_endless_stream_begins_while_the_service_drains() -> None:
    connected = Connected()
    connected.connection.shutdown()
    connected.connection.data_received(request("GET", "/endless"))
    await until(connected.line.is_closing)
    [response] = responses_in(connected.line.sent, "GET")
    assert_error(response, 503, "The service is shutting down", outcome="none")
    assert connected.odd.stopped == 0


async def test_a_route_may_have_a_limit_and_a_timeout_of_its_own_for_a_body() -> None:
    connected = Connected()
    large = b"x" * (MAX_BODY_BYTES + 1)
    await connected.ask(request("PUT", "/large", large))
    assert statuses(connected.line) == [200]
    head = request("PUT", "/large", large)[:-1]
    connected.connection.data_received(head)
    await until(lambda: not connected.connection.unread)
    connected.connection.sweep(connected.connection.loop.time() + 50)
    assert statuses(connected.line) == [200]
    connected.connection.sweep(connected.connection.loop.time() + 70)
    assert statuses(connected.line) == [200, 408]
    assert b"not whole within 60 seconds" in connected.line.sent


# Bugs.


def raises(*_: object) -> None:
    raise RuntimeError("a bug")


async def test_a_bug_in_a_route_is_a_500_and_the_connection_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside(tmp_path) as service:

        def fails(*_: object) -> asyncio.Future[None]:
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.set_exception, RuntimeError("a bug"))
            return future

        monkeypatch.setattr(service.collection, "get", raises)
        monkeypatch.setattr(service.collection, "write", fails)
        connection, line = service.connect()
        connection.data_received(
            request("GET", "/api/stores/1") + create("A") + request("GET", "/test")
        )
        await settled(connection)
        now, later, test = responses_in(line.sent, "GET", "POST", "GET")
        assert_error(now, 500, BUG)
        assert_error(later, 500, BUG)
        assert test.body == b"OK"


async def test_a_bug_in_the_reading_of_a_request_is_a_500_and_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside(tmp_path) as service:
        monkeypatch.setattr(heads, "check", raises)
        monkeypatch.setattr(PlainReader, "read", raises)
        connection, line = service.connect()
        connection.data_received(request("GET", "/test"))
        await tick()
        [response] = responses_in(line.sent, "GET")
        assert_error(response, 500, BUG)
        assert line.ended


async def test_what_waits_for_a_client_that_is_gone_is_not_sent(tmp_path: Path) -> None:
    """Responses and refusals that become due between its leaving and the news of it."""
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        connection.data_received(create("Last") + request("GET", SLOW) + b"garbage\r\n\r\n")
        await asyncio.sleep(0)
        line._closing = (
            True  # as uvloop's transport says it, a turn or more before `connection_lost`
        )
        await until(lambda: connection.exchange is None)
        assert line.sent == b""
        assert not line.ended
        line.abort()
        await until(lambda: not service.server_state.connections)
        connection, line = service.connect()
        connection.data_received(
            request("GET", "/api/stores?name=Last") + request("POST", "/api/stores", b"{}")
        )
        await settled(connection)
        found, refused = responses_in(line.sent, "GET", "POST")
        assert len(found.json) == 1
        assert_invalid(refused, '"name" is required', ["name"])


# What waits is counted, and goes out in its order.


async def test_a_refusal_does_not_cut_off_the_response_before_it(tmp_path: Path) -> None:
    """It is sent, and its time begins, once the client has read what was before."""
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        body = b'{"name":"Long","address":"%b"}' % (b"x" * 200_000)
        connection.data_received(request("POST", "/api/stores", body))
        await settled(connection)
        line.stuck = True
        connection.data_received(request("GET", "/api/stores/1"))
        await until(lambda: connection.flow.write_paused)
        connection.data_received(b"garbage\r\n\r\n")
        await asyncio.sleep(0.01)
        assert not line.ended

        def all_was_read() -> bool:
            line.client_reads(line.unread)
            return line.ended

        await until(all_was_read)
        *_, long, refused = responses_in(line.sent, "POST", "GET", "GET")
        assert len(long.json["address"]) == 200_000
        assert_error(refused, 400)
        assert line.ended


async def test_a_client_that_sends_much_lets_the_others_go_on_in_between(tmp_path: Path) -> None:
    """A read may hold thousands of requests, and a transport brings several of them in one loop
    iteration."""
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        receive(connection, b"\r\n" * 5000 + request("GET", "/test") * 5000)
        assert not line.reading
        assert line.sent.count(b"HTTP/1.1 200") < 2000
        await settled(connection)
        assert line.reading
        assert line.sent.count(b"HTTP/1.1 200") == 5000
        assert service.service.runtime.limits.receive_budget.size == 0

        connection.data_received(request("GET", "/test") * 5000)
        connection.connection_lost(None)
        assert service.service.runtime.limits.receive_budget.size == 0


@pytest.mark.parametrize("first", [b"", create("First")], ids=["reads", "reads behind a write"])
async def test_pipelined_requests_that_take_long_let_the_others_go_on_in_between(
    tmp_path: Path, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storekeeper.http.connection.MAX_PIPELINE_TIME", 0.0)
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        connection.data_received(first + request("HEAD", "/test") * 5 + request("GET", "/test"))
        seen = set()
        for _ in count():
            seen.add(line.sent.count(b"HTTP/1.1 200"))
            if not (connection.unread or connection.exchange):
                break
            await asyncio.sleep(0)
        assert len(seen) > 5
        assert line.sent.count(b"HTTP/1.1 200") == 6 + bool(first)
        assert line.sent.endswith(b"OK")


async def test_a_body_that_comes_in_many_bytes_may_take_all_that_a_body_may(tmp_path: Path) -> None:
    """With its head it costs more than a body may, and no other request would have the rest of it
    read."""
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        whole = chunked(b'{"name":"Large"' + b" " * (MAX_BODY_BYTES - 120), b" " * 100, b"}")
        connection.data_received(whole[:-20])
        await settled(connection)
        assert line.reading
        connection.data_received(whole[-20:])
        await settled(connection)
        assert statuses(line) == [200]
        assert service.service.runtime.limits.receive_budget.size == 0


async def test_bytes_behind_a_response_are_bounded_over_all_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait for longest are refused behind their response; others have the room."""
    monkeypatch.setattr("storekeeper.http.limits.MAX_RECEIVED_BYTES", 2**17)
    async with inside(tmp_path) as service:
        budget = service.service.runtime.limits.receive_budget
        many = request("HEAD", "/test") * 600
        with locked(tmp_path):
            made = [service.connect() for _ in range(5)]
            for connection, line in made:
                receive(connection, create("First"))
                receive(connection, many)
                assert not line.reading
                assert budget.size < 2**17 + 4096
            for connection, _ in made:
                await settled(connection)
        assert budget.size == 0
        refused = budget.refused
        assert 0 < refused < 5
        assert [line.ended for _, line in made] == [True] * refused + [False] * (5 - refused)
        for _, line in made[:refused]:
            first, last = responses_in(line.sent, "POST", "HEAD")
            assert first.status == 503
            assert (last.status, last.headers["connection"]) == (503, "close")
        for _, line in made[refused:]:
            assert statuses(line) == [503] + [200] * 600


# What is not whole yet, and what is not needed any more.


async def test_an_idle_connection_keeps_nothing_of_what_it_was_asked(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        connection, _ = service.connect()
        large = b"GET /test HTTP/1.1\r\nHost: a\r\n" + b"x: %b\r\n" % (b"x" * 150) * 90 + b"\r\n"
        for data in (
            large,
            large + large,
            create("A") + large,
            create("A"),
            large[:100],
            large[100:],
        ):
            connection.data_received(data)
            await settled(connection)
        reader = connection.reader
        assert not any((reader._headers, reader._url, reader._line, reader._body, reader._request))


LEFT = {
    "idle": request("GET", "/test"),
    "in a head": b"GET /te",
    "in a body": create("Half")[:-5],
    "before its response": create("Whole"),
    "behind another": create("Whole") * 2,
    "in a list": request("GET", "/api/stores"),
    "as it is refused": b"garbage\r\n\r\n",
}


@pytest.mark.parametrize("data", LEFT.values(), ids=LEFT)
async def test_nothing_of_a_connection_that_is_gone_is_left_to_the_garbage_collector(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would come after millions of connections only: those that lived long take 8 KiB each
    until then."""
    monkeypatch.setattr(deadlines, "DISCARD_TIMEOUT", 0.01)
    some_stores(tmp_path, 3000)
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        connection.data_received(data)
        line.abort()
        await until(lambda: not service.server_state.connections)
        gone = weakref.ref(connection)
        del connection, line.protocol  # as a real transport lets go of it
        gc.disable()
        try:
            async with asyncio.timeout(5):
                await until(lambda: gone() is None)
        finally:
            gc.enable()


ASKED = {
    200: create("Some"),
    304: request("GET", "/api/stores", None, "If-None-Match: *"),
    400: request("POST", "/api/stores", b"{}"),
    404: request("PUT", "/api/stores/99", b'{"name": "None"}'),
    412: request("POST", "/api/stores", b'{"name": "Other"}', 'If-Match: "other"'),
    422: request("POST", "/api/stores", b'{"name": "Other"}', "Idempotency-Key: used"),
}


@pytest.mark.parametrize("status", ASKED)
async def test_nothing_of_a_request_is_left_to_the_garbage_collector(
    status: int, tmp_path: Path
) -> None:
    """Its body may have a mebibyte, and its tags a hundred times their bytes."""
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        for data in (
            request("POST", "/api/stores", b'{"name": "A"}', "Idempotency-Key: used"),
            ASKED[status],
        ):
            connection.data_received(data)
            await settled(connection)
        with no_garbage():
            for _ in range(3):
                connection.data_received(ASKED[status])
                await settled(connection)
        assert statuses(line) == [200, *[status] * 4]


async def test_a_refused_client_that_leaves_at_once_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over a socket of uvloop, which is asked for what its client acknowledged when it is closed
    already."""
    monkeypatch.setattr(deadlines, "DISCARD_TIMEOUT", 0.05)
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: errors.append(context))
    runtime = runtime_of(Odd())
    server = await loop.create_server(partial(connection_of, runtime), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"no HTTP\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    await until(lambda: not runtime.limits.connections.open)
    await asyncio.sleep(0.1)
    server.close()
    assert not errors
