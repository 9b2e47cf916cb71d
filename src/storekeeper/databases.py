"""Which database a URL names: opens, prepares, copies collections. Imports all databases, `transfer`, the domain."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote, unquote

from storekeeper import sqlite, transfer
from storekeeper.collection import Collection
from storekeeper.errors import CannotStart, StorekeeperError, Unavailable
from storekeeper.settings import DATABASES
from storekeeper.stores import Payload
from storekeeper.tables import ALL_TOKENS
from storekeeper.tokens import Token
from storekeeper.transfer import Snapshot

Execute: TypeAlias = Callable[..., Iterable[tuple[Any, ...]]]
"""Executes a statement, with parameters `$1`, `$2`, in the transaction of a command; returns its rows. A service may
run meanwhile. Commands that write wait for each other."""

_FIND = "SELECT number FROM tokens WHERE name = $1"
_ADD = """INSERT INTO tokens (number, name, scope, hash, created, expires)
  SELECT coalesce(max(number), 0) + 1, $1, $2, $3, $4, $5 FROM tokens"""
_REVOKE = "UPDATE tokens SET revoked = coalesce(revoked, $1) WHERE name = $2 RETURNING number"
_EPOCH = "SELECT epoch FROM collection"


class _Engine(Protocol):
    """What the package of a kind of database offers: what the functions of this module do, on a location.

    A location is a path for SQLite, a URL for PostgreSQL. `load_all` does `load`; `opened` yields `Execute`.
    """

    RENEW_EPOCH: str

    def open_collection(
        self, location: Any, fail: Callable[[str], None], reached: Callable[[], None], /
    ) -> Collection: ...
    def prepare(self, location: Any, /, *, upgrade: bool = True) -> object: ...
    def exists(self, location: Any, /) -> bool: ...
    def describe(self, location: Any, /) -> str: ...
    def opened(self, location: Any, /, *, write: bool) -> AbstractContextManager[Execute]: ...
    def load_all(self, location: Any, payloads: Iterable[Payload], /, *, only_if_empty: bool) -> range: ...
    def snapshot(self, location: Any, /, *, fill: bool) -> AbstractContextManager[Snapshot]: ...


def open_collection(
    database: str, fail: Callable[[str], None], reached: Callable[[], None] = lambda: None
) -> Collection:
    """Prepare and open the collection of a URL; needs a running event loop. Raises CannotStart.

    `fail` is called once, with the reason, when the database cannot be trusted any more. `reached` is called when the
    database is prepared and not yet read, perhaps on a thread; after an Unavailable from it, again later.
    """
    engine, location = _located(database)
    return engine.open_collection(location, fail, reached)


def refuse_gone(database: str) -> None:
    """Raise CannotStart if a URL names a file that is not there: a start would make an empty one."""
    _, location = _located(database)
    if isinstance(location, Path) and not location.exists():
        raise CannotStart(f"{location} is gone: restore it from a backup")


def prepare(database: str, *, upgrade: bool = True) -> None:
    """Create or upgrade the database of a URL. Raises CannotStart, and Unavailable if it cannot be reached now.

    Only the service upgrades a database; a command refuses an older one, which a service may be using.
    """
    engine, location = _located(database)
    engine.prepare(location, upgrade=upgrade)


def exists(database: str) -> bool:
    """Tell whether there is a collection at a URL; create nothing. Raises CannotStart, Unavailable."""
    engine, location = _located(database)
    return engine.exists(location)


def describe(database: str) -> str:
    """Return the absolute path of a URL's file, or the URL without a password. Raises CannotStart."""
    engine, location = _located(database)
    return engine.describe(location)


def absolute(database: str) -> str:
    """Return the URL that names the same database in every folder. Raises CannotStart."""
    _, location = _located(database)
    return f"sqlite:///{quote(str(location))}" if isinstance(location, Path) else database


def read_tokens(database: str) -> list[Token]:
    """Return the tokens of a URL's collection. Raises CannotStart, Unavailable."""
    with _opened(database) as execute:
        return [Token(*row) for row in execute(ALL_TOKENS)]


def refuse_tokens(database: str) -> None:
    """Raise CannotStart if there are tokens: without --auth, nobody has said who needs one. Raises Unavailable."""
    if read_tokens(database):
        raise CannotStart(
            "the database has tokens: say who needs one, with --auth all, --auth writes or --auth open (nobody)"
        )


def add_token(database: str, token: Token) -> None:
    """Add a token, whose number the database chooses. Raises CannotStart, Unavailable."""
    with _opened(database, write=True) as execute:
        if list(execute(_FIND, (token.name,))):
            raise CannotStart(f"there is a token {token.name} already, or was one: names are unique for ever")
        execute(_ADD, (token.name, token.scope, token.hash, token.created, token.expires))


def revoke_token(database: str, name: str, now: int) -> bool:
    """Revoke a token; return whether there is one of that name. Raises CannotStart, Unavailable."""
    with _opened(database, write=True) as execute:
        return bool(list(execute(_REVOKE, (now, name))))


