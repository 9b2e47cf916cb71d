"""One read transaction that the reads of many requests share. Imports apsw.

Half of a short read are the locks of its transaction (2.5 µs of 5). So a transaction stays open from read to read,
as long as nobody commits. It never hides a commit: each read compares the change token first, and the token was taken
before the transaction began. And it does not keep the log from being reused: while the log is long enough to begin
anew, and when nothing was read for a while, no transaction stays open.
"""

import sys

import apsw

from storekeeper.sqlite.change_token import ChangeToken

MAX_LOG_PAGES = 4000
"""Pages of the log up to which a transaction stays open: a checkpoint begins there (`schema.connect`)."""

_OPEN = "SELECT 1 FROM sqlite_schema"
"""Has several rows; only the first is read, so that its transaction stays open."""


class ReadTransaction:
    """The shared transaction of a connection; `token` returns the change token, None if nobody knows it."""

    __slots__ = ("_cursor", "_execute", "_token", "current")

    def __init__(self, connection: apsw.Connection, token: ChangeToken) -> None:
        self._cursor = connection.cursor()
        self._execute = connection.execute
        self._token = token
        self.current: bytes | None = None
        """The change token of the open transaction; None if none is open."""

    def renew(self) -> None:
        """End the transaction and, if the log is short, begin another that sees all that was committed."""
        self.end()
        token = self._token()
        if token is not None and _log_pages(token) < MAX_LOG_PAGES:
            self._cursor = self._execute(_OPEN)
            self.current = token

    def end(self) -> None:
        """End the transaction, if one is open."""
        self._cursor.close()
        self.current = None


def _log_pages(token: bytes) -> int:
    """Return how many pages the log has: `mxFrame` of the wal-index's header."""
    return int.from_bytes(token[16:20], sys.byteorder)
