"""The Idempotency-Keys that are remembered (decision 36). Imports the domain."""

from collections.abc import Iterable

from storekeeper.commands import MAX_KEY_AGE, MAX_KEYS, MAX_KEYS_DELETED, Command, KeyRow, Remembered, keys
from storekeeper.postgres.pipeline import Result, Statement, rows
from storekeeper.postgres.schema import as_arrays
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

_CONTENT = ", ".join(f"CASE WHEN was.request = sent.request THEN {name} END" for name in CONTENT)

STATEMENTS = {
    # The latest row of each key. A request that reuses a key is refused without the content that it does not get.
    b"remembered": f"""
      SELECT sent.key, was.request, was.at, store_id, {_CONTENT}, seq
      FROM unnest($1::int8[], $2::int8[]) AS sent (key, request),
        LATERAL (SELECT * FROM keys WHERE keys.key = sent.key ORDER BY n DESC LIMIT 1) AS was JOIN changes USING (seq)
      ORDER BY was.request = sent.request""",
    b"remember": """INSERT INTO keys (n, key, request, seq, at)
      SELECT (SELECT coalesce(max(n), 0) FROM keys) + place, key, request, seq, at
      FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[])
        WITH ORDINALITY AS new (key, request, seq, at, place)""",
    b"forget": f"DELETE FROM keys WHERE {_EXPIRED}",
    b"expired": f"SELECT EXISTS (SELECT FROM keys WHERE {_EXPIRED})",
}
"""The statements that a connection has to prepare for keys."""


def look_up(commands: Iterable[Command]) -> list[Statement]:
    """Return the statement that looks the keys of commands up, if they have any."""
    sent = {(key.key, key.request) for key in keys(commands)}
    return [(b"remembered", as_arrays(sent))] if sent else []


def remembered(result: Result, epoch: str) -> dict[int, Remembered]:
    """Return what `look_up` found, by key."""
    return {key: Remembered(request, Store(*[*store, epoch]), at) for key, request, at, *store in rows(result)}


def remember(rows: Iterable[KeyRow], now: int, *, look: bool) -> list[Statement]:
    """Return the statements that remember keys and, with `look`, forget old ones; `now` is in ms since 1970."""
    forget = [(b"forget", expired(now))] if look else []
    return [(b"remember", as_arrays(rows)), *forget]


def expired(now: int) -> tuple[int]:
    """Return the parameter of `forget` and `expired`: when the oldest key that is still remembered was used."""
    return (now - MAX_KEY_AGE,)
