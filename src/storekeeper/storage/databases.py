"""The database that a URL names, and what commands do with one."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from storekeeper.domain.changes import ChangesPage, ChangesQuery
from storekeeper.domain.errors import (
    MOVED_PROBLEM,
    CannotStart,
    Code,
    Missing,
    Outcome,
    StorekeeperError,
    Taken,
    Unavailable,
    WrongDatabase,
)
from storekeeper.domain.search import folded_texts
from storekeeper.domain.stores import EXAMPLES
from storekeeper.settings import DATABASES
from storekeeper.storage import clock, copying, sessions
from storekeeper.storage.collection import Collection, CopyTarget, Fail, Snapshot
from storekeeper.storage.sessions import Session
from storekeeper.storage.sql import TABLES, changes_statement, page_of
from storekeeper.storage.sqlite import SqliteDatabase
from storekeeper.storage.sqlite.schema import files, is_missing

_EPOCH = "SELECT epoch FROM collection"


class Database(Protocol):
    """A database, which might not exist yet. All methods raise CannotStart, and all but
    `open_collection` raise Unavailable.

    A service may use the database at the same time; commands that write wait for each other.
    """

    name: str
    """The absolute path, or the URL without a password."""

    renew_epoch: str
    """The statement that sets a new epoch and returns it."""

    check: str
    """The statement with which the database checks itself: a row for each problem, or `ok`."""

    def open_collection(
        self, fail: Fail, on_reachable: Callable[[], None] = lambda: None
    ) -> Collection:
        """Prepare the database, and open its collection on the running event loop.

        It calls `on_reachable`, perhaps on a thread, before it reads the prepared database, and
        after each Unavailable.
        """

    def create(self, fill: Callable[[CopyTarget], None]) -> None:
        """Make a collection; `fill` fills it before it gets its name. Raises Taken if there is
        one."""

    def prepare(self, *, upgrade: bool = True) -> object:
        """Check the database, and upgrade it if `upgrade`: commands refuse an older one, which may
        be in use. Raises Missing if there is none."""

    def exists(self) -> bool:
        """Return whether there is a collection; create nothing."""

    def session(
        self, *, lock_timeout: float = ..., moved: bool = ...
    ) -> AbstractContextManager[Session]:
        """Open a session of the database, which exists, to write to it; commit at its end. Raises
        CannotStart if its list was moved, unless `moved`.

        It waits for other writers for up to `lock_timeout` seconds.
        """

    def new_session(self) -> AbstractContextManager[Session]:
        """Make a collection and open a session to write to it; nothing of either lasts if there
        is an exception. Raises Taken if there is one."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open the collection to read it, even where nothing can be written."""

    def freeze(self) -> bool:
        """Refuse all writes from now on, also those of running services, whose reads continue;
        return whether they were allowed."""

    def thaw(self, *, renew: bool) -> bool:
        """Allow writes again, with `renew` under a new epoch; return whether they were refused."""

    def target(
        self, *, before_commit: Callable[[], None] = lambda: None
    ) -> AbstractContextManager[CopyTarget]:
        """Open a new file or an empty PostgreSQL, to fill it; call `before_commit` right before
        that lasts."""


class CopyFailed(StorekeeperError):
    """A copy failed; the subject is the database that failed. `outcome` is as in Unavailable."""

    code = Code.COPY_FAILED

    def __init__(self, subject: str, error: StorekeeperError) -> None:
        self.outcome = error.outcome if isinstance(error, Unavailable) else Outcome.NONE
        self.may_pass = error.may_pass
        super().__init__(error.problem, subject=subject)


def database(url: str) -> Database:
    """Return the database that a URL names. Raises CannotStart."""
    if not url.startswith(("postgresql://", "postgres://")):
        return SqliteDatabase(sqlite_path(url))
    try:
        # Only here: the driver is an extra, and loads slowly.
        from storekeeper.storage.postgres import PostgresDatabase  # noqa: PLC0415
    except ImportError as error:
        raise WrongDatabase(
            f"PostgreSQL needs a driver ({error}): install Storekeeper with its extra postgres"
        ) from None
    return PostgresDatabase(url)


def open_existing(url: str) -> Database:
    """Return the database that a URL names. Raises CannotStart if there is no collection, or
    Unavailable."""
    found = database(url)
    if not found.exists():
        raise Missing(found.name)
    return found


def create(url: str, *, examples: bool) -> None:
    """Make the collection that a URL names, empty or with the examples: nothing else begins a
    list. Raises Taken if there is one, CannotStart, Unavailable."""
    database(url).create(_add_examples if examples else _add_nothing)


def ensure(url: str, *, examples: bool) -> bool:
    """Make the collection that a URL names, if there is none; return whether it did. Raises as
    `create`."""
    try:
        create(url, examples=examples)
    except Taken:
        return False
    return True


def _add_nothing(_: CopyTarget) -> None:
    pass


def _add_examples(target: CopyTarget) -> None:
    now = clock.now()
    stores, changes = [], []
    for number, example in enumerate(EXAMPLES, 1):
        content = {"name": example.name, "address": example.address}
        text, folded_name = folded_texts(example.name, example.address)
        texts = {"folded": text, "folded_name": folded_name}
        stores.append(content | texts | {"id": number, "version": number})
        numbers = {"seq": number, "store_id": number, "count": number}
        changes.append(content | numbers | {"at": now, "token_number": 0})
    for table, rows in {"stores": stores, "changes": changes}.items():
        target.fill(table, [tuple(row.get(column) for column in TABLES[table]) for row in rows])


