"""Writes of the SQLite collection: one thread, group commit. Imports apsw and the domain.

Whatever writes wait are applied in one transaction with one fsync, then all are answered: 64 creates cost
what one costs. The thread and the event loop share nothing but the queue and the futures' results.
"""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import apsw

from storekeeper.collection import CREATE
from storekeeper.errors import Outcome, Unavailable
from storekeeper.sqlite import faults
from storekeeper.stores import Payload, Store

MOST_WAITING = 10_000
"""Writes that may wait; the next ones are refused at once."""

LOCK_PATIENCE = 3.5
"""Seconds after which a write that found the file locked all the time is given up, nothing done."""

PATIENCE = 4.5
"""Seconds after which a write is answered in any case, its outcome unknown (decision 30: at most 5 s)."""

CLOSED = "The service is shutting down"
FAILED = "The database failed"
"""The reasons of every Unavailable after the end, and after the file could not be trusted any more."""

_BATCH = 1000
_TICK = 0.25

_STATE = "SELECT ifnull((SELECT max(id) FROM stores), 0), ifnull((SELECT max(seq) FROM changes), 0)"
_INSERT = "INSERT INTO stores (id, name, address, version) VALUES (?, ?, ?, ?)"
_UPDATE = "UPDATE stores SET name = ?2, address = ?3, version = ?4 WHERE id = ?1"
_CHANGE = "INSERT INTO changes (seq, store_id, name, address, at) VALUES (?, ?, ?, ?, ?)"

Result = Store | None | Exception


@dataclass(slots=True, eq=False)
class Write:
    """One write on its way: `id` is CREATE or the store to replace; `since` is monotonic seconds."""

    id: int
    payload: Payload
    since: float
    future: asyncio.Future[Store | None]


