"""The event loop's half of writing: a thread carries out the batches."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from storekeeper.concurrency import batcher
from storekeeper.concurrency.threads import is_done, run_into
from storekeeper.domain.commands import Command, Result
from storekeeper.domain.errors import DISK_STALLED, Outcome, Unavailable
from storekeeper.storage.sqlite import errors
from storekeeper.storage.sqlite.committer import Committer

T = TypeVar("T")

LOCK_TIMEOUT = 3.5
"""Seconds after which a write that finds the file locked all the time is refused; nothing was
written."""


class Writer:
    """A `write_queue.Writer`. `fail` is called on the loop, perhaps after a deadline, when no
    more can be written."""

    def __init__(self, committer: Committer, fail: Callable[[errors.Failure], None]) -> None:
        self._committer = committer
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._under_way: Future[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="storekeeper-writer", daemon=True)
        self._thread.start()

    async def commit(self, commands: Sequence[Command], deadline: float) -> Sequence[Result]:
        return await self._carry_out(partial(self._committer.commit, commands), deadline)

    async def probe(self, deadline: float) -> None:
        await self._carry_out(self._committer.probe, deadline)

    def close(self) -> None:
        """End the thread and close its connection, unless the disk does not respond."""
        self._inbox.put(None)
        if self._under_way is None or self._under_way.done():
            self._committer.close()

    async def _carry_out(self, write: Callable[[float], T], deadline: float) -> T:
        if not await self._is_done(
            deadline
        ):  # the disk has not responded to a batch that was given up
            raise Unavailable(DISK_STALLED)
        self._under_way = Future()
        work = partial(write, deadline - batcher.RESPONSE_TIMEOUT + LOCK_TIMEOUT)
        self._inbox.put(partial(run_into, self._under_way, partial(self._reporting, work)))
        if not await self._is_done(deadline):
            raise Unavailable(DISK_STALLED, Outcome.UNKNOWN)
        try:
            result: T = self._under_way.result()
            return result
        finally:
            self._under_way = None  # else it would keep an error, whose frames have the batch

    async def _is_done(self, deadline: float) -> bool:
        return self._under_way is None or await is_done(
            self._under_way, self._thread, deadline - self._loop.time()
        )

    # On the thread:

    def _run(self) -> None:
        for work in iter(self._inbox.get, None):
            work()

    def _reporting(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except errors.Failure as failure:
            self._loop.call_soon_threadsafe(self._fail, failure)
            raise Unavailable(failure.problem, Outcome.UNKNOWN) from None
