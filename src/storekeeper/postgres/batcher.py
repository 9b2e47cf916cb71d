"""Requests of one loop iteration, gathered and served together. Imports the domain."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from storekeeper.concurrency.queue_limit import QueueLimit
from storekeeper.errors import StorekeeperError, Unavailable
from storekeeper.postgres.pool import CLOSED, RESPONSE_TIMEOUT, SLOW

K = TypeVar("K")
R = TypeVar("R")

MAX_QUEUED = 10_000
"""Requests that may wait, fewer if the database is slow; the next ones are refused at once."""

MAX_QUEUED_BYTES = 64 * 2**20
"""Bytes that they may take in all, by their `size`."""

QUEUE_TIMEOUT = 4.0
"""Seconds after which a request that still waits is given up: the rest of its time would hardly do."""

MAX_GATHERING = 0.001
"""Seconds that a batch is held up at most so that it grows, and never more than an eighth of the one before."""


@dataclass(slots=True, eq=False)
class Queued(Generic[K, R]):
    """One request: its key, since when it waits (on the loop's clock), and the future of its result."""

    key: K
    since: float
    future: asyncio.Future[R]

    def settle(self, result: R | Exception) -> None:
        """Set the result, unless the client has gone."""
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


Batch = list[Queued[K, R]]


class Batcher(Generic[K, R]):
    """Gathers requests and has `serve` settle them, at most `maximum` at a time, by `workers` batches at once.

    While all workers are busy the next batch grows. `serve` is given its deadline; the requests that it does not
    settle because it raises are settled here. With `gather`, a worker waits up to 1 ms so that clients with a new
    response join the next batch; otherwise they split into two alternating groups.
    """

    def __init__(
        self,
        serve: Callable[[Batch[K, R], float], Awaitable[None]],
        *,
        workers: int = 1,
        maximum: int = 500,
        size: Callable[[K], int] = lambda _: 0,
        maximum_size: int = 1,
        gather: bool = False,
    ) -> None:
        self._serve = serve
        self._free = workers
        self._maximum = maximum
        self._size = size
        self._maximum_size = maximum_size
        self._gather = gather
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Queued[K, R]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._queued_bytes = 0
        self._limit = QueueLimit(MAX_QUEUED, maximum, workers)
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
        self._queue.append(Queued(key, self._loop.time(), future))
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
        try:
            while batch:
                began = self._loop.time()
                await self._settle(batch)
                self._limit.record(self._loop.time() - began)
                if self._gather and len(batch) > 1:
                    await asyncio.sleep(min((self._loop.time() - began) / 8, MAX_GATHERING))
                batch = self._take()
        finally:
            self._free += 1

    async def _settle(self, batch: Batch[K, R]) -> None:
        try:
            await self._serve(batch, batch[0].since + RESPONSE_TIMEOUT)
        except StorekeeperError as error:
            for request in batch:
                request.settle(error)
        except Exception as error:  # noqa: BLE001 - a bug: no request may wait for ever because of it
            for request in batch:
                request.settle(error)

    def _take(self) -> Batch[K, R]:
        batch: Batch[K, R] = []
        size = 0
        latest = self._loop.time() - QUEUE_TIMEOUT
        while self._queue and len(batch) < self._maximum and size < self._maximum_size:
            request = self._queue.popleft()
            taken = self._size(request.key)
            self._queued_bytes -= taken
            if request.since < latest:
                request.settle(Unavailable(SLOW))
            elif not request.future.done():
                # Only these: an empty batch says that nothing waits, and ends the worker.
                batch.append(request)
                size += taken
        return batch
