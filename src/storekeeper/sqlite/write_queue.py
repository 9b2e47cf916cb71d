"""Writes on their way to the writer thread and back: group commit. Imports apsw, `concurrency`, the domain.

All writes that wait go into one transaction with one fsync: 64 creates cost what one costs.
"""

import asyncio
import queue
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, takewhile
from operator import attrgetter
from typing import TypeVarTuple

from storekeeper.commands import KEYS_INTERVAL, MAX_BATCH, MAX_BATCH_BYTES, Command, size
from storekeeper.concurrency.queue_limit import QUEUE_TIMEOUT, Queued, QueueLimit, settle
from storekeeper.errors import CLOSED, DISK_STALLED, LOCKED, Outcome, Unavailable
from storekeeper.sqlite import errors
from storekeeper.sqlite.committer import CommandResult, Committer
from storekeeper.stores import Store
from storekeeper.write_state import WriteState

Ts = TypeVarTuple("Ts")
Write = Queued[Command, Store | None]

LOCK_TIMEOUT = 3.5
"""Seconds after which a write that finds the file locked all the time is refused; nothing was written."""

WRITE_TIMEOUT = 4.5
"""Seconds after which a write gets its response in any case, with outcome unknown (decision 30: at most 5 s)."""

PROBE_LOCK_TIMEOUT = 0.1
"""Seconds that a probe waits for the lock while writes are refused: a stop or a write may wait for the probe."""

PROBE_SIZE = 2**16
"""Bytes of that probe's address: more than most writes have, so that after it the next write succeeds too."""

QUEUE_FULL = "Too many writes are waiting"
TOO_LATE = "The write has waited for too long"

KEYS_TIMEOUT = 2.0
"""Seconds from the start for which writes wait for the index of all keys: before it is whole, each with a key would
search the rest of them while it holds the lock of all writers."""

_JOIN_INTERVAL = 0.002
TICK_INTERVAL = 0.25
"""Seconds between two calls of `WriteQueue.tick`."""


