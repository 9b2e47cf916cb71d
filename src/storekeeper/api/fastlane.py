"""The fast adapter: responds to the contract's routes straight from the parser's callbacks. Imports `http` and `api`.

It contains no rule: it calls the same resource as the ASGI application, which serves all other routes. A request
needs no task, no ASGI scope and no `receive` or `send`; and a GET that was served before, with the database unchanged
since, is not even parsed.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from storekeeper.api.cache import LARGE_READ, Recording
from storekeeper.api.resource import Plan
from storekeeper.api.runtime import Runtime
from storekeeper.events import Event, emit
from storekeeper.http.budgets import SMALL_BYTES
from storekeeper.http.connection import Connection
from storekeeper.http.exchange import Exchange
from storekeeper.http.reader import Phase
from storekeeper.http.request import Request
from storekeeper.http.response import Deferred, Response, encode, encode_content, encode_start, internal_error

MAX_COPIED_BYTES = 16 * 1024
"""Bytes of a cached response up to which one copy of it is cheaper than a second write."""


_IDLE = Phase.IDLE


class FastLane(Connection):
    """A connection whose requests the resource carries out directly, where it can."""

    def __init__(self, runtime: Runtime, *args: Any, **kwargs: Any) -> None:
        super().__init__(runtime.limits, *args, **kwargs)
        self.resource = runtime.resource
        self.gate = runtime.gate
        self.cache = runtime.cache
        self.heads = runtime.heads
        self.requests = runtime.heads.requests
        self._requests_read = 0
        self._latest: tuple[Request, int] | None = None

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client. A head that was parsed once is not parsed again."""
        request = self.requests.get(data)
        if request is None or self.reader.phase is not _IDLE or self.busy:
            self._read(data)
            return
        if not self.cache.checked:
            self.cache.revalidate(len(self.connections))
        plan: Plan | None = request.plan
        if plan is not None and self.gate.open and not self.draining:
            content = self.cache.get(plan.cache_key)
            if content is not None:
                self._write_ok(content, None)
                return
        self.begin(request)

    def _read(self, data: bytes) -> None:
        large = len(data) >= LARGE_READ
        if large or self.reader.phase is not _IDLE or self.busy:
            super().data_received(data)
            self._latest = None
            if large:
                self.cache.checked = False
            return
        if not self.cache.checked:
            self.cache.revalidate(len(self.connections))
        end = data.find(b"\r\n\r\n") + 4
        cached = self.heads.get(data[:end])
        if (
            cached
            and len(data) - end == cached.length
            and (cached.length <= SMALL_BYTES or self.limits.received.allows(cached.length))
        ):
            self.begin(cached.request.with_body(data[end:]))
        else:
            self._read_and_remember(data)

    def _read_and_remember(self, data: bytes) -> None:
        before = self._requests_read
        super().data_received(data)
        if self._latest is not None:
            if self._requests_read == before + 1 and self.reader.phase is Phase.IDLE:
                self.heads.put(data, *self._latest)
            self._latest = None

    def _accept(self, request: Request, size: int) -> None:
        self._requests_read += 1
        self._latest = request, size
        super()._accept(request, size)

    def begin(self, request: Request) -> None:
        """Respond to a request; all earlier requests have their responses."""
        plan: Plan | None = request.plan
        if plan is None:
            plan = request.plan = self.resource.plan(request.method, request.target, request.headers)
        if plan is None:
            super().begin(request)
        elif not self.gate.open and (refusal := self.gate.admit(request.headers, plan.scope)):
            self._send(request, refusal, None)
        else:
            self._respond(request, plan)

    def _respond(self, request: Request, plan: Plan) -> None:
        response: Response | Deferred
        try:
            response = self.resource.respond(plan, request.body)
        except Exception as error:  # noqa: BLE001 - a bug in one response must not end the connection's others
            emit(Event.BUG, error=error)
            response = internal_error()
        if type(response) is Response:
            self._send(request, response, plan.cache_key)
        else:
            assert type(response) is Deferred
            exchange = self.begin_exchange(request)
            request.body = b""
            response.future.add_done_callback(partial(self._send_deferred, exchange, response))

    def _send(
        self, request: Request, response: Response, cache_key: bytes | None, began: float | None = None
    ) -> None:
        if response.stream is not None:
            exchange = self.begin_exchange(request)
            self.spawn(self._stream(exchange, response, cache_key))
            return
        close = self.is_last(request)
        if response.status == 200 and request.method != "HEAD" and not close:
            content = encode_content(response)
            if cache_key is not None:
                self.cache.put(cache_key, content)
            self._write_ok(content, began)
            return
        data = encode(response, self.common_headers, head_only=request.method == "HEAD", close=close)
        self.write(data)
        self.sent(response.status, len(data), began, close)

    def _write_ok(self, content: bytes, began: float | None) -> None:
        start = encode_start(200, self.server_state.default_headers)
        size = len(start) + len(content)
        if size < MAX_COPIED_BYTES:
            if not self.transport.is_closing():  # as `write` does it, without another call
                self.transport.write(start + content)
                if self.flow.write_paused:
                    self.limits.sent.lease(self, size)
        else:
            self.write(start, content, shared=content)
        self.sent(200, size, began)

    def _stream(self, exchange: Exchange, response: Response, cache_key: bytes | None) -> Coroutine[Any, Any, None]:
        # Begin to record now: in a later loop iteration the list's beginning could be older than the token.
        recording = None
        if cache_key is not None and response.status == 200 and not self.is_last(exchange.request):
            recording = self.cache.record()
        if recording is None:
            return exchange.stream(response)
        exchange.record = recording.add
        return self._record(exchange, response, recording, cache_key)

    async def _record(
        self, exchange: Exchange, response: Response, recording: Recording, cache_key: bytes | None
    ) -> None:
        try:
            await exchange.stream(response)
        finally:
            complete = exchange.ended and not exchange.close and not exchange.gone
            self.cache.finish(recording, cache_key, complete=complete)

    def _send_deferred(self, exchange: Exchange, deferred: Deferred, _future: object) -> None:
        if exchange.gone:
            # Retrieved, because asyncio would report an exception that nobody retrieves.
            deferred.future.exception()
            return
        try:
            response = deferred.response()
        except Exception as error:  # noqa: BLE001 - as in `_respond`
            emit(Event.BUG, error=error)
            response = internal_error()
        self.end_exchange(exchange)
        self._send(exchange.request, response, None, exchange.began)
        if self.exchange is None:
            self.advance()
