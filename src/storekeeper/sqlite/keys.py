"""The Idempotency-Keys that are remembered (decision 36), as the writer finds them. Imports apsw and the domain.

The table `keys` grows only at its end and shrinks only at its beginning, so a write changes few of its pages. An
index on the disk would cost each write one more page, far from the others (15 µs). So the index is a table in the
memory of this connection, some 20 bytes for each key, which is brought up to date before each transaction with keys;
what other processes commit until the transaction begins is read without an index. So is what a new process has not
put into its index yet. What a process added itself it knows without that: many of these enter the index at once.

The writer's thread has few statements for each batch, because it waits for the interpreter's lock after each.
"""

import time
from collections.abc import Callable, Iterable

import apsw
import msgspec

from storekeeper.commands import MAX_KEY_AGE, MAX_KEYS, MAX_KEYS_DELETED, Key, KeyRow, Remembered
from storekeeper.sqlite.columns import as_json, execute
from storekeeper.sqlite.migrations import CHANGES
from storekeeper.stores import Store
from storekeeper.tables import CONTENT

MAX_LOADED = 20_000
"""Keys that are put into the index at once: some 20 ms, for which a write may have to wait."""

MAX_RECENT = 1000
"""Keys of this process's own that may wait for that: some 100 bytes each."""

LOAD_TIME = 0.5
"""Seconds for which a write with a key waits for the index of all keys; the rest is read without it, once again."""

SWEEP = 4
"""Entries of the index that are looked at for each new one: an index that grows is swept as a whole meanwhile."""

# The index needs no journal: nothing of it is rolled back, and after a failure it is made anew.
_NO_JOURNAL = "PRAGMA temp.journal_mode = off"
_CREATE = """DROP TABLE IF EXISTS temp.recent;
  CREATE TABLE temp.recent (key INTEGER PRIMARY KEY, n INTEGER NOT NULL) STRICT"""
_OLDEST = "SELECT n, at FROM keys ORDER BY n LIMIT 1"
_LATEST = "SELECT ifnull(max(n), 0) FROM keys"
# One statement, or another process's first key could come between the numbers.
_BOUNDS = f"SELECT ifnull((SELECT min(n) FROM keys), 1), ({_LATEST}), (SELECT at FROM ({_OLDEST}))"
_NEWER = "SELECT n FROM keys WHERE n > ? AND key IN (SELECT value FROM json_each(?))"
_INDEXED = f"""SELECT ({_LATEST}),
  (SELECT json_group_array(n) FROM json_each(?) CROSS JOIN temp.recent ON recent.key = value)"""
_UPDATE = "INSERT OR REPLACE INTO temp.recent SELECT key, n FROM keys WHERE n > ? AND n <= ? ORDER BY n"
_SWEEP_END = "SELECT max(key) FROM (SELECT key FROM temp.recent WHERE key > ? ORDER BY key LIMIT ?)"
_SWEEP = "DELETE FROM temp.recent WHERE key > ? AND key <= ? AND n < ?"
# A request that reuses a key is refused without the content that it does not get, which may be long.
_SENT = "(keys.key, request) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?2))"
_CONTENT = ", ".join(f"iif({_SENT}, {name}, NULL)" for name in CONTENT)
# An entry of the index may be of a key that was deleted.
_FOUND = f"""SELECT keys.key, request, keys.at, store_id, {_CONTENT}, seq
  FROM json_each(?1) CROSS JOIN keys ON n = value CROSS JOIN {CHANGES} USING (seq) ORDER BY n"""
_ADD = "INSERT INTO keys (key, request, seq, at) VALUES {rows}"
_FIRST_YOUNG = "SELECT n FROM keys WHERE n BETWEEN ? AND ? AND at >= ? ORDER BY n LIMIT 1"
_DELETE = "DELETE FROM keys WHERE n < ?"

_numbers = msgspec.json.Decoder(list[int]).decode


