"""The cursors that commands take, and the files that keep them."""

import errno
from pathlib import Path

from storekeeper.domain.changes import NOW, Cursor, parse_cursor
from storekeeper.domain.errors import CannotStart
from storekeeper.storage import atomicfile


def cursor_of(text: str, subject: str, *, may_be_now: bool = True) -> Cursor:
    """Return the cursor that a text names, also `NOW` if it may be. Raises CannotStart with that
    subject."""
    cursor = parse_cursor(text.encode(errors="replace"))
    if cursor is None or (cursor == NOW and not may_be_now):
        raise CannotStart(
            f"not a cursor: {text[:40]!r}; a cursor looks like 17.abcdefgh, or is a number",
            subject=subject,
        )
    return cursor


def read_saved(file: Path | None) -> str | None:
    """Return the cursor in a file, None if there is none. Raises CannotStart."""
    if file is None:
        return None
    try:
        if atomicfile.is_stream(file):
            raise OSError(errno.EINVAL, "it is not a file that can be replaced")
        return file.read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise CannotStart(f"cannot be read ({reason})", subject=f"--cursor-file {file}") from None


def save(file: Path | None, cursor: str) -> None:
    """Write a cursor into a file, which it replaces. Raises CannotStart."""
    if file is None or cursor == read_saved(file):
        return
    try:
        with atomicfile.replacing(file) as opened:
            opened.write(f"{cursor}\n")
    except OSError as error:
        raise CannotStart(
            f"cannot be written ({error.strerror})", subject=f"--cursor-file {file}"
        ) from None
