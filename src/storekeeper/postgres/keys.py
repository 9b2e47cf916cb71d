"""The Idempotency-Keys that are remembered (decision 36), as a process finds them. Imports the domain.

What a new process has not yet put into its index (`key_index`) is found without one, behind the lock too.
"""

import time
from collections.abc import Awaitable, Callable, Sequence

from storekeeper.commands import MAX_KEY_AGE, MAX_KEYS, MAX_KEYS_DELETED, Key, KeyEntry, Remembered
from storekeeper.key_index import LOAD_TIME, MAX_LOADED, KeyIndex, as_entries, entries_in
from storekeeper.postgres.pipeline import Result, Statement, array, rows
from storekeeper.postgres.schema import COLLECTION_TABLE, as_arrays
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

_CONTENT = ", ".join(f"CASE WHEN found.request = sent.request THEN {name} END" for name in CONTENT)

STATEMENTS = {
    # From the last one that is known: if it is another by now, the index is not of this table.
    b"new keys": f"""SELECT n, at, CASE WHEN n > $1::int8 THEN entries END, (SELECT max(n) FROM keys) FROM keys
      WHERE n BETWEEN $1 AND greatest($1 + {MAX_LOADED}, (SELECT min(n) FROM keys WHERE n > $1)) ORDER BY n""",
    b"oldest key": f"SELECT coalesce(min(n), 1), (SELECT epoch FROM {COLLECTION_TABLE} WHERE one = 1) FROM keys",
    # No key has a quotation mark, and each is between two. To read millions of rows as JSON would take too long.
    b"not indexed": """SELECT n FROM keys WHERE n > $1::int8 AND CASE WHEN strpos(entries, '],[') = 0
      THEN split_part(entries, '"', 2) = ANY($2::text[])
      ELSE EXISTS (SELECT FROM unnest(string_to_array(entries, '"')) AS part WHERE part = ANY($2::text[])) END""",
    # A request that reuses a key is refused without the content that it does not get, which may be long.
    b"remembered": f"""
      WITH found AS (
        SELECT n, at, entry ->> 0 AS key, (entry ->> 1)::int8 AS request, (entry ->> 2)::int8 AS seq
        FROM keys CROSS JOIN json_array_elements(entries::json) AS entry WHERE n = ANY($1::int8[]))
      SELECT key, found.request, found.at, store_id, {_CONTENT}, seq
      FROM found JOIN unnest($2::text[], $3::int8[]) AS sent (key, request) USING (key) JOIN changes USING (seq)
      ORDER BY n, found.request = sent.request""",
    b"remember": """INSERT INTO keys (n, at, entries)
      SELECT coalesce(max(n), 0) + $1::int8, $2::int8, $3::text FROM keys""",
    b"forget": f"DELETE FROM keys WHERE {_EXPIRED}",
    b"expired": f"SELECT EXISTS (SELECT FROM keys WHERE {_EXPIRED})",
}
"""The statements that a connection has to prepare for keys."""

Execute = Callable[..., Awaitable[list[Result]]]
"""Carries out statements, in one round trip."""


class Keys:
    """The index of the keys, as far as this process has read their table.

    `known` is number and time of the last row that it has.
    """

    def __init__(self) -> None:
        self._epoch = ""
        self._reset()

    def _reset(self) -> None:
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
            self._reset()
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
        if asked[0] and (not found or found[0][:2] != asked):
            self._reset()  # it is another table: somebody restored it
        elif asked[0] <= self.known[0]:  # else another result made it begin anew
            if new := [row for row in found if row[0] > self.known[0]]:
                self._index.load([(n, entries_in(entries)) for n, _, entries, _ in new], self._oldest)
                self.known = new[-1][:2]
            self._behind = bool(found) and found[-1][0] < found[-1][3]
        return None if self._behind else self.known[0]

    async def find(self, keys: Sequence[Key], execute: Execute, epoch: str) -> dict[str, Remembered]:
        """Return what is remembered of keys, of each its latest row; behind the lock, right after `learn`."""
        self._follow(epoch)
        wanted = [key for key, _ in keys]
        found = self._index.find(wanted)
        if self._behind:
            (rest,) = await execute((b"not indexed", (self.known[0], array(wanted))))
            found.update(n for (n,) in rows(rest))
        if not found:
            return {}
        (result,) = await execute((b"remembered", (array(found), *as_arrays(set(keys)))))
        return {key: Remembered(request, Store(*[*store, epoch]), at) for key, request, at, *store in rows(result)}

    def committed(self, new: Sequence[KeyEntry], last: int | None, now: int) -> None:
        """Add the keys of a committed transaction to the index; `last` is what `learn` returned behind its lock."""
        if last == self.known[0]:  # else the index has later rows by now, or lacks earlier ones
            self._index.add([key for key, _, _ in new], last + len(new), self._oldest)
            self.known = last + len(new), now


def remember(new: Sequence[KeyEntry], now: int, *, look: bool) -> list[Statement]:
    """Return the statements that remember keys and, with `look`, forget old ones; `now` is in ms since 1970."""
    forget = [(b"forget", expired(now))] if look else []
    return [(b"remember", (len(new), now, as_entries(new).decode())), *forget]


def expired(now: int) -> tuple[int]:
    """Return the parameter of `forget` and `expired`: when the oldest key that is still remembered was used."""
    return (now - MAX_KEY_AGE,)
