"""Which database a URL names: opens, prepares, copies collections. Imports every database, and the domain."""

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

from storekeeper import sqlite, transfer
from storekeeper.collection import Collection
from storekeeper.errors import CannotStart

DATABASES = "sqlite:///relative.db, sqlite:////absolute.db or postgresql://..."


def open_collection(database: str, fail: Callable[[str], None], *, anew: bool = True) -> Collection:
    """Open the collection of a URL; needs a running event loop. Raises CannotStart.

    A file is made if there is none, unless `anew` is false: then there was one when this service started. `fail` is
    told, once, why the database can be trusted no more.
    """
    if _is_postgres(database):
        collection: Collection = _postgres().PostgresCollection(database, fail)
        return collection
    path = sqlite_path(database)
    if not anew and not path.exists():
        raise CannotStart(f"{path} is gone: restore it from a backup")
    sqlite.prepare(path)
    return sqlite.SqliteCollection(path, fail)


def prepare(database: str) -> None:
    """Create or upgrade the database of a URL. Raises CannotStart, and Unavailable if it cannot be reached now."""
    if _is_postgres(database):
        _postgres().prepare(database)
    else:
        sqlite.prepare(sqlite_path(database))


def exists(database: str) -> bool:
    """Tell whether there is a collection at a URL; nothing is created. Raises CannotStart, Unavailable."""
    if _is_postgres(database):
        there: bool = _postgres().exists(database)
        return there
    return sqlite_path(database).exists()


def copy(source: str, target: str, progress: Callable[[int, int], None]) -> tuple[int, int]:
    """Copy a whole collection from one URL to another; see `transfer.copy`. Raises CannotStart too."""
    if not exists(source):
        raise CannotStart("the source is no collection: there is no such database, or it is empty")
    for database in (source, target):
        prepare(database)
    return transfer.copy(_snapshot(source, fill=False), _snapshot(target, fill=True), progress)


def _snapshot(database: str, *, fill: bool) -> transfer.Opening:
    if _is_postgres(database):
        return functools.partial(_postgres().snapshot, database, fill=fill)
    return functools.partial(sqlite.snapshot, sqlite_path(database), fill=fill)


def sqlite_path(database: str) -> Path:
    """Return the file that a database URL names; raise CannotStart if it names none."""
    scheme, separator, rest = database.partition("://")
    if not separator or scheme != "sqlite":
        # Without the URL: it may have a password, wherever something is missing.
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
    # Only now: the driver is an extra, and takes a while to load.
    try:
        return importlib.import_module("storekeeper.postgres")
    except ImportError as error:
        raise CannotStart(f"--database: PostgreSQL needs a driver ({error}): install storekeeper[postgres]") from None
