"""Reads of the SQLite collection, on the event loop's own connection. Imports apsw and the domain.

A read by id or of a small list takes microseconds, so it is answered at once. A long list is read page by
page, each page as of the first one's version, so that no slow client keeps a transaction, and with it the
write-ahead log, from ending.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import apsw

from storekeeper.collection import Listing
from storekeeper.stores import Store

PAGE = 1000
"""Stores in one page of a list: about 0.3 ms of the event loop."""

PAGE_BYTES = 8 * 2**20
"""The most that a page may have: more than the longest store, and far less than `PAGE` of them."""

_GREATEST_ID = 2**63 - 1

_GET = "SELECT name, address, version FROM stores WHERE id = ?"

# Encoded by the database, 4 times as fast as rows through Python. The cast gives bytes without a detour
# through str. The sub-query orders what the aggregate sees.
_JSON = "CAST(group_concat(json_object('id', id, 'name', name, 'address', address), ',') AS BLOB)"

_STATE = "SELECT (SELECT max(id) FROM stores), (SELECT max(seq) FROM changes)"
_FIRST = f"{_STATE}, (SELECT {_JSON} FROM (SELECT * FROM stores WHERE id <= {PAGE} ORDER BY id))"
_PAGE = f"SELECT {_JSON}, max(version) FROM (SELECT * FROM stores WHERE id BETWEEN ? AND ? ORDER BY id)"
_NAMED = f"SELECT {_JSON}, count(*) FROM (SELECT * FROM stores WHERE name = ? ORDER BY id LIMIT {PAGE})"
_NAMED_IDS = "SELECT id FROM stores WHERE name = ? ORDER BY id"
_PICKED = f"""SELECT {_JSON}, max(version) FROM (
  SELECT stores.* FROM json_each(?) AS pick JOIN stores ON stores.id = pick.value ORDER BY stores.id)"""
# The slow way, for a page in which something changed since: each store as the last change up to then left it.
_AS_OF = f"""SELECT {_JSON} FROM (
  SELECT stores.id, changes.name, changes.address FROM json_each(?) AS pick
  JOIN stores ON stores.id = pick.value
  JOIN changes ON seq = (SELECT max(seq) FROM changes WHERE store_id = stores.id AND seq <= ?)
  ORDER BY stores.id)"""


class Reader:
    """Answers reads from one connection; raises apsw's errors."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, PAGE_BYTES)

    def get(self, id: int) -> Store | None:
        """Give the store of that id, or None."""
        if id > _GREATEST_ID:
            return None
        for name, address, version in self._execute(_GET, (id,)):
            return Store(id, name, address, version)
        return None

    def list_all(self) -> Listing:
        """Give every store."""
        try:
            last, version, first = self._execute(_FIRST).get
        except apsw.TooBigError:
            last, version = self._execute(_STATE).get
            return self._listing(range(1, last + 1), version)
        if last is None or last <= PAGE:
            return Listing(first or b"")
        return Listing(first, self._pages(range(PAGE + 1, last + 1), version))

    def list_named(self, name: str) -> Listing:
        """Give the stores of exactly that name."""
        with suppress(apsw.TooBigError):
            first, count = self._execute(_NAMED, (name,)).get
            if count < PAGE:
                return Listing(first or b"")
        with self._connection:  # one snapshot for both statements
            version = self._execute(_STATE).get[1]
            ids = array("q", (id for (id,) in self._execute(_NAMED_IDS, (name,))))
        return self._listing(ids, version) if ids else Listing(b"")

    def stamp(self) -> int:
        """Give SQLite's number of the file's latest commit, as this connection sees it."""
        stamp: int = self._execute("PRAGMA data_version").get
        return stamp

    def check(self) -> None:
        """Read one page of the file."""
        next(self._execute(_STATE))

    def _listing(self, ids: Sequence[int], version: int) -> Listing:
        return Listing(self._page(ids[:1], version), self._pages(ids[1:], version))

    async def _pages(self, ids: Sequence[int], version: int) -> AsyncIterator[bytes]:
        start, size = 0, PAGE
        while start < len(ids):
            # A fast client must not keep the others waiting for a whole list.
            await asyncio.sleep(0)
            try:
                page = self._page(ids[start : start + size], version)
            except apsw.TooBigError:  # their addresses are long
                if size == 1:
                    raise
                size = max(1, size // 8)
                continue
            yield b"," + page
            start += size

    def _page(self, ids: Sequence[int], version: int) -> bytes:
        if isinstance(ids, range):
            page, newest = self._execute(_PAGE, (ids[0], ids[-1])).get
        else:
            page, newest = self._execute(_PICKED, (_json(ids),)).get
        if newest > version:
            page = self._execute(_AS_OF, (_json(ids), version)).get
        return bytes(page)


def _json(ids: Sequence[int]) -> str:
    return str(list(ids))
