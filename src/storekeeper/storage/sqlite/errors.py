"""The one table of SQLite's errors: what each of them means."""

import errno

import apsw
import msgspec

from storekeeper.domain.errors import (
    CLOSED,
    DISK_FULL,
    FAILED,
    LOCKED,
    MOVED,
    Outcome,
    Unavailable,
)

DAMAGED = "The database is damaged"

READ_ERRORS = (apsw.Error, UnicodeDecodeError)
"""What a read may raise. SQLite does not check that text is UTF-8, so damage may show only when
Python decodes it."""

_CORRUPT = (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError, msgspec.DecodeError)

_LIMITS = {errno.EDQUOT, errno.EFBIG}
"""The error numbers of a write that exceeds a quota, or the limit of a file's size."""


class Failure(Unavailable):
    """The file can no longer be trusted. If it is `damaged`, it does not help to open it again."""

    def __init__(
        self, reason: str, outcome: Outcome = Outcome.NONE, *, damaged: bool = False
    ) -> None:
        self.damaged = damaged
        super().__init__(reason, outcome)


def classify(error: apsw.Error, connection: apsw.Connection) -> apsw.Error:
    """Return FullError for a write that exceeds a quota or a file's size limit; any other error
    as it is.

    SQLite reports these as I/O errors. A failed sync stays an I/O error: data that the system
    had taken may be lost.
    """
    is_write = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE
    if is_write and connection.system_errno in _LIMITS:
        return apsw.FullError("limit exceeded")
    return error


def translate(
    error: Exception, connection: apsw.Connection, outcome: Outcome = Outcome.NONE
) -> Exception:
    """Return the Unavailable for one of READ_ERRORS, perhaps a Failure; any other error as it
    is."""
    if isinstance(error, apsw.Error):
        error = classify(error, connection)
        if unavailable := to_unavailable(error, outcome):
            return unavailable
    if isinstance(error, (apsw.IOError, *_CORRUPT)):
        return to_failure(error, connection, outcome)
    return error


def to_unavailable(error: BaseException, outcome: Outcome) -> Unavailable | None:
    """Return the Unavailable for an error after which SQLite can continue; None if it cannot, or
    for a bug.

    Each of these errors rolled its transaction back. `outcome` is for those after which the log may
    still contain it.
    """
    match error:
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return Unavailable(LOCKED)
        case apsw.SQLError() if "because it is a view" in str(error):
            # Nothing was written: SQLite says so when it compiles the statement.
            return Unavailable(MOVED)
        case apsw.FullError():
            return Unavailable(DISK_FULL)
        case apsw.IOError() if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
            # The disk has no space for the index of the log. By then, the commit is in the log: no
            # running process sees it, but it takes effect if all of them crash before the next
            # commit overwrites it.
            return Unavailable(DISK_FULL, outcome)
        case apsw.NoMemError():
            return Unavailable("There is not enough memory", outcome)
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return Unavailable("The database cannot be written")
        case apsw.CantOpenError():
            return Unavailable("The database cannot be opened")
        case apsw.ConnectionClosedError():
            return Unavailable(CLOSED)
    return None


def to_failure(
    error: BaseException, connection: apsw.Connection, outcome: Outcome = Outcome.NONE
) -> Failure:
    """Return the Failure for a fatal error."""
    if isinstance(error, Failure):
        return error
    damaged = isinstance(error, _CORRUPT)
    if damaged:
        # SQLite also calls a page corrupt if the disk cannot read it. If this read fails too, the
        # disk failed.
        try:
            connection.read("main", 0, 0, 100)
        except apsw.Error:
            damaged = False
    problem = DAMAGED if damaged else FAILED
    return Failure(f"{problem}: {error}", outcome, damaged=damaged)
