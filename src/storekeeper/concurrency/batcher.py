"""A queue of requests that are served together: its limits, its deadline, its batches."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from storekeeper.domain.errors import CLOSED, Unavailable

Q = TypeVar("Q")
R = TypeVar("R")

RESPONSE_TIMEOUT = 4.5
"""Seconds after which a request gets its response in any case (decision 30: at most 5 s)."""


def response_deadline(since: float) -> float:
    """Return when a request that came at `since` is due to have its response."""
    return since + RESPONSE_TIMEOUT


MAX_QUEUED = 10_000
MAX_QUEUED_BYTES = 64 * 2**20
"""Upper bounds of waiting requests, and of their bytes: further ones are refused at once. If the
database is slow, fewer may wait."""

QUEUE_TIMEOUT = 4.0
"""Seconds after which a waiting request is refused, because too little of its time is left."""

MAX_WAIT = 2.0
"""The longest time, in estimated seconds, that an admitted request waits; decision 30 allows 5."""

MIN_QUEUE = 64
"""Requests that may wait, however slow the latest batch was."""

MAX_BATCH_BYTES = 4 * 2**20
"""Bytes of requests at which a batch is full; writing it takes several times that memory."""

MAX_GATHER_DELAY = 0.001
"""The longest time, in seconds, that a batch waits to grow; it never waits longer than an eighth
of the previous batch's time."""


class Queued(msgspec.Struct, Generic[Q, R], eq=False):
    """A request that waits: since when, on the loop's clock; its size in bytes; the future of its
    result."""

    request: Q
    since: float
    size: int
    future: asyncio.Future[R]

    def settle(self, result: R | Exception) -> None:
        """Set the result, unless the request has one or its client is gone."""
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class Batcher(Generic[Q, R]):
    """Gathers requests, and has `serve` serve at most `max_batch` at a time, in `workers` batches
    at once.

    While all workers are busy the next batch grows, until it has MAX_BATCH_BYTES, as `size`
    counts its requests. `serve` gets the requests of a batch, and since when the first of them
    has waited, on the loop's clock; it returns a result or an error for each, or raises an error
    for all. With `gather`, a worker waits up to 1 ms so that clients with a new response join the
    next batch; otherwise they split into two alternating groups. `refusal` is why no more are
    taken, "" if they are.

    `count` requests wait or are served now. Beyond `limit`, others are refused at once rather
    than served too late; `refused` is how many were.
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
        self._serve = serve
        self._workers = self._free = workers
        self._max_batch = max_batch
        self._size = size
        self._gather = gather
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Queued[Q, R]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes = self.count = self.refused = 0
        self._batch_seconds = 0.0
        self.limit = MAX_QUEUED
        self.refusal = ""

    def add(self, request: Q) -> asyncio.Future[R]:
        """Queue a request; return the future of its result."""
        queued: Queued[Q, R] = Queued(
            request, self._loop.time(), self._size(request), self._loop.create_future()
        )
        if self.refusal:
            queued.settle(Unavailable(self.refusal))
        elif self.count >= self.limit or self._bytes + queued.size > MAX_QUEUED_BYTES:
            self.refused += 1
            queued.settle(Unavailable("Too many requests are waiting"))
        else:
            self._append(queued)
        return queued.future

    def _append(self, queued: Queued[Q, R]) -> None:
        if not self._queue and self._free:
            # Not now: all requests of one iteration of the loop are one batch.
            self._loop.call_soon(self.start)
        self.count += 1
        self._bytes += queued.size
        self._queue.append(queued)

    def refuse(self, reason: str) -> None:
        """Take no more requests, and refuse those that wait."""
        self.refusal = reason
        while self._queue:
            self._settle([self._queue.popleft()], [Unavailable(reason)])

    async def close(self) -> None:
        """Take no more requests; return when all are settled."""
        self.refusal = self.refusal or CLOSED
        self.start()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def record(self, seconds: float) -> None:
        """Set the limit by how long batches take: the latest counts half, the one before it a
        quarter, and so on."""
        self._batch_seconds = (self._batch_seconds + seconds) / 2
        # A new request waits for the batch that runs, those before its own, and its own.
        batches = MAX_WAIT / max(self._batch_seconds, 1e-6) - 1
        limit = int(batches * self._max_batch * self._workers)
        self.limit = min(MAX_QUEUED, max(MIN_QUEUE, limit))

    def start(self) -> None:
        """Begin to serve those that wait, if a worker is free."""
        while self._queue and self._free and (batch := self._take()):
            self._free -= 1
            task = asyncio.create_task(self._work(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, batch: list[Queued[Q, R]]) -> None:
        while batch:
            began = self._loop.time()
            await self._serve_batch(batch)
            self.record(self._loop.time() - began)
            if self._gather and len(batch) > 1:
                delay = (self._loop.time() - began) / 8
                await asyncio.sleep(min(delay, MAX_GATHER_DELAY))
            batch = self._take()
        self._free += 1

    async def _serve_batch(self, batch: list[Queued[Q, R]]) -> None:
        requests = [each.request for each in batch]
        try:
            self._settle(batch, await self._serve(requests, batch[0].since))
        except Exception as error:  # noqa: BLE001 - a bug, too: no request may wait for ever
            self._settle(batch, [error] * len(batch))
        finally:
            # Each request has its error, and the error has this frame: a returned error, too, from
            # Python 3.12 on.
            del batch, requests

    def _take(self) -> list[Queued[Q, R]]:
        """Return the next requests to serve; an empty list if none waits."""
        batch: list[Queued[Q, R]] = []
        size = 0
        oldest = self._loop.time() - QUEUE_TIMEOUT
        while self._queue and len(batch) < self._max_batch and size < MAX_BATCH_BYTES:
            queued = self._queue.popleft()
            if queued.since < oldest:
                self._settle([queued], [Unavailable("The request has waited for too long")])
            else:
                batch.append(queued)
                size += queued.size
        return batch

    def _settle(self, batch: Sequence[Queued[Q, R]], results: Sequence[R | Exception]) -> None:
        """Set the results of requests, and count these no longer."""
        # The list is complete, or fails, before any request has its result.
        for each, result in list(zip(batch, results, strict=True)):
            each.settle(result)
        self.count -= len(batch)
        self._bytes -= sum(each.size for each in batch)
