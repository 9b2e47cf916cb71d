"""Snapshots to read or fill, each on its own connection."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw

from storekeeper.concurrency.interruption import Interruption
from storekeeper.domain.errors import CannotStart, Outcome, Taken, Unavailable
from storekeeper.domain.queries import State
from storekeeper.storage import atomicfile
from storekeeper.storage.collection import COUNTED, CopyTarget, Row, Rows, Snapshot
from storekeeper.storage.copying import VerificationFailed
from storekeeper.storage.sql import ROW_ORDER, SCHEMA_NUMBER, TABLES
from storekeeper.storage.sqlite import connections, errors, schema
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.sqlite.migrations import CHANGES_TABLE, NEW_EPOCH

_TABLE_NAMES = {table: table for table in TABLES} | {"changes": CHANGES_TABLE}

_SET_EPOCH = f"UPDATE collection SET epoch = ifnull(?, {NEW_EPOCH})"
CHECK = "PRAGMA integrity_check(20)"
_TAKEN = "there is a file of that name: name a new one"
RENEW_EPOCH = f"UPDATE collection SET epoch = {NEW_EPOCH} RETURNING epoch"


class SqliteSnapshot:
    """A Snapshot in a transaction of `connection`. Raises apsw's errors."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def state(self) -> State:
        (row,) = self.select(COUNTED)
        return State(*row)

    def rows(self, table: str) -> Rows:
        return self.select(
            f"SELECT {', '.join(TABLES[table])} FROM {_TABLE_NAMES[table]} ORDER BY {ROW_ORDER}"
        )

    def select(self, statement: str, *values: str | int) -> Rows:
        yield from self._connection.execute(statement, values)


class SourceSnapshot(SqliteSnapshot):
    """What a command reads from a file. `before` is the file's `_modified` if no lock keeps writers
    out."""

    def __init__(
        self, connection: apsw.Connection, path: Path, before: tuple[int, int] | None
    ) -> None:
        super().__init__(connection)
        self._path = path
        self._before = before

    def select(self, statement: str, *values: str | int) -> Rows:
        try:
            with schema.raising_cannot_start(self._path, "reading"):
                yield from super().select(statement, *values)
        except CannotStart:
            self._check()
            raise
        self._check()

    def _check(self) -> None:
        if self._before not in (None, _modified(self._path)):
            raise Unavailable("written meanwhile: try again", subject=str(self._path))


class SqliteTarget(SqliteSnapshot):
    """A new file to fill, without a log, which no other process has open. `stack` closes the
    connection that reads it.

    `descriptor` belongs to this object. It is closed after all connections: earlier, that would
    drop their locks.
    """

    def __init__(
        self, path: Path, connection: apsw.Connection, descriptor: int, stack: ExitStack
    ) -> None:
        super().__init__(connection)
        self.path = path
        self._descriptor = descriptor
        self._stack = stack

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        columns = TABLES[table]
        values = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {_TABLE_NAMES[table]} ({', '.join(columns)}) VALUES ({values})"
        self._connection.executemany(statement, rows)

    def finish(self, epoch: str | None) -> None:
        """Set this epoch, or a new one, and commit; from then on, read rows from disk, not from a
        cache."""
        self._connection.execute(_SET_EPOCH, (epoch,))
        self._connection.execute("COMMIT")
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        written = connections.open_read_only(self.path, immutable=True)
        self._connection = self._stack.enter_context(closing(written))
        found = written.pragma("integrity_check")
        if found != "ok":
            raise VerificationFailed(
                f"what was written is damaged ({found}): check the disk; none of it was kept"
            )


@contextmanager
def live_snapshot(identity: FileIdentity, interruption: Interruption) -> Iterator[Snapshot]:
    """Open the collection of this process for reading. Raises apsw's errors, and Failure."""
    with (
        closing(identity.connect(reader=True)) as connection,
        interruption.by(connection.interrupt),
        connections.transaction(connection, "DEFERRED"),
    ):
        yield SqliteSnapshot(connection)


