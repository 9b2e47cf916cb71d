"""Whether an open database is still the file that its path names. Imports the domain.

SQLite does not notice when its file or its log is deleted or replaced: it goes on with files that have no name.
"""

import os
import time
from pathlib import Path

from storekeeper.errors import FAILED
from storekeeper.sqlite.errors import Failure

CHECK_INTERVAL = 0.01
"""Seconds between two checks: much less than anybody takes to delete a file, much more than a commit takes."""


class FileIdentity:
    """Device and inode of a database and its log; create it while a connection is open, so that the log exists."""

    def __init__(self, path: Path) -> None:
        real = os.path.realpath(path)  # the log is beside the file itself, not beside a link to it
        self._paths = (str(path), f"{real}-wal")
        self._files = self._read()
        self._next_check = 0.0

    def check(self) -> None:
        """Raise Failure if the files were not the same at the latest check. Any thread may call this."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + CHECK_INTERVAL
        try:
            same = self._read() == self._files
        except OSError as error:
            raise Failure(f"{FAILED}: {error.filename} is gone ({error.strerror})") from None
        if not same:
            raise Failure(f"{FAILED}: {self._paths[0]} or its log was replaced")

    def _read(self) -> list[tuple[int, int]]:
        # By path, because closing an opened file would drop the locks that SQLite has on it.
        return [(found.st_dev, found.st_ino) for found in map(os.stat, self._paths)]
