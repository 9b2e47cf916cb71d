"""Whether an open database is still the one that its path names.

SQLite does not notice when its file is deleted or replaced: it continues with a file without a
name. Processes with different indexes of the log (`-shm`) do not see each other's locks, and write
over each other's frames.
"""

import os
from pathlib import Path
from typing import Any

import apsw

from storekeeper.domain.errors import FAILED
from storekeeper.storage.sqlite import connections
from storekeeper.storage.sqlite.errors import Failure


class FileIdentity:
    """Device and inode of a database, its log and the log's index.

    Create it while a connection that has read is open: only then do all three exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        real = os.path.realpath(path)  # the log is next to the file itself, not next to a link
        self._paths = (str(path), f"{real}-wal", f"{real}-shm")
        self._files = self._read()

    def check(self) -> None:
        """Raise Failure if the files are no longer the same. Any thread may call this; it takes
        3 us."""
        try:
            same = self._read() == self._files
        except OSError as error:
            raise Failure(f"{FAILED}: {error.filename} is gone ({error.strerror})") from None
        if not same:
            raise Failure(f"{FAILED}: {self._paths[0]} or its log was replaced")

    def connect(self, **options: Any) -> apsw.Connection:
        """Open another connection to the files, as `connections.connect` does. Raises Failure if
        they are not the same."""
        # Before, too: closing the only connection to another file would delete its log.
        self.check()
        connection = connections.connect(self.path, **options)
        try:
            self.check()
        except Failure:
            connection.close()
            raise
        return connection

    def _read(self) -> list[tuple[int, int]]:
        # By path, because closing an opened file would drop the locks that SQLite has on it.
        return [(found.st_dev, found.st_ino) for found in map(os.stat, self._paths)]
