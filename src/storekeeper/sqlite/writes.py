"""Writes of the SQLite collection: one thread, group commit. Imports apsw and the domain.

Whatever writes wait are applied in one transaction with one fsync, then all are answered: 64 creates cost
what one costs. The thread and the event loop share nothing but the queue, the results and the pace.
"""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

import apsw
import msgspec

from storekeeper.collection import CREATE
from storekeeper.errors import Outcome, Unavailable
from storekeeper.pace import Pace
from storekeeper.sqlite import faults
from storekeeper.sqlite.place import Moved, Place
from storekeeper.stores import Payload, Store

T = TypeVar("T")

MOST_WAITING = 10_000
"""Writes that may wait, fewer if the disk is slow; the next ones are refused at once."""

MOST_BYTES = 64 * 2**20
"""What the payloads of those that wait may take in all."""

BATCH_BYTES = 4 * 2**20
"""What the payloads of a batch take before no more are added: to write them takes several times as much."""

LOCK_PATIENCE = 3.5
"""Seconds after which a write that found the file locked all the time is given up, nothing done."""

LATEST_START = 4.0
"""Seconds after which a write that still waits for its turn is given up, nothing done."""

PATIENCE = 4.5
"""Seconds after which a write is answered in any case, its outcome unknown (decision 30: at most 5 s)."""

CLOSED = "The service is shutting down"
CROWDED = "Too many writes are waiting"

_BATCH = 1000
_TICK = 0.25

_STATE = "SELECT ifnull((SELECT max(id) FROM stores), 0), ifnull((SELECT max(seq) FROM changes), 0)"

# Rows go to SQLite as one JSON array, [[id, name, address, version], ...]: one step of the virtual machine, which
# runs without the interpreter's lock, for a whole run of writes. Row by row, the thread would give up that lock
# and queue for it again with every row.
_INSERT = """INSERT INTO stores (id, name, address, version)
  SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?)"""
_UPDATE = """UPDATE stores SET name = value ->> 1, address = value ->> 2, version = value ->> 3
  FROM json_each(?) WHERE stores.id = value ->> 0"""
_CHANGE = """INSERT INTO changes (seq, store_id, name, address, at)
  SELECT value ->> 3, value ->> 0, value ->> 1, value ->> 2, ?2 FROM json_each(?1)"""

Result = Store | None | Exception
Row = tuple[int, str, str | None, int]


class Write:
    """One write on its way, and what is Pending of it: `id` is CREATE or the store to replace.

    Its callback runs at once when it is settled; an `asyncio.Future` takes a turn of the loop for each.
    `since` is seconds of the loop's clock, `size` bytes of memory.
    """

    __slots__ = ("_callback", "_loop", "_result", "_settled", "id", "payload", "since", "size")

    def __init__(self, id: int, payload: Payload, since: float, loop: asyncio.AbstractEventLoop) -> None:
        self.id = id
        self.payload = payload
        self.since = since
        self.size = payload.size
        self._loop = loop
        self._settled = False
        self._result: Result = None
        self._callback: Callable[[Write], object] | None = None

    def settle(self, result: Result) -> None:
        """Decide it, unless it was decided before."""
        if self._settled:
            return
        self._settled = True
        self._result = result
        if (callback := self._callback) is not None:
            # Whoever waits refers to this write: without the cycle, nothing is left for the garbage collector.
            self._callback = None
            try:
                callback(self)
            except Exception as error:  # noqa: BLE001 - one callback's fault must not keep the batch's others
                self._loop.call_exception_handler({"message": "a write's callback failed", "exception": error})

    def done(self) -> bool:
        """See Pending."""
        return self._settled

    def result(self) -> Store | None:
        """See Pending."""
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def exception(self) -> Exception | None:
        """See Pending."""
        return self._result if isinstance(self._result, Exception) else None

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """See Pending; takes one."""
        if self._settled:
            self._loop.call_soon(callback, self)
        else:
            assert self._callback is None
            self._callback = callback

    def __await__(self) -> Generator[Any, None, Store | None]:
        """Wait for the result."""
        if not self._settled:
            settled = self._loop.create_future()
            self.add_done_callback(lambda _: None if settled.done() else settled.set_result(None))
            yield from settled
        return self.result()


