"""The file of the rows that an import rejects."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from storekeeper.cli.terminal import STANDARD_STREAM, is_standard_output
from storekeeper.domain.errors import CannotStart, Unavailable
from storekeeper.domain.intake import Reject
from storekeeper.sheets import protocol
from storekeeper.sheets.reading import Reading
from storekeeper.storage import atomicfile

_NOT_IMPORTED = "nothing was imported"


class Rejects:
    """Collects the rows that are not imported, and writes them before the import commits,
    perhaps twice.

    What goes into a pipe or a device cannot be taken back, and waits for a reader. So it is kept,
    and sent after the commit. Both need files without names, because there may be many rows. Raises
    CannotStart, Unavailable.
    """

    def __init__(self, path: Path, source: Path, database: str) -> None:
        self._path = path
        self._refuse_own_files(source, database)
        with self._blamed(_NOT_IMPORTED):
            self._is_stream = atomicfile.is_stream(path)
        self.to_standard_output = is_standard_output(path)
        self._closing = ExitStack()
        self._lines: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        self._stream: IO[bytes] | None = None
        self._kept: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in filter(None, (self._lines, self._kept)):
            with suppress(OSError):  # what could not be written is no longer wanted
                file.close()
        self._closing.close()

    def _refuse_own_files(self, source: Path, database: str) -> None:
        from storekeeper.storage import databases

        if source == STANDARD_STREAM:
            source = Path("/dev/stdin")
        is_source = os.path.realpath(self._path) == os.path.realpath(source)
        if is_source or databases.is_database_file(database, self._path):
            raise self._refusal(
                "is the database, its log, or the file to import: name another file"
            )

    def begin(self) -> Reject:
        """Forget what an earlier plan rejected; return the function that takes a line, and why it
        is rejected."""
        self._lines.seek(0)
        self._lines.truncate()
        return self._add

    def _add(self, line: int, why: str) -> None:
        try:
            protocol.write_reject(self._lines, line, why)
        except OSError as error:
            raise Unavailable(
                f"The folder of temporary files cannot be written: {error.strerror}"
            ) from None

    def write(self, rows: Reading) -> None:
        """Write the rejected rows, over those that were written before."""
        with self._blamed(_NOT_IMPORTED):
            if self._is_stream:
                rows.write_rejects(self._emptied(), self._lines)
                return
            with atomicfile.replacing(self._path) as file:
                rows.write_rejects(file.buffer, self._lines)

    def _emptied(self) -> IO[bytes]:
        """Return the empty file that keeps the rows for the stream; open the stream before."""
        if self._stream is None:
            opened = self._closing.enter_context(atomicfile.into_stream(self._path))
            self._stream = opened.buffer
        if self._kept is None:
            self._kept = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        self._kept.seek(0)
        self._kept.truncate()
        return self._kept

    def send(self) -> None:
        """Send what is kept for a pipe or a device, after the import."""
        if self._stream is None or self._kept is None:
            return
        with self._blamed("the valid rows were imported"), self._closing:
            self._kept.seek(0)
            shutil.copyfileobj(self._kept, self._stream)

    @contextmanager
    def _blamed(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._refusal(f"cannot be written ({error.strerror}); {done}") from None

    def _refusal(self, problem: str) -> CannotStart:
        return CannotStart(problem, subject=f"--rejects {self._path}")
