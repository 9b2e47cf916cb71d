"""The change token, and the read transaction that many requests share. Imports apsw and the domain.

The token is the header of SQLite's wal-index, in the memory that its processes share. Each commit writes a new
one, after the sync and before anybody learns of the commit (https://sqlite.org/walformat.html, section 2). It has a
counter of commits and a checksum of the log, so that no two states have the same one; a look amid a commit finds a
mixture, which is no other state's header either.

The first read after a commit begins the transaction with its own statement, which is left unfinished. It never hides
a commit: each read compares the change token first, and the token was taken before the transaction began.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import apsw

from storekeeper.collection import State

ChangeToken: TypeAlias = Callable[[], bytes | None]
"""Returns the change token; None if it cannot be known."""

MAX_LOG_PAGES = 4000
"""Pages of the log up to which a transaction stays open: a checkpoint begins there (`schema.connect`)."""

_HEADER_BYTES = 48
_FORMAT = (3007000).to_bytes(4, sys.byteorder)
_PAGE_BYTES = 32 * 1024

_SHM_MAP = 13
"""The place of `xShmMap` in C's `sqlite3_io_methods`: a version, and from 2 on so many pointers to functions."""
_ShmMap = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)
)


def token_reader(connection: apsw.Connection) -> ChangeToken:
    """Return a function that returns the change token. Call it only while the connection is open.

    It returns None if this SQLite does not share its memory in the way that is documented.
    """
    connection.execute("SELECT 1 FROM sqlite_schema").get  # noqa: B018 - SQLite maps the wal-index at the first read
    file, address = ctypes.c_void_p(), ctypes.c_void_p()
    connection.file_control("main", apsw.SQLITE_FCNTL_FILE_POINTER, ctypes.addressof(file))
    if not file.value:
        return no_token
    methods = ctypes.POINTER(ctypes.c_void_p).from_address(file.value)  # the first member of C's `sqlite3_file`
    if ctypes.cast(methods, ctypes.POINTER(ctypes.c_int))[0] < 2:
        return no_token
    shm_map = ctypes.cast(methods[_SHM_MAP] or 0, _ShmMap)
    if shm_map(file, 0, _PAGE_BYTES, 0, ctypes.byref(address)) != 0 or not address.value:
        return no_token
    if ctypes.string_at(address.value, len(_FORMAT)) != _FORMAT:
        return no_token
    return memoryview((ctypes.c_ubyte * _HEADER_BYTES).from_address(address.value)).cast("B").tobytes


def no_token() -> None:
    """Return None: the change token cannot be known."""


class ReadTransaction:
    """The shared transaction of a connection."""

    __slots__ = ("_connection", "_cursor", "current", "epoch", "state")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.current = b""
        """The change token of the open transaction; b"" if none is open."""
        self.epoch = ""
        """The collection's epoch as the open transaction sees it, set by the caller of `begin`."""
        self.state: State | None = None
        """The collection's numbers as the open transaction sees them, if somebody has read them."""

    def begin(self, token: bytes | None, statement: str, values: tuple[Any, ...] = ()) -> Any:
        """End the transaction, begin another, and return the only row of a statement in it.

        The new one sees all that was committed when `token` was read. It stays open if the token is known, and not
        None, and the log is short.
        """
        # Of the header, these bytes are `mxFrame`: how many pages the log has.
        if token is None or int.from_bytes(token[16:20], sys.byteorder) >= MAX_LOG_PAGES:
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
