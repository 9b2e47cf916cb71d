"""What SQLite's errors mean: the one table of them. Imports apsw and the domain."""

import errno
from dataclasses import dataclass

import apsw

from storekeeper.errors import Outcome, Unavailable

FAILED = "The database failed"
DAMAGED = "The database is damaged"


@dataclass(frozen=True)
class Failure:
    """Why the file cannot be trusted any more. If a part of it is `damaged`, nothing is won by opening it anew."""

    reason: str
    damaged: bool = False


def named(error: apsw.Error, connection: apsw.Connection) -> apsw.Error:
    """Return the error that a connection raised, under its right name: to SQLite, a quota is an error of the disk.

    One that fails a sync is one to us too: what the system has taken may be lost.
    """
    quota = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE and connection.system_errno == errno.EDQUOT
    return apsw.FullError("quota exceeded") if quota else error


def temporary(error: apsw.Error, outcome: Outcome) -> Unavailable | None:
    """Return the error to respond with if SQLite can go on after this one; None if it cannot, or if it is a bug.

    Each error has undone its transaction. `outcome` is what to say where only a log may still have it.
    """
    match error:
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return Unavailable("The database is locked")
        case apsw.FullError():
            return Unavailable("The disk is full")
        case apsw.IOError() if _no_space_for_the_index(error):
            # The disk is full too, but for the index of the log. A commit is in the log by then: it is undone
            # for all who are there, and done should all of them crash before the next commit overwrites it.
            return Unavailable("The disk is full", outcome)
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return Unavailable("The database cannot be written")
        case apsw.CantOpenError():
            return Unavailable("The database cannot be opened")
        case apsw.ConnectionClosedError():
            return Unavailable("The service is shutting down")
    return None


def lost(error: BaseException) -> bool:
    """Tell whether the file cannot be trusted any more."""
    if isinstance(error, apsw.IOError):
        return not _no_space_for_the_index(error)
    return isinstance(error, _CORRUPT)


def failure(error: BaseException, connection: apsw.Connection) -> Failure:
    """Tell what an error means after which the file cannot be trusted any more."""
    damaged = isinstance(error, _CORRUPT)
    if damaged:
        try:  # SQLite calls a page corrupt too that the disk cannot read, and perhaps it can read nothing any more
            connection.read("main", 0, 0, 100)
        except apsw.Error:
            damaged = False
    return Failure(f"{DAMAGED if damaged else FAILED}: {error}", damaged)


_CORRUPT = (apsw.CorruptError, apsw.NotADBError)


def _no_space_for_the_index(error: apsw.IOError) -> bool:
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
