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

Batch = list[tuple[K, int, float, asyncio.Future[R]]]
"""Of each request its key, its size, since when it waits (on the loop's clock), and the future of its result."""

MAX_QUEUED = 10_000
"""Requests that may wait, fewer if the database is slow; the next ones are refused at once."""

MAX_QUEUED_BYTES = 64 * 2**20
"""Bytes that all waiting requests may take, by their `size`."""

QUEUE_TIMEOUT = 4.0
"""Seconds after which a request that still waits is refused: its remaining time would hardly suffice."""

MAX_GATHER_DELAY = 0.001
"""Seconds that a batch is delayed at most so that it grows, and never more than an eighth of the previous one."""


@dataclass(eq=False)
class Batcher(Generic[K, R]):
    """Gathers requests and has `serve` carry them out, at most `max_batch` at a time, in `workers` batches at once.

    While all workers are busy the next batch grows. `serve` gets the keys of a batch and its deadline; it returns a
    result or an error for each, or raises the error of all. With `gather`, a worker waits up to 1 ms so that clients
    with a new response join the next batch; otherwise they split into two alternating groups.
    """

    serve: Callable[[Sequence[K], float], Awaitable[Sequence[R | Exception]]]
    workers: int = 1
    max_batch: int = 500
    size: Callable[[K], int] = lambda _: 0
    max_batch_bytes: int = 1
    gather: bool = False

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._free = self.workers
        self._queue: deque[tuple[K, int, float, asyncio.Future[R]]] = deque()
        self._queued_bytes = 0
        self._limit = QueueLimit(MAX_QUEUED, self.max_batch, self.workers)
        self._refusal = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, key: K) -> asyncio.Future[R]:
        """Queue a request; return the future of its result."""
        future: asyncio.Future[R] = self._loop.create_future()
        size = self.size(key)
        if self._refusal or len(self._queue) >= self._limit.limit or self._queued_bytes + size > MAX_QUEUED_BYTES:
            future.set_exception(Unavailable(self._refusal or "Too many requests are waiting"))
            return future
        self._queued_bytes += size
        if not self._queue and self._free:
            self._loop.call_soon(self._start_workers)
        self._queue.append((key, size, self._loop.time(), future))
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

    async def _work(self, batch: Batch[K, R]) -> None:
        while batch:
            began = self._loop.time()
            await self._serve(batch)
            self._limit.record(self._loop.time() - began)
            if self.gather and len(batch) > 1:
                await asyncio.sleep(min((self._loop.time() - began) / 8, MAX_GATHER_DELAY))
            batch = self._take()
        self._free += 1

    async def _serve(self, batch: Batch[K, R]) -> None:
        _, _, since, _ = batch[0]
        try:
            results = await self.serve([key for key, _, _, _ in batch], since + RESPONSE_TIMEOUT)
            for (_, _, _, future), result in zip(batch, results, strict=True):
                _settle(future, result)
        except Exception as error:  # noqa: BLE001 - also for a bug: no request may wait for ever because of it
            for _, _, _, future in batch:
                _settle(future, error)

    def _take(self) -> Batch[K, R]:
        batch: Batch[K, R] = []
        size = 0
        oldest = self._loop.time() - QUEUE_TIMEOUT
        while self._queue and len(batch) < self.max_batch and size < self.max_batch_bytes:
            request = _, request_size, since, future = self._queue.popleft()
            self._queued_bytes -= request_size
            if since < oldest:
                _settle(future, Unavailable(NO_RESPONSE))
            elif not future.done():
                # Cancelled requests are left out: an empty batch says that nothing waits, and ends the worker.
                batch.append(request)
                size += request_size
        return batch


def _settle(future: asyncio.Future[R], result: R | Exception) -> None:
    if future.done():  # it was cancelled, or has its result
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
