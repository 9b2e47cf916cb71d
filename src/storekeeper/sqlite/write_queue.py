"""Writes on their way to the writer thread and back: group commit. Imports apsw, `concurrency`, the domain.

All writes that wait go into one transaction with one fsync: 64 creates cost what one costs.
"""

import asyncio
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from operator import attrgetter
from typing import TypeAlias, TypeVarTuple

from storekeeper.collection import WriteObserver, ignore_writes
from storekeeper.commands import MAX_BATCH, MAX_BATCH_BYTES, Command, memory_size
from storekeeper.concurrency.queue_limit import QUEUE_TIMEOUT, Queued, QueueLimit, settle
from storekeeper.errors import CLOSED, DISK_STALLED, Outcome, Unavailable
from storekeeper.sqlite import errors
from storekeeper.sqlite.committer import CommandResult, Committer
from storekeeper.stores import Store
from storekeeper.write_state import WriteState

Ts = TypeVarTuple("Ts")
Write: TypeAlias = Queued[Command | None, Store | None]
"""A command that waits for its result, or a probe of writes: None instead of a command."""

LOCK_TIMEOUT = 3.5
"""Seconds after which a write that finds the file locked all the time is refused; nothing was written."""

WRITE_TIMEOUT = 4.5
"""Seconds after which a write gets its response in any case, with outcome unknown (decision 30: at most 5 s)."""

QUEUE_FULL = "Too many writes are waiting"
TOO_LATE = "The write has waited for too long"

_JOIN_INTERVAL = 0.002
TICK_INTERVAL = 0.25
"""Seconds between two calls of `WriteQueue.tick`."""


