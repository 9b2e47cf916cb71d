"""What SQLite's errors mean: the one table of them. Imports apsw and the domain."""

import apsw

from storekeeper.errors import Outcome, Unavailable


def temporary(error: apsw.Error, outcome: Outcome) -> Unavailable | None:
    """Give what to answer if SQLite can go on after this error; None if it cannot, or if it is a bug.

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
    match error:
        case apsw.IOError():
            return not _no_space_for_the_index(error)
        case apsw.CorruptError() | apsw.NotADBError():
            return True
    return False


def _no_space_for_the_index(error: apsw.IOError) -> bool:
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