class WriteQueue:
    """The event loop hands writes to a thread, which hands back their results. It runs `_run` and all below that.

    Both use the inbox, the next probe, the queue limit and the committer's file identity. `report_failure` is called
    on the loop when nothing more can be written; it has to call `fail`.
    """

    def __init__(self, committer: Committer, report_failure: Callable[[errors.Failure], None]) -> None:
        self._committer = committer
        self._loop = asyncio.get_running_loop()
        self._report_failure = report_failure
        self._gathered: list[Write] = []
        self._unsettled: deque[list[Write]] = deque()  # what was handed over together
        self._limit = QueueLimit(MAX_BATCH)
        self.refusal = self.failure = ""
        """Why new writes are refused, perhaps because the service stops; why nothing is acknowledged any more."""
        self._ticked = self._loop.time()
        self.state = WriteState(self._begin_probe)
        self._inbox: queue.SimpleQueue[list[Write] | None] = queue.SimpleQueue()
        # Seconds to wait for the lock, and bytes to write. The thread probes before its next, perhaps empty, batch.
        self._probe: tuple[float, int] | None = None
        self._loading = True
        self._load_until = time.monotonic() + KEYS_TIMEOUT
        self._next_look = time.monotonic() + KEYS_INTERVAL
        self._thread = threading.Thread(target=self._run, name="storekeeper-writer", daemon=True)
        self._thread.start()

    def submit(self, command: Command) -> asyncio.Future[Store | None]:
        """Queue a command; its result is the store, None if there is no such store, or the error."""
        write: Write = Queued(command, self._loop.time(), size(command), self._loop.create_future())
        if self.refusal or not self._limit.enter(write.size):
            write.settle(Unavailable(self.refusal or QUEUE_FULL))
            return write.future
        # All writes of one loop iteration go to the thread together: one wake-up, one transaction.
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(write)
        return write.future

    def fail(self, reason: str) -> None:
        """Acknowledge nothing more, not even writes under way, and end the thread."""
        self.refusal = self.failure = reason
        self.state.probed(reason)
        self._hand_over()
        self._inbox.put(None)

    async def close(self) -> None:
        """Finish every write that was submitted, then end the thread and close its connection.

        If the disk does not respond, this takes no longer than a write may take.
        """
        self.refusal = self.refusal or CLOSED
        self.state.close()
        self._hand_over()
        self._inbox.put(None)
        deadline = self._loop.time() + WRITE_TIMEOUT + 2 * TICK_INTERVAL
        # `join` would need one more thread, and none may be available.
        while self._thread.is_alive() and self._loop.time() < deadline:  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(_JOIN_INTERVAL)
        if not self._thread.is_alive():
            self._committer.close()

    def _hand_over(self) -> None:
        if self._gathered:
            self._unsettled.append(self._gathered)
            self._inbox.put(self._gathered)
            self._gathered = []

    def _begin_probe(self) -> None:
        if self._limit.count and not self.state.reason:
            # The results of these writes will tell; and they must not wait for a probe that waits for the lock.
            self.state.probed("")
            return
        self._probe = (PROBE_LOCK_TIMEOUT, PROBE_SIZE) if self.state.reason else (LOCK_TIMEOUT, 0)
        self._inbox.put([])

    def _probed(self, reason: str) -> None:
        # After a failure nothing is written any more, whatever a probe finds.
        self.state.probed(self.failure or reason)

    def _settle(self, batch: list[Write], results: list[CommandResult]) -> None:
        if self.failure:
            lost = self.failure, Outcome.UNKNOWN
            results = [result if isinstance(result, Unavailable) else Unavailable(*lost) for result in results]
        # Expired writes come first in a batch: if the last result is theirs, nothing was tried.
        elif type(last := results[-1]) is Unavailable and str(last) != TOO_LATE:
            self.state.refused(str(last))
        elif self.state.reason == LOCKED and not isinstance(last, Unavailable):
            # A probe waits only a moment for the lock, so it may miss the lock again and again.
            self.state.probed("")
        self._limit.release(batch)
        settle(batch, results)
        settled = 0
        while settled < len(batch):
            settled += len(self._unsettled.popleft())

    def _on_failure(self, batch: list[Write], failure: errors.Failure) -> None:
        self._report_failure(failure)
        self._settle(batch, [None] * len(batch))
        while self._unsettled:  # the thread has ended
            for write in self._unsettled.popleft():
                write.settle(Unavailable(failure.reason))

    def tick(self) -> None:
        """Give up the overdue writes; report a failure if the file was replaced."""
        try:
            self._committer.identity.check()
        except errors.Failure as failure:
            self._report_failure(failure)
        # If this process stood still, results that came meanwhile are settled before the next tick.
        now = self._loop.time()
        overdue, self._ticked = min(now, self._ticked + 2 * TICK_INTERVAL) - WRITE_TIMEOUT, now
        for write in takewhile(lambda write: write.since < overdue, chain.from_iterable(self._unsettled)):
            write.settle(Unavailable(DISK_STALLED, Outcome.UNKNOWN))
            self.state.refused(DISK_STALLED)

    def _run(self) -> None:
        last = False
        while not last:
            batch: list[Write] = []
            try:
                last = self._take(batch)
                self._serve(batch)
            except BaseException as error:  # noqa: BLE001 - no write may be left without a result
                failure = errors.to_failure(error, self._committer.connection)
                return self._call_on_loop(self._on_failure, batch, failure)
        return None

    def _take(self, batch: list[Write]) -> bool:
        """Wait until there is something to do; add the waiting writes to `batch`; tell whether they are the last."""
        # All keys of a day take seconds: no write with a key should have to read them.
        while self._loading and (self._inbox.empty() or time.monotonic() < self._load_until):
            self._loading = self._committer.load_keys()
        timeout, size = max(0.0, self._next_look - time.monotonic()), 0
        with suppress(queue.Empty):
            # There are more than MAX_BATCH only if they came in one loop iteration.
            while len(batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
                if (more := self._inbox.get(timeout=timeout)) is None:
                    return True
                batch += more
                size += sum([write.size for write in more])
                timeout = 0.0
        return False

    def _serve(self, batch: list[Write]) -> None:
        if self._probe is not None:
            (timeout, size), self._probe = self._probe, None
            self._call_on_loop(self._probed, self._committer.probe(time.monotonic() + timeout, size))
        began = time.monotonic()
        if batch:
            results = self._commit(batch)
            self._limit.record(time.monotonic() - began)
            self._call_on_loop(self._settle, batch, results)
        elif began > self._next_look:
            self._loading = True  # what other processes have added meanwhile
            more = self._committer.delete_old_keys(began + PROBE_LOCK_TIMEOUT)
            self._next_look = began if more else began + KEYS_INTERVAL

    def _commit(self, batch: list[Write]) -> list[CommandResult]:
        # The queue is in the order of submission: expired writes come first.
        expired = bisect_left(batch, time.monotonic() - QUEUE_TIMEOUT, key=attrgetter("since"))
        results: list[CommandResult] = [Unavailable(TOO_LATE) for _ in batch[:expired]]
        if rest := batch[expired:]:
            results += self._committer.commit([write.request for write in rest], rest[0].since + LOCK_TIMEOUT)
        return results

    def _call_on_loop(self, receive: Callable[[*Ts], None], *values: *Ts) -> None:
        # If the loop is closed, nothing waits for the result.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(receive, *values)
