"""What arrives in one turn of the event loop, gathered and done together. Imports the domain."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from storekeeper.errors import StorekeeperError, Unavailable
from storekeeper.pace import Pace
from storekeeper.postgres.pool import CLOSED, PATIENCE, SLOW

K = TypeVar("K")
R = TypeVar("R")

MOST_WAITING = 10_000
"""Requests that may wait, fewer if the database is slow; the next ones are refused at once."""

MOST_SIZE_WAITING = 64 * 2**20
"""What they may take in all, by their `size`."""

LATEST_START = 4.0
"""Seconds after which a request that still waits is given up: the rest of its time would hardly do."""

LONGEST_GATHERING = 0.001
"""Seconds that a batch is held up at most so that it grows, and never more than an eighth of the one before."""


@dataclass(slots=True, eq=False)
class Wish(Generic[K, R]):
    """One of those that arrived: what it asks, since when (on the loop's clock), and where the answer goes."""

    key: K
    since: float
    future: asyncio.Future[R]

    def answer(self, result: R | Exception) -> None:
        """Answer, unless the client has gone."""
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


Batch = list[Wish[K, R]]


class Turns(Generic[K, R]):
    """Gathers wishes and has `serve` answer them, at most `most` at a time, in at most `lanes` batches at once.

    While all lanes are busy the next batch grows. `serve` is told when it has to have answered; what it leaves
    out, or raises, is answered here. With `gather`, a lane gives those whom it has just answered a moment to come
    again: else they would fall into two halves that wait for each other's batches.
    """

    def __init__(
        self,
        serve: Callable[[Batch[K, R], float], Awaitable[None]],
        *,
        lanes: int = 1,
        most: int = 500,
        size: Callable[[K], int] = lambda _: 0,
        most_size: int = 1,
        gather: bool = False,
    ) -> None:
        self._serve = serve
        self._free = lanes
        self._most = most
        self._size = size
        self._most_size = most_size
        self._gather = gather
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Wish[K, R]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._size_waiting = 0
        self._pace = Pace(MOST_WAITING, most, lanes)
        self._refusal = ""

    def add(self, key: K) -> asyncio.Future[R]:
        """Wish for something; gives where the answer will be."""
        future: asyncio.Future[R] = self._loop.create_future()
        size = self._size(key)
        if self._refusal or len(self._waiting) >= self._pace.most or self._size_waiting + size > MOST_SIZE_WAITING:
            future.set_exception(Unavailable(self._refusal or "Too many requests are waiting"))
            return future
        self._size_waiting += size
        if not self._waiting and self._free:
            self._loop.call_soon(self._turn_over)
        self._waiting.append(Wish(key, self._loop.time(), future))
        return future

    async def close(self) -> None:
        """Take no more; return when all that was taken is answered."""
        self._refusal = CLOSED
        self._turn_over()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _turn_over(self) -> None:
        while self._free and (batch := self._take()):
            self._free -= 1
            task = asyncio.create_task(self._lane(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _lane(self, batch: Batch[K, R]) -> None:
        try:
            while batch:
                began = self._loop.time()
                await self._do(batch)
                self._pace.note(self._loop.time() - began)
                if self._gather and len(batch) > 1:
                    await asyncio.sleep(min((self._loop.time() - began) / 8, LONGEST_GATHERING))
                batch = self._take()
        finally:
            self._free += 1

    async def _do(self, batch: Batch[K, R]) -> None:
        try:
            await self._serve(batch, batch[0].since + PATIENCE)
        except StorekeeperError as error:
            for wish in batch:
                wish.answer(error)
        except Exception as error:  # noqa: BLE001 - a bug: nobody may wait for ever because of it
            for wish in batch:
                wish.answer(error)

    def _take(self) -> Batch[K, R]:
        batch: Batch[K, R] = []
        size = 0
        latest = self._loop.time() - LATEST_START
        while self._waiting and len(batch) < self._most and size < self._most_size:
            wish = self._waiting.popleft()
            taken = self._size(wish.key)
            self._size_waiting -= taken
            if wish.since < latest:
                wish.answer(Unavailable(SLOW))
            elif not wish.future.done():
                # Only these: an empty batch says that nothing waits, and ends the lane.
                batch.append(wish)
                size += taken
        return batch
