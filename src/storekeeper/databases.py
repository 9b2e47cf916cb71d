"""Which database a URL names: opens, prepares, copies collections. Imports every database, and the domain."""

import asyncio
import functools
import importlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from urllib.parse import unquote

from storekeeper import sqlite, transfer
from storekeeper.collection import Collection, Listing, Query
from storekeeper.errors import CannotStart, StorekeeperError
from storekeeper.tokens import Token

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


def prepare(database: str, *, upgrade: bool = True) -> None:
    """Create or upgrade the database of a URL. Raises CannotStart, and Unavailable if it cannot be reached now.

    Only the service upgrades a database; a command refuses an older one, which a service may be using.
    """
    if _is_postgres(database):
        _postgres().prepare(database, upgrade=upgrade)
    else:
        sqlite.prepare(sqlite_path(database), upgrade=upgrade)


def exists(database: str) -> bool:
    """Tell whether there is a collection at a URL; create nothing. Raises CannotStart, Unavailable."""
    if _is_postgres(database):
        found: bool = _postgres().exists(database)
        return found
    return sqlite_path(database).exists()


def describe(database: str) -> str:
    """Return what people call the database of a URL: its absolute path, or its URL without a password.

    Raises CannotStart.
    """
    if _is_postgres(database):
        described: str = _postgres().describe(database)
        return described
    return str(sqlite_path(database))


def epoch(database: str, *, renew: bool) -> str:
    """Return the epoch of a URL's collection, a new one if it is to be renewed; a service may be running.

    Raises CannotStart, Unavailable.
    """
    _refuse_missing(database)
    if _is_postgres(database):
        prepare(database, upgrade=False)
        shared: str = _postgres().epoch(database, renew=renew)
        return shared
    return sqlite.epoch(sqlite_path(database), renew=renew)


def read_tokens(database: str) -> list[Token]:
    """Return the tokens of a URL's collection; a service may be running. Raises CannotStart, Unavailable."""
    _refuse_missing(database)
    if _is_postgres(database):
        prepare(database, upgrade=False)
        found: list[Token] = _postgres().tokens.read(database)
        return found
    return sqlite.tokens.read_file(sqlite_path(database))


def add_token(database: str, token: Token, show: Callable[[], None]) -> None:
    """Add a token; the database chooses its number. Raises CannotStart, NameTaken, Unavailable.

    `show` is called before the commit, with the lock of the writers: if it raises, nothing is added.
    """
    _refuse_missing(database)
    if _is_postgres(database):
        prepare(database, upgrade=False)
        _postgres().tokens.add(database, token, show)
    else:
        sqlite.tokens.add(sqlite_path(database), token, show)


def revoke_token(database: str, name: str, now: int) -> None:
    """Revoke the token of that name. Raises CannotStart, NoSuchToken, Unavailable."""
    _refuse_missing(database)
    if _is_postgres(database):
        prepare(database, upgrade=False)
        _postgres().tokens.revoke(database, name, now)
    else:
        sqlite.tokens.revoke(sqlite_path(database), name, now)


def copy(source: str, target: str, progress: Callable[[int, int], None], *, move: bool = False) -> transfer.Copied:
    """Copy a collection from one URL to another, as `transfer.copy` does. Raises CannotStart too.

    Every message names the database that it is about, and which of the two it is.
    """
    with naming("source", source):
        if not exists(source):
            raise CannotStart("there is no such database, or it is empty")
    with naming("target", target):
        if not _is_postgres(target) and is_database_file(source, sqlite_path(target)):
            raise CannotStart("it is the source itself, or its log: name another file")
    return transfer.copy(lambda: _named_source(source), lambda: _named_target(target), progress, move=move)


@contextmanager
def naming(role: str, database: str) -> Iterator[None]:
    """Have every StorekeeperError say which database it is about, and whether that is the source or the target."""
    try:
        yield
    except StorekeeperError as error:
        if not hasattr(error, "__notes__"):  # else it has been named
            error.add_note(role)
            error.args = (_named(role, database, str(error)),)
        raise


