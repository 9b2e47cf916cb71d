"""One request and its response, which is sent here: whole or as a stream, at once or later."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from time import perf_counter
from typing import Any, Protocol

from storekeeper.http.cache import Cached
from storekeeper.http.request import Request
from storekeeper.http.response import (
    LAST_CHUNK,
    Response,
    StreamAborted,
    encode_chunk,
    encode_rest,
    encode_start,
    unavailable,
)
from storekeeper.http.runtime import Runtime, Served
from storekeeper.http.unread import Unread
from storekeeper.log.events import Event, emit


class _Connection(Protocol):
    """What an exchange needs of its connection. uvicorn renews `server_state.default_headers`
    once a second."""

    runtime: Runtime
    server_state: Any
    flow: Any
    tasks: set[asyncio.Task[Any]]
    draining: bool
    half_closed: bool
    unread: Unread
    client: tuple[str, int] | None

    def write(self, *parts: bytes) -> int: ...
    def is_last(self, request: Request) -> bool: ...
    def finish(self, exchange: "Exchange", *, close: bool) -> None: ...
    def break_off(self, exchange: "Exchange") -> None: ...
    def advance(self) -> None: ...


class Exchange:
    """Responds to one request, as the current exchange of its connection."""

    __slots__ = ("_began", "_connection", "_size", "_status", "_stop", "over", "request")

    def __init__(self, connection: _Connection, request: Request) -> None:
        self._connection = connection
        self.request = request
        self.over = False
        """Whether the response is complete or broken off, or the client is gone."""
        self._began = perf_counter()
        self._status = self._size = 0
        self._stop: Callable[[], None] | None = None

    def end(self) -> None:
        """Tell the observer that the response is complete or broken off."""
        self.over = True
        self.stop()
        request, seconds = self.request, perf_counter() - self._began
        if request.upload is not None:
            request.upload.release()
        who = request.token_number, self._connection.client, request.id
        self._connection.runtime.observe(
            Served(request.route, request.method, self._status, self._size, seconds, *who)
        )

    @property
    def is_endless(self) -> bool:
        """Whether the response is a stream that waits for something."""
        return self._stop is not None

    def stop(self) -> None:
        """Ask a stream that waits for something to end."""
        if self._stop is not None:
            self._stop()

    def send(self, response: Response) -> None:
        """Send a response, or begin to send its stream; this is the one way to send any."""
        request, connection = self.request, self._connection
        try:
            if response.stop is not None and (
                connection.draining or connection.runtime.is_draining()
            ):
                response.stop()
                response = unavailable("The service is shutting down")
            close = connection.is_last(request)
            head_only = request.method == "HEAD"
            chunked = request.version == "1.1"
            fields = request.plan.fields if request.plan else b""
            if request.id:
                fields += b"x-request-id: %b\r\n" % request.id
            start = encode_start(response.status, connection.server_state.default_headers)
            rest = encode_rest(response, fields, head_only=head_only, close=close, chunked=chunked)
            self._stop = response.stop
            if response.stop is not None and (
                connection.half_closed or connection.unread.has_request()
            ):
                self.stop()
            if response.stream is not None and not head_only:
                task = asyncio.create_task(
                    self._stream(response, start + rest, close=close, chunked=chunked)
                )
                connection.tasks.add(task)  # a graceful stop waits for it
                task.add_done_callback(connection.tasks.discard)
                return
            if request.cache_key and response.cacheable and not close:
                connection.runtime.cache.put(request.cache_key, Cached(rest, request.plan.route))
            self._status = response.status
            self._size += connection.write(start + rest)
            connection.finish(self, close=close)
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, and no other
            emit(Event.BUG, error=error)
            if not self.over:
                connection.break_off(self)

    async def _stream(self, response: Response, head: bytes, *, close: bool, chunked: bool) -> None:
        """Send a response part by part, no faster than the client reads; half a list must not
        look like a list."""
        assert response.stream is not None
        connection = self._connection
        self._status = response.status
        try:
            async with aclosing(response.stream) as parts:
                async for part in parts:
                    self._size += connection.write(
                        head, *(encode_chunk(part) if chunked and part else (part,))
                    )
                    head, part = b"", b""  # noqa: PLW2901 - not kept while the client reads
                    if connection.flow.write_paused:
                        await connection.flow.drain()
                    if self.over:
                        return
            if self.over:  # it was stopped because its client is gone
                return
            self._size += connection.write(head, LAST_CHUNK if chunked else b"")
            connection.finish(self, close=close)
            connection.advance()
        except Exception as error:  # noqa: BLE001 - the last resort of every stream
            if not isinstance(error, StreamAborted):
                emit(Event.BUG, error=error)
        finally:
            if not self.over:
                connection.break_off(self)


def send_cached(connection: _Connection, cached: Cached) -> None:
    """Send a response from the response cache, which needs no exchange."""
    began = perf_counter()
    start = encode_start(200, connection.server_state.default_headers)
    size = connection.write(start + cached.rest)
    seconds = perf_counter() - began
    connection.runtime.observe(
        Served(cached.route, "GET", 200, size, seconds, 0, connection.client, b"")
    )