class WriteQueue:
    """The event loop hands writes to a thread, which hands back their results. The thread runs `_run` and below.

    `report_failure` is called on the loop when nothing more can be written; it has to call `fail`.
    """

    def __init__(self, committer: Committer, report_failure: Callable[[errors.Failure], None]) -> None:
        self._committer = committer
        self._loop = asyncio.get_running_loop()
        self._report_failure = report_failure
        self.observe: WriteObserver = ignore_writes
        self._gathered: list[Write] = []
        self.limit = QueueLimit(MAX_BATCH)
        self.refusal = self.failure = ""
        """Why new writes are refused, perhaps because the service stops; why nothing is acknowledged any more."""
        self._ticked = self._loop.time()
        self.state = WriteState(self._probe)
        self._changed = threading.Condition()  # guards the three that follow
        self._pending: deque[Write] = deque()
        """All writes without a result, in the order of submission: first those that the thread has taken."""
        self._taken = 0
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="storekeeper-writer", daemon=True)
        self._thread.start()

    def submit(self, command: Command) -> asyncio.Future[Store | None]:
        """Queue a command; its result is the store, None if there is no such store, or the error."""
        return self._enter(command, memory_size(command)).future

    async def _probe(self) -> None:
        if not self.limit.count or self.state.reason:  # else the results of the writes that wait will tell
            await self._enter(None, 0).future

    def _enter(self, command: Command | None, size: int) -> Write:
        write: Write = Queued(command, self._loop.time(), size, self._loop.create_future())
        if self.refusal or not self.limit.enter(size):
            write.settle(Unavailable(self.refusal or QUEUE_FULL))
            return write
        # All writes of one loop iteration go to the thread together: one wake-up, one transaction.
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(write)
        return write

    def _hand_over(self) -> None:
        with self._changed:
            self._pending += self._gathered
            self._gathered = []
            self._changed.notify()

    def fail(self, reason: str) -> None:
        """Acknowledge nothing more, not even writes under way, and end the thread."""
        self.refusal = self.failure = reason
        self.state.refused(reason)
        self._end()

    def _end(self) -> None:
        self._hand_over()
        with self._changed:
            self._ending = True
            self._changed.notify()

    async def close(self) -> None:
        """Finish every write that was submitted, then end the thread and close its connection.

        If the disk does not respond, this takes no longer than a write may take.
        """
        self.refusal = self.refusal or CLOSED
        self._end()
        deadline = self._loop.time() + WRITE_TIMEOUT + 2 * TICK_INTERVAL
        # `join` would need one more thread, and none may be available.
        while self._thread.is_alive() and self._loop.time() < deadline:  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(_JOIN_INTERVAL)
        if not self._thread.is_alive():
            self._committer.close()

    def _settle(self, batch: list[Write], results: Sequence[CommandResult], seconds: float) -> None:
        if self.failure:
            lost = self.failure, Outcome.UNKNOWN
            results = [result if isinstance(result, Unavailable) else Unavailable(*lost) for result in results]
        # Expired writes come first in a batch: if the last result is theirs, nothing was tried.
        elif type(last := results[-1]) is Unavailable:
            if str(last) != TOO_LATE:
                self.state.refused(str(last))
        else:
            self.state.accepted()
        self.limit.release(batch)
        settle(batch, results)
        if batch[0].request is not None:
            self.observe(results, seconds)
        with self._changed:
            for _ in batch:
                self._pending.popleft()
            self._taken -= len(batch)

    def _on_failure(self, batch: list[Write], failure: errors.Failure) -> None:
        self._report_failure(failure)
        for write in batch:
            write.settle(Unavailable(failure.problem, Outcome.UNKNOWN))
        for write in self._pending:  # the thread has ended
            write.settle(Unavailable(failure.problem))
        self._pending.clear()

    def tick(self) -> None:
        """Give up the overdue writes; report a failure if the file was replaced."""
        try:
            self._committer.identity.check()
        except errors.Failure as failure:
            self._report_failure(failure)
        # If this process stood still, results that came meanwhile are settled before the next tick.
        now = self._loop.time()
        overdue, self._ticked = min(now, self._ticked + 2 * TICK_INTERVAL) - WRITE_TIMEOUT, now
        for write in takewhile(lambda write: write.since < overdue, self._pending):
            write.settle(Unavailable(DISK_STALLED, Outcome.UNKNOWN))
            self.state.refused(DISK_STALLED)

    def _run(self) -> None:
        batch: list[Write] = []
        try:
            while batch := self._take():
                began = time.monotonic()
                results = self._carry_out(batch)
                self.limit.record(seconds := time.monotonic() - began)
                self._call_on_loop(self._settle, batch, results, seconds)
        except BaseException as error:  # noqa: BLE001 - no write may be left without a result
            failure = errors.to_failure(error, self._committer.connection)
            self._call_on_loop(self._on_failure, batch, failure)

    def _take(self) -> list[Write]:
        """Wait for writes; return those of the next batch, none if there will be no more. A probe has its own."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._pending) > self._taken or self._ending)
            batch, size = list[Write](), 0
            for write in islice(self._pending, self._taken, self._taken + MAX_BATCH):
                if batch and (size >= MAX_BATCH_BYTES or write.request is None or batch[-1].request is None):
                    break
                batch.append(write)
                size += write.size
            self._taken += len(batch)
            return batch

    def _carry_out(self, batch: list[Write]) -> Sequence[CommandResult]:
        # The queue is in the order of submission: expired writes come first.
        expired = bisect_left(batch, time.monotonic() - QUEUE_TIMEOUT, key=attrgetter("since"))
        results: list[CommandResult] = [Unavailable(TOO_LATE) for _ in batch[:expired]]
        if rest := batch[expired:]:
            deadline = rest[0].since + LOCK_TIMEOUT
            commands = [write.request for write in rest if write.request is not None]
            results += self._committer.commit(commands, deadline) if commands else [self._committer.probe(deadline)]
        return results

    def _call_on_loop(self, receive: Callable[[*Ts], None], *values: *Ts) -> None:
        # If the loop is closed, nothing waits for the result.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(receive, *values)
