"""Reads of the SQLite collection, on the event loop's own connection. Imports apsw and the domain.

A read by id or of a small list takes microseconds, so it is completed at once. A long list is read page by
page, each page as of the first one's version, so that no slow client keeps a transaction open, which would keep the
write-ahead log growing. Encoded pages of the list of all stores are cached until a store in them changes: after a
write, a list costs one page.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain
from typing import Any

import apsw

from storekeeper.collection import Listing, Query, State
from storekeeper.sqlite.columns import FIELDS, STATE, as_json
from storekeeper.sqlite.migrations import CHANGES
from storekeeper.sqlite.pages import PAGE_SIZE, at_once, following, numbers, pages_of, pages_of_all
from storekeeper.sqlite.read_transaction import ChangeToken, ReadTransaction, no_token
from storekeeper.sqlite.tokens import read as read_tokens
from storekeeper.stores import Store
from storekeeper.tables import CONTENT
from storekeeper.tokens import Token

MAX_PAGE_BYTES = 8 * 2**20
"""Bytes of one page: more than the longest store takes, and far less than `PAGE_SIZE` of them."""

MAX_CACHED_BYTES = 8 * 2**20
"""Bytes of all cached pages: those of some 100,000 stores."""

MAX_CHANGES = 10_000
"""Changes after which finding the pages that they touched costs more than encoding all pages again."""

MAX_TOLD = 256
"""Changes up to which `changed_since` tells the stores."""

MAX_STEPS = 20_000
"""Changes that a walk back to a version passes before it lets other requests run: about 10 ms."""

MAX_ID = 2**63 - 1
"""The greatest integer of SQLite."""

_GET = f"SELECT {FIELDS}, version FROM stores WHERE id = ?"
_FIRST_GET = f"SELECT {FIELDS}, version, epoch FROM collection LEFT JOIN stores ON id = ?"
_CHANGED_IDS = f"SELECT store_id FROM {CHANGES} WHERE seq > ? ORDER BY seq LIMIT {MAX_TOLD}"
_CHANGED_SINCE = f"SELECT (SELECT json_group_array(store_id) FROM ({_CHANGED_IDS})), now.* FROM ({STATE}) AS now"
_TOUCHED = f"SELECT DISTINCT (store_id - 1) / {PAGE_SIZE} FROM {CHANGES} WHERE seq > ? AND seq <= ?"

# The database encodes the stores, 4 times as fast as Python would encode rows. The cast returns bytes, not str.
_MEMBERS = ", ".join(f"'{name}', {name}" for name in ("id", *CONTENT))
_JSON = f"CAST(group_concat(json_object({_MEMBERS}), ',') AS BLOB)"

# A scan of the table by its key is in the order of the key; a sub-query with ORDER BY takes a third longer.
PAGE = f"SELECT {_JSON}, max(version) FROM stores NOT INDEXED WHERE id BETWEEN ? AND ?"
# In the other statements, a sub-query orders the rows that the aggregate sees.
_NAMED = f"""SELECT {_JSON}, CASE WHEN count(*) = ?3 THEN max(id) END,
    ifnull((SELECT max(seq) FROM {CHANGES}), 0), (SELECT epoch FROM collection)
  FROM (SELECT * FROM stores WHERE name = ?1 AND id > ?2 ORDER BY id LIMIT ?3)"""
# The ids as one value: row by row they would take three times as long, all of it on the event loop.
_NAMED_IDS = """SELECT CAST(group_concat(id) AS BLOB) FROM
  (SELECT id FROM stores WHERE name = ? AND id > ? ORDER BY id LIMIT ?)"""
_PICKED = f"""SELECT {_JSON}, max(version) FROM (
  SELECT stores.* FROM json_each(?) AS pick JOIN stores ON stores.id = pick.value ORDER BY stores.id)"""
# The slow way, for a page that changed after the version: each store as its last change up to there left it.
_VERSIONS = """SELECT CAST(json_group_array(version) AS BLOB) FROM (
  SELECT version FROM json_each(?) AS pick JOIN stores ON stores.id = pick.value)"""
_WALK = f"""WITH RECURSIVE walk (place, seq, step) AS (
    SELECT key, value, 0 FROM json_each(?1)
    UNION ALL SELECT place, previous, step + 1 FROM walk JOIN {CHANGES} AS change ON change.seq = walk.seq
      WHERE walk.seq > ?2 AND step < ?3)
  SELECT CAST(json_group_array(seq) AS BLOB) FROM (SELECT min(seq) AS seq FROM walk GROUP BY place)"""
AS_OF = f"""SELECT {_JSON} FROM (
  SELECT store_id AS id, {FIELDS} FROM json_each(?) AS pick JOIN {CHANGES} ON seq = pick.value ORDER BY id)"""


class Reader:
    """Carries out reads on one connection; raises apsw's errors."""

    def __init__(self, connection: apsw.Connection, token: ChangeToken | None = None) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._kept = connection.cursor()  # making one takes a quarter of the shortest read
        self._kept_execute = self._kept.execute
        self._token = token or no_token
        self.transaction = ReadTransaction(connection)
        self._pages: dict[int, bytes] = {}  # by number
        self._pages_version = self._pages_last = 0
        self._latest_named: tuple[str, int, int, list[bytes]] = ("", 0, 0, [])  # name, after, version, ids
        configure(connection)

    def get(self, id: int) -> Store | None:
        """Return the store of that id, or None."""
        if id > MAX_ID:
            return None
        token, transaction = self._token(), self.transaction
        if token == transaction.current:
            try:
                found = self._kept_execute(_GET, (id,)).get
            except BaseException:
                self._keep_cursor()
                raise
            if found is None:
                return None
            name, address, version = found  # `*found` in the call would cost a twentieth of this read
            return Store(id, name, address, version, transaction.epoch)
        found = transaction.begin(token, _FIRST_GET, (id,))
        transaction.epoch = found[-1]
        return None if found[0] is None else Store(id, *found)

    def _keep_cursor(self) -> None:
        """Keep another cursor: after an error, the former one may hold a statement, and so its transaction, open."""
        self._kept.close(True)
        self._kept = self._connection.cursor()
        self._kept_execute = self._kept.execute

    def state(self) -> State:
        """Return the numbers of the collection; they are read again when somebody has committed."""
        transaction = self.transaction
        if transaction.state is None or self._token() != transaction.current:
            count, version, transaction.epoch, _ = self._row(STATE)
            transaction.state = State(count, version, transaction.epoch)
        return transaction.state

    def changed_since(self, state: State) -> tuple[State, Sequence[int] | None]:
        """Return the present state, and the stores that changed since an earlier one, None if these are many."""
        ids, count, version, epoch, _ = self._row(_CHANGED_SINCE, (state.version,))
        self.transaction.epoch = epoch
        now = self.transaction.state = State(count, version, epoch)
        few = epoch == state.epoch and 0 <= version - state.version <= MAX_TOLD
        return now, numbers(ids) if few else None

    def tokens(self) -> Sequence[Token]:
        """Return all tokens."""
        self.transaction.end()  # it may be of before
        return read_tokens(self._connection)

    def _row(self, statement: str, values: tuple[Any, ...] = ()) -> Any:
        """Return the only row of a statement, in the shared transaction, or in another if somebody has committed."""
        token, transaction = self._token(), self.transaction
        if token == transaction.current:
            return self._execute(statement, values).get
        return transaction.begin(token, statement, values)

    def list(self, query: Query) -> Listing:
        """Return the stores that the query asks for, as they are at present."""
        if query.name is None:
            return self._all(query)
        return self._named(query.name, min(query.after, MAX_ID), query.limit)

    def _all(self, query: Query) -> Listing:
        state = self.state()
        self._drop_touched(state)
        ids, last = query.ids(state.total)
        pages = pages_of_all(ids) if query.limit is None else iter([ids])
        return self._listing(pages, state, last, state.total)

    def _named(self, name: str, after: int, limit: int | None) -> Listing:
        try:
            first, last, version, epoch = self._row(_NAMED, (name, after, limit or PAGE_SIZE))
            self.transaction.epoch = epoch
        except apsw.TooBigError:  # the addresses are long
            last = after
        if last is None:
            return Listing(version, epoch, first or b"")
        with self._connection:  # one snapshot for all statements
            state = State(*self._execute(STATE).get[:3])
            if limit is not None:
                # None, if others have renamed all of them since.
                ids = numbers(b"[%b]" % (self._execute(_NAMED_IDS, (name, after, limit + 1)).get or b""))
                return self._listing(iter([ids[:limit]]), state, ids[limit - 1] if len(ids) > limit else None)
            # One list of ids for all clients that read this version.
            if self._latest_named[:3] != (name, after, state.version):
                self._latest_named = (name, after, state.version, list(self._named_ids(name, after)))
        return self._listing(chain.from_iterable(map(pages_of, self._latest_named[3])), state)

    def _named_ids(self, name: str, after: int) -> Iterator[bytes]:
        while ids := self._execute(_NAMED_IDS, (name, after, 100_000)).get:
            yield ids
            after = int(ids[ids.rfind(b",") + 1 :])

    def close(self) -> None:
        """Look at SQLite's memory no more; the connection may be closed."""
        self.transaction.end()
        self._token = no_token

    def _listing(
        self, pages: Iterator[Sequence[int]], state: State, last: int | None = None, total: int | None = None
    ) -> Listing:
        _, version, epoch = state
        ids = next(pages, ())
        if not ids:
            return Listing(version, epoch, b"", total=total)
        try:
            first = at_once(self._page(ids, version))
        except apsw.TooBigError:
            first = at_once(self._page(ids[:1], version))
            pages = chain([ids[1:]], pages)
        second = next(pages, ())
        rest = self._rest(chain([second], pages), version) if second else None
        return Listing(version, epoch, first, rest, last, total)

    def _rest(self, pages: Iterator[Sequence[int]], version: int) -> AsyncIterator[bytes]:
        async def read(ids: Sequence[int]) -> bytes:
            # A fast client must not keep the others waiting until its list ends.
            await asyncio.sleep(0)
            return await self._page(ids, version)

        return following(read, pages)

    async def _page(self, ids: Sequence[int], version: int) -> bytes:
        if not isinstance(ids, range):
            return await self._read(_PICKED, (as_json(ids),), ids, version)
        number, offset = divmod(ids[0] - 1, PAGE_SIZE)
        # Only whole pages: others come and go with what clients ask for.
        whole = not offset and (len(ids) == PAGE_SIZE or ids[-1] == self._pages_last)
        if whole and self._pages_version == version and (cached := self._pages.get(number)):
            return cached
        page = await self._read(PAGE, (ids[0], ids[-1]), ids, version)
        # Asked again: while the read paused, another list may have brought the cached pages to a later version.
        current = whole and self._pages_version == version
        if current and sum(map(len, self._pages.values()), len(page)) <= MAX_CACHED_BYTES:
            self._pages[number] = page
        return page

    async def _read(self, statement: str, values: tuple[Any, ...], ids: Sequence[int], version: int) -> bytes:
        page: bytes
        page, newest = self._execute(statement, values).get
        if newest > version:
            seqs = await self._walk_back(ids, version)
            page = self._execute(AS_OF, (seqs,)).get
        return page

    async def _walk_back(self, ids: Sequence[int], version: int) -> str:
        """Return, for each store, the number of its latest change up to a version, as JSON."""
        found: list[int] = []
        left = numbers(self._execute(_VERSIONS, (as_json(ids),)).get)
        while left:
            found += [seq for seq in left if seq <= version]
            left = [seq for seq in left if seq > version]
            if left:
                left = numbers(self._execute(_WALK, (as_json(left), version, MAX_STEPS // len(left))).get)
                await asyncio.sleep(0)
        return as_json(found)

    def _drop_touched(self, state: State) -> None:
        """Bring the cached pages to a version: drop those in which a store was changed or added since."""
        version, self._pages_last = state.version, state.total
        if version == self._pages_version:
            return
        if version - self._pages_version > MAX_CHANGES or state.total <= PAGE_SIZE:  # the only page was touched
            self._pages.clear()
        elif self._pages:
            for (number,) in self._execute(_TOUCHED, (self._pages_version, version)):
                self._pages.pop(number, None)
        self._pages_version = version


def configure(connection: apsw.Connection) -> None:
    """Set up a connection for reads by these statements: longer pages raise TooBigError."""
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_PAGE_BYTES)
    # Else SQLite, built with STAT4, plans a statement again for each value that it compares with an index.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
