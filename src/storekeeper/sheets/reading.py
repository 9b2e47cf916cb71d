"""A file from outside, as the service and commands see it: what the reader found in it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import IO, NamedTuple, Self

import msgspec

from storekeeper.domain.intake import SheetRow, Told
from storekeeper.domain.problems import WORDS, Problem, decode_wrong
from storekeeper.sheets import BadFile, protocol
from storekeeper.sheets.look_types import Look
from storekeeper.sheets.protocol import (
    AskCells,
    AskLook,
    AskRejects,
    AskRows,
    Cells,
    Header,
    Layout,
    Looked,
    Message,
    Part,
    Rows,
)
from storekeeper.sheets.reader import Limits, Reader, ReaderEnded
from storekeeper.storage.collection import Snapshot

_UNLIMITED = Limits()
_ANY_STORE = "SELECT 1 FROM stores LIMIT 1"
_KEY_COLUMNS = "SELECT DISTINCT column_name FROM external_ids ORDER BY column_name"


class Reading:
    """The rows of a file, which can be iterated once, as a `Layout` says to read them.

    Its header is read at once. `position` is how many bytes of the file were read. Raises BadFile,
    also if the file changes meanwhile, and Unavailable.
    """

    def __init__(self, file: IO[bytes], layout: Layout, limits: Limits = _UNLIMITED) -> None:
        self._file = file
        self._layout = layout
        self._limits = limits
        self.position = 0
        file.flush()
        self._modified = _modified(file)
        self._reader = Reader(AskRows(layout), [file], limits)
        self._messages = self._reader.messages()
        header = next(self._messages, None)
        if not isinstance(header, Header):
            raise _unasked(header)
        self.match = header.match
        self.attach = header.attach
        self.unused = header.unused
        self.dropped = header.dropped
        self.notes = header.notes
        self.last_notes: list[str] = []
        """What is to be said about the file when all its rows have been read."""

    def __iter__(self) -> Iterator[SheetRow]:
        place = 0
        for message in self._messages:
            if not isinstance(message, Rows):
                raise _unasked(message)
            self.position = message.position
            for row in message.rows:
                place += 1
                _check(row, place)
                yield row
            self.last_notes += message.notes
        self._refuse_other_content()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._messages.close()
        self._reader.close()

    def stop(self) -> None:
        """End the process that reads, also while another thread takes its rows."""
        self._reader.stop()

    def tell(self, report: Told) -> None:
        """Add to a report what the file says besides its rows."""
        report.unused, report.dropped = self.unused, self.dropped
        report.notes = self.notes + self.last_notes

    def describe(self, problems: Sequence[Problem]) -> None:
        """Add the rows of the file to problems, which ascend by line, cut as a report shows
        them."""
        of_lines: dict[int, list[Problem]] = {}
        for problem in problems:
            of_lines.setdefault(problem.line, []).append(problem)
        if not of_lines:
            return
        asked = AskCells(self._layout, list(of_lines))
        limits = self._limits._replace(bytes=protocol.MAX_DESCRIBED_BYTES)
        for message in Reader(asked, [self._file], limits).messages():
            if not isinstance(message, Cells):
                raise _unasked(message)
            for problem in of_lines.get(message.line, ()):
                problem.row = message.cells

    def write_rejects(self, file: IO[bytes], messages: IO[bytes]) -> None:
        """Write the rows that `messages` names as CSV, each with its message."""
        asked = AskRejects(self._layout)
        messages.seek(0)
        for message in Reader(asked, [self._file, messages], self._limits).messages():
            if not isinstance(message, Part):
                raise _unasked(message)
            file.write(message.data)
        self._refuse_other_content()

    def _refuse_other_content(self) -> None:
        """Raise BadFile if the file was written since the first look: rows may be of two
        contents, and its lines other ones."""
        if _modified(self._file) != self._modified:
            raise BadFile("it was written while it was read: import it again")


class Known(NamedTuple):
    """What a list says about a file: the columns of outside keys that it knows, and whether it has
    no stores."""

    keys: list[str]
    is_empty: bool


def known_to(snapshot: Snapshot) -> Known:
    """Return what a list says about any file."""
    keys = [name for (name,) in snapshot.select(_KEY_COLUMNS)]
    return Known(keys, not list(snapshot.select(_ANY_STORE)))


def look(file: IO[bytes], layout: Layout, known: Known, *, limits: Limits = _UNLIMITED) -> Look:
    """Return what a file is. Raises BadFile, Unavailable."""
    asked = AskLook(layout, known.keys, known.is_empty)
    with closing(Reader(asked, [file], limits).messages()) as messages:
        message = next(messages, None)
        if not isinstance(message, Looked):
            raise _unasked(message)
        return message.look


def _modified(file: IO[bytes]) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_mtime_ns, found.st_size


def _check(row: SheetRow, place: int) -> None:
    """Raise ReaderEnded if a row cannot be one."""
    if row.place != place:
        raise ReaderEnded(f"it sent row {row.place} in place of {place}")
    if row.wrong is not None:
        try:
            reasons = {each.reason for each in decode_wrong(row.wrong)}
        except msgspec.DecodeError as error:
            raise ReaderEnded(f"it sent {error}") from None
        if not reasons <= WORDS.keys():
            raise ReaderEnded("it sent a reason that no row has")


def _unasked(message: Message | None) -> ReaderEnded:
    return ReaderEnded(f"it sent {type(message).__name__}, which was not asked for")