@contextmanager
def snapshot(path: Path) -> Iterator[Snapshot]:
    """Open a collection for reading, even if nothing can be written there. Raises CannotStart,
    Unavailable."""
    path = Path(os.path.realpath(path))
    had_log = schema.files(path)[1].exists()
    before = _modified(path)
    with closing(schema.open_source(path)) as connection:
        connection.execute("BEGIN")
        # If there is no log and none can be created, nothing is locked: a service that can write
        # could start, and its checkpoints would change the file while this reads it.
        if had_log or not connection.readonly("main"):
            before = None
        yield SourceSnapshot(connection, path, before)


@contextmanager
def target(path: Path, *, before_commit: Callable[[], None] = lambda: None) -> Iterator[CopyTarget]:
    """Make a new file to fill, which gets its name when it is whole. Raises CannotStart,
    Unavailable.

    `before_commit` is called right before that.
    """
    try:
        with _new_file(path, before_commit) as filled:
            yield filled
    except apsw.Error as error:
        reason = errors.to_unavailable(error, Outcome.NONE) or error
        raise Unavailable(str(reason), subject=str(path)) from None
    except OSError as error:
        raise CannotStart(f"cannot be written: {error.strerror}", subject=str(path)) from None


@contextmanager
def upgraded(path: Path) -> Iterator[Path]:
    """Yield the path of a database, or, if that is of an older schema, of a copy that is upgraded.
    Raises CannotStart."""
    path = Path(os.path.realpath(path))
    if not _is_older(path):
        yield path
        return
    with TemporaryDirectory(prefix="storekeeper-") as folder:
        new = Path(folder, path.name)
        with schema.raising_cannot_start(path, "reading"):
            _copy_pages(path, new)
        schema.prepare(new)
        yield new


def _is_older(path: Path) -> bool:
    try:
        schema.refuse_orphaned_log(path)
        with closing(schema.open_unwritable(path)) as connection:
            number: int = connection.pragma("user_version")
    except (apsw.Error, CannotStart):  # the next read of it says why
        return False
    return SCHEMA_NUMBER <= number < schema.current_number()


def _copy_pages(path: Path, new: Path) -> None:
    with (
        closing(schema.open_unwritable(path)) as source,
        closing(apsw.Connection(str(new))) as copy,
        copy.backup("main", source, "main") as pages,
    ):
        pages.step()


def create(path: Path, fill: Callable[[CopyTarget], None]) -> None:
    """Make a database, and let `fill` fill it. Raises CannotStart, Taken if there is a file."""
    with schema.raising_cannot_start(path, makes=True), _new_file(path) as filled:
        fill(filled)
        filled.finish(None)


def _modified(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@contextmanager
def _new_file(
    path: Path, before_commit: Callable[[], None] = lambda: None
) -> Iterator[SqliteTarget]:
    """Make a database file, which gets its name when it is whole. Raises as `_publishing`."""
    with _publishing(path) as new:
        with _open_target(new) as filled:
            yield filled
        before_commit()


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Make an empty database for others to open, which gets its name at the end. Raises as
    `_publishing`."""
    with _publishing(path) as new:
        with _open_target(new) as filled:
            filled.finish(None)
        yield new
        if any(part.exists() for part in schema.files(new)[1:]):
            raise Unavailable("its log cannot be folded in", subject=str(path))


@contextmanager
def _publishing(path: Path) -> Iterator[Path]:
    """Yield a path for a database file, which gets its name at the end: only this function gives a
    file its name.

    Raises Taken if there is a file of that name, CannotStart, and errors of SQLite and of the
    system.
    """
    path = Path(os.path.realpath(path))
    if path.exists():
        raise Taken(_TAKEN, subject=str(path))
    schema.refuse_orphaned_log(path)
    with atomicfile.unfinished(path) as new:
        yield new
        try:
            atomicfile.publish(new, path)
        except FileExistsError:  # another process was first
            raise Taken(_TAKEN, subject=str(path)) from None


@contextmanager
def _open_target(new: Path) -> Iterator[SqliteTarget]:
    with ExitStack() as stack:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        stack.callback(os.close, descriptor)
        connection = stack.enter_context(closing(connections.open_existing(new)))
        try:
            connections.exclude_others(connection)
            schema.create_tables(connection)
            connection.execute("BEGIN EXCLUSIVE")
            yield SqliteTarget(new, connection, descriptor, stack)
        except apsw.Error as error:
            raise errors.classify(error, connection) from None
