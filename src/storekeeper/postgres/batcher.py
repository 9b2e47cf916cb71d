"""Gathers requests into batches, each of which is served together. Imports the domain."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from storekeeper.concurrency.queue_limit import QueueLimit
from storekeeper.errors import Unavailable
from storekeeper.postgres.pool import CLOSED, NO_RESPONSE, RESPONSE_TIMEOUT

K = TypeVar("K")
R = TypeVar("R")

MAX_QUEUED = 10_000
"""Requests that may wait, fewer if the database is slow; the next ones are refused at once."""

MAX_QUEUED_BYTES = 64 * 2**20
"""Bytes that all waiting requests may take, by their `size`."""

QUEUE_TIMEOUT = 4.0
"""Seconds after which a request that still waits is refused: its remaining time would hardly suffice."""

MAX_GATHER_DELAY = 0.001
"""Seconds that a batch is delayed at most so that it grows, and never more than an eighth of the previous one."""


@dataclass(slots=True, eq=False)
class _Queued(Generic[K, R]):
    """One request: its key, the bytes that it takes, since when it waits (on the loop's clock), its result."""

    key: K
    size: int
    since: float
    future: asyncio.Future[R]

    def settle(self, result: R | Exception) -> None:
        """Set the result, unless the request has one or was cancelled."""
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class Batcher(Generic[K, R]):
    """Gathers requests and has `serve` carry them out, at most `max_batch` at a time, in `workers` batches at once.

    While all workers are busy the next batch grows. `serve` gets the keys of a batch and its deadline; it returns a
    result or an error for each, or raises the error of all. With `gather`, a worker waits up to 1 ms so that clients
    with a new response join the next batch; otherwise they split into two alternating groups.
    """

    def __init__(
        self,
        serve: Callable[[Sequence[K], float], Awaitable[Sequence[R | Exception]]],
        *,
        workers: int = 1,
        max_batch: int = 500,
        size: Callable[[K], int] = lambda _: 0,
        max_batch_bytes: int = 1,
        gather: bool = False,
    ) -> None:
        self._serve = serve
        self._free = workers
        self._max_batch = max_batch
        self._size = size
        self._max_batch_bytes = max_batch_bytes
        self._gather = gather
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Queued[K, R]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._queued_bytes = 0
        self._limit = QueueLimit(MAX_QUEUED, max_batch, workers)
        self._refusal = ""

    def add(self, key: K) -> asyncio.Future[R]:
        """Queue a request; return the future of its result."""
        future: asyncio.Future[R] = self._loop.create_future()
        size = self._size(key)
        if self._refusal or len(self._queue) >= self._limit.limit or self._queued_bytes + size > MAX_QUEUED_BYTES:
            future.set_exception(Unavailable(self._refusal or "Too many requests are waiting"))
            return future
        self._queued_bytes += size
        if not self._queue and self._free:
            self._loop.call_soon(self._start_workers)
        self._queue.append(_Queued(key, size, self._loop.time(), future))
        return future

    async def close(self) -> None:
        """Take no more; return when all requests are settled."""
        self._refusal = CLOSED
        self._start_workers()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start_workers(self) -> None:
        while self._free and (batch := self._take()):
            self._free -= 1
            task = asyncio.create_task(self._work(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, batch: list[_Queued[K, R]]) -> None:
        while batch:
            began = self._loop.time()
            await self._settle(batch)
            self._limit.record(self._loop.time() - began)
            if self._gather and len(batch) > 1:
                await asyncio.sleep(min((self._loop.time() - began) / 8, MAX_GATHER_DELAY))
            batch = self._take()
        self._free += 1

    async def _settle(self, batch: list[_Queued[K, R]]) -> None:
        try:
            results = await self._serve([request.key for request in batch], batch[0].since + RESPONSE_TIMEOUT)
            for request, result in zip(batch, results, strict=True):
                request.settle(result)
        except Exception as error:  # noqa: BLE001 - also for a bug: no request may wait for ever because of it
            for request in batch:
                request.settle(error)

    def _take(self) -> list[_Queued[K, R]]:
        batch: list[_Queued[K, R]] = []
        size = 0
        oldest = self._loop.time() - QUEUE_TIMEOUT
        while self._queue and len(batch) < self._max_batch and size < self._max_batch_bytes:
            request = self._queue.popleft()
            self._queued_bytes -= request.size
            if request.since < oldest:
                request.settle(Unavailable(NO_RESPONSE))
            elif not request.future.done():
                # Cancelled requests are left out: an empty batch says that nothing waits, and ends the worker.
                batch.append(request)
                size += request.size
        return batch