class Writer:
    """Owns the connection that writes. `fail` is called on the loop, once, when nothing more can be written."""

    def __init__(self, connection: apsw.Connection, fail: Callable[[str], None]) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._loop = asyncio.get_running_loop()
        self._fail = fail
        self._inbox: queue.SimpleQueue[list[Write] | None] = queue.SimpleQueue()
        self._turn: list[Write] = []
        self._overdue: deque[Write] = deque()
        self._waiting = 0
        self._refusal: str | None = None
        self._distrust: str | None = None
        self._give_up = 0.0
        connection.set_busy_handler(self._wait_for_lock)
        self._thread = threading.Thread(target=self._run, name="storekeeper-writer", daemon=True)
        self._thread.start()
        self._timer = self._loop.call_later(_TICK, self._answer_overdue)

    # On the event loop.

    def submit(self, id: int, payload: Payload) -> asyncio.Future[Store | None]:
        """Queue a write. Its future gets the store, None if there is none, or the error."""
        future: asyncio.Future[Store | None] = self._loop.create_future()
        if self._refusal is not None:
            future.set_exception(Unavailable(self._refusal))
            return future
        if self._waiting >= MOST_WAITING:
            future.set_exception(Unavailable("Too many writes are waiting"))
            return future
        self._waiting += 1
        write = Write(id, payload, self._loop.time(), future)
        self._overdue.append(write)
        # What comes in one turn of the loop goes to the thread together: one wake-up, one transaction.
        if not self._turn:
            self._loop.call_soon(self._hand_over)
        self._turn.append(write)
        return future

    def refuse(self, reason: str) -> None:
        """Take no more writes."""
        if self._refusal is None:
            self._refusal = reason

    def distrust(self, reason: str) -> None:
        """Acknowledge nothing more, not even what is under way."""
        self._refusal = self._distrust = reason

    async def close(self) -> None:
        """Finish every write that was submitted, then end the thread and close its connection.

        A disk that does not answer is not waited for longer than a write is.
        """
        self.refuse(CLOSED)
        self._hand_over()
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, PATIENCE + 2 * _TICK)
        self._timer.cancel()
        if not self._thread.is_alive():
            self._connection.close()

    def _hand_over(self) -> None:
        if self._turn:
            self._inbox.put(self._turn)
            self._turn = []

    def _answer(self, batch: list[Write], results: list[Result]) -> None:
        self._waiting -= len(batch)
        for write, result in zip(batch, results, strict=True):
            # A client may have gone, or have been answered as overdue.
            if write.future.done():
                continue
            if isinstance(result, Exception):
                write.future.set_exception(result)
            elif self._distrust is not None:
                write.future.set_exception(Unavailable(self._distrust, Outcome.UNKNOWN))
            else:
                write.future.set_result(result)

    def _answer_overdue(self) -> None:
        now = self._loop.time()
        while self._overdue and (self._overdue[0].future.done() or now - self._overdue[0].since > PATIENCE):
            future = self._overdue.popleft().future
            if not future.done():
                future.set_exception(Unavailable("The disk does not answer", Outcome.UNKNOWN))
        self._timer = self._loop.call_later(_TICK, self._answer_overdue)

    def _break(self, batch: list[Write], reason: str) -> None:
        self.distrust(reason)
        self._answer(batch, [Unavailable(reason, Outcome.UNKNOWN) for _ in batch])
        self._fail(reason)

    # On the writer thread.

    def _run(self) -> None:
        while (batch := self._inbox.get()) is not None:
            last = self._take_more(batch)
            try:
                results = self._commit(batch)
            except BaseException as error:  # noqa: BLE001 - no write may be left without an answer
                reason = f"{FAILED}: {error}"
                self._loop.call_soon_threadsafe(self._break, batch, reason)
                return self._refuse_rest(reason)
            self._loop.call_soon_threadsafe(self._answer, batch, results)
            if last:
                return None
        return None

    def _take_more(self, batch: list[Write]) -> bool:
        while len(batch) < _BATCH:
            try:
                more = self._inbox.get_nowait()
            except queue.Empty:
                return False
            if more is None:
                return True
            batch += more
        return False

    def _refuse_rest(self, reason: str) -> None:
        while (batch := self._inbox.get()) is not None:
            refused: list[Result] = [Unavailable(reason) for _ in batch]
            self._loop.call_soon_threadsafe(self._answer, batch, refused)

    def _commit(self, batch: list[Write]) -> list[Result]:
        try:
            return self._transact(batch)
        except (apsw.ConstraintError, UnicodeError, OverflowError) as error:
            if len(batch) == 1:
                return [error]
            # One of them is bad. Each in a transaction of its own, so that only that one fails.
            return [result for write in batch for result in self._commit([write])]
        except apsw.Error as error:
            answers = [faults.temporary(error, Outcome.UNKNOWN) for _ in batch]
            if None in answers:
                raise
            return list(answers)

    def _transact(self, batch: list[Write]) -> list[Result]:
        self._give_up = min(write.since for write in batch) + LOCK_PATIENCE
        self._execute("BEGIN IMMEDIATE")
        try:
            results = self._apply(batch)
            self._execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
        return results

    def _apply(self, batch: list[Write]) -> list[Result]:
        count, version = self._execute(_STATE).get
        at = time.time_ns() // 1_000_000
        results: list[Result] = []
        created: list[tuple[int, str, str | None, int]] = []
        changes: list[tuple[int, int, str, str | None, int]] = []
        for write in batch:
            payload = write.payload
            # Ids are dense, so that the count alone says which exist.
            if write.id > count:
                results.append(None)
                continue
            version += 1
            if write.id == CREATE:
                count += 1
                store = Store(count, payload.name, payload.address, version)
                created.append((count, payload.name, payload.address, version))
            else:
                if created:  # it may be one of them
                    self._executemany(_INSERT, created)
                    created = []
                store = Store(write.id, payload.name, payload.address, version)
                self._execute(_UPDATE, (write.id, payload.name, payload.address, version))
            results.append(store)
            changes.append((version, store.id, payload.name, payload.address, at))
        self._executemany(_INSERT, created)
        self._executemany(_CHANGE, changes)
        return results

    def _wait_for_lock(self, _calls: int) -> bool:
        # SQLite's own handler sleeps up to 100 ms at a time; other processes' commits take far less.
        if time.monotonic() > self._give_up:
            return False
        time.sleep(0.0005)
        return True
