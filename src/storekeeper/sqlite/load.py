"""Bulk creates into the SQLite collection, on a connection of their own. Imports apsw and the domain."""

import time
from collections.abc import Iterable
from pathlib import Path

import apsw

from storekeeper.sqlite import schema
from storekeeper.stores import Payload

LOCK_PATIENCE = 60.0
"""Seconds that a bulk load waits for the writers beside it."""

_COUNTS = """SELECT ifnull((SELECT max(id) FROM stores), 0), ifnull((SELECT max(seq) FROM changes), 0),
  (SELECT count(*) FROM temp.staged)"""
_STORES = "INSERT INTO stores SELECT rowid + ?, name, address, rowid + ? FROM temp.staged ORDER BY rowid"
_CHANGES = "INSERT INTO changes SELECT rowid + ?2, rowid + ?1, name, address, ?3 FROM temp.staged ORDER BY rowid"
_INDEXES = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"


def load(path: Path, payloads: Iterable[Payload], *, only_if_empty: bool) -> int:
    """Create all of `payloads`, or none if reading them raises; give how many. Raises apsw's errors."""
    connection = schema.connect(path)
    try:
        connection.set_busy_timeout(int(LOCK_PATIENCE * 1000))
        # The references hold by construction, and checking each of them is a quarter of the time.
        connection.pragma("foreign_keys", False)
        connection.pragma("cache_size", -256 * 1024)
        _stage(connection, payloads)
        connection.execute("BEGIN IMMEDIATE")
        try:
            loaded = _move(connection, only_if_empty=only_if_empty)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return loaded
    finally:
        connection.close()


def _stage(connection: apsw.Connection, payloads: Iterable[Payload]) -> None:
    # Reading the source may be slow, or fail; until it is through, nobody else is kept from writing.
    connection.execute("CREATE TEMP TABLE staged (name TEXT NOT NULL, address TEXT) STRICT")
    with connection:
        rows = ((payload.name, payload.address) for payload in payloads)
        connection.executemany("INSERT INTO temp.staged VALUES (?, ?)", rows)


def _move(connection: apsw.Connection, *, only_if_empty: bool) -> int:
    count, version, staged = connection.execute(_COUNTS).get
    if count and only_if_empty:
        return 0
    # Building an index anew is faster than adding to it more than it holds.
    indexes = list(connection.execute(_INDEXES)) if staged > count else []
    for name, _ in indexes:
        connection.execute(f'DROP INDEX "{name}"')
    connection.execute(_STORES, (count, version))
    connection.execute(_CHANGES, (count, version, time.time_ns() // 1_000_000))
    for _, sql in indexes:
        connection.execute(str(sql))
    return int(staged)
