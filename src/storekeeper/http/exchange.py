"""A request whose response comes later, or as a stream. It knows no connection."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from storekeeper.http.flow import Flow
from storekeeper.http.request import Request
from storekeeper.http.response import LAST_CHUNK, Response, StreamAborted, encode_chunk
from storekeeper.log.events import Event, emit


class Exchange:
    """A request that has no complete response yet. It `began` at a time of `perf_counter`."""

    __slots__ = ("_chunked", "_stop", "began", "over", "request", "size", "status")

    def __init__(self, request: Request, began: float) -> None:
        self.request = request
        self.began = began
        self.over = False
        """Whether the response is complete or broken off, or the client is gone."""
        self.status = 0
        self.size = 0
        """Bytes that were sent, with the head."""
        self._chunked = request.version == "1.1"
        self._stop: Callable[[], None] | None = None

    def begin_stream(self, response: Response) -> None:
        """Note a response, whose stream is about to be sent."""
        self.status = response.status
        self._stop = response.stop

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

    def end(self) -> None:
        """End it: the response is complete or broken off, or its client left."""
        self.over = True
        self.stop()
