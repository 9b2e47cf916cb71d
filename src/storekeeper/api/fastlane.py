"""The fast adapter: answers the contract's routes straight from the parser's callbacks. Imports `api`.

It owns no rule: it calls the same resource as the ASGI application, which gets all that is not the
contract's. No task, no scope and no `receive` or `send` stand between a request and its reply; and a GET
that was answered before, with the database unchanged since, is not even parsed.
"""

from functools import partial
from typing import Any

from storekeeper.api.connection import Connection, Phase
from storekeeper.api.exchange import Exchange, Request, whole
from storekeeper.api.kept import LARGE_READ, Kept
from storekeeper.api.reply import JSON, Headers, Later, Reply, bug_reply
from storekeeper.api.resource import Resource
from storekeeper.events import Event, emit

_SMALL = 16 * 1024
"""Up to here one copy of an answer is cheaper than a second write."""


class FastLane(Connection):
    """A connection whose requests the resource answers directly, where it can."""

    learns = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.resource: Resource = self.app.resource
        self.kept: Kept = self.app.kept
        self.heads = self.kept.heads
        self.received = self.app_state["connections"].received
        self.ready = self.kept.answers

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client. A head that was parsed once is not parsed again."""
        large = len(data) >= LARGE_READ
        if large or self.phase is not _NEXT or self.exchange is not None or self.waiting or self.flow.write_paused:
            super().data_received(data)
            self.latest = None
            if large:
                self.kept.fresh = False
            return
        if not self.kept.fresh:
            self.kept.look(self.date, len(self.connections))
        if (known := self.heads.get(data)) and not known[1]:
            self._serve(known[0])
            return
        end = data.find(b"\r\n\r\n") + 4
        known = self.heads.get(data[:end])
        if known and len(data) - end == known[1] and self.received.allows(known[1]):
            self.begin(known[0].with_body(data[end:]))
            return
        read = self.read
        super().data_received(data)
        if self.latest is not None:
            if self.read == read + 1 and self.phase is _NEXT:
                self.kept.know(data, self.latest, self.latest_size)
            self.latest = None

    def _serve(self, request: Request) -> None:
        """Answer a request without a body; if possible with the answer that is kept."""
        answer = self.ready.get(request.target) if request.method == "GET" and not self.draining else None
        if answer is None:
            self.begin(request)
            return
        self.served += 1
        if len(answer) < _SMALL:
            answer = self.kept.prefix + answer
            self.transport.write(answer)
            if self.flow.write_paused:
                self.lease(len(answer))
        else:
            self._share(answer)

    def _share(self, answer: bytes) -> None:
        """Send a long answer without a copy of it."""
        self.write(self.kept.prefix, answer, shared=answer)

    def begin(self, request: Request) -> None:
        """Have a request answered; all before it are."""
        if self.date is not self.kept.date:
            self.kept.set_date(self.date)
        action = request.action
        if action is None:
            action = request.action = self.resource.plan(request.method, request.target, request.headers)
        if action is None:
            super().begin(request)
            return
        reply: Reply | Later
        body = request.body
        try:
            reply = self.resource.carry_out(action, body)
        except Exception as error:  # noqa: BLE001 - a bug in one answer must not end the connection's others
            emit(Event.BUG, error=error)
            reply = bug_reply()
        if request.held:
            self.let_go(request)
        if type(reply) is Reply:
            if reply.status == 200 and request.method == "GET" and not self.is_last(request):
                self._keep(request, reply)
            else:
                self._now(request, reply)
        else:
            assert type(reply) is Later
            self.exchange = exchange = Exchange(self, request)
            self.hold_exchange(request, len(body))
            request.body = b""
            reply.future.add_done_callback(partial(self._later, exchange, reply))

    def _keep(self, request: Request, reply: Reply) -> None:
        if reply.stream is not None:
            self.exchange = exchange = Exchange(self, request)
            # Now: in a later turn somebody else may have looked, and the list's beginning be older than that.
            exchange.recording = self.kept.record()
            self.spawn(self._record(exchange, reply))
            return
        answer = _after_date(reply.headers, reply.body)
        self.kept.keep(request.target, answer)
        if len(answer) < _SMALL:
            self.write(self.kept.prefix + answer)
        else:
            self._share(answer)
        self.answered(close=False)

    async def _record(self, exchange: Exchange, reply: Reply) -> None:
        recording = exchange.recording
        try:
            await exchange.stream(reply)
        finally:
            if recording is not None:
                whole = exchange.ended and not exchange.close and not exchange.gone
                self.kept.finish(recording, exchange.request.target, whole=whole)

    def _now(self, request: Request, reply: Reply) -> None:
        if reply.stream is not None:
            self.exchange = exchange = Exchange(self, request)
            self.spawn(exchange.stream(reply))
            return
        close = self.is_last(request)
        if reply.status == 200 and request.method != "HEAD" and not close:
            self.write(self.kept.prefix + _after_date(reply.headers, reply.body))
        else:
            self.write(whole(reply, self.date, close=close, content=request.method != "HEAD"))
        self.answered(close=close)

    def _later(self, exchange: Exchange, later: Later, _future: object) -> None:
        if exchange.gone:
            # Looked at, so that asyncio does not report an error as never retrieved.
            later.future.exception()
            return
        try:
            reply = later.reply()
        except Exception as error:  # noqa: BLE001 - as in `begin`
            emit(Event.BUG, error=error)
            reply = bug_reply()
        self.end_exchange(exchange)
        self._now(exchange.request, reply)
        if self.exchange is None:
            self.advance()


_NEXT = Phase.NEXT


def _after_date(headers: Headers, body: bytes) -> bytes:
    fields = _JSON_FIELDS if headers is JSON else _fields(headers)
    return b"%bcontent-length: %d\r\n\r\n%b" % (fields, len(body), body)


def _fields(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in headers])


_JSON_FIELDS = _fields(JSON)
