"""What commands do: bulk creates, and snapshots for `transfer`. Imports apsw, `atomicfile`, the domain.

Each has a connection of its own.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import apsw
from msgspec.structs import astuple

from storekeeper import atomicfile
from storekeeper.collection import State
from storekeeper.errors import CannotStart, Outcome, Unavailable
from storekeeper.search import folded
from storekeeper.sqlite import connections, errors, schema
from storekeeper.sqlite.file_identity import FileIdentity
from storekeeper.sqlite.migrations import CHANGES_TABLE, NEW_EPOCH
from storekeeper.sqlite.statements import STATE
from storekeeper.stores import Payload
from storekeeper.tables import CHANGES, CONTENT, FIELDS, ROW_ORDER, STORES, TABLES
from storekeeper.transfer import COUNTED, Row, Rows, Snapshot, VerificationFailed

LOCK_TIMEOUT = 60.0
"""Seconds that a bulk load waits for other writers."""

_ADD_STORES = f"""INSERT INTO stores ({", ".join(STORES)}, folded)
  SELECT rowid + ?, {FIELDS}, rowid + ?, folded FROM temp.staged ORDER BY rowid"""
_ADD_CHANGES = f"""INSERT INTO {CHANGES_TABLE} ({", ".join(CHANGES)})
  SELECT rowid + ?2, rowid + ?1, {FIELDS}, ?3, rowid + ?1, ?4 FROM temp.staged ORDER BY rowid"""
_IS_EMPTY = "SELECT NOT EXISTS (SELECT 1 FROM stores)"
_INDEXES = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"

_TABLE_NAMES = {table: table for table in TABLES} | {"changes": CHANGES_TABLE}

_SET_EPOCH = f"UPDATE collection SET epoch = ifnull(?, {NEW_EPOCH})"
CHECK = "PRAGMA integrity_check(20)"
RENEW_EPOCH = f"UPDATE collection SET epoch = {NEW_EPOCH} RETURNING epoch"


def load_all(
    path: Path,
    payloads: Iterable[Payload],
    *,
    only_if_empty: bool = False,
    token_number: int = 0,
    identity: FileIdentity | None = None,
    committing: Callable[[], None] = lambda: None,
) -> range:
    """Create all of `payloads` in a prepared file, or none if reading them raises; return their ids.

    `identity` is that of the file as this process has it open, if it has. `committing` is called before the COMMIT.
    Raises Unavailable.
    """
    try:
        connection = connections.connect(path, timeout=LOCK_TIMEOUT)
    except apsw.Error as error:
        raise errors.to_unavailable(error, Outcome.NONE) or error from None
    try:
        identity = identity or FileIdentity(path)
        identity.check()
        if only_if_empty and not connection.execute(_IS_EMPTY).get:
            return range(0)
        connection.pragma("cache_size", -64 * 1024)
        # The staged rows may need more space than there is memory.
        connection.pragma("temp_store", "file")
        _stage(connection, payloads)
        deadline = time.monotonic() + LOCK_TIMEOUT
        connections.retry_lock_until(connection, lambda: deadline)
        with connections.transaction(connection, "IMMEDIATE", committing):
            identity.check()
            ids = _move(connection, token_number, only_if_empty=only_if_empty)
        identity.check()
        return ids
    except apsw.Error as error:
        raise errors.translate(error, connection, Outcome.UNKNOWN) from None
    finally:
        connection.close()


def _stage(connection: apsw.Connection, payloads: Iterable[Payload]) -> None:
    # Reading the source may be slow, or fail; until it is read, no other writer waits.
    connection.execute(f"CREATE TEMP TABLE staged ({FIELDS}, folded)")
    rows = ((*astuple(payload), folded(payload.name, payload.address)) for payload in payloads)
    try:
        with connections.transaction(connection, "DEFERRED"):
            connection.executemany(f"INSERT INTO temp.staged VALUES ({', '.join('?' * len(CONTENT))}, ?)", rows)
    except apsw.FullError:
        raise Unavailable("The disk with the folder of temporary files is full (TMPDIR names another)") from None


def _move(connection: apsw.Connection, token_number: int, *, only_if_empty: bool) -> range:
    count, version, _, at = connection.execute(STATE).get
    staged = connection.execute("SELECT count(*) FROM temp.staged").get
    if count and only_if_empty:
        return range(0)
    # Building an index anew is faster than adding more entries to it than it has.
    indexes = list(connection.execute(_INDEXES)) if staged > count else []
    for name, _ in indexes:
        connection.execute(f'DROP INDEX "{name}"')
    connection.execute(_ADD_STORES, (count, version))
    connection.execute(_ADD_CHANGES, (count, version, max(at, time.time_ns() // 1_000_000), token_number))
    for _, sql in indexes:
        connection.execute(str(sql))
    return range(count + 1, count + int(staged) + 1)


class SqliteSnapshot:
    """A Snapshot in a transaction of `connection`. `before`: the file's `_modified`, if no lock keeps writers out."""

    def __init__(self, path: Path, connection: apsw.Connection, before: tuple[int, int] | None = None) -> None:
        self.path = path
        self._connection = connection
        self._before = before

    def state(self) -> State:
        (row,) = self._select(COUNTED)
        return State(*row)

    def rows(self, table: str) -> Rows:
        return self._select(f"SELECT {', '.join(TABLES[table])} FROM {_TABLE_NAMES[table]} ORDER BY {ROW_ORDER}")

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        columns = TABLES[table]
        values = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {_TABLE_NAMES[table]} ({', '.join(columns)}) VALUES ({values})"
        self._connection.executemany(statement, rows)

    def finish(self, epoch: str | None) -> None:
        """Do nothing: this snapshot was only read."""

    def _select(self, statement: str) -> Rows:
        try:
            yield from self._connection.execute(statement)
        except errors.READ_ERRORS as error:  # translate here, or the handler of the target would blame the target
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
