"""Gathers requests into batches, each of which is served together. Imports the domain's errors."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from storekeeper.concurrency.queue_limit import QUEUE_TIMEOUT, Queued, QueueLimit, settle
from storekeeper.errors import CLOSED, Unavailable

Q = TypeVar("Q")
R = TypeVar("R")

RESPONSE_TIMEOUT = 4.5
"""Seconds after which a request gets its response in any case (decision 30: at most 5 s)."""

MAX_BATCH_BYTES = 4 * 2**20
"""Bytes of requests at which a batch is full; writing it takes several times that memory."""

MAX_GATHER_DELAY = 0.001
"""Seconds that a batch waits at most to grow; it never waits longer than an eighth of the previous batch's time."""


class Batcher(Generic[Q, R]):
    """Gathers requests and has `serve` carry them out, at most `max_batch` at a time, in `workers` batches at once.

    While all workers are busy the next batch grows, until it has MAX_BATCH_BYTES, as `size` counts its requests.
    `serve` gets the requests of a batch and its deadline, on the loop's clock; it returns a result or an error for
    each, or raises an error for all. With `gather`, a worker waits up to 1 ms so that clients with a new response
    join the next batch; otherwise they split into two alternating groups. `refusal` is why no more are taken, "" if
    they are.
    """

    def __init__(
        self,
        serve: Callable[[Sequence[Q], float], Awaitable[Sequence[R | Exception]]],
        *,
        workers: int = 1,
        max_batch: int = 500,
        size: Callable[[Q], int] = lambda _: 0,
        gather: bool = False,
    ) -> None:
        self._carry_out = serve
        self._free = workers
        self._max_batch = max_batch
        self._size = size
        self._gather = gather
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Queued[Q, R]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.limit = QueueLimit(max_batch, workers)
        self.refusal = ""

    def add(self, request: Q) -> asyncio.Future[R]:
        """Queue a request; return the future of its result."""
        queued: Queued[Q, R] = Queued(request, self._loop.time(), self._size(request), self._loop.create_future())
        if self.refusal or not self.limit.enter(queued.size):
            queued.settle(Unavailable(self.refusal or "Too many requests are waiting"))
            return queued.future
        if not self._queue and self._free:
            self._loop.call_soon(self._start_workers)  # all requests of one loop iteration are one batch
        self._queue.append(queued)
        return queued.future

    def refuse(self, reason: str) -> None:
        """Take no more, and refuse those that wait."""
        self.refusal = reason
        while self._queue:
            self._reject(self._queue.popleft(), reason)

    async def close(self) -> None:
        """Take no more; return when all requests are settled."""
        self.refusal = self.refusal or CLOSED
        self._start_workers()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start_workers(self) -> None:
        while self._free and (batch := self._take()):
            self._free -= 1
            task = asyncio.create_task(self._work(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, batch: list[Queued[Q, R]]) -> None:
        while batch:
            began = self._loop.time()
            await self._serve(batch)
            self.limit.record(self._loop.time() - began)
            if self._gather and len(batch) > 1:
                await asyncio.sleep(min((self._loop.time() - began) / 8, MAX_GATHER_DELAY))
            batch = self._take()
        self._free += 1

    async def _serve(self, batch: list[Queued[Q, R]]) -> None:
        try:
            deadline = batch[0].since + RESPONSE_TIMEOUT
            settle(batch, await self._carry_out([each.request for each in batch], deadline))
        except Exception as error:  # noqa: BLE001 - also for a bug: no request may wait for ever because of it
            settle(batch, [error] * len(batch))
        finally:
            self.limit.release(batch)
            del batch  # each has its error, and the error this frame; from Python 3.12 on a returned one too

    def _take(self) -> list[Queued[Q, R]]:
        """Return the next requests to serve; an empty list if none waits."""
        batch: list[Queued[Q, R]] = []
        size = 0
        oldest = self._loop.time() - QUEUE_TIMEOUT
        while self._queue and len(batch) < self._max_batch and size < MAX_BATCH_BYTES:
            queued = self._queue.popleft()
            if queued.since < oldest:
                self._reject(queued, "The request has waited for too long")
            else:
                batch.append(queued)
                size += queued.size
        return batch

    def _reject(self, queued: Queued[Q, R], reason: str) -> None:
        self.limit.release([queued])
        queued.settle(Unavailable(reason))
