"""The Idempotency-Keys that are remembered (decision 36), as the writer finds them. Imports apsw and the domain.

What a new process has not yet put into its index (`key_index`) is read without one. The writer's thread has few
statements for each batch, because it waits for the interpreter's lock after each.
"""

import time
from collections.abc import Callable

import apsw
import msgspec

from storekeeper.commands import MAX_KEY_AGE, MAX_KEYS, MAX_KEYS_DELETED, Key, KeyEntry, Remembered
from storekeeper.key_index import LOAD_TIME, MAX_LOADED, KeyIndex, Row, as_entries
from storekeeper.sqlite.columns import as_json
from storekeeper.sqlite.migrations import CHANGES_TABLE
from storekeeper.stores import Store
from storekeeper.tables import CONTENT

_OLDEST = "SELECT min(n) FROM keys"
# One statement, or another process's first key could come between the numbers.
_BOUNDS = f"""SELECT ifnull(({_OLDEST}), 1), ifnull((SELECT max(n) FROM keys), 0),
  (SELECT at FROM keys WHERE n = ({_OLDEST})), (SELECT at FROM keys WHERE n = ?)"""
# All in one value, or the thread would wait for the interpreter's lock with every row.
_ROWS = """SELECT '[' || group_concat('[' || n || ',' || entries || ']') || ']', max(n), at FROM keys WHERE n > ?1
  AND n <= max(?1 + ?2, (SELECT min(n) FROM keys WHERE n > ?1))"""
_NOT_INDEXED = """SELECT DISTINCT n FROM keys CROSS JOIN json_each(entries) AS entry
  WHERE n > ? AND entry.value ->> 0 IN (SELECT value FROM json_each(?))"""
# A request that reuses a key is refused without the content that it does not get, which may be long.
_SENT = "(key, request) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?2))"
_CONTENT = ", ".join(f"iif({_SENT}, {name}, NULL)" for name in CONTENT)
# An entry of the index may be of a row that was deleted.
_FOUND = f"""WITH found (n, at, key, request, seq) AS (
    SELECT n, at, entry.value ->> 0, entry.value ->> 1, entry.value ->> 2
    FROM json_each(?1) AS row CROSS JOIN keys ON n = row.value CROSS JOIN json_each(entries) AS entry)
  SELECT key, request, found.at, store_id, {_CONTENT}, seq FROM found CROSS JOIN {CHANGES_TABLE} USING (seq)
  WHERE key IN (SELECT value ->> 0 FROM json_each(?2)) ORDER BY n"""
_ADD = "INSERT INTO keys (n, at, entries) VALUES (?, ?, ?)"
_LATEST_AND_FIRST_YOUNG = """SELECT (SELECT max(n) FROM keys),
  (SELECT n FROM keys WHERE n BETWEEN ? AND ? AND at >= ? ORDER BY n LIMIT 1)"""
_rows_in = msgspec.json.Decoder(list[Row]).decode
_DELETE = "DELETE FROM keys WHERE n < ?"


class Keys:
    """The table of keys and its index. `find`, `add` and `delete_old` belong into a transaction that writes."""

    def __init__(self, execute: Callable[..., apsw.Cursor]) -> None:
        self._execute = execute
        self._epoch = ""
        self._reset()

    def _reset(self) -> None:
        self._index = KeyIndex()
        self._known = 0, 0  # number and time of the last row that the index has
        self._behind = True  # whether there may be many more
        # Number and time of the oldest row, or of one that others deleted since; no time: it has to be looked up.
        self._oldest: tuple[int, int | None] = 1, None

    def prepare(self) -> None:
        """Bring an index that lacks much up to date, or nearer to it; not in a transaction: others would wait."""
        enough = time.monotonic() + LOAD_TIME
        while self._behind and time.monotonic() < enough:
            self.load_some()

    def load_some(self) -> bool:
        """Put the next rows into the index; return whether there may be more."""
        oldest, latest, oldest_at, known_at = self._execute(_BOUNDS, self._known[:1]).get
        if known_at != (self._known[1] if self._known[0] else None):
            self._reset()  # it is another table: somebody restored it
        self._oldest = oldest, oldest_at
        if latest > self._known[0]:
            # Nothing is there if somebody has emptied the table meanwhile.
            rows, last, last_at = self._execute(_ROWS, (max(self._known[0], oldest - 1), MAX_LOADED)).get
            if rows is not None:
                self._index.load(_rows_in(rows), oldest)
                self._known = last, last_at
        self._behind = latest > self._known[0]
        return self._behind

    def find(self, keys: list[Key], latest: tuple[int, int], epoch: str) -> dict[str, Remembered]:
        """Return what is remembered of keys: of each its latest row. `latest` is number and time of the last row."""
        if epoch != (self._epoch or epoch):
            self._reset()
        self._epoch = epoch
        if latest != self._known or self._oldest[1] is None:
            self.load_some()
        wanted = [key for key, _ in keys]
        found = self._index.find(wanted)
        if self._behind:
            found.update(n for (n,) in self._execute(_NOT_INDEXED, (self._known[0], as_json(wanted))))
        if not found:
            return {}
        rows = self._execute(_FOUND, (as_json(found), as_json(keys)))
        return {key: Remembered(request, Store(*[*store, epoch]), at) for key, request, at, *store in rows}

    def add(self, new: list[KeyEntry], latest: int, now: int) -> None:
        """Remember keys behind row `latest`, and delete some that are too old; `now` is in ms since 1970."""
        row = latest + len(new)
        self._execute(_ADD, (row, now, as_entries(new).decode()))
        oldest, at = self._oldest
        if row - oldest >= MAX_KEYS or (at is not None and at < now - MAX_KEY_AGE):
            self.delete_old(now)

    def committed(self, new: list[KeyEntry], now: int) -> None:
        """Add the keys of a committed transaction to the index, as `load_some` would."""
        if not self._behind:
            self._known = self._known[0] + len(new), now
            self._index.add([key for key, _, _ in new], self._known[0], self._oldest[0])

    def delete_old(self, now: int) -> bool:
        """Delete some of the oldest keys, and tell whether any were too old.

        Never the newest is deleted, or its number would come again.
        """
        if (first := self._execute(_OLDEST).get) is None:
            return False
        self._oldest = first, None
        most = first + MAX_KEYS_DELETED
        latest, young = self._execute(_LATEST_AND_FIRST_YOUNG, (first, most, now - MAX_KEY_AGE)).get
        end = min(max(latest - MAX_KEYS + 1, latest if young is None else young), most, latest)
        if end > first:
            self._execute(_DELETE, (end,))
        return bool(end > first)
