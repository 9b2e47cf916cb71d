"""One client's connection: the order of responses, back-pressure, timeouts; for both adapters. Imports uvicorn.

Decisions 15, 16 and 27 to 30. The connection takes each request whole (a body is at most 1 MiB), has them
responded to one after another in their order, and refuses what is not HTTP/1.x with the contract's error body.
uvicorn keeps sockets and the event loop; its protocol class is no documented extension
point, so it is pinned exactly and `tests/test_connection.py` holds what is relied upon.
"""

import asyncio
from collections import deque
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from storekeeper.http import deadlines
from storekeeper.http.deadlines import Deadlines
from storekeeper.http.delivery import delivery
from storekeeper.http.exchange import Exchange
from storekeeper.http.limits import Limits
from storekeeper.http.reader import Phase, RequestReader
from storekeeper.http.request import Request
from storekeeper.http.response import MAX_BODY_BYTES, Response, encode, error_response, unavailable

MAX_PIPELINED = 64
"""Requests that wait behind another before the connection is not read any further."""


class Refusal(NamedTuple):
    """The response to what could not be read as a request: the connection's last."""

    response: Response
    head_only: bool


class Connection(HttpToolsProtocol):
    """Keeps the order of one client's requests, and has the ASGI application respond to each."""

    def __init__(self, limits: Limits, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.parser  # the reader has its own
        self.limits = limits
        self.reader = RequestReader(self._accept, self._refuse, self.loop.time)
        self.deadlines = Deadlines(self.loop.time())
        self.draining = False
        self.half_closed = False
        self.exchange: Exchange | None = None
        self.waiting: deque[Request | Refusal] = deque()
        self.responses_sent = 0
        self._unfinished = limits.received.lease()  # for the request that is being read
        self._accepted = limits.received.lease()  # for those that wait, or are responded to

    @property
    def date(self) -> list[tuple[bytes, bytes]]:
        """Return the header fields of every response, which are renewed once a second."""
        return self.server_state.default_headers

    @property
    def busy(self) -> bool:
        """Whether an earlier response is under way: the next request has to wait."""
        return self.exchange is not None or bool(self.waiting) or self.flow.write_paused

    def is_idle(self) -> bool:
        """Tell whether no request was begun that has no response yet."""
        return self.reader.phase is Phase.IDLE and self.exchange is None and not self.waiting

    # Reading: what asyncio calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin."""
        super().connection_made(transport)
        if not self.limits.sent.reserve(self):
            transport.set_write_buffer_limits(high=0)  # so that it says so as soon as the kernel does not take all
        if self.limits.connections.enter(self):
            return
        if self.limits.connections.overrun:
            transport.abort()
        else:
            self.reader.refuse(unavailable("Too many connections"))

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        self.reader.feed(data)
        if self.reader.continues and self.exchange is None and not self.waiting:
            self._continue()
        unfinished = self.reader.unfinished_bytes
        if unfinished != self._unfinished.size:
            self._unfinished.add(unfinished - self._unfinished.size)
            if unfinished and not self._fits():
                self.reader.refuse(unavailable("Too many large requests"))

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes a true value to keep it open
        """Let a client that closed its sending side have the responses to its requests."""
        self.half_closed = True
        return self.exchange is not None or bool(self.waiting)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Forget the client; the requests under way are finished without it."""
        self.connections.discard(self)
        self.limits.connections.leave(self)
        self.limits.sent.forget(self)
        self.reader.discard()
        self.waiting.clear()
        for lease in (self._unfinished, self._accepted):
            lease.add(-lease.size)
        if self.exchange is not None:
            self.exchange.charged = 0
            self.exchange.leave()
        self.flow.resume_writing()

    # Requests, in their order.

    def _accept(self, request: Request, size: int) -> None:
        # A body that came in one piece was not counted yet.
        if size > self._unfinished.size and not self.limits.received.allows(size):
            self.reader.refuse(unavailable("Too many large requests"), request)
        elif self.busy:
            self._queue(request)
        else:
            self.begin(request)

    def begin(self, request: Request) -> None:
        """Have a request responded to; all before it are."""
        self.spawn(self.begin_exchange(request).run(self.app))

    def begin_exchange(self, request: Request) -> Exchange:
        """Make a request the one that is responded to, and charge it until its response is complete."""
        self.exchange = exchange = Exchange(self, request, self.loop.time())
        # Not on the request: one whose head is remembered belongs to many connections.
        exchange.charged = request.size + len(request.body)
        self._accepted.add(exchange.charged)
        return exchange

    def end_exchange(self, exchange: Exchange) -> None:
        """Forget the request that was responded to."""
        self.exchange = None
        self._accepted.add(-exchange.charged)
        exchange.request.body = b""

    def spawn(self, responding: Any) -> None:
        """Run a coroutine that a graceful stop waits for."""
        task = self.loop.create_task(responding)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def finish(self, exchange: Exchange) -> None:
        """Go on after the response of the exchange is complete."""
        self.end_exchange(exchange)
        self.sent(exchange.status, exchange.size, exchange.began, exchange.close)
        self.advance()

    def sent(self, status: int, size: int, began: float | None, close: bool = False) -> None:  # noqa: ARG002
        """Count a response; close the connection if it was the last.

        Every response passes here when its last byte was written: its status, its size in bytes, and when it began,
        on the loop's clock (None: in this loop iteration). Counters and an access log belong here.
        """
        self.responses_sent += 1
        if close:
            self.waiting.clear()
            self.reader.discard()
            self.transport.close()

    def is_last(self, request: Request) -> bool:
        """Tell whether the connection ends with this request's response."""
        if not request.keep_alive:
            return True
        return (self.draining or self.half_closed) and not self.waiting and self.reader.phase is Phase.IDLE

    def advance(self) -> None:
        """Begin the requests that wait, as far as they can begin now."""
        while self.waiting and self.exchange is None and not self.flow.write_paused:
            request = self.waiting.popleft()
            if isinstance(request, Refusal):
                self._send_refusal(request)
                return
            self._release(request)
            self.begin(request)
        if self.exchange is not None or self.waiting or self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.reader.continues:
            self._continue()
        if self.half_closed or (self.draining and self.reader.phase is Phase.IDLE):
            self.transport.close()

    def _queue(self, request: Request) -> None:
        # One read may bring thousands of requests, each of which takes more memory than its bytes did.
        if not self._charge(request, request.size + len(request.body)):
            self._release(request)
            self.reader.refuse(unavailable("Too many requests are waiting"), request)
            return
        self.waiting.append(request)
        if self.flow.read_paused:
            return  # counting all their bodies for each of those thousands would take the square of that
        bodies = sum(len(waiting.body) for waiting in self.waiting if isinstance(waiting, Request))
        if len(self.waiting) >= MAX_PIPELINED or bodies >= MAX_BODY_BYTES:
            self.flow.pause_reading()

    def _continue(self) -> None:
        self.reader.continues = False
        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # The receive budget.

    def _charge(self, request: Request, size: int) -> bool:
        request.charged = size
        self._accepted.add(size)
        return self._fits()

    def _release(self, request: Request) -> None:
        self._accepted.add(-request.charged)
        request.charged = 0

    def _fits(self) -> bool:
        return self.limits.received.allows(self._unfinished.size + self._accepted.size)

    # Refusing.

    def _refuse(self, response: Response, head_only: bool) -> None:
        self._unfinished.add(-self._unfinished.size)
        refusal = Refusal(response, head_only)
        if self.busy:
            self.waiting.append(refusal)
        else:
            self._send_refusal(refusal)

    def _send_refusal(self, refusal: Refusal) -> None:
        if self.transport.is_closing():
            return
        data = encode(refusal.response, self.date, head_only=refusal.head_only, close=True)
        self.write(data)
        self.sent(refusal.response.status, len(data), None)
        # Closing now would reset the connection while the client still sends, and the reset can overtake
        # the response: what arrives is read and dropped for a while.
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(deadlines.DISCARD_TIMEOUT, self._end_discard, -1, self.loop.time())

    def _end_discard(self, acked: int, since: float) -> None:
        """Close, unless the client is still reading: a reset would also drop what our kernel has not sent yet."""
        known, now = delivery(self.transport), self.loop.time()
        if known is not None and known.acked != acked:
            since = now
        if known is None or known.complete or now - since > deadlines.STALL_TIMEOUT:
            self.transport.abort()
        else:
            self.loop.call_later(deadlines.DISCARD_TIMEOUT, self._end_discard, known.acked, since)

    # Writing.

    def write(self, *parts: bytes, shared: bytes | None = None) -> None:
        """Send parts of a response, unless the client is gone: the transport knows before `connection_lost`.

        One of them may be `shared`, a cached response.
        """
        if not self.transport.is_closing():
            self.transport.writelines(parts)
            if self.flow.write_paused:
                self.limits.sent.lease(self, sum(map(len, parts)), shared)

    def pause_writing(self) -> None:
        """Take no more requests from a client that does not read its responses."""
        super().pause_writing()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        super().resume_writing()
        self.limits.sent.release(self)
        if self.reader.phase is not Phase.DISCARDING or self.waiting:
            self.advance()
        else:
            self.flow.resume_reading()

    # Time, and the end.

    def sweep(self, now: float) -> None:
        """Enforce the timeouts; called for every connection twice a second."""
        self.deadlines.observe(now, self.responses_sent)
        phase = self.reader.phase
        if self.deadlines.stalled(self.transport, now):
            self.transport.abort()
        elif phase is Phase.HEAD or phase is Phase.BODY:
            if self.flow.read_paused or self.reader.continues:
                self.reader.began = now  # it is the service that makes the client wait
            if now - self.reader.began > deadlines.REQUEST_TIMEOUT:
                self.reader.refuse(error_response(408, "The request was not whole within 10 seconds"))
        elif self.is_idle() and self.deadlines.idle_for_too_long(now):
            self.transport.close()

    def idle_since(self, now: float) -> float:
        """Return since when an idle connection is idle, on the loop's clock."""
        return self.deadlines.idle_since(now, self.responses_sent)

    def shutdown(self) -> None:
        """Finish what the client has begun, then close; called once when the service stops."""
        self.draining = True
        self.loop.call_later(deadlines.DRAIN_TIMEOUT, self._close_if_idle)

    def timeout_keep_alive_handler(self) -> None:
        """Do nothing: the sweep closes idle connections."""

    def _close_if_idle(self) -> None:
        if self.is_idle():
            self.transport.close()
