"""The session of one import, and of a bulk load. Imports psycopg, `importer` and the domain."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg

from storekeeper import importer
from storekeeper.errors import Unavailable
from storekeeper.importer import Numbers
from storekeeper.postgres.pool import single_row
from storekeeper.postgres.schema import COLLECTION_TABLE, LOCK, TYPES
from storekeeper.postgres.session import Connection, connected

_NUMBERS = f"SELECT count, version, epoch, at FROM {COLLECTION_TABLE}"
_SET_NUMBERS = f"UPDATE {COLLECTION_TABLE} SET count = $1, version = $2, at = $3 WHERE one = 1"


@contextmanager
def session(url: str, *, lock_timeout: float | None = None) -> Iterator["PostgresSession"]:
    """Open a session on a prepared database. Raises Unavailable, CannotStart."""
    with connected(url, needs="to import needs TEMPORARY on the database") as connection:
        yield PostgresSession(connection, lock_timeout or importer.LOCK_TIMEOUT)


class PostgresSession:
    """An `importer.Session` in one transaction, on a connection of its own."""

    changes_table = "changes"

    def __init__(self, connection: Connection, lock_timeout: float) -> None:
        self._connection = connection
        self._cursor = psycopg.RawCursor(connection)
        self._lock_timeout = lock_timeout

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
        cursor = self._cursor.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else ()

    def create(self, table: str, columns: Mapping[str, type]) -> None:
        key, *others = [f"{name} {TYPES[kind]}" for name, kind in columns.items()]
        self._cursor.execute(f"DROP TABLE IF EXISTS pg_temp.{table}".encode())
        text = ", ".join([f"{key} PRIMARY KEY", *others])
        self._cursor.execute(f"CREATE TEMPORARY TABLE {table} ({text}) ON COMMIT DROP".encode())

    def fill(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self._connection.cursor() as cursor, cursor.copy(f"COPY pg_temp.{table} FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)
        # Without statistics, the server would look every store up for each chunk of rows.
        self._cursor.execute(f"ANALYZE pg_temp.{table}".encode())

    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()  # what changes meanwhile is found behind the lock

    @contextmanager
    def writing(self, committing: Callable[[], None]) -> Iterator[Numbers]:
        self._cursor.execute(f"SET LOCAL lock_timeout = {int(self._lock_timeout * 1000)}".encode())
        count, version, at, epoch, *_ = single_row(self._cursor.execute(LOCK.encode()).fetchall())
        yield Numbers(count, version, epoch, at)
        committing()

    def numbers(self) -> Numbers:
        return Numbers(*single_row(self._cursor.execute(_NUMBERS.encode()).fetchall()))

    def write(self, rows: int, statement: str, values: tuple[Any, ...]) -> None:
        if self._cursor.execute(statement.encode(), values).rowcount != rows:
            raise Unavailable("A trigger or a rule of the database kept rows out")

    def adding(self, rows: int, numbers: Numbers) -> AbstractContextManager[None]:
        del rows, numbers
        return nullcontext()

    def set_numbers(self, numbers: Numbers) -> None:
        self.write(1, _SET_NUMBERS, (numbers.total, numbers.version, numbers.at))
