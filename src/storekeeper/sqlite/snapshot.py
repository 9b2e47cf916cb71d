"""The SQLite collection as a snapshot, for `storekeeper.transfer`. Imports apsw and the domain."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import apsw

from storekeeper import atomicfile
from storekeeper.collection import Listing, Query
from storekeeper.errors import CannotStart, Outcome, Unavailable
from storekeeper.sqlite import errors, schema
from storekeeper.sqlite.reads import Reader
from storekeeper.transfer import TABLES, NotTheSame, Row, Snapshot


class SqliteSnapshot:
    """See Snapshot; in a transaction of `connection`. `check` raises Unavailable if that was not one moment."""

    def __init__(self, path: Path, connection: apsw.Connection, check: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self._connection = connection
        self._check = check

    def count(self) -> tuple[int, int]:
        """See Snapshot."""
        stores, changes = (self._connection.execute(f"SELECT count(*) FROM {table}").get for table in TABLES)
        return stores, changes

    def rows(self, table: str) -> Iterator[Row]:
        """See Snapshot."""
        columns = TABLES[table]
        try:
            yield from self._connection.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {columns[0]}")
            self._check()
        except apsw.Error as error:  # translate here, or the handler of the target would blame the target
            self._check()
            raise Unavailable(f"{self.path}: {error}") from None

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        """See Snapshot."""
        columns = TABLES[table]
        places = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)

    def finish(self) -> None:
        """See Snapshot."""


class Filled(SqliteSnapshot):
    """A file that nobody else has open, and that has no log. `stack` closes its readers at the end."""

    def __init__(self, path: Path, connection: apsw.Connection, stack: ExitStack) -> None:
        super().__init__(path, connection)
        self._writing = connection
        self._stack = stack

    def finish(self) -> None:
        """Commit; from now on rows come from the file on the disk, not from a cache of this process."""
        self._writing.execute("COMMIT")
        # Were one of these closed earlier, the file's locks would be gone.
        file = self._stack.enter_context(self.path.open("rb"))
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._connection = self._stack.enter_context(closing(schema.connect_to_file(self.path)))
        if (found := self._connection.pragma("integrity_check")) != "ok":
            raise NotTheSame(f"what was written is damaged ({found}): check the disk; nothing was kept of it")

    def undo(self) -> None:
        """Empty it again."""
        if self._writing.in_transaction:
            self._writing.execute("ROLLBACK")
        elif self._connection is not self._writing:
            self._writing.execute("BEGIN; DELETE FROM changes; DELETE FROM stores; COMMIT")


@contextmanager
def snapshot(path: Path, *, fill: bool) -> Iterator[Snapshot]:
    """Open the collection of a file; with `fill`, an empty one or a new file. Raises CannotStart, Unavailable."""
    path = Path(os.path.realpath(path))
    if not fill:
        with _source(path) as (connection, check):
            connection.execute("BEGIN")
            yield SqliteSnapshot(path, connection, check)
        return
    try:
        if path.exists() or not path.parent.exists():
            schema.prepare(path)
            with _filling(path, path) as filled:
                yield filled
            return
        schema.refuse_orphaned_log(path)
        with schema.unfinished(path) as new:
            with _filling(new, path) as filled:
                yield filled
            atomicfile.give_name(new, path)
        atomicfile.sync_folder(path.parent)
    except OSError as error:
        raise CannotStart(f"{path} cannot be written: {error.strerror}") from None


@contextmanager
def listed(path: Path) -> Iterator[Listing]:
    """Open a file to read all stores, at its end or not. Raises CannotStart, Unavailable."""
    with _source(path) as (connection, check):
        yield Reader(connection).list(Query())
        check()


@contextmanager
def _source(path: Path) -> Iterator[tuple[apsw.Connection, Callable[[], None]]]:
    # Where there is no log and none can be made, nothing is locked: should a service start that may write,
    # its log goes into the file while that is read.
    alone, before = not schema.files(path)[1].exists(), _written(path)
    with closing(schema.open_source(path)) as connection:

        def check() -> None:
            if alone and connection.readonly("main") and _written(path) != before:
                raise Unavailable(f"{path} was written meanwhile: try again")

        try:
            yield connection, check
        except apsw.Error as error:
            check()
            raise Unavailable(f"{path}: {error}") from None


def _written(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@contextmanager
def _filling(file: Path, path: Path) -> Iterator[Filled]:
    with ExitStack() as stack:
        with schema.refusing(path):
            connection = stack.enter_context(closing(schema.connect_alone(file)))
        filled = Filled(file, connection, stack)
        try:
            schema.upgrade(connection)
            connection.execute("BEGIN EXCLUSIVE")
            yield filled
        except BaseException as error:
            with suppress(apsw.Error):
                filled.undo()
            if not isinstance(error, apsw.Error):
                raise
            reason = errors.temporary(errors.named(error, connection), Outcome.NONE) or error
            raise Unavailable(f"{path}: {reason}") from None
