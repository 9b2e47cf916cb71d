"""Reads of the shared collection: those by id of one loop iteration are one query.

Every read queries the database after it arrived: nothing is cached, so nothing can be stale. A
long list is read page by page, each page as of the first one's version, so that no slow client
keeps a transaction or a connection. The past is read in the same way.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace

from storekeeper.concurrency.batcher import response_deadline
from storekeeper.concurrency.turns import Turns
from storekeeper.domain import search
from storekeeper.domain.changes import ChangesPage, ChangesQuery
from storekeeper.domain.queries import Moment, Query, State, check_history, check_moment
from storekeeper.domain.stores import MAX_INTEGER, Store
from storekeeper.storage import clock
from storekeeper.storage.collection import Listing
from storekeeper.storage.kept_ids import LongLists
from storekeeper.storage.postgres.long_reads import long_read
from storekeeper.storage.postgres.pipeline import Statement, array, rows
from storekeeper.storage.postgres.pool import Pool, single_row
from storekeeper.storage.postgres.schema import COLLECTION_TABLE
from storekeeper.storage.sql import (
    ALL_TOKENS,
    COUNTED_TOKENS,
    FIELDS,
    STORES,
    UNREVOKED_TOKENS,
    changes_statement,
    page_of,
    search_statement,
)

PAGE_SIZE = 1000
PAGE_BYTES = 2**20
"""Stores of a page of a list, and bytes of addresses at which it ends: 1000 of the longest would
take a GiB."""

# The window ends a page by its bytes; it takes their number without loading a long address.
_ADDRESS_BYTES = "coalesce(octet_length(address), 0)"
_PAGE = f"SELECT *, sum({_ADDRESS_BYTES}) OVER (ORDER BY id) - {_ADDRESS_BYTES} AS before FROM"
# Each write leaves a dead version of the row, and a long transaction keeps them: the table then has
# many pages. By `one = 1` the server uses the index, and does not scan all of them for each read.
_ROW = f"{COLLECTION_TABLE} WHERE one = 1"
# The stores of a page as JSON, the last id among them, the newest version in the page, and the
# collection's version and epoch. The database encodes the stores, so that no row of a list ever
# becomes a Python object. row_to_json is compact, and escapes as SQLite does (a test compares
# them).
_JSON = f"""
  (SELECT convert_to(string_agg(row_to_json(store)::text, ',' ORDER BY store.id), 'UTF8')
    FROM (SELECT id, {FIELDS} FROM page WHERE before < {PAGE_BYTES}) AS store),
  (SELECT max(id) FROM page WHERE before < {PAGE_BYTES}), (SELECT max(version) FROM page),
  version, epoch"""
# LIMIT and `one = 1` have the server use the index even before it has statistics. Otherwise it
# reads all changes.
_PRESENT = f"""SELECT version, epoch, at, was.seq, was.count
  FROM {COLLECTION_TABLE} LEFT JOIN LATERAL (SELECT seq, changes.count FROM changes WHERE seq ="""


def _changes_name(query: ChangesQuery) -> bytes:
    return b"changes%d%d" % (query.store is not None, query.newest_first)


STATEMENTS = {
    b"search": f"SELECT ARRAY({search_statement('strpos')}), count, version, epoch FROM {_ROW}",
    **{
        _changes_name(query): changes_statement(query)[0]
        for query in (
            ChangesQuery(store=store, newest_first=down)
            for store in (None, 1)
            for down in (False, True)
        )
    },
    b"get": f"""SELECT {", ".join(STORES)}, (SELECT epoch FROM {_ROW}) FROM stores
      WHERE id = ANY($1::int8[])""",
    b"state": f"SELECT count, version, epoch FROM {_ROW}",
    b"range": f"""WITH page AS ({_PAGE} stores WHERE id BETWEEN $1::int8 AND $2::int8)
      SELECT {_JSON} FROM {_ROW}""",
    b"picked": f"""WITH page AS ({_PAGE} stores WHERE id = ANY($1::int8[]))
      SELECT {_JSON} FROM {_ROW}""",
    b"named": f"""SELECT ARRAY(SELECT id FROM stores
        WHERE name = $1::text AND id > $2::int8 ORDER BY id LIMIT $3::int8),
      count, version, epoch FROM {_ROW}""",
    # Each store as its last change up to a version left it.
    b"as of": f"""WITH page AS ({_PAGE} (
        SELECT pick.id, was.* FROM unnest($1::int8[]) AS pick (id), LATERAL (
          SELECT {FIELDS}, seq AS version FROM changes
          WHERE store_id = pick.id AND seq <= $2::int8 ORDER BY seq DESC LIMIT 1) AS was) AS past)
      SELECT {_JSON} FROM {_ROW}""",
    b"was": f"""SELECT {FIELDS}, seq FROM changes
      WHERE store_id = $1::int8 AND seq <= $2::int8 ORDER BY seq DESC LIMIT 1""",
    b"version": f"{_PRESENT} $1::int8 LIMIT 1) AS was ON true WHERE one = 1",
    # `at` never falls, so half of what is left is left out with each step.
    b"moment": f"""{_PRESENT} (
      WITH RECURSIVE search (low, high) AS (
        SELECT 0::int8, version
        UNION ALL SELECT CASE WHEN at <= $1::int8 THEN seq ELSE low END,
          CASE WHEN at <= $1::int8 THEN high ELSE seq - 1 END
        FROM search, LATERAL (
          SELECT seq, at FROM changes WHERE seq = (low + high + 1) / 2 LIMIT 1) AS middle
        WHERE low < high)
      SELECT max(low) FROM search) LIMIT 1) AS was ON true WHERE one = 1""",
    b"tokens": UNREVOKED_TOKENS,
    b"all tokens": ALL_TOKENS,
    b"traces": f"SELECT version, epoch, {COUNTED_TOKENS} FROM {_ROW}",
    b"figures": f"""SELECT pg_catalog.pg_database_size(pg_catalog.current_database()), backed_up
      FROM {_ROW}""",
}
"""The statements that a connection must prepare for these reads."""


class Reader:
    """Carries out reads; raises Unavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.long_lists = LongLists()
        self._paging = asyncio.Semaphore(1)
        self._searches = Turns(search.MAX_AT_ONCE, search.TIMEOUT, search.TOO_LONG)

    async def get(self, ids: Sequence[int], since: float) -> list[Store | None]:
        """Return for each id its store, or None."""
        found = await self._rows(
            (b"get", (array({id for id in ids if id <= MAX_INTEGER}),)), response_deadline(since)
        )
        if found and found[0][-1] is None:
            single_row([])  # there is no epoch, because the row of `collection` is missing
        stores = {row[0]: Store(*row) for row in found}
        return [stores.get(id) for id in ids]

    async def get_at(self, id: int, at: Moment) -> Store | None:
        """Return the store of that id as it was, None if there was none. Raises EpochEnded,
        InvalidInput."""
        was = await self._state_at(at)
        if not 0 < id <= was.total:
            return None
        ((name, address, seq),) = await self._rows((b"was", (id, was.version)))
        return Store(id, name, address, seq, was.epoch)

    async def state(self) -> State:
        """Return the numbers of the collection."""
        return State(*single_row(await self._rows((b"state", ()))))

    async def changes(self, query: ChangesQuery) -> ChangesPage:
        """Return a page of changes. Raises EpochEnded."""
        return page_of(await self._rows((_changes_name(query), changes_statement(query)[1])), query)

    async def listing(self, query: Query) -> Listing:
        """Return the stores that the query asks for. Raises EpochEnded, InvalidInput."""
        if query.search is not None:
            return await self._search(query, query.search)
        if query.name is not None:
            return await self._named(query, query.name)
        state = await (self.state() if query.at is None else self._state_at(query.at))
        ids, last = query.ids(state.total)
        return await self._listing(ids, state, last, state.total)

    async def _search(self, query: Query, wanted: search.Search) -> Listing:
        assert query.limit is not None
        async with self._searches:  # they leave connections for all other requests
            ids, *numbers = await self._find(wanted.parameters(query.after, query.limit + 1))
        state = State(*numbers)
        first, others, last = query.found(ids, state.total)
        listing = await self._listing(others, state, last)
        if not first:
            return listing
        page, _ = await self._page(first, state)
        return replace(listing, first=b",".join(filter(None, (page, listing.first))))

    async def _named(self, query: Query, name: str) -> Listing:
        most = MAX_INTEGER if query.limit is None else query.limit + 1
        # libpq accepts no U+0000; no store's name has one, and none is empty.
        values = ("" if "\0" in name else name, min(query.after, MAX_INTEGER), most)
        found, *numbers = single_row(await self._rows((b"named", values)))
        ids = found[: query.limit]
        last = ids[-1] if len(ids) < len(found) else None
        return await self._listing(ids, State(*numbers), last)

    async def _find(self, parameters: Sequence[str | int]) -> tuple[Any, ...]:
        async with long_read(self._pool, search.TOO_LONG) as execute:
            _, _, found, _ = await execute(
                (b"begin", ()), (b"search timeout", ()), (b"search", parameters), (b"commit", ())
            )
            return single_row(rows(found))

    async def _state_at(self, moment: Moment) -> State:
        """Return the numbers of the collection at a moment."""
        if moment.time is not None:
            statement: Statement = (b"moment", (max(-MAX_INTEGER, min(moment.time, MAX_INTEGER)),))
        else:
            statement = (b"version", (min(moment.seq or 0, MAX_INTEGER),))
        version, epoch, at, seq, count = single_row(await self._rows(statement))
        check_moment(moment, version, epoch, max(at, clock.now()))
        return State(count or 0, seq or 0, epoch)

    async def _listing(
        self, ids: Sequence[int], state: State, last: int | None, total: int | None = None
    ) -> Listing:
        """Return a list of these stores as of `state`, with its first page; the others are read
        when asked for."""
        first, end = await self._page(ids[:PAGE_SIZE], state) if ids else (b"", 0)
        if not ids or end == ids[-1]:
            return Listing(state.version, state.epoch, first, None, last, total)
        others = self.long_lists.keep(ids[bisect_right(ids, end) :])
        rest = self._rest(others, end, state)
        return Listing(state.version, state.epoch, first, rest, last, total)

    async def _rest(self, ids: Sequence[int], done: int, state: State) -> AsyncIterator[bytes]:
        while (start := bisect_right(ids, done)) < len(ids):
            # One page at a time, so that long lists leave connections for other requests.
            async with self._paging:
                part, done = await self._page(ids[start : start + PAGE_SIZE], state)
            yield b"," + part

    async def _page(self, ids: Sequence[int], state: State) -> tuple[bytes, int]:
        """Return as many of these stores as fit in a page, as they were in a state, and the last
        id."""
        statement: Statement = (b"picked", (array(ids),))
        if isinstance(ids, range):
            statement = (b"range", (ids[0], ids[-1]))
        page, end, newest = await self._page_of(statement, state)
        if newest > state.version:
            page, end, _ = await self._page_of((b"as of", (array(ids), state.version)), state)
        return page, end

    async def _page_of(self, statement: Statement, state: State) -> tuple[bytes, int, int]:
        """Return the first columns of a page; raise Unavailable if the history of `state` has
        ended."""
        page, end, newest, version, epoch = single_row(await self._rows(statement))
        check_history(state, version, epoch)
        return page, end, newest

    async def _rows(
        self, statement: Statement, deadline: float | None = None
    ) -> list[tuple[Any, ...]]:
        (result,) = await self._pool.execute(statement, deadline=deadline)
        return rows(result)