class Keys:
    """The table of keys and its index. `find`, `add` and `delete_old` belong into a transaction that writes."""

    def __init__(self, execute: Callable[..., apsw.Cursor]) -> None:
        self._execute = execute
        self._latest: int | None = None  # up to which row of `keys` the index has all, None if there is no index
        self._recent: dict[int, int] = {}  # key and number of the rows from there to `_known`
        self._known = 0
        self._oldest: tuple[int, int | None] = 1, None  # number and time of the oldest row, before the transaction
        self._newest = 0  # the number of the newest row before the transaction
        self._swept = -1  # up to which key

    def prepare(self) -> None:
        """Bring the index up to date, or nearer to it, outside of a transaction: other processes would wait."""
        enough = time.monotonic() + LOAD_TIME
        while self.load_some() and time.monotonic() < enough:
            pass

    def load_some(self) -> bool:
        """Put the next keys into the index, which is made if there is none; return whether there may be more."""
        before, self._latest = self._latest, None
        if before is None:
            self._execute(_NO_JOURNAL).get  # noqa: B018 - or the statement would not end
            self._execute(_CREATE)
            before = self._known = 0
        oldest: int
        newest: int
        oldest, newest, at = self._execute(_BOUNDS).get
        self._oldest = oldest, at
        if newest == self._known < before + MAX_RECENT:
            self._latest = before
            return False
        before = max(before, oldest - 1)
        latest: int = min(newest, before + MAX_LOADED)
        if latest > before:
            self._execute(_UPDATE, (before, latest))
            if latest < before + MAX_LOADED:
                self._sweep(SWEEP * (latest - before), oldest)
        self._latest = max(before, latest)
        if self._latest >= self._known:
            self._known = self._latest
            self._recent.clear()
        return latest == before + MAX_LOADED

    def find(self, keys: Iterable[Key], epoch: str) -> dict[int, Remembered]:
        """Return what is remembered of keys: of each its latest row. Call `prepare` shortly before."""
        sent = [(key.key, key.request) for key in keys]
        wanted = as_json([key for key, _ in sent])
        self._newest, indexed = self._execute(_INDEXED, (wanted,)).get
        found = _numbers(indexed) + [self._recent[key] for key, _ in sent if key in self._recent]
        if self._newest != self._known:
            found += [n for (n,) in self._execute(_NEWER, (self._known, wanted))]
        if not found:
            return {}
        rows = self._execute(_FOUND, (as_json(found), as_json(sent)))
        return {key: Remembered(request, Store(*[*store, epoch]), at) for key, request, at, *store in rows}

    def add(self, rows: list[KeyRow], now: int) -> None:
        """Remember keys, and delete some of those that are too old; `now` is in milliseconds since 1970."""
        for _ in execute(self._execute, _ADD, rows):
            pass
        oldest, at = self._oldest
        if self._newest + len(rows) - oldest >= MAX_KEYS or (at is not None and at < now - MAX_KEY_AGE):
            self.delete_old(now)

    def committed(self, rows: list[KeyRow]) -> None:
        """Know what was added once it is committed, unless before it are rows of other processes, not yet known."""
        if self._newest == self._known:
            self._recent.update((row[0], n) for n, row in enumerate(rows, self._known + 1))
            self._known += len(rows)

    def are_old(self, now: int) -> bool:
        """Tell whether `delete_old` has anything to do."""
        oldest = self._execute(_OLDEST).get
        return oldest is not None and self._end(oldest, now) > oldest[0]

    def delete_old(self, now: int) -> None:
        """Delete some of the oldest keys, if they are too old; never the newest, or its number would come again."""
        oldest = self._execute(_OLDEST).get
        if (end := self._end(oldest, now)) > oldest[0]:
            self._execute(_DELETE, (end,))

    def _sweep(self, count: int, oldest: int) -> None:
        """Remove those of the next entries whose keys were deleted."""
        if oldest == 1:
            return
        end = self._execute(_SWEEP_END, (self._swept, count)).get
        if end is not None:
            self._execute(_SWEEP, (self._swept, end, oldest))
        self._swept = -1 if end is None else end

    def _end(self, oldest: tuple[int, int], now: int) -> int:
        """Return the number of the first key to keep, at most MAX_KEYS_DELETED after the oldest."""
        first, at = oldest
        latest: int = self._execute(_LATEST).get
        end = max(first, latest - MAX_KEYS + 1)
        if at < now - MAX_KEY_AGE:
            young = self._execute(_FIRST_YOUNG, (first, first + MAX_KEYS_DELETED, now - MAX_KEY_AGE)).get
            end = max(end, latest if young is None else young)
        return min(end, first + MAX_KEYS_DELETED, latest)
