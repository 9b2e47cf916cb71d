"""The session of every command that writes, and of an import."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from storekeeper.domain.errors import MOVED_PROBLEM, WrongDatabase
from storekeeper.storage import sessions
from storekeeper.storage.postgres.connections import Connection, connected
from storekeeper.storage.postgres.schema import COLLECTION_TABLE, LOCK, is_moved
from storekeeper.storage.postgres.snapshot import PostgresTarget, making

_SET_NUMBERS = f"""UPDATE {COLLECTION_TABLE} SET (count, version, at) =
  (SELECT count, seq, at FROM changes ORDER BY seq DESC LIMIT 1) WHERE one = 1"""


@contextmanager
def open_session(
    url: str, *, lock_timeout: float = sessions.LOCK_TIMEOUT, moved: bool = False
) -> Iterator["PostgresSession"]:
    """Open a session on a prepared database, whose list was not moved, unless `moved`. Raises
    Unavailable, CannotStart."""
    with connected(url, needs="to import needs TEMPORARY on the database") as connection:
        if is_moved(connection) and not moved:
            raise WrongDatabase(MOVED_PROBLEM)
        yield PostgresSession(connection, lock_timeout)


@contextmanager
def open_new_session(url: str) -> Iterator["PostgresSession"]:
    """Make a collection and open a session on it; both last unless there is an exception. Raises
    Taken if there is one, Unavailable, CannotStart."""
    with making(url) as connection:
        PostgresTarget(url, connection).finish(None)
        yield PostgresSession(connection, sessions.LOCK_TIMEOUT)


class PostgresSession:
    """A `sessions.Session` in one transaction, on a connection of its own."""

    changes_table = "changes"
    collection_table = COLLECTION_TABLE
    set_numbers = _SET_NUMBERS

    def __init__(self, connection: Connection, lock_timeout: float) -> None:
        self._connection = connection
        self._cursor = psycopg.RawCursor(connection)
        self._lock_timeout = lock_timeout

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
        cursor = self._cursor.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else ()

    def write(self, statement: str, values: tuple[Any, ...] = ()) -> int:
        return self._cursor.execute(statement.encode(), values).rowcount

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        statement = f"COPY pg_temp.{table} ({', '.join(columns)}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row(row)
        # Without statistics, the server would look every store up for each chunk of rows.
        self.execute(f"ANALYZE pg_temp.{table}")

    @contextmanager
    def writing(self, before_commit: Callable[[], None]) -> Iterator[None]:
        self.execute(f"SET LOCAL lock_timeout = {int(self._lock_timeout * 1000)}")
        self.execute(LOCK)
        yield
        before_commit()
