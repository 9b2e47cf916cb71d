"""The Idempotency-Keys that are remembered (decision 36), as a process finds them. Imports the domain.

What a new process has not yet put into its index (`key_index`) is found without one, behind the lock too.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from storekeeper.commands import MAX_KEY_AGE, MAX_KEYS, MAX_KEYS_DELETED, Key, KeyRow, Remembered
from storekeeper.key_index import LOAD_TIME, MAX_LOADED, KeyIndex
from storekeeper.postgres.pipeline import Result, Statement, array, rows
from storekeeper.postgres.schema import COLLECTION, as_arrays
from storekeeper.stores import Store
from storekeeper.tables import CONTENT

LOOK_INTERVAL = 1.0
"""Seconds until a batch looks for old keys again, if the last look found none: each takes 40 µs of the server."""

# Both bounds are those of the oldest rows, so that the index finds them; if none is beyond its time, they are equal.
_EXPIRED = f"""n >= (SELECT min(n) FROM keys) AND n < (
    SELECT CASE WHEN oldest.at < $1::int8 OR oldest.n <= newest - {MAX_KEYS}
      THEN least(oldest.n + {MAX_KEYS_DELETED}, newest) ELSE oldest.n END
    FROM (SELECT n, at FROM keys ORDER BY n LIMIT 1) AS oldest, (SELECT max(n) AS newest FROM keys) AS latest)
  AND (at < $1::int8 OR n <= (SELECT max(n) FROM keys) - {MAX_KEYS})"""

_CONTENT = ", ".join(f"CASE WHEN keys.request = sent.request THEN {name} END" for name in CONTENT)

STATEMENTS = {
    # From the last one that is known: if it is another by now, the index is not of this table.
    b"new keys": f"SELECT n, key FROM keys WHERE n >= $1::int8 ORDER BY n LIMIT {MAX_LOADED}",
    b"oldest key": f"SELECT coalesce(min(n), 1), (SELECT epoch FROM {COLLECTION} WHERE one = 1) FROM keys",
    b"not indexed": "SELECT n FROM keys WHERE n > $1::int8 AND key = ANY($2::int8[])",
    # A request that reuses a key is refused without the content that it does not get, which may be long.
    b"remembered": f"""
      SELECT sent.key, keys.request, keys.at, store_id, {_CONTENT}, seq
      FROM keys JOIN unnest($2::int8[], $3::int8[]) AS sent (key, request) USING (key) JOIN changes USING (seq)
      WHERE n = ANY($1::int8[]) ORDER BY n, keys.request = sent.request""",
    b"remember": """INSERT INTO keys (n, key, request, seq, at)
      SELECT (SELECT coalesce(max(n), 0) FROM keys) + place, key, request, seq, at
      FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[])
        WITH ORDINALITY AS new (key, request, seq, at, place)""",
    b"forget": f"DELETE FROM keys WHERE {_EXPIRED}",
    b"expired": f"SELECT EXISTS (SELECT FROM keys WHERE {_EXPIRED})",
}
"""The statements that a connection has to prepare for keys."""

Execute = Callable[..., Awaitable[list[Result]]]
"""Carries out statements, in one round trip."""


class Keys:
    """The index of the keys, as far as this process has read their table.

    `known` is number and key of the last row that it has.
    """

    def __init__(self) -> None:
        self._epoch = ""
        self._begin()

    def _begin(self) -> None:
        self._index = KeyIndex()
        self.known = 0, 0
        self._oldest = 1  # or a row that was deleted since
        self._behind = True  # whether the table may have more

    async def prepare(self, execute: Execute) -> None:
        """Bring an index that lacks much up to date, or nearer to it; not in a transaction: others would wait."""
        enough = time.monotonic() + LOAD_TIME
        while self._behind and time.monotonic() < enough:
            await self._load_some(execute)

    async def load(self, execute: Execute) -> None:
        """Bring the index up to date, a little at a time, while nobody waits for it."""
        (found,) = await execute((b"oldest key", ()))
        ((oldest, epoch),) = rows(found)
        self._follow(epoch)
        self._oldest = oldest
        await self._load_some(execute)
        while self._behind:
            await self._load_some(execute)

    def _follow(self, epoch: str) -> None:
        if epoch != (self._epoch or epoch):
            self._begin()
        self._epoch = epoch

    async def _load_some(self, execute: Execute) -> None:
        asked = self.known
        (found,) = await execute(self.news())
        self.learn(found, asked)

    def news(self) -> Statement:
        """Return the statement that reads the next rows, and the last one that is known."""
        return b"new keys", (self.known[0],)

    def learn(self, result: Result, asked: tuple[int, int]) -> int | None:
        """Put the rows into the index that `news` found beyond what was known then.

        Return the number of the last one in the table, None if the index lacks some of them.
        """
        found = rows(result)
        if asked[0] and (not found or (found[0][0] == asked[0] and found[0] != asked)):
            self._begin()  # it is another table: somebody restored it
        elif asked[0] <= self.known[0]:  # else another result made it begin anew
            if new := [row for row in found if row[0] > self.known[0]]:
                self._index.add([key for _, key in new], [n for n, _ in new], self._oldest)
                self.known = new[-1]
            self._behind = len(found) == MAX_LOADED
        return None if self._behind else self.known[0]

    async def find(self, keys: Sequence[Key], execute: Execute, epoch: str) -> dict[int, Remembered]:
        """Return what is remembered of keys, of each its latest row; behind the lock, right after `learn`."""
        self._follow(epoch)
        wanted = [key.key for key in keys]
        found = self._index.find(wanted)
        if self._behind:
            (rest,) = await execute((b"not indexed", (self.known[0], array(wanted))))
            found.update(n for (n,) in rows(rest))
        if not found:
            return {}
        sent = {(key.key, key.request) for key in keys}
        (result,) = await execute((b"remembered", (array(found), *as_arrays(sent))))
        return {key: Remembered(request, Store(*[*store, epoch]), at) for key, request, at, *store in rows(result)}

    def committed(self, new: Sequence[KeyRow], last: int | None) -> None:
        """Know what a transaction added behind the row `last`, which `learn` returned, as `learn` would find it."""
        if last == self.known[0]:  # else others know more by now, or lack some
            keys = [row[0] for row in new]
            self._index.add(keys, range(last + 1, last + len(new) + 1), self._oldest)
            self.known = last + len(new), keys[-1]


def remember(rows: Iterable[KeyRow], now: int, *, look: bool) -> list[Statement]:
    """Return the statements that remember keys and, with `look`, forget old ones; `now` is in ms since 1970."""
    forget = [(b"forget", expired(now))] if look else []
    return [(b"remember", as_arrays(rows)), *forget]


def expired(now: int) -> tuple[int]:
    """Return the parameter of `forget` and `expired`: when the oldest key that is still remembered was used."""
    return (now - MAX_KEY_AGE,)
