"""Connections to a database file: pragmas that every promise rests on, locks, transactions."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from storekeeper.domain.errors import CannotStart
from storekeeper.storage.sqlite import errors

START_TIMEOUT = 10.0
"""Seconds that a start waits for another process that opens or upgrades the same file."""

LOCK_TIMEOUT = 0.2
"""Seconds that a read waits for a lock."""

AUTOCHECKPOINT_PAGES = 4000
"""Pages of the log after which a commit copies them into the file, so that it begins again: four
times the default, as pages of the name index change again and again, and are copied less
often."""


def exclude_others(connection: apsw.Connection) -> None:
    """Make a connection the only one to its file, without a log: what is committed is in the
    file itself.

    Raises apsw.BusyError if another one is open.
    """
    try:
        connection.pragma("locking_mode", "exclusive")
        connection.pragma("journal_mode", "delete")
        connection.execute("BEGIN EXCLUSIVE; COMMIT")
    except apsw.Error as error:
        raise errors.classify(error, connection) from None
    connection.pragma("synchronous", "full")
    connection.pragma("temp_store", "memory")


def open_existing(path: Path) -> apsw.Connection:
    """Open a connection to a file that exists. Only `snapshot` makes files."""
    # Without these flags, SQLite would begin an empty file in the place of one that was deleted,
    # and delete the log next to it.
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)


def connect(path: Path, *, reader: bool = False, timeout: float = LOCK_TIMEOUT) -> apsw.Connection:
    """Open one connection with the pragmas that every promise rests on; it waits `timeout`
    seconds for a lock.

    If the file is replaced meanwhile, open the new one: with the old file, SQLite would read the
    log of the new one.
    """
    while True:
        before = file_at(path)
        try:
            connection = _connect(path, reader=reader, timeout=timeout)
        except apsw.Error:
            if file_at(path) == before:
                raise
        else:
            if file_at(path) == before:
                return connection
            connection.close()


def file_at(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file that has a name, None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _connect(path: Path, *, reader: bool, timeout: float) -> apsw.Connection:
    connection = open_existing(path)
    connection.set_busy_timeout(int(timeout * 1000))
    # WAL: readers never wait for the writer, and several processes may share the file.
    if connection.pragma("journal_mode", "wal") != "wal":
        connection.close()
        raise CannotStart(
            "on a file system without shared memory: use a local disk", subject=str(path)
        )
    # FULL: COMMIT returns after fsync. WAL's usual NORMAL would lose acknowledged writes with the
    # power.
    connection.pragma("synchronous", "full")
    # A statement that writes many rows keeps its rollback data in memory, not in a file that is
    # written for every page.
    connection.pragma("temp_store", "memory")
    # After an import, the WAL file shrinks back to this. Otherwise it would keep its greatest size
    # for ever.
    connection.pragma("journal_size_limit", 64 * 2**20)
    connection.wal_autocheckpoint(AUTOCHECKPOINT_PAGES)
    if reader:
        connection.pragma("query_only", True)
        # Otherwise SQLite, if built with STAT4, plans a statement again for each value that it
        # compares with an index.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


def retry_lock_until(connection: apsw.Connection, deadline: Callable[[], float]) -> None:
    """Make a connection that writes try to get the lock until `deadline()`, on the monotonic
    clock."""

    # SQLite's own handler sleeps up to 100 ms at a time. The commits of other processes take far
    # less: if they are busy, it might never get the lock.
    def wait(_calls: int) -> bool:
        time.sleep(0.0005)
        return time.monotonic() < deadline()

    connection.set_busy_handler(wait)


def open_read_only(path: Path, *, immutable: bool) -> apsw.Connection:
    """Open a connection that writes nothing. If `immutable`, it reads only the file, without its
    log and without locks."""
    # Closing the last connection that may write would checkpoint another program's log. Open a file
    # without a log as immutable, or SQLite would create a log next to it.
    uri = f"file:{quote(str(path))}"
    if immutable:
        uri += "?immutable=1"
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(int(START_TIMEOUT * 1000))
    return connection


@contextmanager
def transaction(
    connection: apsw.Connection, mode: str, before_commit: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Begin a transaction, and commit it; roll it back if there is an exception. `before_commit`
    comes before COMMIT."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        before_commit()
        connection.execute("COMMIT")
    except apsw.Error as error:
        raise errors.classify(error, connection) from None
    finally:
        # After some errors SQLite has rolled it back already; apsw's context manager would hide
        # such an error.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
