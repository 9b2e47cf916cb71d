"""One client's connection: the HTTP edges that uvicorn lacks, for both adapters. Imports uvicorn and `api`.

Decisions 15, 16 and 27 to 30. The connection takes each request whole (a body is at most 1 MiB), has them
answered one after another in their order, and refuses what is not HTTP/1.x with the contract's error body.
uvicorn keeps sockets, workers, signals and the event loop; its protocol class is no documented extension
point, so it is pinned exactly and `tests/test_connection.py` holds what is relied upon.
"""

import asyncio
from collections import deque
from enum import IntEnum
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from storekeeper.api import heads
from storekeeper.api.acknowledged import delivery
from storekeeper.api.budgets import ReceiveBudget
from storekeeper.api.crowd import Crowd
from storekeeper.api.exchange import FIELD_SIZE, Exchange, Request, whole
from storekeeper.api.reply import BODY_LIMIT, Reply, bug_reply, error_answer, error_reply, too_large
from storekeeper.errors import Unavailable
from storekeeper.events import Event, emit

REQUEST_PATIENCE = 10.0
"""Seconds from a request's first byte to its last, and from a connection to its first byte (decision 27)."""

IDLE_PATIENCE = 65.0
"""Seconds that a connection is kept for a next request: more than the 60 s of common load balancers, which
otherwise send a request into a connection that closes."""

STALL_PATIENCE = 10.0
"""Seconds that a client's kernel may acknowledge nothing of what is waiting for it."""

DISCARD_PATIENCE = 2.0
"""Seconds that a refused client's remaining bytes are read and dropped (decision 15)."""

DRAIN_PATIENCE = 0.1
"""Seconds that a stopping service gives an idle connection for what is already on its way."""

FRAMING_LIMIT = 8 * BODY_LIMIT
"""The most bytes that a body may take in all, chunk headers included: 1-byte chunks take 6 of them."""

PIPELINE_LIMIT = 64
"""Requests that wait behind an unanswered one before the connection is not read any further."""


class Phase(IntEnum):
    """What the connection expects to read next."""

    NEXT = 0
    HEAD = 1
    BODY = 2
    NOTHING = 3
    """Nothing more is taken: what arrives is dropped."""


