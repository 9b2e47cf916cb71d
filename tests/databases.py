"""Every kind of database that a Collection can be in, for the tests that hold it to its promises.

A new one is a class like `Sqlite` and a line in `KINDS`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import apsw
import psycopg
import pytest
import uvloop

from postgres_server import shared
from storekeeper import service
from storekeeper.collection import Answer, Collection, Listing
from storekeeper.settings import make
from storekeeper.stores import Payload, Store

T = TypeVar("T")
MANY = 2500
"""More than two pages of a long list, whatever a page is (at most 1,000)."""

Change = tuple[int, int, str, str | None]
"""seq, store_id, name, address."""


class Database(Protocol):
    """One empty database of a test's own; handles on it are like instances of the service."""

    url: str

    def changes(self) -> list[Change]:
        """Give what stands in its table of changes, by seq, read without the code under test."""
        ...


@asynccontextmanager
async def handle(database: Database) -> AsyncIterator[Collection]:
    """Open another handle on a database, as the service does; close it at the end. A failed one fails the test."""
    failures: list[str] = []
    collection = service.open_collection(make({"database": database.url}), failures.append)
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

    def changes(self) -> list[Change]:
        """See Database."""
        connection = apsw.Connection(str(self.path))
        try:
            return list(connection.execute("SELECT seq, store_id, name, address FROM changes ORDER BY seq"))
        finally:
            connection.close()


class Postgres:
    """A database of a PostgreSQL server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def changes(self) -> list[Change]:
        """See Database."""
        with psycopg.connect(self.url) as connection:
            return connection.execute("SELECT seq, store_id, name, address FROM changes ORDER BY seq").fetchall()


@contextmanager
def _sqlite(folder: Path) -> Iterator[Database]:
    yield Sqlite(folder)


@contextmanager
def _postgres(folder: Path) -> Iterator[Database]:
    del folder  # a server has its own
    with shared().database() as url:
        yield Postgres(url)


class Kind(Protocol):
    """Makes an empty database, with `folder` for its files, and takes it away."""

    def __call__(self, folder: Path) -> AbstractContextManager[Database]:
        """Make one."""
        ...


KINDS: dict[str, Kind] = {"sqlite": _sqlite, "postgres": _postgres}


EVERY_KIND = pytest.mark.parametrize("stored_in", KINDS, indirect=True, scope="module")
"""As `pytestmark`: the module's services run once with each kind of database (see `stored_in` in conftest)."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine as the service would."""
    return uvloop.run(main)


def numbered(count: int, name: str = "") -> Iterator[Payload]:
    """Give payloads that differ, but for the name if one is given."""
    for number in range(1, count + 1):
        yield Payload(name or f"Store {number}", f"{number} Road")


async def get(collection: Collection, id: int) -> Store | None:
    """Read one store, whether the answer is there now or later."""
    return await _now(collection.get(id))


async def listing(collection: Collection, name: str | None = None) -> Listing:
    """Begin to read a list, whether the answer is there now or later."""
    return await _now(collection.list(name))


async def stores(collection: Collection, name: str | None = None) -> list[dict[str, Any]]:
    """Read a list to its end."""
    found = await listing(collection, name)
    parts = [found.first]
    if found.rest is not None:
        parts += [part async for part in found.rest]
    decoded: list[dict[str, Any]] = json.loads(b"[" + b"".join(parts) + b"]")
    return decoded


async def _now(answer: Answer[T]) -> T:
    if asyncio.isfuture(answer):
        result: T = await answer
        return result
    return answer
