"""One request and its answer on a connection: framing, and the ASGI interface. Imports `api` and events."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from storekeeper.api.reply import Reply, bug_reply, phrase
from storekeeper.api.resource import Action
from storekeeper.errors import StorekeeperError
from storekeeper.events import Event, emit

if TYPE_CHECKING:
    from storekeeper.api.connection import Connection

_STATUS_LINE = {status: b"HTTP/1.1 %d %b\r\n" % (status, phrase(status).encode()) for status in range(100, 600)}
_NO_BODY = (204, 304)

FIELD_SIZE = 150
"""What Python takes for a field of a head, beside its bytes."""

LONGEST = 8 * 2**20
"""The longest answer that is recorded: a list of 100,000 stores fits."""


class Request:
    """A request whose head is whole. `target` is in origin form (or `*`); names of `headers` are in lower case.

    `action` is what the resource planned for its head, once it has; `held` is what it counts in its crowd.
    """

    __slots__ = ("_size", "action", "body", "headers", "held", "keep_alive", "method", "target", "version")

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        version: str,
        *,
        keep_alive: bool,
        body: bytes = b"",
        action: Action | None = None,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.version = version
        self.keep_alive = keep_alive
        self.body = body
        self.action = action
        self.held = 0
        self._size = 0

    @property
    def size(self) -> int:
        """What Python takes for it without its body, in bytes, roughly."""
        if not self._size:
            fields = sum([FIELD_SIZE + len(name) + len(value) for name, value in self.headers])
            self._size = 400 + len(self.target) + fields
        return self._size

    def with_body(self, body: bytes) -> "Request":
        """Give the same request with another body."""
        other = Request(
            self.method,
            self.target,
            self.headers,
            self.version,
            keep_alive=self.keep_alive,
            body=body,
            action=self.action,
        )
        other._size = self.size
        return other


def whole(reply: Reply, date: Iterable[tuple[bytes, bytes]], *, close: bool, content: bool) -> bytes:
    """Return all bytes of a reply that has no stream; one to a HEAD is without its content."""
    lines = [_STATUS_LINE[reply.status]]
    for name, value in (*date, *reply.headers):
        lines += (name, b": ", value, b"\r\n")
    if reply.status not in _NO_BODY:
        lines.append(b"content-length: %d\r\n" % len(reply.body))
    lines.append(b"connection: close\r\n\r\n" if close else b"\r\n")
    if content:
        lines.append(reply.body)
    return b"".join(lines)


class Recording:
    """A long answer's bytes while they are sent; `seen` is the stamp they belong to."""

    def __init__(self, seen: int) -> None:
        self.seen = seen
        self.size = 0
        self.parts: list[bytes] = []

    def add(self, data: bytes) -> None:
        """Record a part, unless the answer is too long already."""
        self.size += len(data)
        if self.size <= LONGEST:
            self.parts.append(data)
        else:
            self.parts.clear()


class Exchange:
    """Answers one request, part by part. Belongs to the connection that has it in turn."""

    started = False
    ended = False
    close = False
    gone = False
    recording: Recording | None = None
    _left: asyncio.Event | None = None
    _body_given = False
    _chunked = False
    _missing: int | None = None
    _head: tuple[bytes, ...] = ()

    def __init__(self, connection: "Connection", request: Request) -> None:
        self.connection = connection
        self.request = request

    def leave(self) -> None:
        """Note that the client is gone."""
        self.gone = True
        if self._left is not None:
            self._left.set()

    # The answer.

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Begin with the head, which is sent with what follows.

        A body without a content-length is chunked, or to an HTTP/1.0 client ends with the connection.
        """
        request = self.request
        self.started = True
        self.close = self.connection.is_last(request)
        lines: list[bytes] = []
        for name, value in headers:
            if name == b"content-length":
                self._missing = int(value)
            elif name == b"connection":
                self.close = self.close or value.lower() == b"close"
                continue
            lines += (name, b": ", value, b"\r\n")
        if status in _NO_BODY:
            self._missing = 0
        elif self._missing is None and request.version == "1.1":
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"connection: close\r\n\r\n" if self.close else b"\r\n")
        date = [b"%b: %b\r\n" % field for field in self.connection.date]
        head = b"".join(lines)
        if self.recording is not None:
            self.recording.add(head)
        self._head = (_STATUS_LINE[status] + b"".join(date), head)

    def part(self, data: bytes) -> None:
        """Send a part of the body."""
        if not data or self.request.method == "HEAD":
            return
        if self._chunked:
            # Not joined: while it waits for its reader, it would be there twice.
            self._write(b"%x\r\n" % len(data), data, b"\r\n")
            return
        if self._missing is not None:
            self._missing -= len(data)
        self._write(data)

    def end(self) -> None:
        """Finish the answer and let the connection go on."""
        self.ended = True
        if self.request.method != "HEAD":
            if self._chunked:
                self._write(b"0\r\n\r\n")
            elif self._missing:
                self.abort()
                return
        if self._head:
            self._write()
        self.connection.finish(self)

    def _write(self, *parts: bytes) -> None:
        if self.recording is not None:
            for part in parts:
                self.recording.add(part)
        self.connection.write(*self._head, *parts)
        self._head = ()

    def abort(self) -> None:
        """Break off an answer that cannot be completed, so that the client cannot take it for whole."""
        self.ended = self.gone = True
        self.connection.transport.abort()

    async def stream(self, reply: Reply) -> None:
        """Send a reply part by part, no faster than the client reads."""
        assert reply.stream is not None
        try:
            self.start(reply.status, reply.headers)
            if self.request.method != "HEAD":
                await self._parts(reply.stream)
            if not self.gone:
                self.end()
        except StorekeeperError:
            self.abort()  # the database went away in the middle of a list, which is no bug
        except Exception as error:  # noqa: BLE001 - whatever it is, half a list must not look like a list
            emit(Event.BUG, error=error)
            self.abort()

    async def _parts(self, parts: AsyncIterator[bytes]) -> None:
        async for part in parts:
            self.part(part)
            if self.connection.flow.write_paused:
                await self.connection.flow.drain()
            if self.gone:
                return

    # ASGI.

    async def run(self, app: Any) -> None:
        """Have an ASGI application answer."""
        try:
            await app(self._scope(), self._receive, self._send)
        except StorekeeperError:
            pass  # as in `stream`: what has begun is aborted
        except Exception as error:  # noqa: BLE001 - the last resort of every route
            emit(Event.BUG, error=error)
        if self.ended or self.gone:
            return
        if self.started:
            self.abort()
            return
        reply = bug_reply()
        self.start(reply.status, (*reply.headers, (b"content-length", b"%d" % len(reply.body))))
        self.part(reply.body)
        self.end()

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
        if not self._body_given:
            self._body_given = True
            return {"type": "http.request", "body": self.request.body, "more_body": False}
        if not self.gone:
            self._left = asyncio.Event()
            await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if self.connection.flow.write_paused and not self.gone:
            await self.connection.flow.drain()
        if self.gone:
            return
        if message["type"] == "http.response.start":
            self.start(message["status"], message.get("headers", ()))
            return
        self.part(message.get("body", b""))
        if not message.get("more_body", False):
            self.end()
