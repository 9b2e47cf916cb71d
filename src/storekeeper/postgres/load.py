"""Bulk creates into the shared collection, on a connection of their own. Imports the domain."""

import time
from collections.abc import Iterable

from msgspec.structs import astuple

from storekeeper.postgres.pool import single_row
from storekeeper.postgres.schema import COLLECTION, LOCK, TYPES
from storekeeper.postgres.session import Connection, connected, write
from storekeeper.stores import Payload
from storekeeper.tables import CHANGES, CONTENT, FIELDS, STORES

# Reading the source may be slow, or fail; until it is read, no other writer waits.
_COLUMNS = ", ".join(f"{name} {TYPES[kind]}" for name, kind in CONTENT.items())
_STAGE = f"CREATE TEMPORARY TABLE staged (place bigint, {_COLUMNS}) ON COMMIT DROP"
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '60s'"
_EMPTY = f"SELECT count = 0 FROM {COLLECTION}"
_STORES = f"""INSERT INTO stores ({", ".join(STORES)})
  SELECT place + %s, {FIELDS}, place + %s FROM pg_temp.staged ORDER BY place"""
_CHANGES = f"""INSERT INTO changes ({", ".join(CHANGES)})
  SELECT place + %s, place + %s, {FIELDS}, %s, 0, place + %s, 0 FROM pg_temp.staged ORDER BY place"""
_COUNT = f"UPDATE {COLLECTION} SET count = count + %s, version = version + %s, at = %s WHERE one = 1"


def load_all(url: str, payloads: Iterable[Payload], *, only_if_empty: bool) -> range:
    """Create all of `payloads`, or none if reading them raises; return their ids. Raises Unavailable, CannotStart."""
    with connected(url, needs="to create many stores at once needs TEMPORARY on the database") as connection:
        # Checked without the lock, which another writer may hold for long.
        if only_if_empty and connection.execute(_EMPTY).fetchone() != (True,):
            return range(0)
        connection.execute(_STAGE)
        staged = 0
        with connection.cursor() as cursor, cursor.copy("COPY pg_temp.staged FROM STDIN") as copy:
            for staged, payload in enumerate(payloads, 1):
                copy.write_row((staged, *astuple(payload)))
        return _move(connection, staged, only_if_empty=only_if_empty)


def _move(connection: Connection, staged: int, *, only_if_empty: bool) -> range:
    connection.execute(LOCK_TIMEOUT)
    count, version, at, *_ = single_row(connection.execute(LOCK.encode()).fetchall())
    if count and only_if_empty:
        return range(0)
    write(connection, staged, _STORES, (count, version))
    at = max(at, time.time_ns() // 1_000_000)
    write(connection, staged, _CHANGES, (version, count, at, count))
    write(connection, 1, _COUNT, (staged, staged, at))
    return range(count + 1, count + staged + 1)
