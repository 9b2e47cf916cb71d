"""Reads of the SQLite collection, on the event loop's own connection.

A read of one store or of one page takes less than half a millisecond, so it is completed at
once. A long list is read page by page, each page as of the first one's version, so that no slow
client keeps a transaction open, which would keep the write-ahead log growing. The past is read
in the same way. Encoded pages of the list of all stores are cached until the next change.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from typing import Any

import apsw
from msgspec.structs import replace

from storekeeper.domain import search
from storekeeper.domain.changes import ChangesPage, ChangesQuery
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.stores import MAX_INTEGER, Store
from storekeeper.domain.tokens import Token
from storekeeper.storage.collection import (
    Listing,
    Moment,
    Query,
    State,
    check_history,
    check_moment,
)
from storekeeper.storage.kept_ids import LongLists
from storekeeper.storage.sql import (
    CONTENT,
    FIELDS,
    GOOD_TOKENS,
    changes_statement,
    page_of,
    search_statement,
)
from storekeeper.storage.sqlite import connections
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.sqlite.schema import CHANGES_TABLE
from storekeeper.storage.sqlite.statements import STATE, as_json, decode_integers

PAGE_SIZE = 1000
"""Stores in one page of a list: about 0.2 ms of the event loop."""

PAST_PAGE_SIZE = 500
"""Stores in one page as of a version, which costs twice as much for each store."""

MAX_PAGE_BYTES = 2 * 2**20
"""Bytes of addresses in one page: about 5 ms of the event loop. One store may have more."""

MAX_CACHED_BYTES = 8 * 2**20
"""Bytes of all cached pages: those of some 100,000 stores."""

MAX_EPOCH_AGE = 1.0
"""Seconds for which an epoch that was read is used: `epoch --new` returns after that."""

# It continues while the machine sleeps or this process is stopped. On macOS, CLOCK_MONOTONIC does
# so too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# The database encodes the stores, 4 times as fast as Python would encode rows. The cast returns
# bytes, not str.
_MEMBERS = ", ".join(f"'{name}', {name}" for name in ("id", *CONTENT))
_JSON = f"CAST(group_concat(json_object({_MEMBERS}), ',') AS BLOB), max(version)"
# A scan of the table by its key, or of ids in order, is in that order; a sub-query with ORDER BY
# would take a third longer, and load all that it sorts.
_RANGE = f"(SELECT id, {FIELDS}, version FROM stores NOT INDEXED WHERE id BETWEEN ?1 AND ?2)"
_PICKED = f"""(SELECT stores.id, {FIELDS}, version FROM json_each(?1) AS pick
  CROSS JOIN stores ON stores.id = pick.value)"""
_AS_OF = f"""(SELECT store_id AS id, {FIELDS}, seq AS version FROM json_each(?1) AS pick
  CROSS JOIN {CHANGES_TABLE} ON seq = (
    SELECT max(seq) FROM {CHANGES_TABLE} WHERE store_id = pick.value AND seq <= ?2))"""

_GET = f"SELECT {FIELDS}, version FROM stores WHERE id = ?"
_GET_AT = f"""SELECT {FIELDS}, seq FROM {CHANGES_TABLE} WHERE store_id = ? AND seq <= ?
  ORDER BY seq DESC LIMIT 1"""
_COUNT = f"SELECT count FROM {CHANGES_TABLE} WHERE seq = ?"
# `at` never falls, so half of what is left is left out with each step.
_LATEST = f"""WITH RECURSIVE search (low, high) AS (
    SELECT 0, ?1
    UNION ALL SELECT iif(at <= ?2, seq, low), iif(at <= ?2, high, seq - 1)
      FROM search CROSS JOIN {CHANGES_TABLE} ON seq = (low + high + 1) / 2 WHERE low < high)
  SELECT max(low) FROM search"""
# The ids as one value: row by row they would take three times as long, all of it on the event loop.
# They and the version are of one moment, because one statement selects both.
_NAMED = f"""SELECT *, (SELECT CAST(json_group_array(id) AS BLOB) FROM
  (SELECT id FROM stores WHERE name = ? AND id > ? ORDER BY id LIMIT ?)) FROM ({STATE})"""
_FIND = f"SELECT CAST(json_group_array(id) AS BLOB) FROM ({search_statement('instr')})"

_STEPS = 100_000
"""Steps of SQLite, about 5 ms, between two looks at the clock: each must wait for the
interpreter's lock."""


