"""The database file: its tables, its upgrades, and what is refused."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw

from storekeeper.domain.errors import (
    DISK_FULL,
    MOVED_BEFORE_PROBLEM,
    MOVED_PROBLEM,
    CannotStart,
    CannotStartYet,
    Damaged,
    Missing,
    Outcome,
)
from storekeeper.storage.sql import (
    SCHEMA_NUMBER,
    TABLES,
    TABLES_OF_9,
    check_folding,
    check_schema_number,
)
from storekeeper.storage.sqlite import errors, folding, place
from storekeeper.storage.sqlite.connections import (
    START_TIMEOUT,
    connect,
    file_at,
    open_read_only,
    transaction,
)
from storekeeper.storage.sqlite.migrations import CHANGES_TABLE, MIGRATIONS, MOVED_TABLE, SCHEMA

APPLICATION_ID = 0x53544F52
"""`STOR` in the file's header, the mark of a database of this program."""

_COMPLETE = {*TABLES, CHANGES_TABLE, "collection", "probe"}
_COMPLETE_BEFORE = {*TABLES_OF_9, "collection", "probe"}
"""The tables and views that must exist, and those of all earlier schemas."""

_EMPTY = (
    "empty, so not a database: restore it from a backup (storekeeper restore), or delete it and"
    " begin a new list (storekeeper create)"
)
_FULL = {DISK_FULL, os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT)}


def current_number() -> int:
    """Return the number of the schema that this program reads and writes."""
    return SCHEMA_NUMBER + len(MIGRATIONS)


def exists(path: Path) -> bool:
    """Return whether there is a file at `path`. Raises CannotStart if this user cannot know."""
    with raising_cannot_start(path, "reading"):
        return _size(path) is not None


def prepare(path: Path, *, upgrade: bool = True, moved: bool = False) -> None:
    """Upgrade the database at `path` to the current version; refuse one whose list was moved,
    unless `moved`.

    Raises CannotStart, and leaves the file untouched, if it is something else, newer, or cannot
    be written; if it is older and not `upgrade`; or if there is none.
    """
    # The log is next to the file itself, not next to a link to it.
    path = Path(os.path.realpath(path))
    with raising_cannot_start(path):
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            before = file_at(path)
            try:
                refuse_orphaned_log(path)
                return _check_and_upgrade(path, upgrade=upgrade, moved=moved)
            except (apsw.Error, CannotStart) as error:
                # In some steps of opening a file, SQLite does not wait for locks: some of several
                # first starts would fail. And a restore may have put another file here meanwhile.
                passes = isinstance(error, apsw.BusyError) or file_at(path) != before
                if not passes or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def _check_and_upgrade(path: Path, *, upgrade: bool, moved: bool) -> None:
    if is_missing(path):
        raise Missing(str(path))
    if not os.access(path, os.W_OK):
        # SQLite would open it to read, and fail at the first write.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    has_log = Path(f"{path}-wal").exists()
    read_only = open_read_only(path, immutable=not has_log)
    _refuse_foreign(path, read_only, upgrade=upgrade, moved=moved)
    with closing(connect(path)) as connection:
        upgrade_schema(connection)
        if upgrade:
            # SQLite cannot write if another user owns the log. If it does not wait for a lock, it
            # says so at once.
            connection.set_busy_timeout(0)
            with suppress(apsw.BusyError):
                connection.execute("BEGIN IMMEDIATE; ROLLBACK")


@contextmanager
def raising_cannot_start(
    path: Path, purpose: str = "writing", *, makes: bool = False
) -> Iterator[None]:
    """Turn errors of SQLite and of the system into CannotStart, with one line for the operator.

    It is Missing if there is no file, unless the caller `makes` it.
    """
    try:
        yield
    except apsw.NotADBError:
        raise CannotStart("not a database: name another file", subject=str(path)) from None
    except (apsw.CorruptError, UnicodeDecodeError, apsw.SQLError) as error:
        # SQLError: a column has another name.
        raise Damaged(f"damaged ({error}): restore it from a backup", subject=str(path)) from None
    except apsw.BusyError:
        raise CannotStartYet(
            "locked by another program: stop that one first", subject=str(path)
        ) from None
    except apsw.NoMemError as error:
        raise MemoryError(str(error)) from None  # the next attempt may get enough
    except (apsw.Error, OSError) as error:
        if not makes and is_missing(path):  # it may have been deleted since the last look
            raise Missing(str(path)) from None
        raise _not_opened(path, purpose, error) from None


def _not_opened(path: Path, purpose: str, error: apsw.Error | OSError) -> Exception:
    """Return what to raise if the system or SQLite cannot open a file."""
    if isinstance(error, OSError):
        reason: object = error.strerror
    else:
        reason = errors.to_unavailable(error, Outcome.NONE)
    if reason is None and isinstance(error, apsw.IOError):
        return CannotStart(
            f"cannot be read or written ({error}): check the disk, which must be a local one,"
            " because a network or shared folder may lack locks or shared memory",
            subject=str(path),
        )
    if reason is None:
        return error
    problem = (
        f"cannot be opened for {purpose} ({reason}): check that its folder exists and has space,"
        " and that the user who runs this can write to both, or name another file"
    )
    if str(reason) in _FULL:
        return CannotStartYet(problem, subject=str(path))
    return CannotStart(problem, subject=str(path))


