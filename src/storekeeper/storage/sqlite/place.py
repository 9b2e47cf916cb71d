"""The place of a database: SQLite's own locks on it, and the mark of an incomplete restore.

Every SQLite program takes these locks, so they show whether a process uses the files, and keep all
others out. They end when this process closes any descriptor of that file.
"""

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path

import apsw

from storekeeper.domain.errors import CannotStart

_LOCKS = {"": (0x4000_0000, 512), "-shm": (120, 9)}
"""The bytes that SQLite locks, by the end of the file's name: where they begin, and how many
there are.

In the database: one to announce a write, one to write, and 510 for those that have it open. In the
index of its log: one for each kind of use, and one for those that have it open.
"""

_MARK = "A restore is not complete here: run storekeeper restore again. What was here is now "

BEFORE = "-before-restore-"
"""A part of the new name of an old file."""

_NAME = re.compile(f"[^/\0]*{BEFORE}[^/\0]*")

_MAX_MARK_SIZE = 511
"""Bytes: SQLite has no smaller database than 512."""


def lock(descriptor: int, end: str = "", *, shared: bool = False) -> None:
    """Take SQLite's locks on an open file. Raises BlockingIOError if another process has one."""
    start, length = _LOCKS[end]
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, length, start)


def write_mark(descriptor: int, aside: str) -> None:
    """Write to an open file that a restore is not complete; `aside` is the new name of the old
    file."""
    os.write(descriptor, f"{_MARK}{aside}\n".encode())
    os.fsync(descriptor)


def read_mark(descriptor: int) -> str | None:
    """Return the new name of the old file if an open file is such a mark, otherwise None."""
    text = os.pread(descriptor, _MAX_MARK_SIZE, 0).decode(errors="replace")
    name = text.removeprefix(_MARK).rstrip("\n")
    if text.startswith(_MARK) and _NAME.fullmatch(name):
        return name
    return None


def refuse_mark(path: Path) -> None:
    """Raise CannotStart if a restore was killed at `path`, apsw.BusyError if one is under way."""
    try:
        if path.stat().st_size > _MAX_MARK_SIZE:  # to open and close it would end SQLite's locks
            return
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        if read_mark(descriptor) is None:
            return
        try:
            lock(descriptor, shared=True)
        except BlockingIOError:
            raise apsw.BusyError("a restore is under way") from None
        if has_name(descriptor, path):
            raise CannotStart("a restore was killed here: restore again", subject=str(path))
    finally:
        os.close(descriptor)


def has_name(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has that name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
