"""Bugs and oddities behind a connection: a client never takes half a response for a whole one. Real connections."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from storekeeper.api.fastlane import FastLane
from storekeeper.api.gate import Gate
from storekeeper.api.origins import WebPages
from storekeeper.api.plan import Plan
from storekeeper.api.resource import Resource
from storekeeper.errors import Unavailable
from storekeeper.http import deadlines
from storekeeper.http import request as heads
from storekeeper.http.connection import Connection
from storekeeper.http.limits import Limits
from storekeeper.http.plain import PlainReader
from storekeeper.http.response import MAX_BODY_BYTES, StreamAborted
from storekeeper.settings import Settings
from tests.harness.garbage import no_garbage
from tests.harness.in_memory import InMemory
from tests.harness.in_process import Line, cached, inside, settled, some_stores, statuses, until
from tests.harness.wire import SLOW, assert_error, assert_invalid, chunked, create, request
from tests.harness.wire import responses as responses_in

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

OPEN = Gate(Resource(InMemory(), Settings()), WebPages())  # type: ignore[arg-type]  # refusals ask no collection
BUG = "An internal server error occurred"
JSON = (b"content-type", b"application/json; charset=utf-8")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def connected(app: Any) -> tuple[Connection, Line]:
    """Return a connection to any ASGI application."""
    config = uvicorn.Config(app, interface="asgi3", log_config=None, access_log=False, ws="none", proxy_headers=False)
    config.load()
    state = ServerState()
    state.default_headers = [(b"date", b"Sat, 21 Nov 2026 12:00:00 GMT")]
    connection = Connection(Limits(), OPEN, config, state, {}, asyncio.get_running_loop())
    line = Line()
    line.protocol = connection
    connection.connection_made(line)
    return connection, line


async def sends(send: Send, status: int, *parts: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [JSON, *headers]})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body"})


async def odd(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """An application that does what its path says."""
    match scope["path"]:
        case "/parts":
            await sends(send, 200, b"one, ", b"", b"two")
        case "/closes":
            await sends(send, 200, b"bye", headers=((b"connection", b"close"),))
        case "/keeps":
            await sends(send, 200, b"on", headers=((b"connection", b"keep-alive"),))
        case "/short":
            await sends(send, 200, b"half", headers=((b"content-length", b"8"),))
        case "/long":
            await sends(send, 200, b"twice as much", headers=((b"content-length", b"4"),))
        case "/raises-late":
            await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
            raise RuntimeError("a bug")
        case "/unavailable-late":
            await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
            raise StreamAborted
        case "/raises":
            raise RuntimeError("a bug")
        case "/waits":
            await receive()
            assert [*await asyncio.gather(receive(), receive())] == [{"type": "http.disconnect"}] * 2
            assert await receive() == {"type": "http.disconnect"}
            await sends(send, 200, b"to nobody")


REFUSED = {
    b"no HTTP\r\n\r\n": ("", "", 400),
    request("GET", "/" + "x" * 9000): ("", "", 414),
    request("GET", "/test", None, "A: " + "b" * 17_000): ("GET", "/test", 431),
    request("HEAD", "/test", None, "A: " + "b" * 17_000): ("HEAD", "/test", 431),
    request("PUT", "/api/stores/1", b"x" * (MAX_BODY_BYTES + 1)): ("PUT", "/api/stores/1", 413),
    request("GET", "/test", None, "Host: another"): ("GET", "/test", 400),
}


@pytest.mark.parametrize("adapter", ["--fast-lane", "--no-fast-lane"])
def test_each_response_passes_one_place_with_its_request(
    adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There counting and logging hang. Of a refused one it is what was read of it."""
    passed: list[tuple[str, str, int]] = []
    sizes: list[int] = []
    sent = Connection.sent

    def counted(connection: Connection, request: Any, status: int, size: int, *rest: Any) -> None:
        passed.append((request.method, request.target.decode(), status))
        sizes.append(size)
        sent(connection, request, status, size, *rest)

    monkeypatch.setattr(Connection, "sent", counted)
    some_stores(tmp_path, 2500)
    asked = [
        *[("GET", "/api/stores/1", None, 200)] * 3,  # the last one from the cache
        ("GET", "/api/stores", None, 200),  # in parts
        ("HEAD", "/api/stores", None, 200),
        ("POST", "/api/stores", b'{"name":"New"}', 200),
        ("POST", "/api/stores", b"{", 400),
        ("GET", "/health/live", None, 200),
        ("GET", "/nowhere", None, 404),
    ]

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect(adapter)
            for method, target, body, _ in asked:
                connection.data_received(request(method, target, body))
                await settled(connection)
            assert passed == [(method, target, status) for method, target, _, status in asked]
            assert sum(sizes) == len(line.sent)
            passed.clear()
            for number, data in enumerate(REFUSED):
                connection, line = service.connect(adapter)
                connection.data_received(request("GET", SLOW) * (number % 2) + data)
                await settled(connection)
            assert [each for each in passed if each != ("GET", SLOW, 200)] == list(REFUSED.values())

    run(scenario())


