"""Files that get their names when they are complete and on the disk."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

_SQLITE = b"SQLite format 3\0"
_LOGS = ("-wal", "-shm", "-journal")
_MAX_LINKS = 40


@contextmanager
def replacing(file: Path, *, overwrite: bool = True) -> Iterator[TextIO]:
    """Open a text file that replaces `file`, or the file it links to, at the end, unless there
    is an exception.

    Only its owner can read the new file until it replaces the old one, and gets its mode. If `file`
    is a stream, the text is written into that. Raises FileExistsError if there is an old file by
    then, and not `overwrite`, and OSError as `is_stream` does.
    """
    if is_stream(file):
        with into_stream(file) as opened:
            yield opened
        return
    file = Path(os.path.realpath(file))
    with unfinished(file) as new:
        with new.open("w", encoding="utf-8", newline="") as opened:
            yield opened
            opened.flush()
            if file.exists():
                _take_mode(file, opened.fileno())
            os.fsync(opened.fileno())
        if is_stream(file):
            raise FileExistsError(errno.EEXIST, "a pipe or a device took its name meanwhile")
        if overwrite:
            new.replace(file)
            sync_folder(file.parent)
        else:
            publish(new, file)


def is_stream(file: Path) -> bool:
    """Return whether a name stands for something to write into, and not for a file to replace.

    That is a pipe, a character device, or a descriptor that this process was started with, such
    as /dev/stdout. Raises OSError for what can be neither: another descriptor, a folder, a socket,
    a block device, a SQLite database or its log.
    """
    if _descriptor(file) is not None:
        return True
    try:
        kind = stat.S_IFMT(file.stat().st_mode)
    except FileNotFoundError:
        kind = stat.S_IFREG
    if kind in (stat.S_IFIFO, stat.S_IFCHR):
        return True
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, "it is a socket or a block device")
    if _belongs_to_database(Path(os.path.realpath(file))):
        raise FileExistsError(errno.EEXIST, "it is a database, or the log of one")
    return False


@contextmanager
def into_stream(file: Path | int) -> Iterator[TextIO]:
    """Open a pipe, a device or a descriptor of this process, to write text into it.

    After an exception, what is not written yet is thrown away: to write it would wait for a reader.
    """
    with os.fdopen(_opened(file), "w", encoding="utf-8", newline="") as opened:
        try:
            yield opened
        except BaseException:
            os.dup2(os.open(os.devnull, os.O_WRONLY), opened.fileno())
            raise


def _opened(file: Path | int) -> int:
    # A descriptor is not opened again: a file would be written from its beginning.
    if isinstance(file, int):
        return os.dup(file)
    descriptor = _descriptor(file)
    if descriptor is not None:
        return os.dup(descriptor)
    return os.open(file, os.O_WRONLY | os.O_NOCTTY)


def _descriptor(file: Path) -> int | None:
    """Return the descriptor of this process that a name such as /dev/stdout stands for. Raises
    OSError for one that was not open when this process began."""
    descriptors = os.path.realpath("/dev/fd")
    for _ in range(_MAX_LINKS):
        if file.name.isdecimal() and os.path.realpath(file.parent) == descriptors:
            return _inherited(int(file.name))
        if not file.is_symlink():
            return None
        file = file.parent / file.readlink()
    return None


def _inherited(descriptor: int) -> int:
    """Return a descriptor that was open when this process began. Raises OSError for any other:
    it may be the database, as this process has opened it."""
    try:
        is_inherited = os.get_inheritable(descriptor)
    except OverflowError:
        is_inherited = False
    if not is_inherited:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return descriptor


def _belongs_to_database(file: Path) -> bool:
    """Return whether a file is a SQLite database, or has the name of a log of one."""
    names = {file.name} | {file.name.removesuffix(end) for end in _LOGS}
    return any(_is_database(file.with_name(name)) for name in names if name)


def _is_database(file: Path) -> bool:
    # To close a file drops the locks that SQLite has on it. So the caller first asks about a
    # database that this process has open.
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(_SQLITE)) == _SQLITE


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Yield a path for a file that will get the name `path`, in a folder that is deleted at the
    end.

    Only its owner can read it, and no process finds half a file, now or after this one was killed.
    """
    prefix = f".{path.name[:40]}.unfinished-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=path.parent) as folder:
        yield Path(folder) / path.name


def publish(new: Path, path: Path) -> None:
    """Rename the finished file `new` to `path`, on disk too; if that fails, leave no file of that
    name.

    Raises FileExistsError if a file has that name already.
    """
    try:
        path.hardlink_to(new)
    except OSError:  # the file system may have no hard links: create the name, then replace it
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        new.replace(path)  # does nothing if both are links to one file
        sync_folder(path.parent)
    except OSError:
        path.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, unless its file system cannot do that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _take_mode(file: Path, descriptor: int) -> None:
    """Give an open file the owner and the mode of another one, as far as the user and the file
    system can."""
    old = file.stat()
    with suppress(OSError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    # Another group must not get the permissions of the old one.
    permissions = 0o777
    if os.fstat(descriptor).st_gid != old.st_gid:
        permissions = 0o707
    with suppress(OSError):
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & permissions)