def epoch(database: str, *, renew: bool) -> str:
    """Return the epoch of a URL's collection, a new one with `renew`. Raises CannotStart, Unavailable."""
    engine, location = _existing(database)
    with engine.opened(location, write=renew) as execute:
        rows = list(execute(engine.RENEW_EPOCH if renew else _EPOCH))
        if not rows:
            raise Unavailable("The row of the collection is missing, or a trigger or rule keeps it from changing")
    return str(rows[0][0])


def _opened(database: str, *, write: bool = False) -> AbstractContextManager[Execute]:
    engine, location = _existing(database)
    return engine.opened(location, write=write)


def load(database: str, payloads: Iterable[Payload], *, only_if_empty: bool) -> range:
    """Load a prepared database as `Collection.load` does. Raises CannotStart, Unavailable."""
    engine, location = _located(database)
    return engine.load_all(location, payloads, only_if_empty=only_if_empty)


def snapshot(database: str, *, fill: bool = False) -> AbstractContextManager[Snapshot]:
    """Open a collection, perhaps read-only, to read its rows; with `fill`, an empty one to fill. Raises as `load`."""
    engine, location = _located(database) if fill else _existing(database)
    return engine.snapshot(location, fill=fill)


def copy(
    source: str, target: str, progress: Callable[[int, int], None], *, move: bool = False
) -> tuple[int, int, str]:
    """Copy a collection from one URL to another, as `transfer.copy` does.

    Every message names the database that it is about, and which of the two it is.
    """
    reading = functools.partial(_naming, "source", source)
    with reading():
        if not exists(source):
            raise CannotStart("there is no such database, or it is empty")
    with _naming("target", target):
        _, location = _located(target)
        if isinstance(location, Path) and is_database_file(source, location):
            raise CannotStart("it is the source itself, or its log: name another file")
    with reading(), snapshot(source) as rows, _naming("target", target), snapshot(target, fill=True) as filled:
        return transfer.copy(rows, filled, progress, move=move, reading=reading)


@contextmanager
def _naming(role: str, database: str) -> Iterator[None]:
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


def is_database_file(database: str, file: Path) -> bool:
    """Tell whether a file, under any name, is the file of a database or its log."""
    _, location = _located(database)
    if not isinstance(location, Path):
        return False
    parts = sqlite.files(location)
    with suppress(OSError):  # the file does not exist
        if any(part.exists() and file.samefile(part) for part in parts):
            return True
    return Path(os.path.realpath(file)) in parts


def sqlite_path(database: str) -> Path:
    """Return the file that a database URL names; raise CannotStart if it names none."""
    scheme, separator, rest = database.partition("://")
    if not separator or scheme != "sqlite":
        # An invalid URL may have a password anywhere, so do not show it; a plain word or path has none.
        shown = scheme if separator and scheme.isalnum() else database
        if not database.startswith("sqlite") and set(shown) & set(":@=?"):
            shown = ""
        kind = f" {shown!r}" if shown or not database else ""
        raise CannotStart(f"--database: unknown kind of database{kind}; use {DATABASES}")
    name = unquote(rest[1:], errors="surrogateescape")
    if not rest.startswith("/") or not name or "\0" in name or name == ":memory:":
        raise CannotStart(f"--database {database}: names no file; use {DATABASES}")
    if "?" in rest:  # options such as `?timeout=5`, which other programs take, would name another, new file
        raise CannotStart(f"--database {database}: takes nothing after a ?; in the name of a file, a ? is %3F")
    try:
        path = Path(name).absolute()
        str(path).encode()  # the present folder is a part of it
        return path
    except UnicodeEncodeError:
        raise CannotStart(f"--database: the name of the file {str(path)!r} is not UTF-8; use {DATABASES}") from None
    except FileNotFoundError:
        raise CannotStart(f"--database {database}: the present folder was deleted: go to another one") from None


def _located(database: str) -> tuple[_Engine, Path | str]:
    """Return the package for the database of a URL, and its location there: a path or the URL. Raises CannotStart."""
    if not database.startswith(("postgresql://", "postgres://")):
        return sqlite, sqlite_path(database)
    try:
        # Imported only if it is needed: the driver is an extra, and takes a while to load.
        from storekeeper import postgres  # noqa: PLC0415
    except ImportError as error:
        raise CannotStart(f"--database: PostgreSQL needs a driver ({error}): install storekeeper[postgres]") from None
    return postgres, database


def _existing(database: str) -> tuple[_Engine, Path | str]:
    """Return what `_located` does; raise CannotStart if there is no collection, or Unavailable."""
    engine, location = _located(database)
    if not engine.exists(location):
        raise CannotStart(
            f"--database: there is no such database, {engine.describe(location)}: name the one of your service, here"
            " or in STOREKEEPER_DATABASE"
        )
    return engine, location
