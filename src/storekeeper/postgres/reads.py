"""Reads of the shared collection: those of one loop iteration are one query. Imports the domain.

Every read queries the database after it arrived: nothing is cached, so nothing can be stale. A long list is read page
by page, each page as of the first one's version, so that no slow client keeps a transaction or a connection.
"""

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from storekeeper.collection import Listing, Query
from storekeeper.postgres import columns
from storekeeper.postgres.batcher import Batch, Batcher
from storekeeper.postgres.pipeline import Statement
from storekeeper.postgres.pipeline import array as parameter
from storekeeper.postgres.pool import RESPONSE_TIMEOUT, Pool, single_row
from storekeeper.postgres.schema import COLLECTION
from storekeeper.stores import Store

PAGE_SIZE = 1000
"""Stores in one page of a list."""

PAGE_BYTES = 2**20
"""Bytes of addresses after which a page ends: a page of the longest ones would be a gigabyte."""

MAX_ID = 2**63 - 1
"""The greatest integer of PostgreSQL."""

# The window ends a page by its bytes; it takes their number without loading a long address.
_SIZE = "coalesce(octet_length(address), 0)"
_PAGE = f"SELECT *, sum({_SIZE}) OVER (ORDER BY id) - {_SIZE} AS before FROM"
# The stores of a page as JSON, the last id among them, and the newest version in the page. The database encodes
# them, so that no row of a list ever becomes a Python object. row_to_json is compact, and escapes as SQLite does (a
# test compares them).
_JSON = f"""
  (SELECT convert_to(string_agg(row_to_json(store)::text, ',' ORDER BY store.id), 'UTF8')
    FROM (SELECT id, name, address FROM page WHERE before < {PAGE_BYTES}) AS store),
  (SELECT max(id) FROM page WHERE before < {PAGE_BYTES}), (SELECT max(version) FROM page)"""

STATEMENTS = {
    b"get": columns.SELECT,
    b"check": f"SELECT version FROM {COLLECTION}",
    b"first": f"""WITH page AS ({_PAGE} stores WHERE id <= {PAGE_SIZE})
      SELECT {_JSON}, count, version FROM {COLLECTION}""",
    b"range": f"WITH page AS ({_PAGE} stores WHERE id BETWEEN $1::bigint AND $2::bigint) SELECT {_JSON}",
    b"picked": f"WITH page AS ({_PAGE} stores WHERE id = ANY($1::bigint[])) SELECT {_JSON}",
    b"named": f"""SELECT pick.name, found.*, version
      FROM {COLLECTION}, unnest($1::text[]) AS pick (name), LATERAL (
        WITH page AS ({_PAGE} (SELECT * FROM stores WHERE name = pick.name ORDER BY id LIMIT {PAGE_SIZE}) AS same)
        SELECT {_JSON}, (SELECT max(id) FROM page), (SELECT count(*) FROM page)) AS found""",
    b"ids": f"SELECT version, ARRAY(SELECT id FROM stores WHERE name = $1::text ORDER BY id) FROM {COLLECTION}",
    # The slow way, for a page that changed after the version: each store as its last change up to there left it.
    b"as of": f"""WITH page AS ({_PAGE} (
        SELECT pick.id, was.* FROM unnest($1::bigint[]) AS pick (id), LATERAL (
          SELECT name, address, seq AS version FROM changes
          WHERE store_id = pick.id AND seq <= $2::bigint ORDER BY seq DESC LIMIT 1) AS was) AS past)
      SELECT {_JSON}""",
}
"""The statements that a connection has to prepare for these reads."""


