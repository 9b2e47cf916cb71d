"""One request and a response that is not complete at once: streams, and the ASGI interface. Imports events."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Protocol
from urllib.parse import unquote

from storekeeper.events import Event, emit
from storekeeper.http.request import Request
from storekeeper.http.response import (
    INTERNAL_ERROR,
    LAST_CHUNK,
    Response,
    StreamAborted,
    encode_chunk,
    encode_fields,
    encode_rest,
    encode_start,
    framed_headers,
    has_content,
)


class _Channel(Protocol):
    """What an exchange needs of its connection. uvicorn renews `server_state.default_headers` once a second."""

    client: tuple[str, int] | None
    server: tuple[str, int | None] | None
    scheme: Any
    app_state: dict[str, Any]
    flow: Any
    transport: asyncio.Transport
    server_state: Any

    def write(self, *parts: bytes) -> None: ...
    def is_last(self, request: Request) -> bool: ...
    def finish(self, exchange: "Exchange") -> None: ...


class Exchange:
    """Responds to one request, part by part, as the current exchange of its connection.

    `charged` is its bytes in the receive budget. `fields` are encoded, and follow the start of the response's head.
    """

    over = False
    """Whether nothing more is sent: the response is complete or broken off, or the client is gone."""

    close = False
    status = 0
    """0 until the response begins."""

    size = 0
    charged = 0
    fields = b""
    _disconnected: asyncio.Event | None = None
    _body_delivered = False
    _chunked = False
    _remaining: int | None = None
    _head: tuple[bytes, ...] = ()

    def __init__(self, connection: _Channel, request: Request, began: float) -> None:
        self.connection = connection
        self.request = request
        self.began = began

    def disconnect(self) -> None:
        """Note that the client is gone."""
        self.over = True
        if self._disconnected is not None:
            self._disconnected.set()

    # The response.

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Begin the response; send its head together with the first part, or at the end.

        Content without a Content-Length is chunked; for an HTTP/1.0 client, the end of the connection ends it.
        """
        request = self.request
        self.status = status
        self.close = self.connection.is_last(request)
        fields = []
        for name, value in headers:
            if name == b"content-length":
                self._remaining = int(value)
            elif name == b"connection":
                self.close = self.close or value.lower() == b"close"
            else:
                fields.append((name, value))
        length = self._remaining
        if not has_content(status):
            length, self._remaining = None, 0
        elif length is None:
            self._chunked = request.version == "1.1"
        rest = encode_rest(encode_fields(fields), length, close=self.close, chunked=self._chunked)
        self._head = encode_start(status, self.connection.server_state.default_headers) + self.fields, rest

    def part(self, data: bytes) -> None:
        """Send a part of the body."""
        if not data or self.request.method == "HEAD":
            return
        if self._chunked:
            # Not joined: while it is unsent, it would be in memory twice.
            self._write(*encode_chunk(data))
            return
        if self._remaining is not None:
            self._remaining -= len(data)
        self._write(data)

    def end(self) -> None:
        """Finish the response and continue the connection; abort if the body is shorter than its Content-Length."""
        self.over = True
        if self.request.method != "HEAD":
            if self._chunked:
                self._write(LAST_CHUNK)
            elif self._remaining:
                self.abort()
                return
        if self._head:
            self._write()
        self.connection.finish(self)

    def _write(self, *parts: bytes) -> None:
        written = (*self._head, *parts)
        self._head = ()
        self.size += sum(map(len, written))
        self.connection.write(*written)

    def abort(self) -> None:
        """Abort a response that cannot be completed, so that the client cannot take it for complete."""
        self.over = True
        self.connection.transport.abort()

    async def complete(self, responding: Awaitable[None]) -> None:
        """Wait for `responding`; then break off an incomplete response, as half a list must not look like a list."""
        try:
            await responding
        except StreamAborted:
            pass
        except Exception as error:  # noqa: BLE001 - the last resort of every route
            emit(Event.BUG, error=error)
        if self.over:
            return
        if self.status:
            self.abort()
            return
        response = INTERNAL_ERROR
        self.start(response.status, framed_headers(response))
        self.part(response.body)
        self.end()

    async def stream(self, response: Response) -> None:
        """Send a response with a stream part by part, no faster than the client reads."""
        assert response.stream is not None
        self.start(response.status, framed_headers(response))
        if self.request.method != "HEAD":
            async for part in response.stream:
                self.part(part)
                if self.connection.flow.write_paused:
                    await self.connection.flow.drain()
                if self.over:
                    return
        if not self.over:
            self.end()

    # ASGI.

    async def run(self, app: Any) -> None:
        """Respond through an ASGI application."""
        await app(self._scope(), self._receive, self._send)

    def _scope(self) -> dict[str, Any]:
        connection, request = self.connection, self.request
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.version,
            "server": connection.server,
            "client": connection.client,
            "scheme": connection.scheme,
            "root_path": "",
            "method": request.method,
            "path": unquote(path.decode("latin-1")),
            "raw_path": path,
            "query_string": query,
            "headers": request.headers,
            "state": connection.app_state.copy(),
        }

    async def _receive(self) -> dict[str, Any]:
        if not self._body_delivered:
            self._body_delivered = True
            return {"type": "http.request", "body": self.request.body, "more_body": False}
        if not self.over:
            self._disconnected = self._disconnected or asyncio.Event()  # an application may wait several times
            await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if self.connection.flow.write_paused and not self.over:
            await self.connection.flow.drain()
        if self.over:
            return
        if message["type"] == "http.response.start":
            self.start(message["status"], message.get("headers", ()))
            return
        self.part(message.get("body", b""))
        if not message.get("more_body", False):
            self.end()
