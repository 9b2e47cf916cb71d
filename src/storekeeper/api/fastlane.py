"""The fast adapter: answers the contract's routes straight from the parser's callbacks. Imports `api`.

It owns no rule: it calls the same resource as the ASGI application, which gets all that is not the
contract's. No task, no scope and no `receive` or `send` stand between a request and its reply.
"""

from typing import Any

from storekeeper.api.connection import Connection
from storekeeper.api.exchange import Exchange, Request, whole
from storekeeper.api.reply import Later, Reply, bug_reply
from storekeeper.events import Event, emit


class FastLane(Connection):
    """A connection whose requests the resource answers directly, where it can."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.handle = self.app.resource.handle

    def begin(self, request: Request) -> None:
        """Have a request answered; all before it are."""
        try:
            reply = self.handle(request.method, request.target, request.headers, request.body)
        except Exception as error:  # noqa: BLE001 - a bug in one answer must not end the connection's others
            emit(Event.BUG, error=error)
            reply = bug_reply()
        if type(reply) is Reply:
            self._now(request, reply)
        elif type(reply) is Later:
            self.exchange = exchange = Exchange(self, request)
            reply.future.add_done_callback(lambda _: self._later(exchange, reply))
        else:
            super().begin(request)

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
