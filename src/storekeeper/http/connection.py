"""One client's connection: the order of responses, back-pressure, timeouts.

Decisions 15, 16 and 27 to 30. uvicorn manages sockets and the event loop, and makes one of these
for each client. What it asks of such a class is documented nowhere: so uvicorn is pinned exactly,
and `tests/http/test_uvicorn.py` holds it. README.md next to this file has the states.
"""

import asyncio
from functools import partial
from time import perf_counter, thread_time

from uvicorn.server import ServerState

from storekeeper.http import deadlines
from storekeeper.http.deadlines import Deadlines
from storekeeper.http.exchange import Exchange
from storekeeper.http.flow import Flow, client_of
from storekeeper.http.limits import SMALL_BYTES
from storekeeper.http.reader import Phase, RequestReader
from storekeeper.http.request import Refusal, Request, refuse
from storekeeper.http.response import (
    INTERNAL_ERROR,
    Deferred,
    Response,
    error_response,
    unavailable,
)
from storekeeper.http.runtime import Runtime
from storekeeper.http.sender import Sender
from storekeeper.http.unread import NO_ROOM, Unread
from storekeeper.log.events import Event, emit, request_id

MAX_PIPELINE_TIME = 0.005
"""Seconds of processor time for one connection's pipelined requests, before others come first."""

_ENDS = unavailable("The service is shutting down")


