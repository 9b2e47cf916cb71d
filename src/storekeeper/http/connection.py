"""One client's connection: the order of responses, back-pressure, timeouts; for both adapters. Imports uvicorn.

Decisions 15, 16 and 27 to 30. uvicorn manages sockets and the event loop. Its protocol class is no documented
extension point: so uvicorn is pinned exactly, and `tests/http/test_connection.py` tests what this module relies on.
"""

import asyncio
from collections import deque
from time import thread_time
from typing import Any, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from storekeeper.http import deadlines
from storekeeper.http.deadlines import Deadlines
from storekeeper.http.exchange import Exchange
from storekeeper.http.limits import Limits
from storekeeper.http.reader import Phase, RequestReader
from storekeeper.http.request import Request, size_of
from storekeeper.http.response import (
    MAX_BODY_BYTES,
    Fields,
    Headers,
    Response,
    encode,
    encode_fields,
    error_response,
    unavailable,
)

MAX_PIPELINED = 64
"""Requests that may wait behind another one; at that number the connection stops reading."""

MAX_UNCOUNTED_BYTES = 1024
"""Unsent bytes of a connection that its transport does not report, so that they do not count. With 0, the transport
would not write the responses of one loop iteration together, which costs 0.5 us for each small one."""

MAX_PIPELINE_TIME = 0.01
"""Seconds of processor time for the pipelined requests of one connection, before those of others come first."""


class Refusal(NamedTuple):
    """A refusal, the connection's last response. `request` is what was read of the refused request's line."""

    response: Response
    request: Request
    fields: bytes


class _Gate(Protocol):
    """What a connection asks of `api.gate.Gate`, which this package may not import."""

    def fields(self, headers: Fields) -> Headers: ...
    def early_refusal(self, request: Request) -> Response | None: ...


