"""Puts another file in the place of a database, whatever is there now. What is there is kept.

No other process uses the place meanwhile: it is locked with SQLite's own locks, from before the old
list is read until the new file has its name. SQLite itself locks nothing here (`unix-none`).
"""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from storekeeper.domain.errors import CannotStart
from storekeeper.storage.atomicfile import publish, sync_folder
from storekeeper.storage.collection import Snapshot
from storekeeper.storage.sqlite import place, schema
from storekeeper.storage.sqlite.snapshot import SourceSnapshot

_ASIDE_TIME = "%Y-%m-%d-%H%M%S"
"""The time of a restore in the new name of the old file: local time."""


@contextmanager
def held(path: Path) -> Iterator["Place"]:
    """Keep all other processes out of the place of a database. Raises CannotStart if one uses it,
    OSError."""
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise CannotStart("not a file: name another one", subject=str(path))
    with ExitStack() as stack:
        descriptor = _lock(path, "", stack)
        _lock(path, "-shm", stack)
        yield Place(path, descriptor, stack)


def _lock(path: Path, end: str, stack: ExitStack) -> int | None:
    """Open a file of the database and lock it until the end; return None if there is none."""
    file = Path(f"{path}{end}")
    try:
        descriptor = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise CannotStart(
            "this user cannot write it: restore as the user of the service", subject=str(file)
        ) from None
    stack.callback(os.close, descriptor)
    with suppress(BlockingIOError):
        place.lock(descriptor, end)
        if place.has_name(descriptor, file):  # otherwise another restore was faster
            return descriptor
    raise CannotStart("in use: stop the service first", subject=str(path))


class Place:
    """The place of a database, which no other process uses.

    `old` reads the list that is there, with its log. It is None if there is no list, or if SQLite
    would have to change the file first. `without_log` reads the list without its log, if it has
    one. Reading may raise CannotStart.
    """

    old: Snapshot | None = None
    without_log: Snapshot | None = None

    def __init__(self, path: Path, descriptor: int | None, stack: ExitStack) -> None:
        self._path = path
        self._descriptor = descriptor
        self._stack = stack
        self._marked = None if descriptor is None else place.read_mark(descriptor)
        _, log, _, journal = schema.files(path)
        has_log = _has_content(log)
        file = path
        is_readable = not _has_content(journal)
        if self._marked is not None:  # by a restore that was killed
            file = path.with_name(self._marked)
            is_readable = not has_log
        if is_readable and _has_content(file):
            self._connection = self._open(file, immutable=not has_log)
            self.old = SourceSnapshot(self._connection, file, None)
            if has_log:
                self.without_log = SourceSnapshot(self._open(file, immutable=True), file, None)

    def _open(self, file: Path, *, immutable: bool) -> apsw.Connection:
        uri = f"file:{quote(str(file))}"
        if immutable:
            uri += "?immutable=1"
        with schema.raising_cannot_start(file, "reading"):
            connection = apsw.Connection(
                uri,
                flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI,
                vfs="unix-none",
            )
        self._stack.callback(connection.close)  # only at the end: it also ends the locks
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("locking_mode", "exclusive")  # it needs no index of the log
        connection.pragma("temp_store", "file")
        return connection

    def fold_log(self) -> None:
        """Write the log of the old list into its file. Raises CannotStart."""
        with schema.raising_cannot_start(self._path):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def replace(self, new: Path, epoch: str) -> Path | None:
        """Give a new file the name of the database, and the owner and mode of its file. Return the
        new name of the old file, or of what was left of it; None if there was nothing. Raises
        OSError.

        The old file gets another name, then its logs, then the new file gets the name. In between,
        a mark has the name, and every start refuses it. Each step is on disk before the next one.
        """
        logs = [file for file in schema.files(self._path)[1:] if os.path.lexists(file)]
        if self._descriptor is None and not logs:
            publish(new, self._path)
            return None
        aside = self._path.with_name(self._marked or _name_aside(self._path, epoch))
        if self._descriptor is not None:
            _take_mode(self._descriptor, new)
        if self._marked is None:
            self._put_mark(new.with_name(f"{new.name}-mark"), aside)
        for log in logs:
            _rename(log, Path(f"{aside}{log.name.removeprefix(self._path.name)}"))
        sync_folder(self._path.parent)
        new.replace(self._path)
        sync_folder(self._path.parent)
        return next(filter(os.path.lexists, schema.files(aside)), None)

    def _put_mark(self, mark: Path, aside: Path) -> None:
        descriptor = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._stack.callback(os.close, descriptor)
        place.write_mark(descriptor, aside.name)
        place.lock(descriptor)
        if self._descriptor is None:
            publish(mark, self._path)
            return
        _take_mode(self._descriptor, mark)
        _delete_second_names(self._path)
        try:
            aside.hardlink_to(self._path)
        except OSError:  # a file system without hard links: for a moment nothing has the name
            _rename(self._path, aside)
        sync_folder(self._path.parent)
        mark.replace(self._path)
        sync_folder(self._path.parent)


def _has_content(file: Path) -> bool:
    with suppress(OSError):
        return file.stat().st_size > 0
    return False


def restored(path: Path, epoch: str) -> int | None:
    """Return when a restore gave a database its epoch, in ms since 1970, as the name of the file
    that it put aside tells; None if there is no such file."""
    path = Path(os.path.realpath(path))
    before, after = f"{path.stem}{place.BEFORE}", f"-{epoch}{path.suffix}"
    with suppress(OSError):
        for name in [file.name for file in path.parent.iterdir()]:
            if name.startswith(before) and name.endswith(after):
                with suppress(ValueError, OverflowError):
                    text = name.removeprefix(before).removesuffix(after)
                    return int(time.mktime(time.strptime(text, _ASIDE_TIME))) * 1000
    return None


def _name_aside(path: Path, epoch: str) -> str:
    now = time.strftime(_ASIDE_TIME)
    return f"{path.stem}{place.BEFORE}{now}-{epoch}{path.suffix}"


def _take_mode(descriptor: int, new: Path) -> None:
    old = os.fstat(descriptor)
    with suppress(PermissionError):  # only root may give a file to another user
        os.chown(new, old.st_uid, old.st_gid)
    new.chmod(old.st_mode & 0o777)


def _delete_second_names(path: Path) -> None:
    """Delete the names for the old file from restores that were killed just after they gave
    them."""
    if path.stat().st_nlink > 1:
        for other in path.parent.iterdir():
            if other.name.startswith(f"{path.stem}{place.BEFORE}") and other.samefile(path):
                other.unlink()


def _rename(file: Path, name: Path) -> None:
    if os.path.lexists(name):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(name))
    file.rename(name)
