"""Reads of the past: the collection as it was at a moment. Imports apsw, `concurrency`, the domain.

A read follows each store's changes back to the moment. If that is short, or its result is remembered, the read is
completed at once; else it begins anew on a thread. As changes stay, several statements may read one past.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from storekeeper import collection
from storekeeper.collection import MAX_PAST_READS, PAST_TIMEOUT, Eventual, Listing, Moment, Query, State
from storekeeper.concurrency.threads import run_in_thread
from storekeeper.errors import CLOSED, Unavailable
from storekeeper.sqlite import reads, schema
from storekeeper.sqlite.columns import STATE, numbers
from storekeeper.sqlite.migrations import CHANGES_TABLE
from storekeeper.sqlite.reads import listing
from storekeeper.stores import Store
from storekeeper.tables import FIELDS, MAX_INTEGER

T = TypeVar("T")
Execute = Callable[..., apsw.Cursor]

AT_ONCE_TIMEOUT = 0.0002
"""Seconds that a read may take on the event loop: about what a page of the present takes."""

_PROGRESS_STEPS = 2_500
"""Steps of SQLite's virtual machine, up to 0.2 ms, after which a read looks at the time, and on a thread gives way.
With fewer steps, it would take over 5 % longer."""

# Not os.sched_yield: it keeps the interpreter's lock, which the thread that gets the core may need.
_give_way: Callable[[], int] = ctypes.CDLL(None).sched_yield

MAX_REMEMBERED = 256
"""Ways back that are remembered: what a store was never changes, and a way of 1,000,000 steps takes 0.3 s."""

_COUNT = f"SELECT count FROM {CHANGES_TABLE} WHERE seq = ?"
# `at` never falls, so half of what is left is left out with each step.
_LATEST = f"""WITH RECURSIVE search (low, high) AS (
    SELECT 0, ?1
    UNION ALL SELECT iif(at <= ?2, seq, low), iif(at <= ?2, high, seq - 1)
      FROM search CROSS JOIN {CHANGES_TABLE} ON seq = (low + high + 1) / 2 WHERE low < high)
  SELECT max(low) FROM search"""
# From each store's latest change back to the first one that is not later; no row on the way is kept.
_WALK = f"""WITH RECURSIVE walk (seq) AS (
    SELECT version FROM stores NOT INDEXED WHERE id BETWEEN ?1 AND ?2
    UNION ALL SELECT previous FROM walk CROSS JOIN {CHANGES_TABLE} AS change ON change.seq = walk.seq
      WHERE walk.seq > ?3)
  SELECT CAST(json_group_array(seq) AS BLOB) FROM walk WHERE seq <= ?3"""
_CHANGE = f"SELECT {FIELDS}, seq FROM {CHANGES_TABLE} WHERE seq = ?"


class PastReader:
    """Carries out reads of the past; they raise Unavailable, EpochEnded, InvalidInput.

    `translating` turns apsw's errors into Unavailable where they are no bugs.
    """

    def __init__(self, path: Path, translating: Callable[[], AbstractContextManager[None]]) -> None:
        self._path = path
        self._translating = translating
        self._closed = False
        self._slots = asyncio.Semaphore(MAX_PAST_READS)
        self._running = 0
        self._idle: list[apsw.Connection] = []
        self._remembered: dict[tuple[int, int, int], bytes] = {}

    def get(self, id: int, at: Moment) -> Eventual[Store | None]:
        """Return the store of that id as it was, None if there was none."""
        return self._read(partial(self._get, id, at))

    def list(self, query: Query) -> Eventual[Listing]:
        """Return the stores that the query asks for, as they were."""
        return self._read(partial(self._list, query))

    def _read(self, work: Callable[[Execute], T]) -> Eventual[T]:
        deadline = time.monotonic() + AT_ONCE_TIMEOUT
        with self._translating(), suppress(apsw.InterruptError):
            return self._run(work, lambda: time.monotonic() > deadline)
        return asyncio.ensure_future(self._read_on_thread(work))

    async def _read_on_thread(self, work: Callable[[Execute], T]) -> T:
        stop = threading.Event()
        async with collection.past_slot(self._slots, PAST_TIMEOUT):
            self._running += 1
            try:
                with self._translating():
                    return await run_in_thread(lambda: self._run(work, self._pacer(stop)))
            except apsw.InterruptError:
                raise Unavailable(CLOSED if self._closed else "The read of the past took too long") from None
            finally:
                stop.set()
                self._running -= 1

    def _run(self, work: Callable[[Execute], T], is_over: Callable[[], bool]) -> T:
        """Return what `work` reads on a connection; raises InterruptError as soon as `is_over` returns true."""
        if self._closed:
            raise Unavailable(CLOSED)
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = schema.connect(self._path, reader=True)
        connection.set_progress_handler(is_over, _PROGRESS_STEPS)
        try:
            return work(connection.execute)
        finally:
            connection.set_progress_handler(None)
            self._idle.append(connection)

    def _pacer(self, stop: threading.Event) -> Callable[[], bool]:
        """Return the `is_over` of a read on this thread, which also gives way to other threads."""
        began = time.monotonic()

        def is_over() -> bool:
            now = time.monotonic()
            # Only beyond its share of the time: else it would get next to nothing beside a busy event loop.
            if time.thread_time() > (now - began) / (self._running + 1):
                _give_way()
            return self._closed or stop.is_set() or now > began + PAST_TIMEOUT

        return is_over

    def _get(self, id: int, at: Moment, execute: Execute) -> Store | None:
        was = _state_at(at, execute)
        if not 0 < id <= was.total:
            return None
        (seq,) = numbers(self._walk(id, id, was.version, execute))
        return Store(*[id, *execute(_CHANGE, (seq,)).get, was.epoch])

    def _list(self, query: Query, execute: Execute) -> Listing:
        assert query.at is not None
        total, version, epoch = _state_at(query.at, execute)
        ids, last = query.ids(total)
        empty = Listing(version, epoch, b"", None, last, total)
        return listing(empty, ids, partial(self._page, version, execute), partial(self._page_later, version))

    async def _page_later(self, version: int, ids: Sequence[int]) -> bytes:
        await asyncio.sleep(0)  # a fast client must not keep the others waiting until its list ends
        page = self._read(lambda execute: self._page(version, execute, ids))
        return await page if isinstance(page, asyncio.Future) else page

    def _page(self, version: int, execute: Execute, ids: Sequence[int]) -> bytes:
        page: bytes
        page, newest = execute(reads.PAGE, (ids[0], ids[-1])).get
        if newest > version:
            page = execute(reads.AS_OF, (self._walk(ids[0], ids[-1], version, execute).decode(),)).get
        return page

    def _walk(self, first: int, last: int, version: int, execute: Execute) -> bytes:
        """Return as JSON, for the ids from `first` to `last`, the seq of each latest change up to a version."""
        key = (first, last, version)
        if (seqs := self._remembered.get(key)) is None:
            seqs = execute(_WALK, key).get
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = seqs
        return seqs

    async def close(self) -> None:
        """End the reads under way, which they notice soon unless the disk does not respond; close the connections."""
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(PAST_TIMEOUT):
                for _ in range(MAX_PAST_READS):
                    await self._slots.acquire()
        for connection in self._idle:
            connection.close()


def _state_at(moment: Moment, execute: Execute) -> State:
    """Return the numbers of the collection at a moment."""
    _, version, epoch, at = execute(STATE).get
    collection.check_moment(moment, version, epoch, max(at, time.time_ns() // 1_000_000))
    seq = moment.seq or 0
    if moment.time is not None:
        seq = execute(_LATEST, (version, max(moment.time, -MAX_INTEGER))).get
    return State(execute(_COUNT, (seq,)).get or 0, seq, epoch)