class Reader:
    """Carries out reads on one connection of `connections.connect`; raises apsw's errors."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self.long_lists = LongLists()
        self._pages: dict[int, bytes] = {}  # by number
        # With the time of the latest change: after a restore another change may have its number.
        self._pages_of = State(0, 0, ""), 0
        self.read_epoch()

    def read_epoch(self) -> str:
        """Read the epoch; return it."""
        self._epoch_read = time.clock_gettime(_CLOCK)
        self._epoch = str(self._execute("SELECT epoch FROM collection").get)
        return self._epoch

    def epoch(self) -> str:
        """Return the epoch, which is read again if this process stood still since it was read."""
        is_old = time.clock_gettime(_CLOCK) - self._epoch_read > MAX_EPOCH_AGE
        return self.read_epoch() if is_old else self._epoch

    def change_token(self) -> object:
        """Return what `Collection.change_token` does; a commit by any other connection changes
        the first part."""
        return self._execute("PRAGMA data_version").get, self.epoch()

    def get(self, id: int) -> Store | None:
        """Return the store of that id, or None."""
        found = self._execute(_GET, (id,)).get if id <= MAX_INTEGER else None
        if found is None:
            return None
        name, address, version = found
        return Store(id, name, address, version, self.epoch())

    def get_at(self, id: int, at: Moment) -> Store | None:
        """Return the store as it was at a moment, None if there was none. Raises EpochEnded,
        InvalidInput."""
        was = self._state_at(at)
        if not 0 < id <= was.total:
            return None
        name, address, version = self._execute(_GET_AT, (id, was.version)).get
        return Store(id, name, address, version, was.epoch)

    def state(self) -> State:
        """Return the numbers of the collection."""
        return State(*self._execute(STATE).get[:3])

    def changes(self, query: ChangesQuery) -> ChangesPage:
        """Return a page of changes. Raises EpochEnded."""
        return page_of(self._execute(*changes_statement(query)), query)

    def tokens(self) -> Sequence[Token]:
        """Return what `Collection.tokens` does."""
        return [Token(*row) for row in self._execute(GOOD_TOKENS)]

    def backed_up(self) -> int | None:
        """Return when the latest backup was made, in ms since 1970."""
        moment: int | None = self._execute("SELECT backed_up FROM collection").get
        return moment

    def list(self, query: Query) -> Listing:
        """Return the stores that the query asks for. Raises EpochEnded, InvalidInput."""
        if query.name is not None:
            return self._named(query.name, min(query.after, MAX_INTEGER), query.limit)
        if query.at is not None:
            state = self._state_at(query.at)
        else:
            *numbers, at = self._execute(STATE).get
            state = State(*numbers)
            if (state, at) != self._pages_of:
                self._pages.clear()
                self._pages_of = state, at
        ids, last = query.ids(state.total)
        return self._listing(ids, state, last, state.total)

    def searched(self, query: Query, state: State, ids: Sequence[int]) -> Listing:
        """Return the page of a search that found these ids in `state`."""
        first, others, last = query.found(ids, state.total)
        listing = self._listing(others, state, last)
        parts = [self._page(first, state)[0] if first else b"", listing.first]
        return replace(listing, first=b",".join(filter(None, parts)))

    def _named(self, name: str, after: int, limit: int | None) -> Listing:
        *numbers, _, found = self._execute(
            _NAMED, (name, after, -1 if limit is None else limit + 1)
        ).get
        ids = decode_integers(found)
        last = ids[limit - 1] if limit is not None and len(ids) > limit else None
        return self._listing(ids[:limit], State(*numbers), last)

    def _state_at(self, moment: Moment) -> State:
        """Return the numbers of the collection at a moment."""
        _, version, epoch, at = self._execute(STATE).get
        check_moment(moment, version, epoch, max(at, time.time_ns() // 1_000_000))
        seq = moment.seq or 0
        if moment.time is not None:
            seq = self._execute(_LATEST, (version, max(moment.time, -MAX_INTEGER))).get
        return State(self._execute(_COUNT, (seq,)).get or 0, seq, epoch)

    def _listing(
        self, ids: Sequence[int], state: State, last: int | None, total: int | None = None
    ) -> Listing:
        """Return a list of these stores as of `state`, with its first page; the others are read
        when asked for."""
        first, count = self._page(ids, state) if ids else (b"", 0)
        if count == len(ids):
            return Listing(state.version, state.epoch, first, None, last, total)
        rest = self._rest(self.long_lists.keep(ids[count:]), state)
        return Listing(state.version, state.epoch, first, rest, last, total)

    async def _rest(self, ids: Sequence[int], state: State) -> AsyncIterator[bytes]:
        """Yield the pages of these stores, each behind a comma."""
        begin = 0
        while begin < len(ids):
            # A fast client must not keep the others waiting until its list ends.
            await asyncio.sleep(0)
            _, version, epoch = self.state()
            check_history(state, version, epoch)
            # One id more shows `_page` that more follow.
            page, count = self._page(ids[begin : begin + PAGE_SIZE + 1], state)
            yield b"," + page
            begin += count

    def _page(self, ids: Sequence[int], state: State) -> tuple[bytes, int]:
        """Return the first of these stores as they were in `state`, as JSON, and how many they
        are."""
        if not isinstance(ids, range):
            page, newest, count = self._sized(_PICKED, ids[:PAGE_SIZE])
        else:
            number, offset = divmod(ids[0] - 1, PAGE_SIZE)
            # In a long list each page ends at a multiple of PAGE_SIZE, so that all lists share
            # their pages.
            ids = ids[: PAGE_SIZE - offset if len(ids) > PAGE_SIZE else PAGE_SIZE]
            # Cache only whole pages: which parts of pages are read depends on what clients ask for.
            is_whole = not offset and (len(ids) == PAGE_SIZE or ids[-1] == state.total)
            cacheable = is_whole and state == self._pages_of[0]
            if cacheable and (cached := self._pages.get(number)):
                return cached, len(ids)
            page, newest, count = self._sized(_RANGE, ids)
            if cacheable and newest <= state.version and count == len(ids):
                self._cache(number, page)
        if newest > state.version:
            page, _, count = self._sized(_AS_OF, ids[:PAST_PAGE_SIZE], state.version)
        return page, count

    def _sized(self, stores: str, ids: Sequence[int], *version: int) -> tuple[bytes, int, int]:
        """Return as many of these stores as a page may have bytes of, the newest version in it,
        and how many."""
        while True:
            values: tuple[Any, ...] = (
                (ids[0], ids[-1]) if stores is _RANGE else (as_json(ids), *version)
            )
            # It reads only the lengths.
            if len(ids) == 1 or self._execute(_BYTES[stores], values).get <= MAX_PAGE_BYTES:
                break
            ids = ids[: len(ids) // 2]
        page, newest = self._execute(_PAGE[stores], values).get
        return page, newest, len(ids)

    def _cache(self, number: int, page: bytes) -> None:
        if sum(map(len, self._pages.values()), len(page)) <= MAX_CACHED_BYTES:
            self._pages[number] = page


def find(identity: FileIdentity, query: Query) -> tuple[State, Sequence[int]]:
    """Search; return the collection's numbers, and what `Query.found` needs. Raises Unavailable
    and apsw's errors.

    On a thread, because it may read all stores; so with a connection of its own.
    """
    assert query.search is not None
    assert query.limit is not None
    deadline = time.monotonic() + search.TIMEOUT
    with closing(identity.connect(reader=True)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        try:
            with connections.transaction(connection, "DEFERRED"):
                state = State(*connection.execute(STATE).get[:3])
                values = query.search.parameters(query.after, query.limit + 1)
                return state, decode_integers(connection.execute(_FIND, values).get)
        except apsw.InterruptError:
            raise Unavailable(search.TOO_LONG) from None


_BYTES = {
    stores: f"SELECT total(octet_length(address)) FROM {stores}"
    for stores in (_RANGE, _PICKED, _AS_OF)
}
_PAGE = {stores: f"SELECT {_JSON} FROM {stores}" for stores in (_RANGE, _PICKED, _AS_OF)}
