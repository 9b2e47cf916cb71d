"""The change token of a SQLite file, read from the memory that SQLite shares among its processes. Imports apsw.

Whoever commits writes a new header into the wal-index, after the sync and before anybody learns of the commit
(https://sqlite.org/walformat.html, section 2). `PRAGMA data_version` compares the same header, but locks the file for
it: 4 µs. A look at the header itself takes 0.1 µs. It has a counter of commits and a checksum of the log, so that no
two states have the same one; a look amid a commit finds a mixture, which is no other state's header either.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import TypeAlias

import apsw

ChangeToken: TypeAlias = Callable[[], bytes | None]
"""Returns the change token; None if nobody knows it."""

_HEADER_BYTES = 48
_FORMAT = (3007000).to_bytes(4, sys.byteorder)
_PAGE_BYTES = 32 * 1024

_METHODS = "xClose xRead xWrite xTruncate xSync xFileSize xLock xUnlock xCheckReservedLock xFileControl xSectorSize"
_ShmMap = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)
)


class _IoMethods(ctypes.Structure):
    """C's `sqlite3_io_methods`, up to `xShmMap`, which is there from version 2 on."""

    _fields_ = (
        ("iVersion", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in (*_METHODS.split(), "xDeviceCharacteristics")),
        ("xShmMap", _ShmMap),
    )


class _File(ctypes.Structure):
    """C's `sqlite3_file`."""

    _fields_ = (("pMethods", ctypes.POINTER(_IoMethods)),)


def token_reader(connection: apsw.Connection) -> ChangeToken:
    """Return a function that returns the change token. Call it only while the connection is open.

    It returns None if this SQLite does not share its memory in the way that is documented.
    """
    connection.execute("SELECT 1 FROM sqlite_schema").get  # noqa: B018 - SQLite maps the wal-index at the first read
    address = _wal_index(connection)
    if address is None:
        return lambda: None
    header = memoryview((ctypes.c_ubyte * _HEADER_BYTES).from_address(address)).cast("B")
    return header.tobytes


def _wal_index(connection: apsw.Connection) -> int | None:
    """Return where SQLite has mapped the wal-index; None if that, or its format, is not as we know it."""
    pointer, address = ctypes.c_void_p(), ctypes.c_void_p()
    connection.file_control("main", apsw.SQLITE_FCNTL_FILE_POINTER, ctypes.addressof(pointer))
    if not pointer.value:
        return None
    methods = _File.from_address(pointer.value).pMethods.contents
    if methods.iVersion < 2 or methods.xShmMap(pointer, 0, _PAGE_BYTES, 0, ctypes.byref(address)) != 0:
        return None
    if not address.value or ctypes.string_at(address.value, len(_FORMAT)) != _FORMAT:
        return None
    return address.value
