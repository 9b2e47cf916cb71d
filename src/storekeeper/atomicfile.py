"""Files that get their name only when they are whole and on the disk. Imports nothing of the project."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def replacing(file: Path) -> Iterator[IO[str]]:
    """Open a text file that takes the place of `file`, or of what that links to, if there is no exception.

    Until then only its owner can read it; then it has the mode of the file that it replaces.
    """
    file = Path(os.path.realpath(file))
    descriptor, part = tempfile.mkstemp(prefix=prefix(file), dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as opened:
            yield opened
            opened.flush()
            os.fchmod(descriptor, _mode(file, descriptor))
            os.fsync(descriptor)
        Path(part).replace(file)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    sync_folder(file.parent)


def prefix(path: Path) -> str:
    """Return how the name of what is not finished begins: it says what it was to become."""
    return f".{path.name[:40]}.unfinished-"


def give_name(new: Path, path: Path) -> None:
    """Return a finished file its name. Raises FileExistsError if another one has got it meanwhile."""
    try:
        path.hardlink_to(new)
    except FileExistsError:
        raise
    except OSError:  # there are no links on this file system: take the name first, then the place
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        new.replace(path)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode(file: Path, descriptor: int) -> int:
    try:
        old = file.stat()
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask
    with suppress(OSError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    # What its group might read, another group may not.
    same_group = os.fstat(descriptor).st_gid == old.st_gid
    return stat.S_IMODE(old.st_mode) & (0o777 if same_group else 0o707)