def _named(role: str, database: str, message: str) -> str:
    # The messages speak to whoever gave --database, which `copy` does not have.
    message = message.removeprefix("--database").removeprefix(":").strip().replace(" with --database", "")
    try:
        name = describe(database)
    except CannotStart:  # the URL is what is wrong
        return f"{role}: {message}"
    return f"{role} {message}" if message.startswith(name) else f"{role} {name}: {message}"


@contextmanager
def _named_source(database: str) -> Iterator[transfer.Snapshot]:
    with naming("source", database), _snapshot(database, fill=False)() as snapshot:
        yield cast("transfer.Snapshot", _NamedRows(snapshot, database))


class _NamedRows:
    """A source that names itself when it cannot be read: the error passes through the target first."""

    def __init__(self, snapshot: transfer.Snapshot, database: str) -> None:
        self._snapshot = snapshot
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._snapshot, name)

    def count(self) -> tuple[int, int]:
        with naming("source", self._database):
            return self._snapshot.count()

    def epoch(self) -> str:
        with naming("source", self._database):
            return self._snapshot.epoch()

    def rows(self, table: str) -> Iterator[transfer.Row]:
        with naming("source", self._database):
            yield from self._snapshot.rows(table)


@contextmanager
def _named_target(database: str) -> Iterator[transfer.Snapshot]:
    with naming("target", database), _snapshot(database, fill=True)() as snapshot:
        yield snapshot


@asynccontextmanager
async def open_listing(database: str) -> AsyncIterator[Listing]:
    """Open a listing of all stores of a URL, even where nothing can be written. Raises CannotStart, Unavailable."""
    _refuse_missing(database)
    if not _is_postgres(database):
        with sqlite.open_listing(sqlite_path(database)) as listing:
            yield listing
        return
    prepare(database, upgrade=False)
    collection = open_collection(database, lambda _: None)
    try:
        found = collection.list(Query())
        yield await found if isinstance(found, asyncio.Future) else found
    finally:
        await collection.close()


def _refuse_missing(database: str) -> None:
    if not exists(database):
        raise CannotStart(
            f"--database: there is no such database, {describe(database)}: name the one of your service, here or in"
            " STOREKEEPER_DATABASE"
        )


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
        prepare(database, upgrade=False)
        return functools.partial(_postgres().snapshot, database, fill=fill)
    return functools.partial(sqlite.snapshot, sqlite_path(database), fill=fill)


def sqlite_path(database: str) -> Path:
    """Return the file that a database URL names; raise CannotStart if it names none."""
    scheme, separator, rest = database.partition("://")
    if not separator or scheme != "sqlite":
        # In an invalid URL the password may stand anywhere; but a plain word or path has none.
        shown = scheme if separator and scheme.isalnum() else database
        if not database.startswith("sqlite") and set(shown) & set(":@=?"):
            shown = ""
        kind = f" {shown!r}" if shown or not database else ""
        raise CannotStart(f"--database: unknown kind of database{kind}; use {DATABASES}")
    name = unquote(rest[1:])
    if not rest.startswith("/") or not name or "\0" in name or name == ":memory:":
        raise CannotStart(f"--database {database}: names no file; use {DATABASES}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise CannotStart(f"--database: the name of the file {name!r} is not UTF-8; use {DATABASES}") from None
    return Path(name).absolute()


def _is_postgres(database: str) -> bool:
    return database.startswith(("postgresql://", "postgres://"))


def _postgres() -> ModuleType:
    # Imported only if it is needed: the driver is an extra, and takes a while to load.
    try:
        return importlib.import_module("storekeeper.postgres")
    except ImportError as error:
        raise CannotStart(f"--database: PostgreSQL needs a driver ({error}): install storekeeper[postgres]") from None
