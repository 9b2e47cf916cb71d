"""Bulk creates into the SQLite collection, on a connection of their own. Imports apsw and the domain."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

import apsw
from msgspec.structs import astuple

from storekeeper.errors import Outcome, Unavailable
from storekeeper.sqlite import errors, migrations, schema
from storekeeper.sqlite.columns import STATE
from storekeeper.stores import Payload
from storekeeper.tables import CHANGES, CONTENT, FIELDS, STORES

LOCK_TIMEOUT = 60.0
"""Seconds that a bulk load waits for other writers."""

_STORES = f"""INSERT INTO stores ({", ".join(STORES)})
  SELECT rowid + ?, {FIELDS}, rowid + ? FROM temp.staged ORDER BY rowid"""
_CHANGES = f"""INSERT INTO {migrations.CHANGES} ({", ".join(CHANGES)})
  SELECT rowid + ?2, rowid + ?1, {FIELDS}, ?3, 0, rowid + ?1, 0 FROM temp.staged ORDER BY rowid"""
_EMPTY = "SELECT NOT EXISTS (SELECT 1 FROM stores)"
_INDEXES = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"


def load_all(path: Path, payloads: Iterable[Payload], *, only_if_empty: bool) -> range:
    """Create all of `payloads` in a prepared file, or none if reading them raises; return their ids.

    Raises Unavailable.
    """
    try:
        connection = schema.connect(path, timeout=LOCK_TIMEOUT)
    except apsw.Error as error:
        raise errors.temporary(error, Outcome.NONE) or error from None
    try:
        if only_if_empty and not connection.execute(_EMPTY).get:
            return range(0)
        connection.pragma("cache_size", -64 * 1024)
        # The staged rows may need more space than there is memory.
        connection.pragma("temp_store", "file")
        _stage(connection, payloads)
        deadline = time.monotonic() + LOCK_TIMEOUT
        schema.wait_for_lock(connection, lambda: deadline)
        with schema.transaction(connection, "IMMEDIATE"):
            return _move(connection, only_if_empty=only_if_empty)
    except apsw.Error as error:
        raise errors.translated(error, connection, Outcome.UNKNOWN) from None
    finally:
        connection.close()


def _stage(connection: apsw.Connection, payloads: Iterable[Payload]) -> None:
    # Reading the source may be slow, or fail; until it is read, no other writer waits.
    connection.execute(f"CREATE TEMP TABLE staged ({FIELDS})")
    rows = map(astuple, payloads)
    try:
        with schema.transaction(connection, "DEFERRED"):
            connection.executemany(f"INSERT INTO temp.staged VALUES ({', '.join('?' * len(CONTENT))})", rows)
    except apsw.FullError:
        raise Unavailable(f"The disk is full that has the folder of temporary files, {_temporary_folder()}") from None


def _temporary_folder() -> str:
    # The folder that SQLite chooses.
    chosen = [os.environ.get(name, "") for name in ("SQLITE_TMPDIR", "TMPDIR")]
    folders = [*chosen, "/var/tmp", "/usr/tmp", "/tmp"]  # noqa: S108 - looked at, not written to
    return next((folder for folder in folders if folder and os.access(folder, os.W_OK | os.X_OK)), ".")


def _move(connection: apsw.Connection, *, only_if_empty: bool) -> range:
    count, version, _, at = connection.execute(STATE).get
    staged = connection.execute("SELECT count(*) FROM temp.staged").get
    if count and only_if_empty:
        return range(0)
    # Building an index anew is faster than adding more entries to it than it has.
    indexes = list(connection.execute(_INDEXES)) if staged > count else []
    for name, _ in indexes:
        connection.execute(f'DROP INDEX "{name}"')
    connection.execute(_STORES, (count, version))
    connection.execute(_CHANGES, (count, version, max(at, time.time_ns() // 1_000_000)))
    for _, sql in indexes:
        connection.execute(str(sql))
    return range(count + 1, count + int(staged) + 1)
