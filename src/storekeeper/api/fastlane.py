"""The fast adapter: answers the contract's routes straight from the parser's callbacks. Imports `api`.

It owns no rule: it calls the same resource as the ASGI application, which gets all that is not the
contract's. No task, no scope and no `receive` or `send` stand between a request and its reply; and a GET
that was answered before, with the database unchanged since, is not even parsed.
"""

from typing import Any

from storekeeper.api.connection import Connection, Phase
from storekeeper.api.exchange import Exchange, Request, whole
from storekeeper.api.kept import LARGE_READ, Kept
from storekeeper.api.reply import Headers, Later, Reply, bug_reply
from storekeeper.events import Event, emit

_SMALL = 16 * 1024
"""Up to here one copy of an answer is cheaper than a second write."""


class FastLane(Connection):
    """A connection whose requests the resource answers directly, where it can."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.handle = self.app.resource.handle
        self.kept: Kept = self.app.kept
        self.known = self.kept.requests
        self.ready = self.kept.answers
        self.plain: bytes | None = None

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client; answer at once if they are a known request with a kept answer."""
        free = self.phase is _NEXT and self.exchange is None and not self.waiting and not self.draining
        if free and data in self.known and not self.flow.write_paused:
            kept = self.kept
            if not kept.fresh:
                kept.look(self.date, len(self.connections))
            answer = self.ready.get(self.known[data])
            if answer is not None:
                self.served += 1
                if len(answer) < _SMALL:
                    self.transport.write(kept.prefix + answer)
                else:
                    self.transport.write(kept.prefix)
                    self.transport.write(answer)
                return
        served = self.served
        self.plain = None
        super().data_received(data)
        if len(data) >= LARGE_READ:
            self.kept.fresh = False
        elif free and self.plain is not None and self.served == served + 1 and self.phase is _NEXT:
            # All that these bytes hold is one GET, whose answer was kept.
            self.kept.know(data, self.plain)

    def begin(self, request: Request) -> None:
        """Have a request answered; all before it are."""
        if not self.kept.fresh:
            self.kept.look(self.date, len(self.connections))
        try:
            reply = self.handle(request.method, request.target, request.headers, request.body)
        except Exception as error:  # noqa: BLE001 - a bug in one answer must not end the connection's others
            emit(Event.BUG, error=error)
            reply = bug_reply()
        if type(reply) is Reply:
            if reply.status == 200 and request.method == "GET" and not self.is_last(request):
                self._keep(request, reply)
            else:
                self._now(request, reply)
        elif type(reply) is Later:
            self.exchange = exchange = Exchange(self, request)
            reply.future.add_done_callback(lambda _: self._later(exchange, reply))
        else:
            super().begin(request)

    def _keep(self, request: Request, reply: Reply) -> None:
        if reply.stream is not None:
            self.exchange = exchange = Exchange(self, request)
            self.spawn(self._record(exchange, reply))
            return
        answer = _after_date(reply.headers, reply.body)
        self.kept.keep(request.target, answer)
        self.plain = None if request.body else request.target
        self.write(self.kept.prefix + answer)
        self.answered(close=False)

    async def _record(self, exchange: Exchange, reply: Reply) -> None:
        recording = exchange.recording = self.kept.record()
        try:
            await exchange.stream(reply)
        finally:
            if recording is not None:
                whole = exchange.ended and not exchange.close and not exchange.gone.is_set()
                self.kept.finish(recording, exchange.request.target, whole=whole)

    def _now(self, request: Request, reply: Reply) -> None:
        if reply.stream is not None:
            self.exchange = exchange = Exchange(self, request)
            self.spawn(exchange.stream(reply))
            return
        close = self.is_last(request)
        self.write(whole(reply, request, self.date, close=close))
        self.answered(close=close)

    def _later(self, exchange: Exchange, later: Later) -> None:
        if exchange.gone.is_set():
            # Looked at, so that asyncio does not report an error as never retrieved.
            later.future.exception()
            return
        try:
            reply = later.reply()
        except Exception as error:  # noqa: BLE001 - as in `begin`
            emit(Event.BUG, error=error)
            reply = bug_reply()
        self.exchange = None
        self._now(exchange.request, reply)
        if self.exchange is None:
            self.advance()


_NEXT = Phase.NEXT


def _after_date(headers: Headers, body: bytes) -> bytes:
    fields = b"".join([b"%b: %b\r\n" % field for field in headers])
    return b"%bcontent-length: %d\r\n\r\n%b" % (fields, len(body), body)
