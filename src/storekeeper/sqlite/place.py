"""Whether an open database is still the one that its path names. Imports nothing of the project.

SQLite does not notice when its file or its log is deleted or replaced: it goes on with what nobody will find again.
"""

import os
import time
from pathlib import Path

PAUSE = 0.01
"""Seconds between two looks: short beside the time in which anybody deletes a file, long beside that of a commit."""


class Moved(Exception):
    """The file, or its log, is another one than that which was opened, or none at all."""


class Place:
    """Remembers which files a database is; made while a connection to it is open, so that its log is there."""

    def __init__(self, path: Path) -> None:
        real = os.path.realpath(path)  # the log stands beside the file itself, not beside a link to it
        self._paths = (str(path), f"{real}-wal")
        self._files = self._look()
        self._next_look = 0.0

    def check(self) -> None:
        """Return if the files were still there a moment ago; raise Moved if not. On any thread."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + PAUSE
        try:
            same = self._look() == self._files
        except OSError as error:
            raise Moved(f"{error.filename} is gone ({error.strerror})") from None
        if not same:
            raise Moved(f"{self._paths[0]} or its log was replaced")

    def _look(self) -> list[tuple[int, int]]:
        # Never opened: closing it would drop the locks that SQLite has on it.
        return [(found.st_dev, found.st_ino) for found in map(os.stat, self._paths)]
