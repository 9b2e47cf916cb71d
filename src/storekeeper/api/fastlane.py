"""The fast adapter: responds to the contract's routes straight from the parser's callbacks. Imports `http` and `api`.

It contains no rule: it calls the same resource as the ASGI application, which serves all other routes. It needs no
task, no ASGI scope and no `receive` or `send`; of a plain request, it looks at the deciding fields alone.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from storekeeper.api.cache import ResponseCache
from storekeeper.api.gate import Gate
from storekeeper.api.plan import Plan
from storekeeper.api.resource import Resource
from storekeeper.events import Event, emit
from storekeeper.http.connection import Connection
from storekeeper.http.exchange import Exchange
from storekeeper.http.limits import Limits
from storekeeper.http.plain import PlainReader
from storekeeper.http.reader import Phase
from storekeeper.http.request import Request
from storekeeper.http.response import INTERNAL_ERROR, Deferred, Response, encode, encode_content, encode_start

MAX_COPIED_BYTES = 16 * 1024
"""Bytes of a cached response up to which one copy of it is cheaper than a second write."""

_IDLE = Phase.IDLE


@dataclass(frozen=True, slots=True)
class Runtime:
    """The objects that all connections of one process share, joined in one when the collection is open."""

    resource: Resource
    gate: Gate
    cache: ResponseCache
    plain: PlainReader
    limits: Limits
    application: Any
    """The ASGI application, which responds to the requests that the fast lane does not serve."""


class FastLane(Connection):
    """A connection whose requests the resource carries out directly, where it can."""

    def __init__(self, runtime: Runtime, *args: Any, **kwargs: Any) -> None:
        super().__init__(runtime.limits, runtime.gate, *args, **kwargs)
        self.resource = runtime.resource
        self.plan = runtime.gate.plan
        self.cache = runtime.cache
        self.plain = runtime.plain
        self.requests = runtime.plain.requests

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client: a remembered request, a plain one, or what the careful way has to read."""
        if self.reader.phase is _IDLE and self.exchange is None and not self.waiting and not self.flow.write_paused:
            try:
                request = self.requests.get(data) or self.plain.read(data)
                if request is not None:
                    self.begin(request)
                    return
            except Exception as error:  # noqa: BLE001 - a bug ends this connection, and no other
                emit(Event.BUG, error=error)
                self.reader.refuse(INTERNAL_ERROR)
                return
        super().data_received(data)

    def begin(self, request: Request) -> None:
        """Respond to a request; all earlier requests have their responses."""
        plan: Plan | None = request.plan
        if plan is None:
            plan = request.plan = self.plan(request.method, request.target, request.headers)
        if plan is None:
            super().begin(request)
            return
        by = 0
        if plan.claim is not None:
            admitted = plan.claim()
            if not isinstance(admitted, int):
                self._send(request, admitted, None)
                return
            by = admitted
        cached = plan.cached and request.condition is None and request.keep_alive
        if not cached or self.draining or self.half_closed:
            self._respond(request, plan, None, by)  # no response that may be the last is cached
        elif (content := self.cache.get(key := request.target)) is not None:
            self._write_content(request, 200, content, None)
        else:
            self._respond(request, plan, key if self.cache.admits(key) else None, by)

    def _respond(self, request: Request, plan: Plan, cache_key: bytes | None, by: int) -> None:
        response = self.resource.respond(plan, request.target, request.body, by, request.condition)
        if type(response) is Response:
            self._send(request, response, cache_key)
        else:
            assert type(response) is Deferred
            exchange = self.begin_exchange(request)
            request.body = b""
            response.future.add_done_callback(partial(self._send_deferred, exchange, response))

    def _send(
        self, request: Request, response: Response, cache_key: bytes | None, began: float | None = None
    ) -> None:
        plan: Plan = request.plan
        if response.stream is not None:
            exchange = self.begin_exchange(request)
            exchange.fields = plan.fields
            if cache_key is not None:
                response.stream = self.cache.record(cache_key, response)
            self.spawn(exchange.complete(exchange.stream(response)))
            return
        close = not request.keep_alive or ((self.draining or self.half_closed) and self.is_last(request))
        head_only = request.method == "HEAD"
        status = response.status
        if (status == 200 or status == 304) and not close and not head_only:  # noqa: PLR1714 - quicker
            content = encode_content(response)
            if cache_key is not None:
                self.cache.put(cache_key, content)
            self._write_content(request, status, content, began)
            return
        common = self.server_state.default_headers
        data = encode(response, common, head_only=head_only, close=close, fields=plan.fields)
        self.write(data)
        self.sent(request, status, len(data), began, close)

    def _write_content(self, request: Request, status: int, content: bytes, began: float | None) -> None:
        start: bytes = encode_start(status, self.server_state.default_headers) + request.plan.fields
        size = len(start) + len(content)
        if size < MAX_COPIED_BYTES:
            if not self.transport.is_closing():  # as `write` does it, without another call
                self.transport.write(start + content)
                if self.flow.write_paused:
                    self.limits.send_budget.lease(self, size)
        else:
            self.write(start, content, shared=content)
        self.sent(request, status, size, began)

    def _send_deferred(self, exchange: Exchange, deferred: Deferred, _future: object) -> None:
        if exchange.over:
            # Retrieved, because asyncio would report an exception that nobody retrieves.
            deferred.future.exception()
            return
        response = deferred.response()
        self.end_exchange(exchange)
        self._send(exchange.request, response, None, exchange.began)
        if self.exchange is None:
            self.advance()