@contextmanager
def write_session(url: str) -> Iterator[Session]:
    """Open a collection to write to it, under the lock of all writers. Raises CannotStart,
    Unavailable."""
    with (
        open_existing(url).session(lock_timeout=sessions.LOCK_TIMEOUT) as session,
        session.writing(lambda: None),
    ):
        yield session


def absolute(url: str) -> str:
    """Return the URL that names the same database in every folder. Raises CannotStart."""
    found = database(url)
    return f"sqlite:///{quote(found.name)}" if isinstance(found, SqliteDatabase) else url


def refuse_gone(url: str) -> None:
    """Raise Missing if a URL names a file that does not exist."""
    found = database(url)
    if isinstance(found, SqliteDatabase) and is_missing(found.path):
        raise Missing(found.name)


def is_database_file(url: str, file: Path) -> bool:
    """Return whether a file, under any name, is the file of a database or its log."""
    found = database(url)
    if not isinstance(found, SqliteDatabase):
        return False
    parts = files(found.path)
    with suppress(OSError):  # the file does not exist
        if any(part.exists() and file.samefile(part) for part in parts):
            return True
    return Path(os.path.realpath(file)) in parts


def read_changes(url: str, query: ChangesQuery) -> ChangesPage:
    """Return a page of changes. Raises EpochEnded, CannotStart, Unavailable."""
    text, values = changes_statement(query)
    with open_existing(url).snapshot() as snapshot:
        return page_of(snapshot.select(text, *values), query)


def epoch(url: str, *, renew: bool) -> str:
    """Return the epoch of a collection; with `renew`, set a new one before. Raises CannotStart,
    Unavailable."""
    found = open_existing(url)
    if renew and not found.thaw(renew=True):
        with write_session(url) as session:
            rows = list(session.execute(found.renew_epoch))
    else:
        with found.snapshot() as snapshot:
            rows = list(snapshot.select(_EPOCH))
    if not rows:
        raise Unavailable(
            "The row of the collection is missing, or a trigger or rule keeps it from changing"
        )
    return str(rows[0][0])


def copy(
    source: str,
    target: str,
    progress: Callable[[int, int], None],
    *,
    move: bool = False,
    before_commit: Callable[[], None] = lambda: None,
) -> tuple[int, int, str]:
    """Copy a collection from one URL to another, as `copying.copy` does. Raises CopyFailed."""
    with failures_of("source"):
        origin = database(source)
    with failures_of("target"):
        goal = database(target)
    reading = partial(failures_of, f"source {origin.name}")
    filling = partial(failures_of, f"target {goal.name}")
    with reading():
        if not origin.exists():
            raise CannotStart("there is no such database, or it is empty")
    with filling():
        if isinstance(goal, SqliteDatabase) and is_database_file(source, goal.path):
            raise CannotStart("the file is the source itself, or its log: name another one")
    with (
        _frozen(origin, reading) if move else nullcontext(),
        reading(),
        origin.snapshot() as rows,
        filling(),
        goal.target(before_commit=before_commit) as filled,
    ):
        return copying.copy(rows, filled, progress, move=move, reading=reading)


@contextmanager
def _frozen(
    origin: Database, reading: Callable[[], AbstractContextManager[None]]
) -> Iterator[None]:
    """Refuse writes to a source that moves, before anything of it is read; allow them again if
    nothing was copied. Raises CannotStart if they are refused already: another database may have
    the list and its epoch."""
    with reading():
        if not origin.freeze():
            raise CannotStart(MOVED_PROBLEM)
    try:
        yield
    except BaseException as error:
        # With an unknown outcome, the target may have the list: two could be written then.
        if getattr(error, "outcome", None) is not Outcome.UNKNOWN:
            with reading():
                origin.thaw(renew=False)
        raise


@contextmanager
def failures_of(subject: str) -> Iterator[None]:
    """Turn each StorekeeperError into a CopyFailed with that subject, unless it is one already."""
    try:
        yield
    except CopyFailed:
        raise
    except StorekeeperError as error:
        raise CopyFailed(subject, error) from None


def sqlite_path(url: str) -> Path:
    """Return the file that a URL names. Raises CannotStart if it names none."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme != "sqlite":
        # An invalid URL may have a password anywhere, so do not show it; a plain word or path has
        # none.
        shown = scheme if separator and scheme.isalnum() else url
        if not url.startswith("sqlite") and set(shown) & set(":@=?"):
            shown = ""
        named = f" {shown!r}" if shown or not url else ""
        raise WrongDatabase(f"unknown kind of database{named}; use {DATABASES}")
    name = unquote(rest[1:], errors="surrogateescape")
    if not rest.startswith("/") or not name or "\0" in name or name == ":memory:":
        raise WrongDatabase(f"{url} names no file; use {DATABASES}")
    # Options such as `?timeout=5`, which other programs take, would name another, new file.
    if "?" in rest:
        raise WrongDatabase(
            f"nothing may follow {url.partition('?')[0]}; in the name of a file, write %3F for a ?"
        )
    try:
        path = Path(name).absolute()
        for each in (str(path), os.path.realpath(path)):  # the current folder is a part of it
            each.encode()
        return path
    except UnicodeEncodeError:
        raise WrongDatabase(
            f"the name of the file {str(path)!r} is not UTF-8; use {DATABASES}"
        ) from None
    except FileNotFoundError:
        raise WrongDatabase(
            f"{url} is in the current folder, which was deleted: go to another one"
        ) from None
