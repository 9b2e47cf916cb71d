"""Reads of the past: the collection as it was at a moment. Imports apsw and the domain.

The way back to a moment may be long, so each read is on a thread, with a connection of its own. Changes are never
changed, so what a version was can be read in several statements.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import apsw

from storekeeper.collection import MAX_PAST_READS, PAST_TIMEOUT, Listing, Moment, Query, State, check_moment
from storekeeper.concurrency.threads import NoThread, run_in_thread
from storekeeper.errors import Unavailable
from storekeeper.sqlite import reads, schema
from storekeeper.sqlite.columns import FIELDS, STATE, numbers
from storekeeper.sqlite.migrations import CHANGES
from storekeeper.sqlite.reads import following, pages_of
from storekeeper.stores import Store

T = TypeVar("T")
Execute = Callable[..., apsw.Cursor]
Walk = Callable[[int, int, int], bytes]

_PROGRESS_STEPS = 2_500
"""Steps of SQLite's virtual machine, some 0.2 ms, after which a read gives way. Fewer would cost it more than 5 %."""

# os.sched_yield would keep the interpreter's lock, which whoever gets the core may need.
_give_way: Callable[[], int] = ctypes.CDLL(None).sched_yield

MAX_REMEMBERED = 256
"""Ways back that are remembered: what a store was at a version never changes, and a way of 1,000,000 steps takes
0.3 s."""

_COUNT = f"SELECT count FROM {CHANGES} WHERE seq = ?"
# `at` never falls, so half of what is left is left out with each step.
_LATEST = f"""WITH RECURSIVE search (low, high) AS (
    SELECT 0, ?1
    UNION ALL SELECT iif(at <= ?2, seq, low), iif(at <= ?2, high, seq - 1)
      FROM search CROSS JOIN {CHANGES} ON seq = (low + high + 1) / 2 WHERE low < high)
  SELECT max(low) FROM search"""
# From each store's latest change back to the first one that is not later; no row on the way is kept.
_WALK = f"""WITH RECURSIVE walk (seq) AS (
    SELECT version FROM stores NOT INDEXED WHERE id BETWEEN ?1 AND ?2
    UNION ALL SELECT previous FROM walk CROSS JOIN {CHANGES} AS change ON change.seq = walk.seq WHERE walk.seq > ?3)
  SELECT CAST(json_group_array(seq) AS BLOB) FROM walk WHERE seq <= ?3"""
_CHANGE = f"SELECT {FIELDS}, seq FROM {CHANGES} WHERE seq = ?"


class PastReader:
    """Carries out reads of the past; they raise apsw's errors, Unavailable, EpochEnded, InvalidInput."""

    def __init__(self, path: Path, closed: str) -> None:
        self._path = path
        self._closed_reason = closed
        self._closed = False
        self._slots = asyncio.Semaphore(MAX_PAST_READS)
        self._running = 0
        self._idle: list[apsw.Connection] = []
        self._remembered: dict[tuple[int, int, int], bytes] = {}

    async def get(self, id: int, at: Moment) -> Store | None:
        """Return the store of that id as it was, None if there was none."""
        return await self._read(lambda execute, walk: _get(execute, walk, id, at))

    async def list(self, query: Query) -> Listing:
        """Return the stores that the query asks for, as they were."""
        state, last, first, pages = await self._read(lambda execute, walk: _begin(execute, walk, query))
        rest = self._rest(pages, state.version) if pages else None
        return Listing(state.version, state.epoch, first, rest, last, state.total)

    def _rest(self, pages: Iterator[Sequence[int]], version: int) -> AsyncIterator[bytes]:
        async def read(ids: Sequence[int]) -> bytes:
            return await self._read(lambda execute, walk: _page(execute, walk, ids, version))

        return following(read, pages)

    async def _read(self, work: Callable[[Execute, Walk], T]) -> T:
        try:
            await self._acquire()
        except TimeoutError:
            raise Unavailable("Too many reads of the past are waiting") from None
        self._running += 1
        try:
            return await run_in_thread(lambda stop: self._run(work, stop))
        except NoThread:
            raise Unavailable("Too many threads are running") from None
        finally:
            self._running -= 1
            self._slots.release()

    async def _acquire(self) -> None:
        if self._closed:
            raise Unavailable(self._closed_reason)
        async with asyncio.timeout(PAST_TIMEOUT):
            await self._slots.acquire()

    def _run(self, work: Callable[[Execute, Walk], T], stop: threading.Event) -> T:
        if self._closed:
            raise Unavailable(self._closed_reason)
        pause = self._pacer(stop)
        connection = self._idle.pop() if self._idle else schema.connect(self._path, reader=True)
        connection.set_progress_handler(pause, _PROGRESS_STEPS)
        try:
            return work(connection.execute, partial(self._walk, connection.execute))
        except apsw.InterruptError:
            reason = self._closed_reason if self._closed else "The read of the past took too long"
            raise Unavailable(reason) from None
        finally:
            connection.set_progress_handler(None)
            self._idle.append(connection)

    def _pacer(self, stop: threading.Event) -> Callable[[], bool]:
        """Return what this thread's read calls every few steps, which tells it whether to end."""
        began = time.monotonic()

        def pause() -> bool:
            now = time.monotonic()
            # With less than its share, it would get next to nothing beside an event loop that never rests.
            if time.thread_time() > (now - began) / (self._running + 1):
                _give_way()
            return self._closed or stop.is_set() or now > began + PAST_TIMEOUT

        return pause

    def _walk(self, execute: Execute, first: int, last: int, version: int) -> bytes:
        """Return, for each store of a range of ids, the number of its latest change up to a version, as JSON."""
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


def _begin(
    execute: Execute, walk: Walk, query: Query
) -> tuple[State, int | None, bytes, Iterator[Sequence[int]] | None]:
    """Return the state at the query's moment, the last id if later ones were left out, a page, and what follows."""
    assert query.at is not None
    state = _find(execute, query.at)
    ids, last = query.ids(state.total)
    pages = pages_of(ids)
    page = next(pages, range(0))
    if not page:
        return state, last, b"", None
    try:
        first = _page(execute, walk, page, state.version)
    except apsw.TooBigError:
        first = _page(execute, walk, page[:1], state.version)
        return state, last, first, chain([page[1:]], pages)
    following = next(pages, None)
    return state, last, first, chain([following], pages) if following else None


def _find(execute: Execute, moment: Moment) -> State:
    """Return the numbers of the collection at a moment."""
    _, version, epoch, at = execute(STATE).get
    check_moment(moment, version, epoch, max(at, time.time_ns() // 1_000_000))
    seq = moment.seq or 0
    if moment.time is not None:
        seq = execute(_LATEST, (version, max(moment.time, -reads.MAX_ID))).get
    return State(execute(_COUNT, (seq,)).get or 0, seq, epoch)


def _get(execute: Execute, walk: Walk, id: int, at: Moment) -> Store | None:
    was = _find(execute, at)
    if not 0 < id <= was.total:
        return None
    (seq,) = numbers(walk(id, id, was.version))
    return Store(*[id, *execute(_CHANGE, (seq,)).get, was.epoch])


def _page(execute: Execute, walk: Walk, ids: Sequence[int], version: int) -> bytes:
    page: bytes
    page, newest = execute(reads.PAGE, (ids[0], ids[-1])).get
    if newest > version:
        page = execute(reads.AS_OF, (walk(ids[0], ids[-1], version).decode(),)).get
    return page
