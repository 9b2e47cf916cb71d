"""Snapshots to read or fill, each on its own connection."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import psycopg

from storekeeper.concurrency.interruption import Interruption
from storekeeper.domain.errors import Taken, Unavailable
from storekeeper.domain.queries import State
from storekeeper.storage.collection import COUNTED, CopyTarget, Row, Rows, Snapshot
from storekeeper.storage.postgres.connections import (
    Connection,
    connected,
    describe,
    translate,
)
from storekeeper.storage.postgres.pool import single_row
from storekeeper.storage.postgres.schema import (
    COLLECTION_TABLE,
    LOCK,
    NEW_EPOCH,
    RIGHTS,
    TYPES,
    check_rows,
    create_tables,
    version,
)
from storekeeper.storage.sql import ROW_ORDER, TABLES

LOCK_TIMEOUT = "SET LOCAL lock_timeout = '60s'"

_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_FINISH = f"""UPDATE {COLLECTION_TABLE} SET count = (SELECT count(*) FROM stores),
  version = (SELECT count(*) FROM changes), at = (SELECT coalesce(max(at), 0) FROM changes),
  epoch = coalesce($1::text, {NEW_EPOCH}) WHERE one = 1"""
CHECK = """SELECT CASE WHEN count = (SELECT count(*) FROM stores)
    AND version = (SELECT coalesce(max(seq), 0) FROM changes)
  THEN 'ok' ELSE 'the numbers of the collection are not those of its tables' END FROM collection"""
RENEW_EPOCH = f"UPDATE {COLLECTION_TABLE} SET epoch = {NEW_EPOCH} WHERE one = 1 RETURNING epoch"


class PostgresSnapshot:
    """A Snapshot in a transaction of `connection`. COPY transfers the rows, in both directions."""

    def __init__(self, url: str, connection: Connection) -> None:
        self._url = url
        self._connection = connection

    def state(self) -> State:
        return State(*single_row(self._connection.execute(COUNTED).fetchall()))

    def rows(self, table: str) -> Rows:
        columns = TABLES[table]
        select = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {ROW_ORDER}"
        query = f"COPY ({select}) TO STDOUT (FORMAT binary)"
        try:
            with self._connection.cursor() as cursor, cursor.copy(query.encode()) as copy:
                copy.set_types([TYPES[kind] for kind in columns.values()])
                yield from copy.rows()
        except psycopg.Error as error:
            # Here, because the handler of the target would name the target.
            raise translate(error, self._url) from None

    def select(self, statement: str, *values: str | int) -> Rows:
        try:
            with psycopg.RawCursor(self._connection) as cursor:
                yield from cursor.stream(statement.encode(), values)
        except psycopg.Error as error:
            raise translate(error, self._url) from None


class PostgresTarget(PostgresSnapshot):
    """A CopyTarget in a transaction that writes."""

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        query = f"COPY {table} ({', '.join(TABLES[table])}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(query.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def finish(self, epoch: str | None) -> None:
        """Set the epoch and the numbers. This transaction reads the rows that its commit will
        keep."""
        if psycopg.RawCursor(self._connection).execute(_FINISH.encode(), (epoch,)).rowcount != 1:
            raise Unavailable("A trigger or a rule of the database kept rows out")


@contextmanager
def snapshot(url: str, interruption: Interruption | None = None) -> Iterator[Snapshot]:
    """Open a prepared database to read it. Raises CannotStart, Unavailable."""
    with connected(url, commits=False, interruption=interruption) as connection:
        connection.execute(_SNAPSHOT)
        yield PostgresSnapshot(url, connection)


@contextmanager
def target(url: str, *, before_commit: Callable[[], None] = lambda: None) -> Iterator[CopyTarget]:
    """Open a database without stores, or a new one, to fill it. Raises CannotStart, Unavailable.

    `before_commit` is called before the COMMIT, which also creates the tables if there are none.
    """
    with connected(url, needs=RIGHTS) as connection:
        if not create_tables(connection):
            version(connection, upgrade=False)
            check_rows(connection)
        connection.execute(LOCK_TIMEOUT)
        connection.execute(LOCK.encode())
        yield PostgresTarget(url, connection)
        before_commit()


@contextmanager
def making(url: str) -> Iterator[Connection]:
    """Open a connection that makes a collection, which lasts unless there is an exception. Raises
    Taken if there is a collection, CannotStart, Unavailable."""
    with connected(url, needs=RIGHTS) as connection:
        # Before, too, because a copy may have the lock of migrations for long.
        if version(connection) or not create_tables(connection):
            raise Taken("there is a list already: name another database", subject=describe(url))
        yield connection


def create(url: str, fill: Callable[[CopyTarget], None]) -> None:
    """Make a collection with what `fill` puts into it. Raises as `making`."""
    with making(url) as connection:
        made = PostgresTarget(url, connection)
        fill(made)
        made.finish(None)