class Writer:
    """Owns the connection that writes. `fail` is called on the loop when nothing more can be written."""

    def __init__(self, connection: apsw.Connection, place: Place, fail: Callable[[faults.Failure], None]) -> None:
        self._connection = connection
        self._place = place
        self._execute = connection.execute
        self._loop = asyncio.get_running_loop()
        self._fail = fail
        self._inbox: queue.SimpleQueue[list[Write] | None] = queue.SimpleQueue()
        self._turn: list[Write] = []
        self._overdue: deque[Write] = deque()
        self._waiting = 0
        self._pace = Pace(MOST_WAITING, _BATCH)
        self._bytes = 0
        self._refusal: str | None = None
        self._distrust: str | None = None
        self._give_up = 0.0
        connection.set_busy_handler(self._wait_for_lock)
        self._thread = threading.Thread(target=self._run, name="storekeeper-writer", daemon=True)
        self._thread.start()
        self._timer = self._loop.call_later(_TICK, self._tick)

    # On the event loop.

    def submit(self, id: int, payload: Payload) -> Write:
        """Queue a write. Its result is the store, None if there is none, or the error."""
        write = Write(id, payload, self._loop.time(), self._loop)
        if self._refusal is not None:
            write.settle(Unavailable(self._refusal))
            return write
        if self._waiting >= self._pace.most or self._bytes + write.size > MOST_BYTES:
            write.settle(Unavailable(CROWDED))
            return write
        self._waiting += 1
        self._bytes += write.size
        self._overdue.append(write)
        # What comes in one turn of the loop goes to the thread together: one wake-up, one transaction.
        if not self._turn:
            self._loop.call_soon(self._hand_over)
        self._turn.append(write)
        return write

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
        self._bytes -= sum([write.size for write in batch])
        for write, result in zip(batch, results, strict=True):
            if self._distrust is None or isinstance(result, Exception):
                write.settle(result)
            else:
                write.settle(Unavailable(self._distrust, Outcome.UNKNOWN))
        while self._overdue and self._overdue[0].done():
            self._overdue.popleft()

    def _tick(self) -> None:
        try:
            self._place.check()
        except Moved as error:
            self._fail(faults.Failure(f"{faults.FAILED}: {error}"))
        self._answer_overdue()
        self._timer = self._loop.call_later(_TICK, self._tick)

    def _answer_overdue(self) -> None:
        now = self._loop.time()
        while self._overdue and now - self._overdue[0].since > PATIENCE:
            self._overdue.popleft().settle(Unavailable("The disk does not answer", Outcome.UNKNOWN))

    def _break(self, batch: list[Write], failure: faults.Failure) -> None:
        self.distrust(failure.reason)
        self._answer(batch, [Unavailable(failure.reason, Outcome.UNKNOWN) for _ in batch])
        self._fail(failure)

    # On the writer thread.

    def _run(self) -> None:
        while (batch := self._inbox.get()) is not None:
            last = self._take_more(batch)
            began = time.monotonic()
            try:
                results = self._commit(batch)
            except BaseException as error:  # noqa: BLE001 - no write may be left without an answer
                failure = faults.failure(error, self._connection)
                self._tell(self._break, batch, failure)
                return self._refuse_rest(failure.reason)
            self._pace.note(time.monotonic() - began)
            self._tell(self._answer, batch, results)
            if last:
                return None
        return None

    def _tell(self, answer: Callable[[list[Write], T], None], batch: list[Write], value: T) -> None:
        # A closed loop has nobody who waits for the answer.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(answer, batch, value)

    def _take_more(self, batch: list[Write]) -> bool:
        size = sum([write.size for write in batch])
        while len(batch) < _BATCH and size < BATCH_BYTES:
            try:
                more = self._inbox.get_nowait()
            except queue.Empty:
                return False
            if more is None:
                return True
            batch += more
            size += sum([write.size for write in more])
        return False

    def _refuse_rest(self, reason: str) -> None:
        while (batch := self._inbox.get()) is not None:
            refused: list[Result] = [Unavailable(reason) for _ in batch]
            self._tell(self._answer, batch, refused)

    def _commit(self, batch: list[Write]) -> list[Result]:
        try:
            return self._transact(batch)
        except (apsw.ConstraintError, UnicodeError, OverflowError) as error:
            if len(batch) == 1:
                return [error]
            # One of them is bad. Each in a transaction of its own, so that only that one fails.
            return [result for write in batch for result in self._commit([write])]
        except apsw.Error as error:
            named = faults.named(error, self._connection)
            answers = [faults.temporary(named, Outcome.UNKNOWN) for _ in batch]
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
        self._place.check()
        return results

    def _apply(self, batch: list[Write]) -> list[Result]:
        count, version = self._execute(_STATE).get
        results: list[Result] = []
        rows: list[Row] = []
        runs: list[tuple[str, list[Row]]] = []
        touched: set[int] = set()
        latest = time.monotonic() - LATEST_START
        for write in batch:
            if write.since < latest:
                results.append(Unavailable(CROWDED))
                continue
            # Ids are dense, so that the count alone says which exist.
            if write.id > count:
                results.append(None)
                continue
            version += 1
            creates = write.id == CREATE
            count += creates
            id = count if creates else write.id
            payload = write.payload
            statement = _INSERT if creates else _UPDATE
            if not runs or runs[-1][0] is not statement or id in touched:
                runs.append((statement, []))
                touched.clear()
            touched.add(id)
            row = (id, payload.name, payload.address, version)
            runs[-1][1].append(row)
            rows.append(row)
            results.append(Store(*row))
        for statement, run in runs:
            self._execute(statement, (_json(run),))
        self._execute(_CHANGE, (_json(rows), time.time_ns() // 1_000_000))
        return results

    def _wait_for_lock(self, _calls: int) -> bool:
        # SQLite's own handler sleeps up to 100 ms at a time; other processes' commits take far less.
        if time.monotonic() > self._give_up:
            return False
        time.sleep(0.0005)
        return True


def _json(rows: list[Row]) -> str:
    return msgspec.json.encode(rows).decode()
