"""Which database a URL names: opens, prepares, copies collections. Imports every database, and the domain."""

import asyncio
import functools
import importlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

from storekeeper import sqlite, transfer
from storekeeper.collection import Collection, Listing, Query
from storekeeper.errors import CannotStart

DATABASES = "sqlite:///relative.db, sqlite:////absolute.db or postgresql://..."


def open_collection(database: str, fail: Callable[[str], None], *, create: bool = True) -> Collection:
    """Open the collection of a URL; needs a running event loop. Raises CannotStart.

    A missing file is created, unless `create` is false: then it existed when this service started. `fail` is called
    once, with the reason, when the database cannot be trusted any more.
    """
    if _is_postgres(database):
        collection: Collection = _postgres().PostgresCollection(database, fail)
        return collection
    path = sqlite_path(database)
    if not create and not path.exists():
        raise CannotStart(f"{path} is gone: restore it from a backup")
    sqlite.prepare(path)
    return sqlite.SqliteCollection(path, fail)


def shown(database: str) -> str:
    """Return the URL of a database for people and logs: absolute, without a password. Raises CannotStart."""
    if _is_postgres(database):
        name: str = _postgres().shown(database)
        return name
    return f"sqlite:///{sqlite_path(database)}"


def prepare(database: str) -> None:
    """Create or upgrade the database of a URL. Raises CannotStart, and Unavailable if it cannot be reached now."""
    if _is_postgres(database):
        _postgres().prepare(database)
    else:
        sqlite.prepare(sqlite_path(database))


def exists(database: str) -> bool:
    """Tell whether there is a collection at a URL; create nothing. Raises CannotStart, Unavailable."""
    if _is_postgres(database):
        found: bool = _postgres().exists(database)
        return found
    return sqlite_path(database).exists()


def copy(source: str, target: str, progress: Callable[[int, int], None]) -> tuple[int, int]:
    """Copy a collection from one URL to another, as `transfer.copy` does. Raises CannotStart too."""
    if not exists(source):
        raise CannotStart("the source is no collection: there is no such database, or it is empty")
    if not _is_postgres(target) and is_database_file(source, sqlite_path(target)):
        raise CannotStart("the target is the source itself, or its log: name another file")
    return transfer.copy(_snapshot(source, fill=False), _snapshot(target, fill=True), progress)


@asynccontextmanager
async def open_listing(database: str) -> AsyncIterator[Listing]:
    """Open a listing of all stores of a URL, even where nothing can be written. Raises CannotStart, Unavailable."""
    if not exists(database):
        raise CannotStart("--database: there is no such database")
    if not _is_postgres(database):
        with sqlite.open_listing(sqlite_path(database)) as listing:
            yield listing
        return
    prepare(database)
    collection = open_collection(database, lambda _: None)
    try:
        found = collection.list(Query())
        yield await found if isinstance(found, asyncio.Future) else found
    finally:
        await collection.close()


def is_database_file(database: str, file: Path) -> bool:
    """Tell whether a file, under any name, is the file of a database or its log."""
    if _is_postgres(database):
        return False
    parts = sqlite.files(sqlite_path(database))
    return Path(os.path.realpath(file)) in parts or any(_is_same_file(file, part) for part in parts)


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return False


def _snapshot(database: str, *, fill: bool) -> transfer.Opening:
    if _is_postgres(database):
        prepare(database)
        return functools.partial(_postgres().snapshot, database, fill=fill)
    return functools.partial(sqlite.snapshot, sqlite_path(database), fill=fill)


def sqlite_path(database: str) -> Path:
    """Return the file that a database URL names; raise CannotStart if it names none."""
    scheme, separator, rest = database.partition("://")
    if not separator or scheme != "sqlite":
        # Without the URL: in an invalid one, the password may stand anywhere.
        kind = f" {scheme!r}" if separator and scheme.isalnum() else ""
        raise CannotStart(f"--database: unknown kind of database{kind}; use {DATABASES}")
    name = unquote(rest[1:])
    if not rest.startswith("/") or not name or "\0" in name or name == ":memory:":
        raise CannotStart(f"--database {database}: names no file; use {DATABASES}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise CannotStart(f"--database: the name of the file is not UTF-8; use {DATABASES}") from None
    return Path(name).absolute()


def _is_postgres(database: str) -> bool:
    return database.startswith(("postgresql://", "postgres://"))


def _postgres() -> ModuleType:
    # Imported only if it is needed: the driver is an extra, and takes a while to load.
    try:
        return importlib.import_module("storekeeper.postgres")
    except ImportError as error:
        raise CannotStart(f"--database: PostgreSQL needs a driver ({error}): install storekeeper[postgres]") from None
