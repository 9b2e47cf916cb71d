"""One client's connection: the order of responses, back-pressure, timeouts.

Decisions 15, 16 and 27 to 30. uvicorn manages sockets and the event loop, and makes one of these
for each client. What it asks of such a class is documented nowhere: so uvicorn is pinned exactly,
and `tests/http/test_uvicorn.py` holds it. README.md next to this file has the states.
"""

import asyncio
from functools import partial
from time import thread_time
from typing import Any

from uvicorn import Config
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
from storekeeper.http.unread import Unread
from storekeeper.log.events import Event, emit

MAX_PIPELINE_TIME = 0.01
"""Seconds of processor time for the pipelined requests of one connection, before those of others
come first."""

_NO_ROOM = unavailable("Too many large requests")
_ENDS = unavailable("The service is shutting down")


class Connection(asyncio.Protocol):
    """Responds to one client's requests in their order."""

    transport: asyncio.Transport
    flow: Flow
    sender: Sender

    def __init__(
        self,
        runtime: Runtime,
        config: Config,  # noqa: ARG002 - as uvicorn calls it
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = _loop or asyncio.get_running_loop()
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
        self.unread = Unread(self.reader)

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
        """Take bytes: a cached request, a plain one, or one for the careful reader."""
        if self.unread.data or self.busy or self.reader.phase is not Phase.IDLE:
            self._receive(data)
            return
        try:
            if not self.draining and (cached := self.runtime.cache.get(data)) is not None:
                self.sender.send_cached(cached)
            elif (request := self.runtime.plain.read(data)) is not None:
                self._begin(request)
            else:
                self._receive(data)
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, and no other
            emit(Event.BUG, error=error)
            self.reader.refuse(INTERNAL_ERROR)

    def _receive(self, data: bytes) -> None:
        """Take bytes that the careful reader reads, once all earlier responses are complete."""
        if self.exchange is not None and not self.unread:
            data = data.lstrip(b"\r\n")
            if data:
                self.exchange.stop()  # a client that asks for something else listens no longer
        if self.reader.phase is Phase.DISCARDING or self.unread.is_refused:
            return
        self.unread.append(data)
        self.advance()

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
        self._count()
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

    def advance(self) -> None:
        """Read the next requests, until one must wait; called after each event that a request
        may have waited for."""
        if self.transport.is_closing():
            return
        pause_at = thread_time() + MAX_PIPELINE_TIME if self.unread else 0.0
        while self.unread.data and not self.busy:
            self._read()
            if thread_time() > pause_at:
                break
        if not self._count() and self.unread.incomplete_bytes:
            self.give_way()
        if self.unread.data or self.flow.read_paused:
            self._control_reading()
        if self.unread and not self.busy:
            self.loop.call_soon(self.advance)
        if self.unread or self.exchange is not None or self.reader.phase is Phase.DISCARDING:
            return
        if self.reader.expects_continue and not self.busy:
            self.reader.expects_continue = False
            self.flow.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.half_closed or (self.draining and self.reader.phase is Phase.IDLE):
            self.transport.close()

    def _read(self) -> None:
        """Read up to the end of a request at most, and respond to that."""
        if self.unread.is_refused:
            self.give_way()
        elif (request := self.unread.feed()) is not None:
            self._accept(request)

    def _control_reading(self) -> None:
        """Let the transport bring bytes, or not; only then is a client that leaves seen."""
        if self.transport.is_closing():
            return
        unread = len(self.unread)
        is_waiting = self.flow.write_paused and self.deadlines.refused_at is None
        if is_waiting and self.exchange is not None and self.exchange.is_endless:
            is_waiting = False
        if is_waiting or unread > SMALL_BYTES or (unread and not self.busy):
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    # The receive budget.

    def _count(self) -> bool:
        """Count the bytes of all requests without a response; return whether there is room."""
        incomplete = self.unread.incomplete_bytes
        size = incomplete + (self.exchange.request.size if self.exchange else 0)
        return self.limits.receive_budget.hold(self, size, may_give_way=incomplete > 0)

    def give_way(self) -> None:
        """Refuse the request that is incomplete, or the next one, once it is its turn."""
        if self.exchange is not None:
            self.unread.shrink()
        else:
            self.limits.receive_budget.refused += 1
            self.unread.refuse(_NO_ROOM)
        self._count()

    # Requests, in their order.

    def _accept(self, request: Request) -> None:
        size, budget = request.size, self.limits.receive_budget
        # For small ones there is always room: that is what the reserve is for.
        if size <= SMALL_BYTES or budget.hold(self, size, may_give_way=True):
            self._begin(request)
            return
        budget.refused += 1
        if request.upload is not None:
            request.upload.release()
        self.reader.discard()
        self._refuse(refuse(request, _NO_ROOM))

    def _begin(self, request: Request) -> None:
        """Respond to a request; all earlier requests have their responses."""
        self.runtime.begin(request, self.transport)
        self.exchange = exchange = Exchange(request)
        response = self.runtime.application.respond(request)
        if isinstance(response, Deferred):
            request.body = request.cache_key = b""  # what comes later may be older than the token
            self._count()
            response.future.add_done_callback(partial(self._send_deferred, exchange, response))
        else:
            self._send(exchange, response)
            if not exchange.over:  # a stream
                self._count()

    def _send_deferred(self, exchange: Exchange, deferred: Deferred, _future: object) -> None:
        if exchange.over:
            # Retrieved, because asyncio would report an exception that is not retrieved.
            deferred.future.exception()
            return
        self._send(exchange, self.runtime.application.complete(deferred))
        self.advance()

    def _send(self, exchange: Exchange, response: Response) -> None:
        """Send a response, or begin to send its stream."""
        try:
            if response.stop is not None and (self.draining or self.runtime.is_draining()):
                response.stop()
                response = _ENDS
            close = self._is_last(exchange.request)
            sending = self.sender.send(exchange, response, close=close)
            if response.stop is not None and (self.half_closed or self.unread.has_request()):
                exchange.stop()
            if sending is None:
                self._finish(exchange, close=close)
            else:
                sending.add_done_callback(partial(self._end_stream, exchange, close))
        except Exception as error:  # noqa: BLE001 - a bug ends this connection, and no other
            emit(Event.BUG, error=error)
            if not exchange.over:
                self._break_off(exchange)

    def _end_stream(self, exchange: Exchange, close: bool, sending: asyncio.Task[bool]) -> None:
        """Continue behind a stream. Half a list must not look like a list."""
        if exchange.over:
            return
        if sending.cancelled() or not sending.result():
            self._break_off(exchange)
            return
        self._finish(exchange, close=close)
        self.advance()

    def _is_last(self, request: Request) -> bool:
        """Return whether the connection closes after this request's response."""
        if not request.keep_alive:
            return True
        ends = self.draining or self.half_closed
        return ends and self.reader.phase is Phase.IDLE and not self.unread.has_request()

    def _finish(self, exchange: Exchange, *, close: bool) -> None:
        """Continue after a complete response."""
        self._end(exchange)
        if close:
            self.unread.clear()
            self.reader.discard()
            self.transport.close()

    def _break_off(self, exchange: Exchange) -> None:
        """Abort a response that cannot be completed, so that no client takes it for complete."""
        self._end(exchange)
        self.unread.clear()
        self.transport.abort()

    def _end(self, exchange: Exchange) -> None:
        self.exchange = None
        self.sender.end(exchange)

    def _refuse(self, refusal: Refusal) -> None:
        """Send the refusal of what was read of a request, the connection's last response."""
        self.unread.clear()
        if self.exchange is not None:  # a bug in the middle of a response
            self._break_off(self.exchange)
            return
        self.sender.refuse(refusal)
        self._count()
        # Closing now would reset the connection while the client still sends, and the reset can
        # overtake the response. So the connection reads and drops what arrives for a while.
        self.deadlines.refused_at = self.loop.time()
        self._control_reading()
        self.flow.end_writing()

    # Timeouts and shutdown.

    def sweep(self, now: float) -> None:
        """Enforce the timeouts; called for every connection twice a second."""
        phase = self.reader.phase
        if self.deadlines.is_over(self.transport, now):
            self.transport.abort()
        elif phase is Phase.HEAD or phase is Phase.BODY:
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
        # After a standstill the timer comes before what has arrived is read, and this after it.
        self.loop.call_later(
            deadlines.DRAIN_TIMEOUT, self.loop.call_soon, self.loop.call_soon, self.advance
        )