class Reader:
    """Carries out reads; its futures raise Unavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._by_id = Batcher(self._get, workers=2)
        self._lists = Batcher(self._list, max_batch=50)
        self._paging = asyncio.Semaphore(1)

    def get(self, id: int) -> asyncio.Future[Store | None]:
        """Return the store of that id, or None."""
        return self._by_id.add(id)

    def list_stores(self, query: Query) -> asyncio.Future[Listing]:
        """Return the stores that the query asks for."""
        return self._lists.add(query)

    async def close(self) -> None:
        """Finish the reads under way; take no more."""
        await asyncio.gather(self._by_id.close(), self._lists.close())

    async def _get(self, batch: Batch[int, Store | None], deadline: float) -> None:
        ids = parameter({request.key for request in batch if request.key <= MAX_ID})
        found = {row[0]: Store(*row) for row in await self._rows((b"get", (ids,)), deadline)}
        for request in batch:
            request.settle(found.get(request.key))

    async def _list(self, batch: Batch[Query, Listing], deadline: float) -> None:
        found: dict[Query, _Found] = {}
        if names := {request.key.name for request in batch if request.key.name is not None}:
            found.update(await self._named(names, deadline))
        if Query() in {request.key for request in batch}:
            found[Query()] = await self._all(deadline)
        for request in batch:
            # If the row of `collection` is missing, no query finds anything.
            (listed,) = single_row([(found[request.key],)] if request.key in found else [])
            request.settle(self._listing(listed))

    async def _all(self, deadline: float) -> "_Found":
        first, end, _, count, version = single_row(await self._rows((b"first", ()), deadline))
        return _Found(first or b"", range(1, count + 1), end or 0, version)

    async def _named(self, names: set[str], deadline: float) -> "dict[Query, _Found]":
        found = {}
        # No name contains U+0000, and libpq accepts it in no parameter.
        if impossible := {name for name in names if "\0" in name}:
            (version,) = single_row(await self._rows((b"check", ()), deadline))
            found.update({Query(name): _Found(b"", (), 0, version) for name in impossible})
        sent = parameter(names - impossible)
        for name, first, end, _, last, count, version in await self._rows((b"named", (sent,)), deadline):
            if count < PAGE_SIZE and end == last:
                listed = _Found(first or b"", (), 0, version)
            else:
                later, ids = single_row(await self._rows((b"ids", (name,)), deadline))
                listed = await self._first_of(array("q", ids), later, deadline)
            found[Query(name)] = listed
        return found

    async def _first_of(self, ids: Sequence[int], version: int, deadline: float) -> "_Found":
        if not ids:
            return _Found(b"", (), 0, version)
        first, end = await self._page(ids[:PAGE_SIZE], version, deadline)
        return _Found(first, ids, end, version)

    def _listing(self, found: "_Found") -> Listing:
        start = bisect_right(found.ids, found.end)
        rest = self._rest(found.ids, start, found.version) if start < len(found.ids) else None
        return Listing(found.version, found.first, rest)

    async def _rest(self, ids: Sequence[int], start: int, version: int) -> AsyncIterator[bytes]:
        while start < len(ids):
            # One page at a time, so that long lists leave connections for all other requests.
            async with self._paging:
                deadline = self._loop.time() + RESPONSE_TIMEOUT
                page, end = await self._page(ids[start : start + PAGE_SIZE], version, deadline)
            yield b"," + page
            start = bisect_right(ids, end)

    async def _page(self, ids: Sequence[int], version: int, deadline: float) -> tuple[bytes, int]:
        """Return stores as JSON, as they were at a version, as many as fit in a page, and the last id among them."""
        if isinstance(ids, range):
            statement: Statement = (b"range", (ids[0], ids[-1]))
        else:
            statement = (b"picked", (parameter(ids),))
        ((page, end, newest),) = await self._rows(statement, deadline)
        if newest > version:
            ((page, end, _),) = await self._rows((b"as of", (parameter(ids), version)), deadline)
        return page, end

    async def _rows(self, statement: Statement, deadline: float) -> list[tuple[Any, ...]]:
        (result,) = await self._pool.execute(statement, deadline=deadline)
        return result.rows()


@dataclass(frozen=True, slots=True)
class _Found:
    """The beginning of a list: `first` has the stores up to the one with the id `end`, of all these `ids`."""

    first: bytes
    ids: Sequence[int]
    end: int
    version: int
