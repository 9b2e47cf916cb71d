"""One request and its response, whole or as a stream, at once or later. It knows no connection."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from time import perf_counter

from storekeeper.http.flow import Flow
from storekeeper.http.request import Request
from storekeeper.http.response import (
    LAST_CHUNK,
    Response,
    StreamAborted,
    encode_chunk,
    encode_rest,
    encode_start,
    id_field,
)
from storekeeper.http.runtime import Served
from storekeeper.log.events import Event, emit

Common = Iterable[tuple[bytes, bytes]]
"""The fields that every response has; uvicorn renews them once a second."""


class Exchange:
    """A request that has no complete response yet."""

    __slots__ = ("_began", "_chunked", "_stop", "over", "request", "size", "status")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.over = False
        """Whether the response is complete or broken off, or the client is gone."""
        self.status = 0
        self.size = 0
        """Bytes that were sent, with the head."""
        self._began = perf_counter()
        self._chunked = request.version == "1.1"
        self._stop: Callable[[], None] | None = None

    def encode(self, response: Response, common: Common, *, close: bool) -> tuple[bytes, bytes]:
        """Return the start of a response, and all that follows it but for a stream's body. From
        now on this is the response."""
        request = self.request
        fields = request.plan.fields if request.plan else b""
        if request.id:
            fields += id_field(request.id)
        head_only = request.method == "HEAD"
        rest = encode_rest(
            response, fields, head_only=head_only, close=close, chunked=self._chunked
        )
        self.status = response.status
        self._stop = response.stop
        return encode_start(response.status, common), rest

    async def send_stream(
        self, stream: AsyncGenerator[bytes, None], head: bytes, flow: Flow
    ) -> bool:
        """Send a response part by part, no faster than the client reads; return whether it is
        complete. It is not if the client left, nor after a bug, which this logs."""
        try:
            async with aclosing(stream) as parts:
                async for part in parts:
                    if self._chunked and part:
                        self.size += flow.write(head, *encode_chunk(part))
                    else:
                        self.size += flow.write(head, part)
                    head, part = b"", b""  # noqa: PLW2901 - not kept while the client reads
                    await flow.drain()
                    if self.over:
                        return False
        except StreamAborted:
            return False
        except Exception as error:  # noqa: BLE001 - the last resort of every stream
            emit(Event.BUG, error=error)
            return False
        if self.over:  # it was stopped because its client is gone
            return False
        self.size += flow.write(head, LAST_CHUNK if self._chunked else b"")
        return True

    @property
    def is_endless(self) -> bool:
        """Whether the response is a stream that waits for something."""
        return self._stop is not None

    def stop(self) -> None:
        """Ask a stream that waits for something to end."""
        if self._stop is not None:
            self._stop()

    def end(self, client: tuple[str, int] | None) -> Served:
        """Release what the request took; return what the observer learns of the response."""
        self.over = True
        self.stop()
        request = self.request
        seconds = perf_counter() - self._began
        if request.upload is not None:
            request.upload.release()
        return Served(
            request.route,
            request.method,
            self.status,
            self.size,
            seconds,
            request.token_number,
            client,
            request.id,
        )
