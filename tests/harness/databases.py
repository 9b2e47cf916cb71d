"""Every kind of database for a Collection, for the tests that hold it to its promises.

To add one, write a class like `Sqlite` and a line in `KINDS`.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, LiteralString, Protocol
from urllib.parse import quote

import apsw
import psycopg

from storekeeper.storage import databases
from storekeeper.storage.collection import Collection
from storekeeper.storage.sql import CONTENT
from tests.harness.machine import need
from tests.harness.postgres_server import Missing, Server, shared
from tests.harness.stores import HistoryRow

_CHANGES = f"SELECT seq, store_id, {', '.join(CONTENT)} FROM changes ORDER BY seq"
_KEYS = "SELECT key, request, seq FROM keys ORDER BY n"
_ADD_KEYS = """INSERT INTO keys (n, key, request, seq, at)
  SELECT last + {n}, CAST(last + {n} AS text), 1, 1, {at}
  FROM {numbers}, (SELECT coalesce(max(n), 0) AS last FROM keys) AS before"""

_KEEP_KEYS = """
  CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'kept'; END $$;
  CREATE TRIGGER keep BEFORE DELETE ON keys FOR EACH ROW EXECUTE FUNCTION keep()"""


def make(url: str, *, examples: bool = False) -> None:
    """Make a database without stores, if there is none, and prepare it as a start does."""
    databases.ensure(url, examples=examples)
    databases.database(url).prepare()


def make_file(path: Path) -> None:
    """Make the database that a file is, as `make` does."""
    make(f"sqlite:///{quote(str(path))}")


class Database(Protocol):
    """One empty database of a test; handles on it are like instances of the service."""

    url: str

    def changes(self) -> list[HistoryRow]:
        """Return the rows of its table of changes, by seq, read without the code under test."""
        ...

    def key_rows(self) -> list[tuple[str, int, int]]:
        """Return key, request and seq of the rows of its table of keys, oldest first."""
        ...

    def add_keys(self, count: int, at: int) -> None:
        """Add keys that were used at that time with the first change; each is its number in the
        table."""
        ...

    def keep_keys(self) -> None:
        """Let a trigger refuse to delete keys."""
        ...


@asynccontextmanager
async def handle(database: Database) -> AsyncIterator[Collection]:
    """Open another handle on a database, which is made if there is none."""
    make(database.url)
    async with opened(database.url) as collection:
        yield collection


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Collection]:
    """Open a database as the service does, and close it at the end; a failed one fails the test."""
    failures: list[object] = []
    collection = databases.database(url).open_collection(failures.append)
    try:
        yield collection
    finally:
        await collection.close()
    assert not failures


class Sqlite:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "stores.db"
        self.url = f"sqlite:///{self.path}"

    def changes(self) -> list[HistoryRow]:
        return self._rows(_CHANGES)

    def key_rows(self) -> list[tuple[str, int, int]]:
        return self._rows(_KEYS)

    def add_keys(self, count: int, at: int) -> None:
        counted = f"SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT {count}"
        numbers = f"(WITH RECURSIVE n (value) AS ({counted}) SELECT * FROM n)"
        self._rows(_ADD_KEYS.format(numbers=numbers, n="value", at=at))

    def keep_keys(self) -> None:
        self._rows(
            "CREATE TRIGGER keep BEFORE DELETE ON keys BEGIN SELECT RAISE(ROLLBACK, 'kept'); END"
        )

    def _rows(self, query: str) -> list[Any]:
        connection = apsw.Connection(str(self.path))
        try:
            return list(connection.execute(query))
        finally:
            connection.close()


class Postgres:
    """A database of a PostgreSQL server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def changes(self) -> list[HistoryRow]:
        return self._rows(_CHANGES)

    def key_rows(self) -> list[tuple[str, int, int]]:
        return self._rows(_KEYS)

    def add_keys(self, count: int, at: int) -> None:
        statement = _ADD_KEYS.format(
            numbers=f"generate_series(1, {count}) AS value", n="value", at=at
        )
        with psycopg.connect(self.url) as connection:
            connection.execute(statement.encode())

    def keep_keys(self) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(_KEEP_KEYS)

    def _rows(self, query: LiteralString) -> list[Any]:
        with psycopg.connect(self.url) as connection:
            # A test may give all sessions of the user a short one, for the service to ignore.
            connection.execute("SET LOCAL statement_timeout = 0")
            return connection.execute(query).fetchall()


@contextmanager
def _sqlite(folder: Path) -> Iterator[Database]:
    yield Sqlite(folder)


@contextmanager
def _postgres(folder: Path) -> Iterator[Database]:
    del folder  # a server has its own
    with shared().database() as url:
        yield Postgres(url)


class Kind(Protocol):
    """Makes an empty database, with `folder` for its files, and removes it."""

    def __call__(self, folder: Path) -> AbstractContextManager[Database]:
        """Make a database."""
        ...


KINDS: dict[str, Kind] = {"sqlite": _sqlite, "postgres": _postgres}


def postgres() -> Server:
    """Return the PostgreSQL that the tests of this process share; skip the test if there cannot be
    one."""
    try:
        return shared()
    except Missing as error:
        need("postgres", str(error))
        raise
