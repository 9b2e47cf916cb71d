"""The session of one import, and of a bulk load. Imports apsw, `importer` and the domain."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from storekeeper import importer
from storekeeper.errors import Outcome, Unavailable
from storekeeper.importer import Numbers
from storekeeper.sqlite import connections, errors
from storekeeper.sqlite.file_identity import FileIdentity
from storekeeper.sqlite.migrations import CHANGES_TABLE
from storekeeper.sqlite.statements import STATE

_INDEXES = (
    "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN ('stores', ?)"
)
_TYPES = {int: "INTEGER", str: "TEXT"}


@contextmanager
def session(
    path: Path, identity: FileIdentity | None = None, *, lock_timeout: float | None = None
) -> Iterator["SqliteSession"]:
    """Open a session on a prepared file. Raises Unavailable.

    `identity` is that of the file as this process has it open, if it has.
    """
    lock_timeout = lock_timeout or importer.LOCK_TIMEOUT
    if identity:
        identity.check()
    try:
        connection = connections.connect(path, timeout=lock_timeout)
    except apsw.Error as error:
        raise errors.to_unavailable(error, Outcome.NONE) or error from None
    try:
        identity = identity or FileIdentity(path)
        identity.check()
        connection.pragma("cache_size", -64 * 1024)
        # The staged rows may need more space than there is memory.
        connection.pragma("temp_store", "file")
        yield SqliteSession(connection, identity, lock_timeout)
        identity.check()
    except apsw.Error as error:
        raise errors.translate(error, connection, Outcome.UNKNOWN) from None
    finally:
        connection.close()


class SqliteSession:
    """An `importer.Session` on a connection of its own."""

    changes_table = CHANGES_TABLE

    def __init__(self, connection: apsw.Connection, identity: FileIdentity, lock_timeout: float) -> None:
        self._connection = connection
        self._identity = identity
        self._lock_timeout = lock_timeout
        self._tables: dict[str, int] = {}

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> apsw.Cursor:
        # To SQLite, $1 is a name, with the number of its place; ?1 is a number.
        return self._connection.execute(statement.replace("$", "?"), values)

    def create(self, table: str, columns: Mapping[str, type]) -> None:
        key, *others = [f"{name} {_TYPES[kind]}" for name, kind in columns.items()]
        self.execute(f"DROP TABLE IF EXISTS temp.{table}")
        self.execute(f"CREATE TEMP TABLE {table} ({', '.join([f'{key} PRIMARY KEY', *others])})")
        self._tables[table] = len(columns)

    def fill(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        values = ", ".join("?" * self._tables[table])
        try:
            with self._transaction():
                self._connection.executemany(f"INSERT INTO temp.{table} VALUES ({values})", rows)
        except apsw.FullError:
            raise Unavailable("The disk with the folder of temporary files is full (TMPDIR names another)") from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._connection.in_transaction:
            yield
        else:
            with connections.transaction(self._connection, "DEFERRED"):
                yield

    reading = _transaction

    @contextmanager
    def writing(self, committing: Callable[[], None]) -> Iterator[Numbers]:
        deadline = time.monotonic() + self._lock_timeout
        connections.retry_lock_until(self._connection, lambda: deadline)
        with connections.transaction(self._connection, "IMMEDIATE", committing):
            self._identity.check()
            yield self.numbers()

    def numbers(self) -> Numbers:
        return Numbers(*self.execute(STATE).get)

    def write(self, rows: int, statement: str, values: tuple[Any, ...]) -> None:
        del rows  # no trigger of somebody else keeps rows out
        self.execute(statement, values)

    @contextmanager
    def adding(self, rows: int, numbers: Numbers) -> Iterator[None]:
        # Building an index anew is faster than adding more entries to it than it has.
        indexes = list(self.execute(_INDEXES, (CHANGES_TABLE,))) if rows > numbers.total else []
        for name, _ in indexes:
            self.execute(f'DROP INDEX "{name}"')
        yield
        for _, sql in indexes:
            self.execute(str(sql))

    def set_numbers(self, numbers: Numbers) -> None:
        """Do nothing: the latest change has the numbers."""
