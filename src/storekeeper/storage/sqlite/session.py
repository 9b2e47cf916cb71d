"""The session of every command that writes, and of an import."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from storekeeper.domain.errors import Missing, Outcome, Unavailable
from storekeeper.storage import sessions
from storekeeper.storage.sqlite import connections, errors, schema, statements
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.sqlite.migrations import CHANGES_TABLE
from storekeeper.storage.sqlite.snapshot import new_file


@contextmanager
def open_session(
    path: Path, identity: FileIdentity | None = None, *, lock_timeout: float = sessions.LOCK_TIMEOUT
) -> Iterator["SqliteSession"]:
    """Open a session on a prepared file. Raises Unavailable.

    `identity` is that of the file as this process has it open, if it has.
    """
    connect = identity.connect if identity else partial(connections.connect, path)
    try:
        connection = connect(timeout=lock_timeout)
    except apsw.Error as error:
        if identity is None and schema.is_missing(path):
            raise Missing(str(path)) from None
        raise errors.to_unavailable(error, Outcome.NONE) or error from None
    try:
        identity = identity or FileIdentity(path)
        connection.pragma("cache_size", -64 * 1024)
        # The staged rows may need more space than there is memory.
        connection.pragma("temp_store", "file")
        yield SqliteSession(connection, identity, lock_timeout)
        identity.check()
    except apsw.Error as error:
        raise errors.translate(error, connection, Outcome.UNKNOWN) from None
    finally:
        connection.close()


@contextmanager
def open_command_session(
    path: Path, *, lock_timeout: float = sessions.LOCK_TIMEOUT, moved: bool = False
) -> Iterator["SqliteSession"]:
    """Open a session for a command, on a file that exists, and whose list was not moved, unless
    `moved`. Raises CannotStart, Unavailable."""
    schema.prepare(path, upgrade=False, moved=moved)
    with schema.raising_cannot_start(path), open_session(path, lock_timeout=lock_timeout) as opened:
        yield opened


@contextmanager
def open_new_session(path: Path) -> Iterator["SqliteSession"]:
    """Make a database and open a session on it; the file gets its name at the end, unless there
    is an exception. Raises Taken if there is a file, CannotStart, Unavailable."""
    with schema.raising_cannot_start(path, makes=True), new_file(path) as new:
        schema.prepare(new)
        with open_session(new) as opened:
            yield opened


class SqliteSession:
    """A `sessions.Session` on a connection of its own."""

    changes_table = CHANGES_TABLE
    collection_table = "collection"
    set_numbers = ""

    def __init__(
        self, connection: apsw.Connection, identity: FileIdentity, lock_timeout: float
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._lock_timeout = lock_timeout

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> apsw.Cursor:
        # To SQLite, $1 is a name, with the number of its place; ?1 is a number.
        return self._connection.execute(statement.replace("$", "?"), values)

    def write(self, statement: str, values: tuple[Any, ...] = ()) -> int:
        self.execute(statement, values)
        return self._connection.changes()

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        values = ", ".join("?" * len(columns))
        try:
            with self._one_transaction():
                self._connection.executemany(f"INSERT INTO temp.{table} VALUES ({values})", rows)
        except apsw.FullError:
            raise Unavailable(
                "The disk with the folder of temporary files is full (TMPDIR names another)"
            ) from None

    def _one_transaction(self) -> AbstractContextManager[None]:
        """Begin a transaction, unless this is one already."""
        if self._connection.in_transaction:
            return nullcontext()
        return connections.transaction(self._connection, "DEFERRED")

    @contextmanager
    def writing(self, before_commit: Callable[[], None]) -> Iterator[None]:
        deadline = time.monotonic() + self._lock_timeout
        connections.retry_lock_until(self._connection, lambda: deadline)
        with connections.transaction(self._connection, "IMMEDIATE", before_commit):
            self._identity.check()
            self.execute(statements.TOUCH_CHANGES)
            yield
