"""Reads of the SQLite collection, on the event loop's own connection. Imports apsw and the domain.

A read by id or of a small list takes microseconds, so it is completed at once. A long list is read page by
page, each page as of the first one's version, so that no slow client keeps a transaction open, which would keep the
write-ahead log growing. Encoded pages of the list of all stores are cached until a store in them changes: after a
write, a list costs one page.
"""

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import apsw
from msgspec.structs import replace

from storekeeper.collection import Listing, Query, State
from storekeeper.sqlite.columns import STATE, as_json, numbers
from storekeeper.sqlite.migrations import CHANGES_TABLE
from storekeeper.sqlite.read_transaction import ChangeToken, ReadTransaction, no_token
from storekeeper.sqlite.schema import transaction
from storekeeper.stores import Store
from storekeeper.tables import CONTENT, FIELDS, GOOD_TOKENS, MAX_INTEGER
from storekeeper.tokens import Token

PAGE_SIZE = 1000
"""Stores in one page of a list: about 0.2 ms of the event loop."""

MAX_CACHED_BYTES = 8 * 2**20
"""Bytes of all cached pages: those of some 100,000 stores."""

MAX_PIECE_BYTES = 2 * 2**20
"""Bytes of addresses that one statement encodes: about 5 ms of the event loop. One store may have more."""

MAX_CHANGES = 10_000
"""Changes up to which it costs less to find the pages that they touched than to encode all pages again."""

MAX_CHANGED_IDS = 256
"""Changes up to which `changed_since` returns the ids of the stores; after more it returns None."""

MAX_STEPS = 20_000
"""Changes that a walk back to a version passes before it lets other requests run: about 10 ms."""

_GET = f"SELECT {FIELDS}, version FROM stores WHERE id = ?"
_FIRST_GET = f"SELECT {FIELDS}, version, epoch FROM collection LEFT JOIN stores ON id = ?"
_CHANGED_IDS = f"SELECT store_id FROM {CHANGES_TABLE} WHERE seq > ? ORDER BY seq LIMIT {MAX_CHANGED_IDS}"
_CHANGED_SINCE = f"SELECT (SELECT json_group_array(store_id) FROM ({_CHANGED_IDS})), now.* FROM ({STATE}) AS now"
_TOUCHED = f"SELECT DISTINCT (store_id - 1) / {PAGE_SIZE} FROM {CHANGES_TABLE} WHERE seq > ? AND seq <= ?"


# The database encodes the stores, 4 times as fast as Python would encode rows. The cast returns bytes, not str.
def _json(address: str = "address") -> str:
    members = ", ".join(f"'{name}', {address if name == 'address' else name}" for name in ("id", *CONTENT))
    return f"CAST(group_concat(json_object({members}), ',') AS BLOB)"


def _limited(stores: str) -> str:
    """Return the SQL of an address. It raises TooBigError if `stores` such addresses exceed MAX_PIECE_BYTES.

    `stores` is the SQL of a number; one store alone never raises. `group_concat`, whose result is limited too, would
    raise only after it has read all stores.
    """
    too_long = f"octet_length(address) > {MAX_PIECE_BYTES} / ({stores}) AND {stores} > 1"
    return f"iif({too_long}, zeroblob({2**31 - 1}), address)"


# A statement that sorts has to limit what it sorts.
_PICK = FIELDS.replace("address", f"{_limited('json_array_length(?1)')} AS address")

# A scan of the table by its key is in the order of the key; a sub-query with ORDER BY takes a third longer.
PAGE = f"""SELECT {_json(_limited("?2 - ?1 + 1"))}, max(version)
  FROM stores NOT INDEXED WHERE id BETWEEN ?1 AND ?2"""
# In the other statements, a sub-query orders the rows that the aggregate sees.
_NAMED = f"""SELECT {_json(_limited("?3"))}, count(*) = ?3,
    ifnull((SELECT max(seq) FROM {CHANGES_TABLE}), 0), (SELECT epoch FROM collection)
  FROM (SELECT * FROM stores WHERE name = ?1 AND id > ?2 ORDER BY id LIMIT ?3)"""
# The ids as one value: row by row they would take three times as long, all of it on the event loop.
_NAMED_IDS = """SELECT CAST(json_group_array(id) AS BLOB) FROM
  (SELECT id FROM stores WHERE name = ? AND id > ? ORDER BY id LIMIT ?)"""
_PICKED = f"""SELECT {_json()}, max(version) FROM (
  SELECT stores.id, {_PICK}, version FROM json_each(?1) AS pick JOIN stores ON stores.id = pick.value
  ORDER BY stores.id)"""
# The slow way, for a page that changed after the version: each store as its last change up to there left it.
_VERSIONS = """SELECT CAST(json_group_array(version) AS BLOB) FROM (
  SELECT version FROM json_each(?) AS pick JOIN stores ON stores.id = pick.value)"""