def test_a_response_in_parts_is_chunked_or_to_an_old_client_ends_with_the_connection() -> None:
    async def scenario() -> None:
        connection, line = connected(odd)
        connection.data_received(request("GET", "/parts") + request("HEAD", "/parts") + request("GET", "/keeps"))
        await settled(connection)
        parts, head, keeps = responses_in(line.sent, "GET", "HEAD", "GET")
        assert (parts.body, head.body, keeps.body) == (b"one, two", b"", b"on")
        assert parts.headers == head.headers
        assert "connection" not in keeps.headers
        connection, line = connected(odd)
        connection.data_received(b"GET /parts HTTP/1.0\r\n\r\n")
        await until(line.is_closing)
        assert line.sent.endswith(b"connection: close\r\n\r\none, two")

    run(scenario())


def test_an_application_may_close_the_connection() -> None:
    async def scenario() -> None:
        connection, line = connected(odd)
        connection.data_received(request("GET", "/closes") + request("GET", "/parts"))
        await until(line.is_closing)
        [response] = responses_in(line.sent, "GET")
        assert response.headers["connection"] == "close"
        assert not line.aborted

    run(scenario())


@pytest.mark.parametrize("path", ["/short", "/long", "/raises-late", "/unavailable-late"])
def test_a_response_that_cannot_be_completed_breaks_the_connection(path: str) -> None:
    async def scenario() -> None:
        connection, line = connected(odd)
        connection.data_received(request("GET", path) + request("GET", "/parts"))
        await until(line.is_closing)
        assert line.aborted
        assert line.sent.count(b"HTTP/1.1") <= 1
        assert not line.sent.endswith(b"0\r\n\r\n")

    run(scenario())


@pytest.mark.parametrize("path", ["/raises", "/nothing"])
def test_a_bug_before_the_response_is_a_500_and_the_connection_goes_on(path: str) -> None:
    async def scenario() -> None:
        connection, line = connected(odd)
        connection.data_received(request("GET", path) + request("HEAD", path) + request("GET", "/parts"))
        await settled(connection)
        first, head, last = responses_in(line.sent, "GET", "HEAD", "GET")
        assert_error(first, 500, BUG)
        assert (head.status, head.headers) == (first.status, first.headers)
        assert last.body == b"one, two"

    run(scenario())


def test_an_application_learns_that_its_client_is_gone() -> None:
    async def scenario() -> None:
        connection, line = connected(odd)
        connection.data_received(request("GET", "/waits"))
        await asyncio.sleep(0)
        line.abort()
        await until(lambda: not connection.tasks)
        assert line.sent == b""

    run(scenario())


# The fast lane's own last resort.


def test_a_bug_in_the_fast_lane_is_a_500_and_the_connection_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inside(tmp_path) as service:
            collection = service.service.runtime.resource._collection

            def raises(*_: object) -> None:
                raise RuntimeError("a bug")

            def fails(*_: object) -> asyncio.Future[None]:
                future = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_soon(future.set_exception, RuntimeError("a bug"))
                return future

            monkeypatch.setattr(collection, "get", raises)
            monkeypatch.setattr(collection, "write", fails)
            connection, line = service.connect()
            connection.data_received(request("GET", "/api/stores/1") + create("A") + request("GET", "/test"))
            await settled(connection)
            now, later, test = responses_in(line.sent, "GET", "POST", "GET")
            assert_error(now, 500, BUG)
            assert_error(later, 500, BUG)
            assert test.body == b"OK"

    run(scenario())