class Connection(HttpToolsProtocol):
    """Reads requests, keeps their order, and has each answered by the ASGI application."""

    learns = False
    """Whether `latest` is wanted: the request that was read last, with the length of its body."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.phase = Phase.NEXT
        self.since = self.loop.time()
        self.read = 0
        self.served = 0
        self.draining = False
        self.half_closed = False
        # Of the request that is being read.
        self.request: Request | None = None
        self.body: bytes | bytearray = b""
        self.size = 0
        self.head = b""
        self.head_allowance = 0
        self.framed = 0
        self.between = 0
        self.latest: Request | None = None
        self.latest_size = 0
        self.continues = False
        self.upgrading = False
        self.muted = False
        self.refuses_head = False
        # Of those that were read.
        self.held = 0
        self.held_unfinished = 0
        self.held_exchange = 0
        self.exchange: Exchange | None = None
        self.waiting: deque[Request | Reply] = deque()
        # Of what was sent, for the sweep.
        self.progress = 0
        self.progress_since = 0.0
        self.counted = 0

    @property
    def date(self) -> list[tuple[bytes, bytes]]:
        """The header fields of every answer, made once a second."""
        return self.server_state.default_headers

    # Reading: what asyncio calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that it says so as soon as the kernel does not take all
        crowd: Crowd = self.app_state["connections"]
        if crowd.enter(self):
            return
        if crowd.overrun:
            transport.abort()
        else:
            self.refuse(error_answer(Unavailable("Too many connections")))

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        if self.phase is Phase.NOTHING:
            return
        if self.phase is Phase.BODY:
            self.framed += len(data)
            self.between += len(data)
        self.head_allowance = max(len(data), self.head_allowance if self.head else 0)
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError as error:
            emit(Event.BUG, error=error)
            self.refuse(bug_reply())
        except httptools.HttpParserError as error:
            self.head += data
            self.refuse(heads.malformed(error, self.head), error)
        if self.phase is Phase.HEAD:
            self.head += data
            self._check_unfinished_head()
        elif self.phase is Phase.BODY and (self.framed > FRAMING_LIMIT or self.between > heads.HEAD_LIMIT):
            self.refuse(too_large())  # the body, or a trailer, or what stands behind the size of a chunk
        if self.held_unfinished or self.phase is Phase.HEAD or self.phase is Phase.BODY:
            self._hold_unfinished()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes a true value to keep it open
        """Let a client that closed its sending side have the answers to what it sent."""
        self.half_closed = True
        return self.exchange is not None or bool(self.waiting)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Forget the client; whatever it asked for is finished without it."""
        self.connections.discard(self)
        self.app_state["connections"].leave(self)
        self.app_state["connections"].unsent.release(self)
        self._hold(-self.held)
        self.held_unfinished = self.held_exchange = 0
        self.phase = Phase.NOTHING
        self.waiting.clear()
        if self.exchange is not None:
            self.exchange.leave()
        self.flow.resume_writing()

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._go_on_without_upgrade()
                if self.phase is Phase.NOTHING:
                    return
            else:
                return

    def _go_on_without_upgrade(self) -> None:
        """Put a parser that knows of no upgrade in the same place of the stream (decision 28).

        llhttp takes everything after an upgrade's head for another protocol; clients that offer h2c on
        every plain request mean its body.
        """
        if self.request is None:  # refused
            return
        self.upgrading = False
        request = self.request
        fields = [b"%b: %b\r\n" % field for field in request.headers if field[0] in heads.FRAMING]
        head = b"%b / HTTP/1.1\r\n%b\r\n" % (request.method.encode(), b"".join(fields))
        self.parser = httptools.HttpRequestParser(self)
        self.muted = True
        self.parser.feed_data(head)
        self.muted = False

    def _check_unfinished_head(self) -> None:
        # A head that began in the middle of a chunk may be charged with that chunk, so it is allowed it.
        if refusal := heads.check_unfinished(self.url, len(self.head) - self.head_allowance, len(self.headers)):
            self.refuse(refusal)

    def _hold_unfinished(self) -> None:
        """Count what a request that is not whole takes: of its head the bytes, what the parser made of them."""
        size = 0
        if self.phase is Phase.HEAD:
            size = 2 * len(self.head) + FIELD_SIZE * len(self.headers)
        elif self.request is not None:
            size = self.request.size + self.size
        self._hold(size - self.held_unfinished)
        self.held_unfinished = size
        if size and not self._received.allows(self.held):
            self.refuse(error_answer(Unavailable("Too many large requests")))

    # Reading: what the parser calls.

    def on_message_begin(self) -> None:
        """Begin a request."""
        if self.muted or self.phase is Phase.NOTHING:
            return
        self.phase = Phase.HEAD
        self.since = self.loop.time()
        self.url = b""
        self.headers = []
        self.continues = False
        self.upgrading = False

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        if not self.muted:
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head; those of a trailer are dropped (decision 27)."""
        if self.phase is Phase.HEAD:
            self.headers.append((name.lower(), value.rstrip()))  # llhttp leaves the blanks at the end

    def on_headers_complete(self) -> None:
        """Check the head; refuse the request at once if it breaks a limit."""
        if self.muted or self.phase is not Phase.HEAD:
            return
        self.phase = Phase.BODY
        version = self.parser.get_http_version()
        request = self.request = Request(
            self.parser.get_method().decode("ascii"),
            self.url,
            self.headers,
            version,
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
        )
        large = self.head or self.head_allowance > heads.HEAD_LIMIT
        self.head = b""
        self.framed = 0
        self.between = 0
        self.size = 0
        self.body = b""
        if refusal := (heads.check_size(request) if large else None) or heads.check(request):
            self.refuse(refusal)
            return
        self.upgrading = self.parser.should_upgrade()
        self.continues = heads.waits_for_continue(request)
        if self.continues:
            self._continue()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if self.phase is not Phase.BODY:
            return
        self.size += len(body)
        self.between = 0
        self.continues = False
        # Nearly every body is one piece; those of two bytes each would take fifty times their size.
        if not self.body:
            self.body = body
        else:
            if type(self.body) is bytes:
                self.body = bytearray(self.body)
            self.body += body
        if self.size > BODY_LIMIT:
            self.refuse(too_large())

    def on_message_complete(self) -> None:
        """Answer the request now, or after those before it."""
        if self.phase is not Phase.BODY or self.upgrading or self.request is None:
            return
        request = self.request
        if self.body:
            if not self.held_unfinished and not self._received.allows(self.size):
                self.refuse(error_answer(Unavailable("Too many large requests")))
                return
            request.body = bytes(self.body)
        self.request = None
        if self.learns:
            self.latest, self.latest_size = request, self.size
        # An idle connection keeps nothing of what it was asked.
        self.headers = []
        self.url = b""
        self.body = b""
        self.size = 0
        self.continues = False
        self.read += 1
        self.phase = Phase.NEXT if request.keep_alive else Phase.NOTHING
        if self.exchange is not None or self.waiting or self.flow.write_paused:
            self._queue(request)
        else:
            self.begin(request)

    def let_go(self, request: Request) -> None:
        """Drop what waited and nobody needs any more."""
        self._hold(-request.held)
        request.held = 0
        request.body = b""

    @property
    def _received(self) -> ReceiveBudget:
        budget: ReceiveBudget = self.app_state["connections"].received
        return budget

    def _hold(self, size: int) -> None:
        self.held += size
        self._received.size += size

    def hold_exchange(self, request: Request, body: int) -> None:
        """Count a request, with a body of so many bytes, until its response is there."""
        size = request.size + body
        self.held_exchange += size
        self.held += size
        self._received.size += size

    def _continue(self) -> None:
        # Not before the answers to earlier requests.
        if self.exchange is None and not self.waiting:
            self.continues = False
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # Answering, in the order of the requests.

    def begin(self, request: Request) -> None:
        """Have a request answered; all before it are."""
        self.exchange = Exchange(self, request)
        self._hold(-request.held)
        request.held = 0
        self.hold_exchange(request, len(request.body))
        self.spawn(self.exchange.run(self.app))

    def spawn(self, answering: Any) -> None:
        """Run a coroutine that a graceful stop waits for."""
        task = self.loop.create_task(answering)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def finish(self, exchange: Exchange) -> None:
        """Go on after the answer of the exchange in turn is complete."""
        self.end_exchange(exchange)
        self.answered(close=exchange.close)
        self.advance()

    def end_exchange(self, exchange: Exchange) -> None:
        """Forget the request that was in turn."""
        self.exchange = None
        self._hold(-self.held_exchange)
        self.held_exchange = 0
        exchange.request.body = b""

    def answered(self, *, close: bool) -> None:
        """Count an answer; close the connection if it was the last."""
        self.served += 1
        if close:
            self.waiting.clear()
            self.phase = Phase.NOTHING
            self.transport.close()

    def is_last(self, request: Request) -> bool:
        """Tell whether the connection ends with this request's answer."""
        if not request.keep_alive:
            return True
        return (self.draining or self.half_closed) and not self.waiting and self.phase is Phase.NEXT

    def advance(self) -> None:
        """Answer what waits, as far as it can be answered now."""
        while self.waiting and self.exchange is None and not self.flow.write_paused:
            request = self.waiting.popleft()
            if isinstance(request, Reply):
                self._send_refusal(request)
                return
            self.begin(request)
        if self.exchange is not None or self.waiting or self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.continues:
            self._continue()
        if self.half_closed or (self.draining and self.phase is Phase.NEXT):
            self.transport.close()

    def _queue(self, request: Request) -> None:
        # One read may hold thousands of requests, each of which takes more than its bytes did.
        request.held = request.size + len(request.body)
        self._hold(request.held)
        if not self._received.allows(self.held):
            self.request = request
            self.let_go(request)
            self.refuse(error_answer(Unavailable("Too many requests are waiting")))
            return
        self.waiting.append(request)
        if self.flow.read_paused:
            return  # counting all their bodies for each of those thousands would take the square of that
        bodies = sum(len(waiting.body) for waiting in self.waiting)
        if len(self.waiting) >= PIPELINE_LIMIT or bodies >= BODY_LIMIT:
            self.flow.pause_reading()

    # Refusing.

    def refuse(self, reply: Reply, error: httptools.HttpParserError | None = None) -> None:
        """Answer with an error after the requests before, then close gently; nothing more is read."""
        if self.phase is Phase.NOTHING:
            return
        self.refuses_head = self._reads_head_method(error)
        self.phase = Phase.NOTHING
        self._hold(-self.held_unfinished)
        self.held_unfinished = 0
        self.size = 0
        self.request = None
        self.body = b""
        self.head = b""
        self.headers = []
        self.url = b""
        if self.exchange is not None or self.waiting or self.flow.write_paused:
            self.waiting.append(reply)
        else:
            self._send_refusal(reply)

    def _reads_head_method(self, error: httptools.HttpParserError | None) -> bool:
        """Tell whether the request that is being read is a HEAD, as far as its line is there."""
        if self.request is not None:
            return self.request.method == "HEAD"
        if self.phase is not Phase.HEAD or self.parser.get_method() != b"HEAD":
            return False
        return bool(self.url) or heads.names_method(b"HEAD", self.head, error)

    def _send_refusal(self, reply: Reply) -> None:
        if self.transport.is_closing():
            return
        self.write(whole(reply, self.date, close=True, content=not self.refuses_head))
        # Closing now would reset the connection while the client still sends, and the reset can overtake
        # the answer: what arrives is read and dropped for a while.
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(DISCARD_PATIENCE, self._end_discard, -1, self.loop.time())

    def _end_discard(self, acked: int, since: float) -> None:
        """Close, unless the client is still reading: a reset would also take what our kernel has not sent yet."""
        told, now = delivery(self.transport), self.loop.time()
        if told is not None and told.acked != acked:
            since = now
        if told is None or told.whole or now - since > STALL_PATIENCE:
            self.transport.abort()
        else:
            self.loop.call_later(DISCARD_PATIENCE, self._end_discard, told.acked, since)

    # Writing.

    def write(self, *parts: bytes, shared: bytes | None = None) -> None:
        """Send parts of a response, unless the client is gone: the transport knows before `connection_lost`.

        One of them may be `shared`, a cached response.
        """
        if not self.transport.is_closing():
            self.transport.writelines(parts)
            if self.flow.write_paused:
                self.lease(sum(map(len, parts)), shared)

    def lease(self, size: int, shared: bytes | None = None) -> None:
        """Count what was written and could not be sent at once."""
        self.app_state["connections"].unsent.lease(self, size, shared)

    def pause_writing(self) -> None:
        """Take no more requests from a client that does not read its answers."""
        super().pause_writing()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        super().resume_writing()
        self.app_state["connections"].unsent.release(self)
        if self.phase is not Phase.NOTHING or self.waiting:
            self.advance()
        else:
            self.flow.resume_reading()

    # Time, and the end.

    def sweep(self, now: float) -> None:
        """Enforce the deadlines; called for every connection twice a second, so that none needs a timer."""
        if self.served != self.counted:
            self.counted = self.served
            if self.phase is Phase.NEXT:
                self.since = now
        if self._stalls(now):
            self.transport.abort()
        elif self.phase in (Phase.HEAD, Phase.BODY):
            if self.flow.read_paused or self.continues:
                self.since = now  # it is the service that makes the client wait
            if now - self.since > REQUEST_PATIENCE:
                self.refuse(error_reply(408, "The request was not whole within 10 seconds"))
        elif self.is_idle() and now - self.since > (IDLE_PATIENCE if self.served else REQUEST_PATIENCE):
            self.transport.close()

    def shutdown(self) -> None:
        """Finish what the client has begun, then close; called once when the service stops."""
        self.draining = True
        self.loop.call_later(DRAIN_PATIENCE, self._close_if_idle)

    def timeout_keep_alive_handler(self) -> None:
        """Do nothing: the sweep closes idle connections."""

    def is_idle(self) -> bool:
        """Tell whether nothing was begun that is not answered yet."""
        return self.phase is Phase.NEXT and self.exchange is None and not self.waiting

    def _close_if_idle(self) -> None:
        if self.is_idle():
            self.transport.close()

    def _stalls(self, now: float) -> bool:
        unsent = self.transport.get_write_buffer_size()
        if not unsent:
            self.progress = 0
            return False
        told = delivery(self.transport)
        progress = unsent if told is None else told.acked
        if progress != self.progress:
            self.progress = progress
            self.progress_since = now
        return now - self.progress_since > STALL_PATIENCE
