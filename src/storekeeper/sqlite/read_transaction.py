"""One read transaction that the reads of many requests share. Imports apsw.

Half of a short read are the locks of its transaction (2.5 µs of 5). So a transaction stays open from read to read,
as long as nobody commits. It never hides a commit: each read compares the change token first, and the token was taken
before the transaction began. And it does not keep the log from being reused: while the log is long enough to begin
anew, and when nothing was read for a while, no transaction stays open.
"""

import sys

import apsw

MAX_LOG_PAGES = 4000
"""Pages of the log up to which a transaction stays open: a checkpoint begins there (`schema.connect`)."""

_OPEN = "SELECT epoch FROM collection UNION ALL SELECT 1"
"""Has several rows; only the first is read, so that its transaction stays open."""


class ReadTransaction:
    """The shared transaction of a connection."""

    __slots__ = ("_cursor", "_execute", "_latest", "current", "epoch")

    def __init__(self, connection: apsw.Connection) -> None:
        self._cursor = connection.cursor()
        self._execute = connection.execute
        self._latest: bytes | None = None
        self.current = b""
        """The change token of the open transaction; b"" if none is open."""
        self.epoch = ""
        """The collection's epoch as the open transaction sees it."""

    def renew(self, token: bytes | None) -> bool:
        """End the transaction; begin another if that pays; return whether one is open.

        It pays from the second read with a change token on, as long as the log is short. It sees all that was
        committed when `token` was read; None if nobody knows it.
        """
        if self.current:
            self.end()
        if token is None or token != self._latest:
            self._latest = token
            return False
        if _log_pages(token) >= MAX_LOG_PAGES:
            return False
        self._cursor = self._execute(_OPEN)
        (self.epoch,) = next(self._cursor)
        self.current = token
        return True

    def end(self) -> None:
        """End the transaction, if one is open."""
        self._cursor.close()
        self.current = b""


def _log_pages(token: bytes) -> int:
    """Return how many pages the log has: `mxFrame` of the wal-index's header."""
    return int.from_bytes(token[16:20], sys.byteorder)