_WALK = f"""WITH RECURSIVE walk (place, seq, step) AS (
    SELECT key, value, 0 FROM json_each(?1)
    UNION ALL SELECT place, previous, step + 1 FROM walk JOIN {CHANGES_TABLE} AS change ON change.seq = walk.seq
      WHERE walk.seq > ?2 AND step < ?3)
  SELECT CAST(json_group_array(seq) AS BLOB) FROM (SELECT min(seq) AS seq FROM walk GROUP BY place)"""
AS_OF = f"""SELECT {_json()} FROM (
  SELECT store_id AS id, {_PICK} FROM json_each(?1) AS pick JOIN {CHANGES_TABLE} ON seq = pick.value ORDER BY id)"""

Later: TypeAlias = Callable[[Sequence[int]], Awaitable[bytes]]
"""Reads a page of a list, by its ids."""


class Reader:
    """Carries out reads on one connection of `schema.connect`; raises apsw's errors."""

    def __init__(self, connection: apsw.Connection, token: ChangeToken | None = None) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._cursor = connection.cursor()  # making one takes a quarter of the shortest read
        self._cursor_execute = self._cursor.execute
        self._token = token or no_token
        self.transaction = ReadTransaction(connection)
        self._pages: dict[int, bytes] = {}  # by number
        self._pages_version = self._pages_last = 0
        self._latest_named = ("", 0), 0, array("q")  # name and version, `after`, ids

    def get(self, id: int) -> Store | None:
        """Return the store of that id, or None."""
        if id > MAX_INTEGER:
            return None
        token, transaction = self._token(), self.transaction
        if token == transaction.current:
            try:
                found = self._cursor_execute(_GET, (id,)).get
            except BaseException:
                self._replace_cursor()
                raise
            if found is None:
                return None
            name, address, version = found  # `*found` in the call would cost a twentieth of this read
            return Store(id, name, address, version, transaction.epoch)
        found = transaction.begin(token, _FIRST_GET, (id,))
        transaction.epoch = found[-1]
        return None if found[0] is None else Store(id, *found)

    def _replace_cursor(self) -> None:
        """Use a new cursor: after an error, the old one may hold a statement, and so its transaction, open."""
        self._cursor.close(True)
        self._cursor = self._connection.cursor()
        self._cursor_execute = self._cursor.execute

    def state(self) -> State:
        """Return the numbers of the collection; read them again only if somebody has committed."""
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
        few = epoch == state.epoch and 0 <= version - state.version <= MAX_CHANGED_IDS
        return now, numbers(ids) if few else None

    def tokens(self) -> Sequence[Token]:
        """Return what `Collection.tokens` does."""
        self.transaction.end()  # it may have begun before a commit
        return [Token(*row) for row in self._execute(GOOD_TOKENS)]

    def _row(self, statement: str, values: tuple[Any, ...] = ()) -> Any:
        """Return the only row of a statement, in the shared transaction, or in another if somebody has committed."""
        token, transaction = self._token(), self.transaction
        if token != transaction.current:
            return transaction.begin(token, statement, values)
        try:
            return self._cursor_execute(statement, values).get
        except BaseException:
            self._replace_cursor()
            raise

    def list(self, query: Query) -> Listing:
        """Return the stores that the query asks for, as they are at present."""
        if query.name is not None:
            return self._named(query.name, min(query.after, MAX_INTEGER), query.limit)
        state = self.state()
        if self.transaction.current:
            return self._all(query, state)
        with self._snapshot() as state:
            return self._all(query, state)

    def _all(self, query: Query, state: State) -> Listing:
        self._drop_touched(state)
        ids, last = query.ids(state.total)
        return self._listing(ids, state, last, state.total)

    def _named(self, name: str, after: int, limit: int | None) -> Listing:
        try:
            first, may_have_more, version, epoch = self._row(_NAMED, (name, after, limit or PAGE_SIZE))
            self.transaction.epoch = epoch
        except apsw.TooBigError:  # the addresses are long
            may_have_more = True
        if not may_have_more:
            return Listing(version, epoch, first or b"")
        with self._snapshot() as state:
            if limit is None:
                return self._listing(self._all_named(name, after, state.version), state, None)
            ids = numbers(self._execute(_NAMED_IDS, (name, after, limit + 1)).get)
            return self._listing(ids[:limit], state, ids[limit - 1] if len(ids) > limit else None)

    @contextmanager
    def _snapshot(self) -> Iterator[State]:
        """Have all statements in one transaction; yield the numbers of the collection in it."""
        with transaction(self._connection, "DEFERRED"):
            yield State(*self._execute(STATE).get[:3])

    def _all_named(self, name: str, after: int, version: int) -> Sequence[int]:
        """Return the ids of all stores of that name: one array for all clients that read this version."""
        what, start, ids = self._latest_named
        if what != (name, version) or after < start:
            # The second time, read all of them: else each request with another `after` would cost as much.
            start = after if what != (name, version) else 0
            ids = array("q")
            while found := numbers(self._execute(_NAMED_IDS, (name, ids[-1] if ids else start, 10_000)).get):
                ids.fromlist(found)
            self._latest_named = (name, version), start, ids
        return memoryview(ids)[bisect_right(ids, after) :]

    def close(self) -> None:
        """Read SQLite's memory no more, so that the connection may be closed."""
        self.transaction.end()
        self._token = no_token

    def _listing(self, ids: Sequence[int], state: State, last: int | None, total: int | None = None) -> Listing:
        """Return a list, whose first page is read in the transaction in which `state` was read."""
        _, version, epoch = state
        later = partial(self._page_as_of, version=version)
        empty = Listing(version, epoch, b"", None, last, total)
        return listing(empty, ids, lambda page: self._page(page, version)[0], later)

    async def _page_as_of(self, ids: Sequence[int], version: int) -> bytes:
        # A fast client must not keep the others waiting until its list ends.
        await asyncio.sleep(0)
        page, newest = self._page(ids, version)
        if newest > version:
            page = self._execute(AS_OF, (await self._walk_back(ids, version),)).get
        return page

    def _page(self, ids: Sequence[int], version: int) -> tuple[bytes, int]:
        """Return stores as they are, a whole page perhaps as of `version`, and the newest version among them."""
        if not isinstance(ids, range):
            found: tuple[bytes, int] = self._execute(_PICKED, (as_json(ids),)).get
            return found
        number, offset = divmod(ids[0] - 1, PAGE_SIZE)
        # Cache only whole pages: which parts of pages are read depends on what clients ask for.
        whole = not offset and (len(ids) == PAGE_SIZE or ids[-1] == self._pages_last)
        current = whole and self._pages_version == version
        if current and (cached := self._pages.get(number)):
            return cached, version
        page, newest = self._execute(PAGE, (ids[0], ids[-1])).get
        if current and newest <= version and sum(map(len, self._pages.values()), len(page)) <= MAX_CACHED_BYTES:
            self._pages[number] = page
        return page, newest

    async def _walk_back(self, ids: Sequence[int], version: int) -> str:
        """Return, for each store, the number of its latest change up to a version, as JSON."""
        seqs = numbers(self._execute(_VERSIONS, (as_json(ids),)).get)
        while later := sum(seq > version for seq in seqs):
            seqs = numbers(self._execute(_WALK, (as_json(seqs), version, MAX_STEPS // later)).get)
            await asyncio.sleep(0)
        return as_json(seqs)

    def _drop_touched(self, state: State) -> None:
        """Drop the cached pages in which a store was changed or added since; the others are of this state."""
        version, self._pages_last = state.version, state.total
        if version == self._pages_version:
            return
        if version - self._pages_version > MAX_CHANGES or state.total <= PAGE_SIZE:  # the only page was touched
            self._pages.clear()
        elif self._pages:
            for (number,) in self._execute(_TOUCHED, (self._pages_version, version)):
                self._pages.pop(number, None)
        self._pages_version = version


def listing(empty: Listing, ids: Sequence[int], read: Callable[[Sequence[int]], bytes], read_later: Later) -> Listing:
    """Return `empty` with the stores of `ids`: the first page is read now, each other one when it is asked for."""
    if not ids:
        return empty
    page = next(pages_of(ids))
    try:
        first = read(page)
    except apsw.TooBigError:  # the addresses are long
        page = page[:1]
        first = read(page)
    rest = _following(read_later, pages_of(ids, len(page))) if len(page) < len(ids) else None
    return replace(empty, first=first, rest=rest)


async def _following(read: Later, pages: Iterator[Sequence[int]]) -> AsyncIterator[bytes]:
    """Yield what `read` returns for each page, with a comma in front; half a page at a time if it is too big."""
    for page in pages:
        pieces = [page]
        while pieces:
            piece = pieces.pop()
            try:
                part = b"," + await read(piece)
            except apsw.TooBigError:  # the addresses are long
                half = len(piece) // 2
                if not half:
                    raise
                pieces += (piece[half:], piece[:half])
            else:
                yield part


def pages_of(ids: Sequence[int], start: int = 0) -> Iterator[Sequence[int]]:
    """Yield the ids of each page, from the index `start` on.

    In a long range each page ends at a multiple of PAGE_SIZE, so that all lists share their pages.
    """
    aligned = isinstance(ids, range) and len(ids) > PAGE_SIZE
    while start < len(ids):
        end = start + PAGE_SIZE - ((ids[start] - 1) % PAGE_SIZE if aligned else 0)
        yield ids[start:end]
        start = end
