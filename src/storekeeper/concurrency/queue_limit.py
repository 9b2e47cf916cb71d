"""Requests that wait for a batch, and how many may wait. Imports nothing of the project."""

import asyncio
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

Q = TypeVar("Q")
R = TypeVar("R")

MAX_QUEUED = 10_000
MAX_QUEUED_BYTES = 64 * 2**20
"""Upper bounds of waiting requests, fewer if the database is slow, and of their bytes; more are refused at once."""

QUEUE_TIMEOUT = 4.0
"""Seconds after which a waiting request is refused, as too little of its time is left."""

MAX_WAIT = 2.0
"""Estimated seconds that an admitted request waits at most; decision 30 allows 5."""

MIN_QUEUE = 64
"""Requests that may wait however slow the latest batch was."""


class Queued(msgspec.Struct, Generic[Q, R], eq=False):
    """A request that waits: `since` when, on the loop's clock; its `size` in bytes; the future of its result."""

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


def settle(batch: Sequence[Queued[Any, Any]], results: Sequence[Any]) -> None:
    """Set the result of each request of a batch, which may be an exception."""
    for each, result in zip(batch, results, strict=True):
        each.settle(result)


class QueueLimit:
    """Back-pressure: `limit` requests may wait; others are refused at once rather than served too late.

    Batches have up to `batch` requests; `workers` batches run at once. `count` requests wait now; `refused` were.
    """

    __slots__ = ("_batch", "_bytes", "_seconds", "count", "limit", "refused")

    def __init__(self, batch: int, workers: int = 1) -> None:
        self._batch = batch * workers
        self._seconds = 0.0
        self._bytes = 0
        self.count = self.refused = 0
        self.limit = MAX_QUEUED

    def enter(self, size: int) -> bool:
        """Count a request of `size` bytes and return True; return False if it is one too many."""
        if self.count >= self.limit or self._bytes + size > MAX_QUEUED_BYTES:
            self.refused += 1
            return False
        self.count += 1
        self._bytes += size
        return True

    def release(self, requests: Sequence[Queued[Any, Any]]) -> None:
        """Stop counting these requests."""
        self.count -= len(requests)
        self._bytes -= sum([each.size for each in requests])

    def record(self, seconds: float) -> None:
        """Record how long a batch took: the latest counts half, the one before a quarter, and so on."""
        self._seconds = (self._seconds + seconds) / 2
        # A new request waits for the batch that runs, those before its own, and its own.
        batches = MAX_WAIT / max(self._seconds, 1e-6) - 1
        self.limit = min(MAX_QUEUED, max(MIN_QUEUE, int(batches * self._batch)))
