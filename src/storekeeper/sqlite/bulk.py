"""Snapshots for `transfer`, each on a connection of its own. Imports apsw, `atomicfile`, the domain."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import apsw

from storekeeper import atomicfile
from storekeeper.collection import COUNTED, Row, Rows, Snapshot, State
from storekeeper.errors import CannotStart, Outcome, Unavailable
from storekeeper.sqlite import connections, errors, schema
from storekeeper.sqlite.migrations import CHANGES_TABLE, NEW_EPOCH
from storekeeper.tables import ROW_ORDER, TABLES
from storekeeper.transfer import VerificationFailed

_TABLE_NAMES = {table: table for table in TABLES} | {"changes": CHANGES_TABLE}

_SET_EPOCH = f"UPDATE collection SET epoch = ifnull(?, {NEW_EPOCH})"
CHECK = "PRAGMA integrity_check(20)"
RENEW_EPOCH = f"UPDATE collection SET epoch = {NEW_EPOCH} RETURNING epoch"


class SqliteSnapshot:
    """A Snapshot in a transaction of `connection`. `before`: the file's `_modified`, if no lock keeps writers out."""

    def __init__(self, path: Path, connection: apsw.Connection, before: tuple[int, int] | None = None) -> None:
        self.path = path
        self._connection = connection
        self._before = before
        self.is_of_service = False
        """Whether errors are raised as they are: its collection translates them, and no client is told the path."""

    def state(self) -> State:
        (row,) = self.select(COUNTED)
        return State(*row)

    def rows(self, table: str) -> Rows:
        return self.select(f"SELECT {', '.join(TABLES[table])} FROM {_TABLE_NAMES[table]} ORDER BY {ROW_ORDER}")

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        columns = TABLES[table]
        values = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {_TABLE_NAMES[table]} ({', '.join(columns)}) VALUES ({values})"
        self._connection.executemany(statement, rows)

    def finish(self, epoch: str | None) -> None:
        """Do nothing: this snapshot was only read."""

    def select(self, statement: str, *values: str | int) -> Rows:
        try:
            yield from self._connection.execute(statement, values)
        except errors.READ_ERRORS as error:
            if self.is_of_service:
                raise
            # Else translate here, or the handler of the target would blame the target
            self._check()
            raise Unavailable(str(error), subject=str(self.path)) from None
        self._check()

    def _check(self) -> None:
        if self._before not in (None, _modified(self.path)):
            raise Unavailable("written meanwhile: try again", subject=str(self.path))


class TargetSnapshot(SqliteSnapshot):
    """A file to fill, without a log, which nobody else has open. `stack` closes what this opens to read it.

    `descriptor` is one of its own, closed after all connections: before, that would drop their locks.
    """

    def __init__(self, path: Path, connection: apsw.Connection, descriptor: int, stack: ExitStack) -> None:
        super().__init__(path, connection)
        self._descriptor = descriptor
        self._writer = connection
        self._stack = stack
        self._committed = False

    def finish(self, epoch: str | None) -> None:
        """Set this epoch, or a new one, and commit; from then on read rows from the disk, not from a cache."""
        self._writer.execute(_SET_EPOCH, (epoch,))
        self._writer.execute("COMMIT")
        self._committed = True
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        self._connection = self._stack.enter_context(closing(connections.open_read_only(self.path, immutable=True)))
        if (found := self._connection.pragma("integrity_check")) != "ok":
            raise VerificationFailed(f"what was written is damaged ({found}): check the disk; nothing was kept of it")

    def undo(self) -> None:
        """Remove all rows again."""
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
        elif self._committed:
            deletes = "; ".join(f"DELETE FROM {_TABLE_NAMES[table]}" for table in TABLES)
            # If it kept the source's epoch, later changes would get versions that mean others there.
            self._writer.execute(f"BEGIN; {deletes}; UPDATE collection SET epoch = {NEW_EPOCH}; COMMIT")


@contextmanager
def snapshot(path: Path) -> Iterator[Snapshot]:
    """Open a collection for reading, even where nothing can be written. Raises CannotStart, Unavailable."""
    path = Path(os.path.realpath(path))
    # Where there is no log and none can be created, nothing is locked: a service that may write could start, and
    # its checkpoints would change the file while this reads it.
    before = None if schema.files(path)[1].exists() else _modified(path)
    with closing(schema.open_source(path)) as connection:
        connection.execute("BEGIN")
        yield SqliteSnapshot(path, connection, before if connection.readonly("main") else None)


@contextmanager
def target(path: Path, *, committing: Callable[[], None] = lambda: None) -> Iterator[Snapshot]:
    """Open the collection of a file without stores, or of a new file, to fill it. Raises CannotStart, Unavailable.

    `committing` is called right before what was filled in lasts.
    """
    path = Path(os.path.realpath(path))
    try:
        if path.exists() or not path.parent.exists():
            schema.prepare(path, upgrade=False)
            with _open_target(path, path) as filled:
                yield filled
                committing()
            return
        schema.refuse_orphaned_log(path)
        with schema.temporary_path(path) as new:
            with _open_target(new, path) as filled:
                yield filled
            committing()
            atomicfile.publish(new, path)
    except OSError as error:
        raise CannotStart(f"cannot be written: {error.strerror}", subject=str(path)) from None


def _modified(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@contextmanager
def _open_target(file: Path, path: Path) -> Iterator[TargetSnapshot]:
    with ExitStack() as stack:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        stack.callback(os.close, descriptor)
        with schema.raising_cannot_start(path):
            connection = stack.enter_context(closing(apsw.Connection(str(file))))
            connections.exclude_others(connection)
        target = TargetSnapshot(file, connection, descriptor, stack)
        try:
            schema.upgrade_schema(connection)
            connection.execute("BEGIN EXCLUSIVE")
            yield target
        except BaseException as error:
            with suppress(apsw.Error):
                target.undo()
            if not isinstance(error, apsw.Error):
                raise
            reason = errors.to_unavailable(errors.classify(error, connection), Outcome.NONE) or error
            raise Unavailable(str(reason), subject=str(path)) from None
