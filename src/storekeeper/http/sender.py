"""Sends one connection's responses, of each kind, and tells the observer of each."""

import asyncio
from time import perf_counter

from uvicorn.server import ServerState

from storekeeper.http.cache import Cached
from storekeeper.http.exchange import Exchange
from storekeeper.http.flow import Flow
from storekeeper.http.request import Refusal, Request
from storekeeper.http.response import Response, encode_rest, encode_start, id_field
from storekeeper.http.runtime import Runtime, Served


class Sender:
    """The sending half of a connection. The other half says what is sent, and when.

    uvicorn renews `server_state.default_headers` once a second: what every response has.
    """

    def __init__(
        self,
        runtime: Runtime,
        server_state: ServerState,
        flow: Flow,
        client: tuple[str, int] | None,
    ) -> None:
        self._runtime = runtime
        self._server_state = server_state
        self._flow = flow
        self._client = client
        self.responses_sent = 0

    def send(self, request: Request, response: Response, began: float, *, close: bool) -> None:
        """Send a whole response, the end of its request; of a stream, only the head."""
        if response.stop is not None:
            response.stop()
        rest = self._encode(request, response, close=close)
        if request.cache_key and response.cacheable and request.plan.cacheable and not close:
            self._runtime.cache.put(request.cache_key, Cached(rest, request.plan.route))
        start = encode_start(response.status, self._server_state.default_headers)
        size = self._flow.write(start + rest)
        self.end(request, response.status, size, began)

    def stream(self, exchange: Exchange, response: Response, *, close: bool) -> asyncio.Task[bool]:
        """Send a response that has a stream. Return the task that sends it; see `send_stream`."""
        assert response.stream is not None
        rest = self._encode(exchange.request, response, close=close)
        start = encode_start(response.status, self._server_state.default_headers)
        exchange.begin_stream(response)
        sending = exchange.send_stream(response.stream, start + rest, self._flow)
        task = asyncio.create_task(sending)
        self._server_state.tasks.add(task)  # type: ignore[arg-type]  # a graceful stop waits for it
        task.add_done_callback(self._server_state.tasks.discard)
        return task

    def end(self, request: Request, status: int, size: int, began: float) -> None:
        """Release what a request took; its response is complete or broken off, or its client
        left."""
        self.responses_sent += 1
        if request.upload is not None:
            request.upload.release()
        plan = request.plan
        self._runtime.observe(
            Served(
                plan.route if plan else None,
                request.method,
                status,
                size,
                perf_counter() - began,
                request.token_number,
                self._client,
                request.id,
            )
        )

    def _encode(self, request: Request, response: Response, *, close: bool) -> bytes:
        """Return all that follows the start of a response, but for a stream's body."""
        fields = request.plan.fields if request.plan else b""
        if request.id:
            fields += id_field(request.id)
        head_only = request.method == "HEAD"
        chunked = request.version == "1.1"
        return encode_rest(response, fields, head_only=head_only, close=close, chunked=chunked)

    def send_cached(self, cached: Cached) -> None:
        """Send a response from the response cache, which needs no exchange."""
        began = perf_counter()
        start = encode_start(200, self._server_state.default_headers)
        size = self._flow.write(start + cached.rest)
        seconds = perf_counter() - began
        self.responses_sent += 1
        self._runtime.observe(Served(cached.route, "GET", 200, size, seconds, 0, self._client, b""))

    def refuse(self, refusal: Refusal) -> None:
        """Send the connection's last response, to a request that could not be read or begun."""
        response, method = refusal.response, refusal.method
        fields = self._runtime.application.fields(refusal.headers)
        if refusal.id:
            fields += id_field(refusal.id)
        head_only = method == "HEAD"
        start = encode_start(response.status, self._server_state.default_headers)
        rest = encode_rest(response, fields, head_only=head_only, close=True, chunked=False)
        size = self._flow.write(start + rest)
        self.responses_sent += 1
        self._runtime.observe(
            Served(None, method, response.status, size, 0.0, 0, self._client, refusal.id)
        )