class Connection(asyncio.Protocol):
    """Responds to one client's requests in their order."""

    transport: asyncio.Transport
    flow: Flow
    sender: Sender

    def __init__(
        self, runtime: Runtime, server_state: ServerState, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.loop = loop
        self.server_state = server_state
        self.runtime = runtime
        self.limits = runtime.limits
        application = runtime.application
        self.reader = RequestReader(
            self._refuse, self.loop.time, application.early_refusal, application.body_limit
        )
        self.deadlines = Deadlines(self.loop.time())
        self.draining = False
        self.half_closed = False
        self.exchange: Exchange | None = None
        self.unread = Unread(self.reader, self.limits.receive_budget)

    @property
    def busy(self) -> bool:
        """Whether the next request must wait: an earlier response is not complete or not sent."""
        return self.exchange is not None or self.flow.write_paused

    @property
    def responses_sent(self) -> int:
        """How many responses ended so far."""
        return self.sender.responses_sent

    def is_idle(self) -> bool:
        """Return whether every request that the client began has its response."""
        return self.reader.phase is Phase.IDLE and self.exchange is None and not self.unread

    # The connection and its bytes; called by asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a socket's
        """Register the connection; if there are too many, refuse or abort it."""
        self.transport = transport
        self.is_trusted = self.runtime.trusted.has(transport)
        self.flow = Flow(transport, self.limits.send_budget)
        self.sender = Sender(self.runtime, self.server_state, self.flow, client_of(transport))
        self.server_state.connections.add(self)  # type: ignore[arg-type]  # uvicorn lists its own
        if self.limits.connections.enter(self):
            return
        if self.limits.connections.exhausted:
            transport.abort()
        else:
            self.reader.refuse(unavailable("Too many connections"))

    def data_received(self, data: bytes) -> None:
        """Note bytes, which are handled after all that arrives in this loop iteration."""
        unread = self.unread
        if self.exchange is not None and not unread and (data := data.lstrip(b"\r\n")):
            self.exchange.stop()  # a client that asks for something else listens no longer
        if self.reader.phase is Phase.DISCARDING or unread.is_refused:
            return
        unread.data += data
        self.runtime.arrivals.add(self, len(data))

    def eof_received(self) -> bool:
        """Keep the connection of a client that closed its sending side until its requests have
        responses. A stream ends: only its next comment would show whether the client is gone."""
        self.half_closed = True
        if self.exchange is not None:
            self.exchange.stop()
        return self.exchange is not None or bool(self.unread)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Release all that the connection took; requests under way are finished without their
        client. Nothing may still refer to it: the garbage collector comes only after hours."""
        self.server_state.connections.discard(self)
        self.limits.connections.open.discard(self)
        self.reader.close()
        self.unread.clear()
        if self.exchange is not None:
            self._end(self.exchange)
        self.unread.count()
        self.flow.resume_writing()

    def pause_writing(self) -> None:
        """Stop reading requests from a client that does not read its responses."""
        self.flow.pause_writing()
        self._control_reading()

    def resume_writing(self) -> None:
        """Continue with a client that has read its responses."""
        self.flow.resume_writing()
        self.advance()

    # What is read, and when.

    def handle(self) -> None:
        """Read requests, and respond, until one must wait; this is the one place that does."""
        if self.transport.is_closing():
            return
        try:
            if not self._handle_plain():
                self._handle_carefully()
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, and no other
            emit(Event.BUG, error=error)
            self.reader.refuse(INTERNAL_ERROR)

    def _handle_plain(self) -> bool:
        """Respond to a plain request if there is one and nothing else is under way."""
        unread = self.unread
        if self.exchange is not None or self.flow.write_paused or self.flow.read_paused:
            return False
        if self.reader.phase or unread.position or unread.is_refused:
            return False
        data = unread.data
        if not self.draining and not self.half_closed:
            cached = self.runtime.cache.get(data)
            if cached is not None:
                unread.clear()
                self.sender.send_cached(cached)
                return True
        request = self.runtime.plain.read(data)
        if request is None:
            return False
        unread.data = b""  # all there was
        self._begin(request)
        return True

    def _handle_carefully(self) -> None:
        pause_at = thread_time() + MAX_PIPELINE_TIME
        while self.unread.data and not self.busy:
            if self.unread.is_refused:
                self.unread.give_way()
            elif (request := self.unread.feed()) is not None:
                self._accept(request)
            if thread_time() > pause_at:
                break
        self.advance()

    def advance(self) -> None:
        """Go on after an event that something may have waited for."""
        if self.transport.is_closing():
            return
        self.unread.count()
        if self.unread.data or self.flow.read_paused:
            self._control_reading()
        if self.unread and not self.busy:
            self.runtime.arrivals.add(self)
        if self.unread or self.exchange is not None or self.reader.phase is Phase.DISCARDING:
            return
        if self.reader.expects_continue and not self.busy:
            self.reader.expects_continue = False
            self.flow.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.half_closed or (self.draining and self.reader.phase is Phase.IDLE):
            self.transport.close()

    def _control_reading(self) -> None:
        """Let the transport bring bytes, or not; only then is a client that leaves seen."""
        unread = len(self.unread)
        is_endless = self.exchange is not None and self.exchange.is_endless
        is_refused = self.deadlines.refused_at is not None
        is_waiting = self.flow.write_paused and not is_refused and not is_endless
        if is_waiting or unread > SMALL_BYTES or (unread and not self.busy):
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    # Requests, in their order.

    def _accept(self, request: Request) -> None:
        if self.unread.has_room_for(request):
            self._begin(request)
            return
        if request.upload is not None:
            request.upload.release()
        self.reader.discard()
        self._refuse(refuse(request, NO_ROOM))

    def _begin(self, request: Request) -> None:
        """Respond to a request; all earlier requests have their responses."""
        began = perf_counter()
        request_id.set(request.id)
        request.is_proxied = self.is_trusted
        response = self.runtime.application.respond(request)
        if isinstance(response, Deferred):
            request.body = request.cache_key = b""  # what comes later is of another transaction
            exchange = self._occupy(request, began)
            self.unread.count()
            response.future.add_done_callback(partial(self._send_deferred, exchange, response))
        else:
            self._respond(request, response, began)

    def _send_deferred(self, exchange: Exchange, deferred: Deferred, _future: object) -> None:
        if exchange.over:
            # Retrieved, because asyncio would report an exception that is not retrieved.
            deferred.future.exception()
            return
        response = self.runtime.application.complete(deferred)
        self.exchange = self.unread.request = None
        self._respond(exchange.request, response, exchange.began)
        self.advance()

    def _respond(self, request: Request, response: Response, began: float) -> None:
        """Send a response, or begin to send its stream."""
        try:
            if response.stop is not None and (self.draining or self.runtime.is_draining()):
                response.stop()
                response = _ENDS
            close = not request.keep_alive
            if self.draining or self.half_closed:
                close = close or self._is_last()
            if response.stream is not None and request.method != "HEAD":
                self._begin_stream(self._occupy(request, began), response, close=close)
                return
            self.sender.send(request, response, began, close=close)
            if close:
                self._close()
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, and no other
            emit(Event.BUG, error=error)
            if self.exchange is None:
                self._occupy(request, began)
            self._break_off()

    def _begin_stream(self, exchange: Exchange, response: Response, *, close: bool) -> None:
        sending = self.sender.stream(exchange, response, close=close)
        sending.add_done_callback(partial(self._end_stream, exchange, close))
        if response.stop is not None and (self.half_closed or self.unread.has_request()):
            exchange.stop()
        self.unread.count()

    def _end_stream(self, exchange: Exchange, close: bool, sending: asyncio.Task[bool]) -> None:
        """Continue after a stream. Half a list must not look like a list."""
        if exchange.over:
            return
        if sending.cancelled() or not sending.result():
            self._break_off()
            return
        self._end(exchange)
        if close:
            self._close()
        self.advance()

    def _occupy(self, request: Request, began: float) -> Exchange:
        """Have later requests wait for the response to this one."""
        self.exchange = exchange = Exchange(request, began)
        self.unread.request = request
        return exchange

    def _is_last(self) -> bool:
        """Return whether the client began no request after this one."""
        return self.reader.phase is Phase.IDLE and not self.unread.has_request()

    def _close(self) -> None:
        """Close after a complete response, which was the last one."""
        self.unread.clear()
        self.reader.discard()
        self.transport.close()

    def _break_off(self) -> None:
        """Abort a response that cannot be completed, so that no client takes it for complete."""
        if self.exchange is not None:
            self._end(self.exchange)
        self.unread.clear()
        self.transport.abort()

    def _end(self, exchange: Exchange) -> None:
        """End a request whose response takes time, and perhaps is not complete."""
        self.exchange = self.unread.request = None
        exchange.end()
        self.sender.end(exchange.request, exchange.status, exchange.size, exchange.began)

    def _refuse(self, refusal: Refusal) -> None:
        """Send the refusal of what was read of a request, the connection's last response."""
        self.unread.clear()
        if self.exchange is not None:  # a bug in the middle of a response
            self._break_off()
            return
        self.sender.refuse(refusal)
        self.unread.count()
        # Closing now would reset the connection while the client still sends, and the reset can
        # overtake the response. So the connection reads and drops what arrives for a while.
        self.deadlines.refused_at = self.loop.time()
        self._control_reading()
        self.flow.end_writing()

    # Timeouts and shutdown.

    def sweep(self, now: float) -> None:
        """Enforce the timeouts; called for every connection twice a second."""
        if self.deadlines.is_over(self.transport, now):
            self.transport.abort()
        elif self.reader.is_reading:
            if self.flow.read_paused or self.reader.expects_continue:
                self.reader.began = self.reader.heard = now  # the service makes the client wait
            if message := self.reader.overdue(now):
                self.reader.refuse(error_response(408, message))
        elif self.is_idle() and self.deadlines.idle_for_too_long(now, self.responses_sent):
            self.transport.close()

    def shutdown(self) -> None:
        """Finish the requests that the client has begun, then close; called once, at a stop."""
        self.draining = True
        if self.exchange is not None:
            self.exchange.stop()
            if self.exchange.is_endless and self.flow.write_paused:
                self.transport.abort()  # its client reads nothing now, and continues elsewhere
        self.loop.call_later(deadlines.DRAIN_TIMEOUT, self._advance_soon)

    def _advance_soon(self) -> None:
        # After a standstill a timer comes before what has arrived is read: so, two iterations.
        self.loop.call_soon(self.loop.call_soon, self.advance)