def test_a_bug_in_the_reading_of_a_request_is_a_500_and_the_end(
    adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with inside(tmp_path) as service:

            def raises(*_: object) -> None:
                raise RuntimeError("a bug")

            monkeypatch.setattr(heads, "check", raises)
            monkeypatch.setattr(PlainReader, "read", raises)
            connection, line = service.connect(adapter)
            connection.data_received(request("GET", "/test"))
            [response] = responses_in(line.sent, "GET")
            assert_error(response, 500, BUG)
            assert line.ended

    run(scenario())


def test_a_collection_that_cannot_be_asked_for_changes_is_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept while nobody can say whether it still holds."""

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect()
            assert isinstance(connection, FastLane)

            def unavailable() -> int:
                raise Unavailable("The database is locked")

            monkeypatch.setattr(connection.cache, "_change_token", unavailable)
            for _ in range(3):
                connection.data_received(request("GET", "/api/stores"))
                await settled(connection)
            assert [response.body for response in responses_in(line.sent, "GET", "GET", "GET")] == [b"[]"] * 3
            assert cached(connection)[1] == 0

    run(scenario())


def test_cached_heads_and_responses_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storekeeper.http.plain.MAX_CACHED_BYTES", 10_000)
    monkeypatch.setattr("storekeeper.api.cache.MAX_CACHED_BYTES", 2000)

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect()
            assert isinstance(connection, FastLane)
            for number in range(100):
                connection.data_received(request("GET", f"/api/stores?name={number // 2}"))
                await settled(connection)
                assert number // 2 <= 20 or all(1 <= count <= 20 for count in cached(connection))
            assert len(responses_in(line.sent, *["GET"] * 100)) == 100

    run(scenario())


def test_what_waits_for_a_client_that_is_gone_is_not_sent(adapter: str, tmp_path: Path) -> None:
    """Responses and refusals that become due between its leaving and the news of it."""

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect(adapter)
            connection.data_received(create("Last") + request("GET", SLOW) + b"garbage\r\n\r\n")
            line._closing = True  # as uvloop's transport says it, a turn or more before `connection_lost`
            await settled(connection)
            assert line.sent == b""
            assert not line.ended
            line.abort()
            await until(lambda: not service.server_state.connections)
            connection, line = service.connect(adapter)
            connection.data_received(request("GET", "/api/stores?name=Last") + request("POST", "/api/stores", b"{}"))
            await settled(connection)
            found, refused = responses_in(line.sent, "GET", "POST")
            assert len(found.json) == 1
            assert_invalid(refused, '"name" is required', ["name"])

    run(scenario())


# What waits is counted, and goes out in its order.


def test_a_refusal_does_not_cut_off_the_response_before_it(adapter: str, tmp_path: Path) -> None:
    """It is sent, and its time begins, once the client has read what was before."""

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect(adapter)
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

    run(scenario())


@pytest.mark.parametrize("target", ["/api/stores", "/health/live", "/nowhere"])
def test_large_bodies_are_counted_while_they_are_there_and_no_longer(
    adapter: str, tmp_path: Path, target: str
) -> None:
    """Those behind a head that is known by now too, which are not counted at all: one read holds them."""

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, _ = service.connect(adapter)
            budget = service.service.runtime.limits.receive_budget
            for size in (60_000, 60_000, 5_000, 100_000, 60_000):
                data = request("POST", target, b"x" * size)
                connection.data_received(data)
                connection.data_received(data)
                assert budget.size >= 0
                await settled(connection)
                assert budget.size == 0

    run(scenario())


def test_a_client_that_sends_much_lets_the_others_go_on_in_between(adapter: str, tmp_path: Path) -> None:
    """A read may hold thousands of requests, and a transport brings several of them in one loop iteration."""

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect(adapter)
            connection.data_received(b"\r\n" * 5000 + request("GET", "/test") * 5000)
            assert not line.reading
            assert line.sent.count(b"HTTP/1.1 200") + len(connection.waiting) < 1000
            await settled(connection)
            assert line.reading
            assert line.sent.count(b"HTTP/1.1 200") == 5000
            assert service.service.runtime.limits.receive_budget.size == 0

            connection.data_received(request("GET", "/test") * 5000)
            connection.connection_lost(None)
            assert service.service.runtime.limits.receive_budget.size == 0

    run(scenario())


@pytest.mark.parametrize("first", [b"", create("First")], ids=["reads", "reads behind a write"])
def test_pipelined_requests_that_take_long_let_the_others_go_on_in_between(
    tmp_path: Path, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("storekeeper.http.connection.MAX_PIPELINE_TIME", 0.0)
        async with inside(tmp_path) as service:
            connection, line = service.connect("fast lane")
            connection.data_received(first + request("HEAD", "/test") * 5 + request("GET", "/test"))
            seen = set()
            for _ in count():
                seen.add(line.sent.count(b"HTTP/1.1 200"))
                if not (connection.waiting or connection.exchange):
                    break
                await asyncio.sleep(0)
            assert len(seen) > 5
            assert line.sent.count(b"HTTP/1.1 200") == 6 + bool(first)
            assert line.sent.endswith(b"OK")

    run(scenario())


def test_a_body_that_comes_in_many_bytes_may_take_all_that_a_body_may(adapter: str, tmp_path: Path) -> None:
    """With its head it costs more than a body may, and nobody else would have the rest of it read."""

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect(adapter)
            whole = chunked(b'{"name":"Large"' + b" " * (MAX_BODY_BYTES - 120), b" " * 100, b"}")
            connection.data_received(whole[:-20])
            await settled(connection)
            assert line.reading
            connection.data_received(whole[-20:])
            await settled(connection)
            assert statuses(line) == [200]
            assert service.service.runtime.limits.receive_budget.size == 0

    run(scenario())


def test_requests_that_wait_are_bounded_over_all_connections(
    adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read may hold thousands of them. The excess is refused behind what waits; then others have the room."""

    async def scenario() -> None:
        monkeypatch.setattr("storekeeper.http.limits.MAX_RECEIVED_BYTES", 2**18)
        async with inside(tmp_path) as service:
            budget = service.service.runtime.limits.receive_budget
            many = request("GET", "/test") * 350
            lines = []
            for _ in range(5):
                connection, line = service.connect(adapter)
                connection.data_received(create("First"))
                connection.data_received(many)
                lines.append((connection, line))
                assert budget.size < 2**18 + 5 * 4096
            for connection, _ in lines:
                await settled(connection)
            assert [line.ended for _, line in lines] == [False, True, True, True, True]
            assert budget.size == 0
            for _, line in lines:
                found = responses_in(line.sent, "POST", *["GET"] * line.sent.count(b"HTTP/1.1 ", 1))
                assert found[0].status == 200
                assert {response.body for response in found[1:-1]} <= {b"OK"}
                if line.ended:
                    assert_error(found[-1], 503, "Too many requests are waiting", outcome="none")
                else:
                    assert len(found) == 351

    run(scenario())


# What is not whole yet, and what is not needed any more.


@pytest.mark.parametrize(
    "begin",
    [
        b"POST /api/stores HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: ",
        b"POST /api/stores HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
    ],
)
def test_a_trailer_or_an_extension_of_a_chunk_that_does_not_end_is_refused_soon(
    adapter: str, tmp_path: Path, begin: bytes
) -> None:
    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect(adapter)
            connection.data_received(begin)
            for _ in range(20):
                connection.data_received(b"x" * 1000)
            [response] = responses_in(line.sent, "POST")
            assert_error(response, 431)

    run(scenario())


def test_large_heads_that_are_not_whole_are_bounded_over_all_connections(
    adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("storekeeper.http.limits.MAX_RECEIVED_BYTES", 2**20)
        async with inside(tmp_path) as service:
            budget = service.service.runtime.limits.receive_budget
            lines = []
            for _ in range(60):
                connection, line = service.connect(adapter)
                connection.data_received(b"GET /test HTTP/1.1\r\nHost: a\r\nx: " + b"x" * 14_000)
                lines.append((connection, line))
            refused = [line for _, line in lines if line.sent]
            assert 30 <= len(refused) <= 40
            for line in refused:
                assert_error(responses_in(line.sent, "GET")[0], 503, "Too many large requests", outcome="none")
            for connection, line in lines:
                if not line.sent:
                    connection.data_received(b"\r\n\r\n")
                    await settled(connection)
                    assert responses_in(line.sent, "GET")[0].body == b"OK"
            assert budget.size == 0

    run(scenario())


def test_an_idle_connection_keeps_nothing_of_what_it_was_asked(adapter: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, _ = service.connect(adapter)
            large = b"GET /test HTTP/1.1\r\nHost: a\r\n" + b"x: %b\r\n" % (b"x" * 150) * 90 + b"\r\n"
            for data in (large, large + large, create("A") + large, create("A"), large[:100], large[100:]):
                connection.data_received(data)
                await settled(connection)
            reader = connection.reader
            assert not any((reader._headers, reader._url, reader._line, reader._body, reader._request))

    run(scenario())


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
def test_nothing_of_a_connection_that_is_gone_is_left_to_the_garbage_collector(
    adapter: str, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would come after millions of connections only: those that lived long take 8 KiB each until then."""
    monkeypatch.setattr(deadlines, "DISCARD_TIMEOUT", 0.01)
    some_stores(tmp_path, 3000)

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect(adapter)
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

    run(scenario())


ASKED = {
    200: create("Some"),
    304: request("GET", "/api/stores", None, "If-None-Match: *"),
    400: request("POST", "/api/stores", b"{}"),
    404: request("PUT", "/api/stores/99", b'{"name": "None"}'),
    412: request("POST", "/api/stores", b'{"name": "Other"}', 'If-Match: "other"'),
    422: request("POST", "/api/stores", b'{"name": "Other"}', "Idempotency-Key: used"),
}


@pytest.mark.parametrize("status", ASKED)
def test_nothing_of_a_request_is_left_to_the_garbage_collector(adapter: str, status: int, tmp_path: Path) -> None:
    """Its body may have a mebibyte, and its tags a hundred times their bytes."""

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect(adapter)
            for data in (request("POST", "/api/stores", b'{"name": "A"}', "Idempotency-Key: used"), ASKED[status]):
                connection.data_received(data)
                await settled(connection)
            with no_garbage():
                for _ in range(3):
                    connection.data_received(ASKED[status])
                    await settled(connection)
            assert statuses(line) == [200, *[status] * 4]

    run(scenario())


def test_the_plan_of_a_write_is_remembered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its fields come a second time."""
    planned: list[bytes] = []
    plan = Resource.plan

    def plans(resource: Resource, method: str, target: bytes, *fields: Any) -> Plan | None:
        planned.append(target)
        return plan(resource, method, target, *fields)

    monkeypatch.setattr(Resource, "plan", plans)

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect()
            assert isinstance(connection, FastLane)
            for _ in range(3):
                connection.data_received(create("Same"))
                await settled(connection)
            assert len(planned) == 2
            assert [response.json["id"] for response in responses_in(line.sent, "POST", "POST", "POST")] == [1, 2, 3]

    run(scenario())


def test_a_refused_client_that_leaves_at_once_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a socket of uvloop, which is asked for what its client acknowledged when it is closed already."""
    monkeypatch.setattr(deadlines, "DISCARD_TIMEOUT", 0.05)
    errors: list[dict[str, Any]] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: errors.append(context))
        config = uvicorn.Config(NotImplemented, interface="asgi3", log_config=None, ws="none", proxy_headers=False)
        config.load()
        limits = Limits()
        server = await loop.create_server(
            lambda: Connection(limits, OPEN, config, ServerState(), {}, loop), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"no HTTP\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await until(lambda: not limits.connections.open)
        await asyncio.sleep(0.1)
        server.close()

    uvloop.run(asyncio.wait_for(scenario(), 60))
    assert not errors