def open_source(path: Path) -> apsw.Connection:
    """Open a database of this program for reading, even if nothing can be written there. Raises
    CannotStart."""
    path = Path(os.path.realpath(path))
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        prepare(path, upgrade=False, moved=True)
        with raising_cannot_start(path):
            return connect(path, reader=True, timeout=START_TIMEOUT)
    with raising_cannot_start(path, "reading"):
        refuse_orphaned_log(path)
        if is_missing(path):
            raise Missing(str(path))
        _refuse_foreign(path, open_unwritable(path), upgrade=False, moved=True)
        return open_unwritable(path)


def files(path: Path) -> tuple[Path, ...]:
    """Return the paths of all files of a database, whether they exist or not."""
    return tuple(Path(os.path.realpath(path) + end) for end in ("", "-wal", "-shm", "-journal"))


def refuse_orphaned_log(path: Path) -> None:
    """Raise CannotStart if `path` has a log but no database, is an empty file or the mark of a
    restore, or is not a regular file."""
    # SQLite takes an empty or missing file for a new database, and deletes the log next to it: ids
    # would start at 1 again, and the acknowledged writes in that log would be gone.
    if path.exists() and not path.is_file():
        raise CannotStart("not a file: name another one", subject=str(path))
    place.refuse_mark(path)
    # In this order, and each once: another first start may be creating them, the log last.
    _, log, _, journal = files(path)
    journal_size, log_size, size = map(_size, (journal, log, path))
    if size:
        return
    if log_size or journal_size:
        orphan = log if log_size else journal
        raise CannotStart(
            f"gone, but its log {orphan.name} is there: restore the file from a backup",
            subject=str(path),
        )
    if size == 0:
        raise CannotStart(_EMPTY, subject=str(path))


def open_unwritable(path: Path) -> apsw.Connection:
    """Open a file to read it, where perhaps nothing can be written. Raises CannotStart."""
    # Where nothing can be written, SQLite reads a log only if its index exists too, and rolls no
    # journal back.
    _, wal, _, journal = files(path)
    logs = [log for log in (wal, journal) if _size(log)]
    if logs or wal.exists():
        connection = open_read_only(path, immutable=False)
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            return connection
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            connection.close()
    if logs:
        raise CannotStart(
            f"not whole without {logs[0].name}: copy both to a folder that can be written",
            subject=str(path),
        )
    return open_read_only(path, immutable=True)


def _refuse_foreign(path: Path, connection: apsw.Connection, *, upgrade: bool, moved: bool) -> None:
    """Raise CannotStart if a file is not a whole database that can be used."""
    has_no_log = not Path(f"{path}-wal").exists()
    with closing(connection), transaction(connection, "DEFERRED"):
        owner = connection.pragma("application_id")
        tables = set(connection.execute("SELECT name FROM sqlite_schema").fetchall())
        version: int = connection.pragma("user_version")
        pages = connection.pragma("page_count")
        page_size = connection.pragma("page_size")
        is_ours = owner == APPLICATION_ID and ("collection",) in tables
        is_current = is_ours and version == current_number()
        folded_by = connection.execute(folding.NUMBER).get if is_current else None
    if owner != APPLICATION_ID and (tables or owner or version):
        raise CannotStart("another program's database: name another file", subject=str(path))
    if not version:
        raise CannotStart(_EMPTY, subject=str(path))
    is_moved = (MOVED_TABLE,) in tables
    if is_moved and version < current_number():
        raise CannotStart(MOVED_BEFORE_PROBLEM, subject=str(path))
    check_schema_number(version, current_number(), str(path), upgrade=upgrade)
    if is_moved and not moved:
        raise CannotStart(MOVED_PROBLEM, subject=str(path))
    if folded_by is not None:
        check_folding(folded_by, str(path), upgrade=upgrade)
    complete = _COMPLETE if version == current_number() else _COMPLETE_BEFORE
    if not tables.issuperset((name,) for name in complete):
        raise Damaged("damaged (a table is missing): restore it from a backup", subject=str(path))
    if has_no_log and path.stat().st_size < pages * page_size:
        raise Damaged("damaged (its end is missing): restore it from a backup", subject=str(path))


def is_missing(path: Path) -> bool:
    """Return whether there is certainly no file at `path`."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # this user cannot know, or the disk does not say
        return False
    return False


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def create_tables(connection: apsw.Connection) -> None:
    """Create the tables in a new file."""
    connection.pragma("legacy_alter_table", True)
    with transaction(connection, "IMMEDIATE"):
        connection.execute(SCHEMA)
        _apply_migrations(connection, SCHEMA_NUMBER)
        folding.set_number(connection)


def upgrade_schema(connection: apsw.Connection) -> None:
    """Apply the migrations that a database has not had yet. Raises CannotStart if it has no
    tables."""
    # Checked without the lock, which an import may hold for long.
    if connection.pragma("user_version") == current_number() and folding.is_folded(connection):
        return
    # Otherwise SQLite would not rename a table that has a view of another user.
    connection.pragma("legacy_alter_table", True)
    with transaction(connection, "IMMEDIATE"):
        number = connection.pragma("user_version")
        if not number:  # not the file that was checked before
            raise CannotStart(_EMPTY, subject=str(connection.filename))
        _apply_migrations(connection, number)
    folding.fold_again(connection)


def _apply_migrations(connection: apsw.Connection, number: int) -> None:
    for migration in MIGRATIONS[number - SCHEMA_NUMBER :]:
        try:
            connection.execute(migration)
        except apsw.SQLError as error:
            raise CannotStart(
                f"cannot be upgraded ({error}): it has a table, view or trigger that is not"
                " ours; drop that first",
                subject=str(connection.filename),
            ) from None
    connection.pragma("user_version", current_number())
    connection.pragma("application_id", APPLICATION_ID)
