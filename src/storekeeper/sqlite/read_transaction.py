"""One read transaction that the reads of many requests share. Imports apsw and the domain.

Half of a short read are the locks of its transaction (2.5 µs of 5). So a transaction stays open from read to read,
as long as nobody commits: the first read after a commit begins it with its own statement, which is left unfinished.
It never hides a commit: each read compares the change token first, and the token was taken before the transaction
began. And it does not keep the log from being reused: while the log is long enough to begin anew, and when nothing
was read for a while, no transaction stays open.
"""

import sys
from typing import Any

import apsw

from storekeeper.collection import State

MAX_LOG_PAGES = 4000
"""Pages of the log up to which a transaction stays open: a checkpoint begins there (`schema.connect`)."""


class ReadTransaction:
    """The shared transaction of a connection."""

    __slots__ = ("_connection", "_cursor", "current", "epoch", "state")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.current = b""
        """The change token of the open transaction; b"" if none is open."""
        self.epoch = ""
        """The collection's epoch as the open transaction sees it; whoever begins it reads and sets it."""
        self.state: State | None = None
        """The collection's numbers as the open transaction sees them, if somebody has read them."""

    def begin(self, token: bytes | None, statement: str, values: tuple[Any, ...] = ()) -> Any:
        """End the transaction, begin another, and return the only row of a statement in it.

        The other one sees all that was committed when `token` was read; None if nobody knows it. It stays open if
        the token is known and the log is short.
        """
        if token is None or _log_pages(token) >= MAX_LOG_PAGES:
            self.end()
            return self._connection.execute(statement, values).get
        self.current, self.state = b"", None
        row = next(self._cursor.execute(statement, values))  # ends the former one, by finishing its statement
        self.current = token
        return row

    def end(self) -> None:
        """End the transaction, if one is open."""
        self.current, self.state = b"", None
        self._cursor.close()
        self._cursor = self._connection.cursor()


def _log_pages(token: bytes) -> int:
    """Return how many pages the log has: `mxFrame` of the wal-index's header."""
    return int.from_bytes(token[16:20], sys.byteorder)