class Connection(HttpToolsProtocol):
    """Responds to one client's requests in their order, through the ASGI application."""

    def __init__(self, limits: Limits, gate: _Gate, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.parser  # the reader has its own
        self.limits = limits
        self.gate = gate
        self.reader = RequestReader(self._accept, self._refuse, self.loop.time, gate.early_refusal)
        self.deadlines = Deadlines(self.loop.time())
        self.draining = False
        self.half_closed = False
        self.exchange: Exchange | None = None
        self.waiting: deque[Request | Refusal] = deque()
        self.responses_sent = 0
        self._lease = 0
        """Bytes of the receive budget that this connection has."""
        self._unfinished = 0
        """Bytes of the lease that are for the request that is being read."""
        self._unread = b""
        """Bytes that the transport brought, and that the next loop iterations feed to the reader."""
        self._pause_at = 0.0  # processor time of this thread

    @property
    def busy(self) -> bool:
        """Whether the next request has to wait, because an earlier response is not complete or not sent."""
        return self.exchange is not None or bool(self.waiting) or self.flow.write_paused

    def is_idle(self) -> bool:
        """Tell whether every request that the client began has its response."""
        return self.reader.phase is Phase.IDLE and self.exchange is None and not self.waiting and not self._unread

    # Reading; called by asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Register the connection; if there are too many, refuse or abort it."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=MAX_UNCOUNTED_BYTES)
        if self.limits.connections.enter(self):
            return
        if self.limits.connections.exhausted:
            transport.abort()
        else:
            self.reader.refuse(unavailable("Too many connections"))

    def data_received(self, data: bytes) -> None:
        """Feed bytes from the client to the reader; while some of them are unread, the transport brings no more."""
        self._pause_at = thread_time() + MAX_PIPELINE_TIME
        unread = self.reader.feed(data)
        if unread and not self.limits.receive_budget.allows(self._lease + len(unread)):
            self.reader.refuse(unavailable("Too many requests are waiting"))
        elif unread:
            self.flow.pause_reading()
            self._unread = unread
            self._charge(len(unread))
            self.loop.call_soon(self._read_on)
        if self.reader.expects_continue and self.exchange is None and not self.waiting:
            self._continue()
        unfinished = self.reader.unfinished_bytes
        if unfinished != self._unfinished:
            self._count_unfinished(unfinished)
            if unfinished and not self.limits.receive_budget.allows(self._lease):
                self.reader.refuse(unavailable("Too many large requests"))

    def _read_on(self) -> None:
        data, self._unread = self._unread, b""
        self._charge(-len(data))
        if not self.transport.is_closing():
            if not self._is_full() and not self.flow.write_paused:
                self.flow.resume_reading()
            self.data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes a true value to keep it open
        """Keep the connection of a client that closed its sending side until its requests have responses."""
        self.half_closed = True
        return self.exchange is not None or bool(self.waiting)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Release all that the connection took; requests under way are finished without their client.

        Nothing may still refer to the connection: the garbage collector would free it only after hours.
        """
        self.connections.discard(self)
        self.limits.connections.open.discard(self)
        self.limits.send_budget.release(self)
        self.reader.close()
        self.waiting.clear()
        self._unread = b""
        self._charge(-self._lease)
        if self.exchange is not None:
            self.exchange.disconnect()
            self.exchange = None
        self.flow.resume_writing()

    # Requests, in their order.

    def _accept(self, request: Request) -> None:
        # A body that came in one piece was not counted yet.
        if (size := len(request.body)) > self._unfinished and not self.limits.receive_budget.allows(size):
            self.reader.refuse(unavailable("Too many large requests"), request)
        elif self.busy:
            self._queue(request)
        elif thread_time() > self._pause_at:
            self._queue(request)
            self.loop.call_soon(self.advance)
        else:
            self.begin(request)

    def begin(self, request: Request) -> None:
        """Respond to a request; all earlier requests have their responses."""
        exchange = self.begin_exchange(request)
        self.spawn(exchange.complete(exchange.run(self.app)))

    def begin_exchange(self, request: Request) -> Exchange:
        """Begin the exchange of a request, which is charged until its response is complete."""
        self.exchange = exchange = Exchange(self, request, self.loop.time())
        # Not on the request: one whose head is remembered belongs to many connections.
        exchange.charged = size = request.size + len(request.body)
        self._lease += size  # as `_charge` does it, without another call
        self.limits.receive_budget.size += size
        return exchange

    def end_exchange(self, exchange: Exchange) -> None:
        """End the current exchange; release its charge."""
        self.exchange = None
        self._charge(-exchange.charged)

    def spawn(self, coroutine: Any) -> None:
        """Run a coroutine as a task that a graceful stop waits for."""
        task = self.loop.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def finish(self, exchange: Exchange) -> None:
        """Continue after the response of an exchange is complete."""
        self.end_exchange(exchange)
        self.sent(exchange.request, exchange.status, exchange.size, exchange.began, exchange.close)
        self.advance()

    def sent(self, request: Request, status: int, size: int, began: float | None, close: bool = False) -> None:  # noqa: ARG002 - see below
        """Count a response; close the connection if `close`.

        Every response passes here after its last byte was written, unless it is broken off. A refused `request` is
        what was read of its line, perhaps nothing. `size` is in bytes. `began` is on the loop's clock; None:
        the response began in this loop iteration. Counters and an access log belong here.
        """
        self.responses_sent += 1
        if close:
            self.waiting.clear()
            self.reader.discard()
            self.transport.close()

    def is_last(self, request: Request) -> bool:
        """Tell whether the connection closes after this request's response."""
        if not request.keep_alive:
            return True
        return (self.draining or self.half_closed) and not self.waiting and self.reader.phase is Phase.IDLE

    def advance(self) -> None:
        """Begin waiting requests until one of them has to wait for its response; if none is left, read on."""
        pause_at = thread_time() + MAX_PIPELINE_TIME if self.waiting else 0.0
        while self.waiting and self.exchange is None and not self.flow.write_paused:
            request = self.waiting.popleft()
            if isinstance(request, Refusal):
                self._charge(-request.request.size)
                self._send_refusal(request)
                return
            self._charge(-request.size - len(request.body))  # its exchange is charged anew
            self.begin(request)
            if self.waiting and thread_time() > pause_at:
                self.loop.call_soon(self.advance)
                return
        if self.exchange is not None or self.waiting:
            return
        if self.flow.read_paused and not self.flow.write_paused and not self._unread:
            self.flow.resume_reading()
        if self.reader.expects_continue:
            self._continue()
        if self.half_closed or (self.draining and self.reader.phase is Phase.IDLE):
            self.transport.close()

    def _queue(self, request: Request) -> None:
        # One read may bring thousands of requests, each of which takes more memory than its bytes did.
        cost = request.size + len(request.body)
        if not self.limits.receive_budget.allows(self._lease + cost):
            self.reader.refuse(unavailable("Too many requests are waiting"), request)
            return
        self._charge(cost)
        self.waiting.append(request)
        if self._is_full():
            self.flow.pause_reading()

    def _is_full(self) -> bool:
        # Not while nothing waits, though a body that is not whole may be that large: nobody would read on.
        return bool(self.waiting) and (len(self.waiting) >= MAX_PIPELINED or self._lease >= MAX_BODY_BYTES)

    def _continue(self) -> None:
        self.reader.expects_continue = False
        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _charge(self, size: int) -> None:
        """Take so many bytes of the receive budget; a negative `size` gives them back."""
        self._lease += size
        self.limits.receive_budget.size += size

    def _count_unfinished(self, size: int) -> None:
        self._charge(size - self._unfinished)
        self._unfinished = size

    # Refusing.

    def _refuse(self, response: Response, request: Request) -> None:
        self._count_unfinished(0)
        fields = encode_fields(self.gate.fields(request.headers))
        method, target, size = request.method, request.target, size_of(request.target, ())
        refusal = Refusal(response, Request(method, target, (), request.version, False, size=size), fields)
        if self.busy:
            self._charge(size)
            self.waiting.append(refusal)
        else:
            self._send_refusal(refusal)

    def _send_refusal(self, refusal: Refusal) -> None:
        if self.transport.is_closing():
            return
        response, request, fields = refusal
        head_only = request.method == "HEAD"
        data = encode(response, self.server_state.default_headers, head_only=head_only, close=True, fields=fields)
        self.write(data)
        self.sent(request, response.status, len(data), None)
        # Closing now would reset the connection while the client still sends, and the reset can overtake
        # the response. So the connection reads and drops what arrives for a while.
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.deadlines.refused_at = self.loop.time()

    # Writing.

    def write(self, *parts: bytes, shared: bytes | None = None) -> None:
        """Send parts of a response, unless the transport is closing, which it may be before `connection_lost`.

        If one of the parts is a cached response, `shared` is that part.
        """
        if not self.transport.is_closing():
            self.transport.writelines(parts)
            if self.flow.write_paused:
                self.limits.send_budget.lease(self, sum(map(len, parts)), shared)

    def pause_writing(self) -> None:
        """Stop reading requests from a client that does not read its responses."""
        super().pause_writing()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        """Continue: the kernel has taken all unsent bytes but 256 at most."""
        super().resume_writing()
        self.limits.send_budget.release(self)
        if self.reader.phase is not Phase.DISCARDING or self.waiting:
            self.advance()
        else:
            self.flow.resume_reading()

    # Timeouts and shutdown.

    def sweep(self, now: float) -> None:
        """Enforce the timeouts; called for every connection twice a second."""
        phase = self.reader.phase
        if self.deadlines.is_over(self.transport, now):
            self.transport.abort()
        elif phase is Phase.HEAD or phase is Phase.BODY:
            if self.flow.read_paused or self.reader.expects_continue:
                self.reader.began = now  # the service makes the client wait
            if now - self.reader.began > deadlines.REQUEST_TIMEOUT:
                message = f"The request was not whole within {deadlines.REQUEST_TIMEOUT:g} seconds"
                self.reader.refuse(error_response(408, message))
        elif self.is_idle() and self.deadlines.idle_for_too_long(now, self.responses_sent):
            self.transport.close()

    def shutdown(self) -> None:
        """Finish the requests that the client has begun, then close; uvicorn calls this once, at a stop."""
        self.draining = True
        # After a standstill the timer comes before what has arrived is read, and this after it.
        self.loop.call_later(deadlines.DRAIN_TIMEOUT, self.loop.call_soon, self.loop.call_soon, self.advance)
