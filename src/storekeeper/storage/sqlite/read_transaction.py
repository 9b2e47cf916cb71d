"""One read transaction for all reads of a batch, or for one read outside.

It begins with its first read, which reads the numbers of the collection. So a read sees every
write that was acknowledged before its batch began, by any process.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, TypeVarTuple

import apsw

from storekeeper.storage import clock
from storekeeper.storage.sqlite import connections
from storekeeper.storage.sqlite.errors import READ_ERRORS
from storekeeper.storage.sqlite.statements import STATE

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


Numbers = tuple[int, int, str, int]
"""How many stores there are, the version, the epoch, and when the latest change was, in ms since
1970. In two transactions where they are equal, the stores are equal: a restore may lead to a
version again, but not to its time."""


class ReadTransaction:
    """The transaction of a connection that only reads.

    `translate` returns what is raised for one of `errors.READ_ERRORS`.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        translate: Callable[[Exception], Exception] = lambda error: error,
    ) -> None:
        self._connection = connection
        self._translate = translate
        self._open()
        self.in_batch = False
        """Whether a read leaves its transaction to the reads after it."""
        self.known: Numbers | None = None
        """The numbers of the transaction, if there is one."""
        self.now = 0
        """The time when they were read, in ms since 1970: later moments cannot be read."""
        self._error: apsw.Error | None = None
        """Why this batch has no transaction: only its first read waits for a lock."""
        self._execute("SELECT epoch FROM collection").fetchall()  # now the log and its index exist

    def read(self, read: Callable[[*Ts], T], *parameters: *Ts) -> T:
        """Return what `read` returns, in the transaction of the batch or one of its own."""
        try:
            return read(*parameters)
        except Exception as error:
            self._break_off()
            if isinstance(error, READ_ERRORS):
                raise self._translate(error) from None
            raise
        finally:
            if not self.in_batch:
                self.end()

    def numbers(self) -> Numbers:
        """Return the numbers of the transaction, which begins here if there is none."""
        return self.known or self._begin()

    def end(self) -> None:
        """End the transaction; the next read begins another."""
        self._error = None
        if self.known is not None:
            self.known = None
            try:
                next(self._numbers, None)
            except apsw.Error:
                self._break_off()

    def log_is_long(self) -> bool:
        """Return whether the log should begin again, which needs a moment without a read; asked
        outside a transaction."""
        try:
            pages, _ = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        except apsw.Error:  # the next read meets it too
            return False
        return pages > connections.AUTOCHECKPOINT_PAGES

    def _begin(self) -> Numbers:
        if self._error is not None:
            raise self._error.with_traceback(None)
        try:
            self._numbers.execute(STATE)
            self.known = next(self._numbers)
        except apsw.Error as error:
            self._error = error
            raise
        self.now = clock.now()
        return self.known

    def _open(self) -> None:
        """Make the two cursors, which are kept: a new one for each read would cost as much as the
        read."""
        self._numbers = self._connection.cursor()
        """Reads the numbers: the transaction lasts until this statement is at its end."""
        self._cursor = self._connection.cursor()
        """Reads all else, one statement after another."""
        self._execute = self._cursor.execute

    def _break_off(self) -> None:
        """End the transaction, and a read in the middle of a statement."""
        self.known = None
        self._numbers.close(force=True)
        self._cursor.close(force=True)
        with suppress(apsw.ConnectionClosedError):  # the next read meets it too
            self._open()
