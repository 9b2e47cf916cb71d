"""The SQLite collection as a snapshot, for `storekeeper.transfer`. Imports apsw and the domain."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from storekeeper.errors import Unavailable
from storekeeper.sqlite import schema
from storekeeper.transfer import TABLES, Row, Snapshot


class SqliteSnapshot:
    """See Snapshot; in a transaction of `connection`."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        self._path = path
        self._connection = connection

    def count(self) -> tuple[int, int]:
        """See Snapshot."""
        stores, changes = (self._connection.execute(f"SELECT count(*) FROM {table}").get for table in TABLES)
        return stores, changes

    def rows(self, table: str) -> Iterator[Row]:
        """See Snapshot."""
        columns = TABLES[table]
        try:
            yield from self._connection.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {columns[0]}")
        except apsw.Error as error:  # before it meets whoever is being filled with these rows
            raise Unavailable(f"{self._path}: {error}") from None

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        """See Snapshot."""
        columns = TABLES[table]
        places = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)


@contextmanager
def snapshot(path: Path, *, fill: bool) -> Iterator[Snapshot]:
    """Open a prepared file; with `fill`, to write in it. Raises Unavailable."""
    connection = schema.connect(path, reader=not fill)
    try:
        connection.execute("BEGIN IMMEDIATE" if fill else "BEGIN")
        yield SqliteSnapshot(path, connection)
        connection.execute("COMMIT")
    except apsw.Error as error:
        raise Unavailable(f"{path}: {error}") from None
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.close()
