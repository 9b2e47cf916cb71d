"""Files that get their names when they are complete and on the disk."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def replacing(file: Path, *, overwrite: bool = True) -> Iterator[TextIO]:
    """Open a text file that replaces `file`, or the file it links to, at the end, unless there
    is an exception.

    Only its owner can read the new file until it replaces the old one, of which it gets the
    mode. Raises FileExistsError if there is an old one by then, and not `overwrite`.
    """
    file = Path(os.path.realpath(file))
    with unfinished(file) as new:
        with new.open("w", encoding="utf-8", newline="") as opened:
            yield opened
            opened.flush()
            if file.exists():
                _take_mode(file, opened.fileno())
            os.fsync(opened.fileno())
        if overwrite:
            new.replace(file)
            sync_folder(file.parent)
        else:
            publish(new, file)


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Yield a path for a file that is to get the name `path`, in a folder that goes at the end.

    Only its owner can read it, and no process finds half a file, now or after this one was killed.
    """
    with tempfile.TemporaryDirectory(
        prefix=f".{path.name[:40]}.unfinished-", dir=path.parent
    ) as folder:
        yield Path(folder) / path.name


def publish(new: Path, path: Path) -> None:
    """Rename the finished file `new` to `path`, also on the disk; if that fails, leave no file
    of that name.

    Raises FileExistsError if a file has that name already.
    """
    try:
        path.hardlink_to(new)
    except (
        OSError
    ):  # perhaps this file system has no hard links: create the name first, then replace it
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        new.replace(path)  # does nothing if both are links to one file
        sync_folder(path.parent)
    except OSError:
        path.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder to the disk, unless its file system cannot do that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _take_mode(file: Path, descriptor: int) -> None:
    """Give an open file the owner and the mode of another one, as far as user and file system
    can."""
    old = file.stat()
    with suppress(OSError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    # Another group must not get the permissions of the old one.
    same_group = os.fstat(descriptor).st_gid == old.st_gid
    with suppress(OSError):
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & (0o777 if same_group else 0o707))
