"""Reads of the SQLite collection, on the event loop's own connection.

A read of one store or of one page takes less than half a millisecond, so it is completed at
once. A long list is read page by page, each page as of the first one's version, so that no slow
client keeps a transaction open, which would keep the write-ahead log growing. The past is read
in the same way.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from storekeeper.domain import search
from storekeeper.domain.changes import ChangesPage, ChangesQuery
from storekeeper.domain.queries import Moment, Query, State, check_history, check_moment
from storekeeper.domain.selection import StoreKeys
from storekeeper.domain.stores import MAX_INTEGER, Store
from storekeeper.domain.tokens import Token, Traces
from storekeeper.storage.collection import Listing
from storekeeper.storage.kept_ids import LongLists
from storekeeper.storage.selecting import Selected
from storekeeper.storage.sql import (
    ALL_TOKENS,
    CONTENT,
    COUNTED_TOKENS,
    FIELDS,
    UNREVOKED_TOKENS,
    changes_statement,
    page_of,
    search_statement,
)
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.sqlite.long_reads import long_read
from storekeeper.storage.sqlite.migrations import CHANGES_TABLE
from storekeeper.storage.sqlite.read_transaction import ReadTransaction
from storekeeper.storage.sqlite.statements import as_json, decode_integers

PAGE_SIZE = 1000
"""Stores in one page of a list: about 0.2 ms of the event loop."""

PAST_PAGE_SIZE = 500
"""Stores in one page as of a version, which costs twice as much for each store."""

MAX_PAGE_BYTES = 2 * 2**20
"""Bytes of addresses in one page: about 5 ms of the event loop. One store may have more."""

MAX_ROWS = 100
"""Stores of one name that Python encodes; the database encodes more of them, page by page."""

# The database encodes the stores, 4 times as fast as Python would encode rows. The cast returns
# bytes, not str.
_MEMBERS = ", ".join(f"'{name}', {name}" for name in ("id", *CONTENT))
_JSON = f"CAST(group_concat(json_object({_MEMBERS}), ',') AS BLOB), max(version)"


class _Pages:
    """The statements for pages of the stores that a sub-query selects."""

    def __init__(self, stores: str) -> None:
        self.address_bytes = f"SELECT total(octet_length(address)) FROM {stores}"
        """Reads only the lengths."""
        self.page = f"SELECT {_JSON} FROM {stores}"


# A scan of the table by its key, or of ids in order, is in that order; a sub-query with ORDER BY
# would take a third longer, and load all that it sorts.
_RANGE = _Pages(
    f"(SELECT id, {FIELDS}, version FROM stores NOT INDEXED WHERE id BETWEEN ?1 AND ?2)"
)
_PICKED = _Pages(f"""(SELECT stores.id, {FIELDS}, version FROM json_each(?1) AS pick
  CROSS JOIN stores ON stores.id = pick.value)""")
_AS_OF = _Pages(f"""(SELECT store_id AS id, {FIELDS}, seq AS version FROM json_each(?1) AS pick
  CROSS JOIN {CHANGES_TABLE} ON seq = (
    SELECT max(seq) FROM {CHANGES_TABLE} WHERE store_id = pick.value AND seq <= ?2))""")

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
_NAMED = f"""SELECT id, {FIELDS} FROM stores
  WHERE name = ? AND id > ? ORDER BY id LIMIT ?"""
# The ids as one value: row by row they would take three times as long, all of it on the event loop.
_IDS_NAMED = """SELECT CAST(json_group_array(id) AS BLOB) FROM
  (SELECT id FROM stores WHERE name = ? AND id > ? ORDER BY id LIMIT ?)"""
_FIND = f"SELECT CAST(json_group_array(id) AS BLOB) FROM ({search_statement('instr')})"

_KEYS = """SELECT store_id, column_name, value FROM external_ids
  WHERE store_id IN (SELECT value FROM json_each(?)) ORDER BY store_id, column_name"""


_encode = msgspec.json.Encoder().encode


class _Row(msgspec.Struct, gc=False):
    """A store in a list by name."""

    id: int
    name: str
    address: str | None


class Reader(ReadTransaction):
    """Carries out reads on one connection of `connections.connect`; call each by `read`."""

    def __init__(
        self,
        connection: apsw.Connection,
        translate: Callable[[Exception], Exception] = lambda error: error,
    ) -> None:
        super().__init__(connection, translate)
        self.long_lists = LongLists()

    def get(self, id: int) -> Store | None:
        """Return the store of that id, or None."""
        _, _, epoch, _ = self.known or self.numbers()
        found = self._execute(_GET, (id,)).get if id <= MAX_INTEGER else None
        if found is None:
            return None
        name, address, version = found
        return Store(id, name, address, version, epoch)

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
        return State(*self.numbers()[:3])

    def changes(self, query: ChangesQuery) -> ChangesPage:
        """Return a page of changes. Raises EpochEnded."""
        return page_of(self._execute(*changes_statement(query)), query)

    def tokens(self) -> Sequence[Token]:
        """Return what `Collection.tokens` does."""
        return [Token(*row) for row in self._execute(UNREVOKED_TOKENS)]

    def all_tokens(self) -> Sequence[Token]:
        """Return what `Collection.all_tokens` does."""
        return [Token(*row) for row in self._execute(ALL_TOKENS)]

    def traces(self) -> Traces:
        """Return what `Collection.traces` does."""
        _, version, epoch = self.state()
        return Traces(version, epoch, *self._execute(f"SELECT {COUNTED_TOKENS}").get)

    def backed_up(self) -> int | None:
        """Return when the latest backup was made, in ms since 1970."""
        moment: int | None = self._execute("SELECT backed_up FROM collection").get
        return moment

    def list(self, query: Query) -> Listing:
        """Return the stores that the query asks for. Raises EpochEnded, InvalidInput."""
        if query.name is not None:
            return self._named(query.name, min(query.after, MAX_INTEGER), query.limit)
        state = self.state() if query.at is None else self._state_at(query.at)
        ids, last = query.ids(state.total)
        return self._listing(ids, state, last, state.total)

    def searched(self, query: Query, state: State, ids: Sequence[int]) -> Listing:
        """Return the page of a search that found these ids in `state`."""
        first, others, last = query.found(ids, state.total)
        listing = self._listing(others, state, last)
        if not first:
            return listing
        page, _ = self._page(first, state)
        return replace(listing, first=b",".join(filter(None, (page, listing.first))))

    def selected(self, query: Query, state: State, selected: Selected) -> Listing:
        """Return the page of a selection that found these stores in `state`."""
        total = None if query.has_filter else state.total
        return replace(self._listing(selected.ids, state, None, total), place=selected.last)

    def keys(self, ids: Sequence[int]) -> StoreKeys:
        """Return what `Collection.keys` does."""
        _, version, epoch, _ = self.numbers()
        wanted = as_json(id for id in ids if id <= MAX_INTEGER)
        return StoreKeys(self._execute(_KEYS, (wanted,)).fetchall(), version, epoch)

    def _named(self, name: str, after: int, limit: int | None) -> Listing:
        _, version, epoch, _ = self.known or self.numbers()
        most = MAX_ROWS if limit is None else min(limit, MAX_ROWS)
        rows = _rows_of(self._execute(_NAMED, (name, after, most + 1)))
        if rows is not None and (len(rows) <= most or most == limit):
            last = rows[most - 1].id if len(rows) > most else None
            return Listing(version, epoch, _encode(rows[:most])[1:-1], None, last)
        wanted = -1 if limit is None else limit + 1
        ids = decode_integers(self._execute(_IDS_NAMED, (name, after, wanted)).get)
        last = ids[limit - 1] if limit is not None and len(ids) > limit else None
        return self._listing(ids[:limit], self.state(), last)

    def _state_at(self, moment: Moment) -> State:
        """Return the numbers of the collection at a moment."""
        _, version, epoch, changed = self.numbers()
        check_moment(moment, version, epoch, max(changed, self.now))
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
        """Yield the pages of these stores, each after a comma."""
        begin = 0
        while begin < len(ids):
            # A fast client must not keep the others waiting until its list ends.
            await asyncio.sleep(0)
            page, count = self.read(self._later_page, ids[begin : begin + PAGE_SIZE], state)
            yield b"," + page
            begin += count

    def _later_page(self, ids: Sequence[int], state: State) -> tuple[bytes, int]:
        """Return what `_page` does, in a transaction that began after that of `state`."""
        _, version, epoch = self.state()
        check_history(state, version, epoch)
        return self._page(ids, state)

    def _page(self, ids: Sequence[int], state: State) -> tuple[bytes, int]:
        """Return the first of these stores as they were in `state`, as JSON, and how many they
        are."""
        ids = ids[:PAGE_SIZE]
        if isinstance(ids, range):
            page, newest, count = self._sized(_RANGE, ids, lambda some: (some[0], some[-1]))
        else:
            page, newest, count = self._sized(_PICKED, ids, lambda some: (as_json(some),))
        if newest > state.version:
            ids = ids[:PAST_PAGE_SIZE]
            page, _, count = self._sized(_AS_OF, ids, lambda some: (as_json(some), state.version))
        return page, count

    def _sized(
        self,
        pages: _Pages,
        ids: Sequence[int],
        parameters: Callable[[Sequence[int]], tuple[Any, ...]],
    ) -> tuple[bytes, int, int]:
        """Return as many of these stores as a page may have bytes of, the newest version in it,
        and how many. `parameters` returns those of the statements for some ids."""
        values = parameters(ids)
        while len(ids) > 1 and self._execute(pages.address_bytes, values).get > MAX_PAGE_BYTES:
            ids = ids[: len(ids) // 2]
            values = parameters(ids)
        page, newest = self._execute(pages.page, values).get
        return page, newest, len(ids)


def _rows_of(found: apsw.Cursor) -> list[_Row] | None:
    """Return the stores that a statement finds, None if their addresses are too long for a page."""
    rows = list[_Row]()
    size = 0
    for values in found:
        rows.append(_Row(*values))
        size += len(rows[-1].address or "")
        if size > MAX_PAGE_BYTES:
            return None
    return rows


def find(identity: FileIdentity, query: Query) -> tuple[State, Sequence[int]]:
    """Search; return the collection's numbers, and what `Query.found` needs. Raises Unavailable
    and apsw's errors."""
    assert query.search is not None
    assert query.limit is not None
    values = query.search.parameters(query.after, query.limit + 1)
    with long_read(identity, search.TOO_LONG) as (connection, state):
        return state, decode_integers(connection.execute(_FIND, values).get)
