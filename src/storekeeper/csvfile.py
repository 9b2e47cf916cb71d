"""Stores as CSV (RFC 4180), in and out, a row at a time. Imports the domain.

An empty cell means that the field has no value.
"""

import codecs
import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO

from storekeeper.errors import InvalidInput, StorekeeperError
from storekeeper.stores import Payload, check_payload

_FIELDS = Payload.__struct_fields__
COLUMNS = ("id", *_FIELDS)
"""The columns of an export. An import needs all but the first; the collection assigns the ids."""

_HEADER_RULE = f"line 1 must be the header {','.join(_FIELDS)}"

_MAX_CELL_LENGTH = 2**20
_MAX_LINE_LENGTH = 4 * 2**20
_MAX_SHOWN_LENGTH = 80
"""Characters of a cell, of a line (no line that can be imported is longer), and of what a message shows of a file."""


class BadFile(StorekeeperError):
    """The file cannot be imported."""


class Import:
    """A CSV file to import, opened by `open_to_read`; its header is read at once. Raises BadFile.

    `report` gets the line number and a message of each bad row.
    """

    def __init__(self, file: IO[str], report: Callable[[int, str], None]) -> None:
        csv.field_size_limit(_MAX_CELL_LENGTH)
        self._reader = csv.reader(_lines(file), strict=True)
        self._report = report
        self._shifts = set[int | None]()  # id minus number of its row, None if the id is no number; two are enough
        try:
            self._columns = _columns(next(self._reader, []))
        except csv.Error as error:
            raise BadFile(f"{_HEADER_RULE}: {error}") from None
        self.has_ids = "id" in self._columns

    def payloads(self, progress: Callable[[int], None]) -> Iterator[Payload]:
        """Yield the payloads; call `progress` with the number of rows so far. Raises BadFile.

        It reports the rows that break the rules, and raises BadFile for them at the end.
        """
        bad = rows = 0
        line = self._reader.line_num + 1
        try:
            for row in self._reader:
                if row:
                    rows += 1
                    cells = dict(zip(self._columns, row, strict=False))
                    if (id := cells.pop("id", "")) and len(self._shifts) < 2:
                        is_number = id.isascii() and id.isdigit() and len(id) < 20
                        self._shifts.add(int(id) - rows if is_number else None)
                    try:
                        yield self._payload(row, cells)
                    except InvalidInput as error:
                        bad += 1
                        self._report(line, str(error))
                    progress(rows)
                line = self._reader.line_num + 1
        except csv.Error as error:
            raise BadFile(f"line {line}: {error}") from None
        if bad:
            raise BadFile(f"{bad} of {rows} rows are invalid: correct them and import again")

    def _payload(self, row: list[str], cells: dict[str, str]) -> Payload:
        if len(row) != len(self._columns):
            raise InvalidInput("payload", f"{len(row)} cells instead of {len(self._columns)}")
        return check_payload({name: cell for name, cell in cells.items() if cell})

    def renumbered(self, ids: range) -> bool:
        """Return whether the ids that the rows got differ from the ids in the file."""
        return not self._shifts <= {ids.start - 1}


def _lines(file: IO[str]) -> Iterator[str]:
    for number, line in enumerate(iter(partial(file.readline, _MAX_LINE_LENGTH), ""), 1):
        if len(line) == _MAX_LINE_LENGTH:
            raise BadFile(f"line {number}: longer than {_MAX_LINE_LENGTH:,} characters")
        try:
            line.encode()
        except UnicodeEncodeError:
            raise BadFile(f"line {number}: not UTF-8: save the file as UTF-8") from None
        yield line


def _columns(header: list[str]) -> list[str]:
    names = [cell.strip().lower() for cell in header]
    if sorted(names) not in (sorted(_FIELDS), sorted(COLUMNS)):
        shown = ",".join(f'"{cell}"' if "," in cell else cell for cell in header) or "empty"
        cut = "…" if len(shown) > _MAX_SHOWN_LENGTH else ""
        raise BadFile(f"{_HEADER_RULE}; it is {shown[:_MAX_SHOWN_LENGTH]}{cut}")
    return names


def write(file: IO[str], rows: Iterable[Sequence[object]], progress: Callable[[int], None]) -> int:
    """Write rows of `tables.STORES` to a file, opened with `newline=""`; return how many there are."""
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    count = 0
    for count, row in enumerate(rows, 1):
        writer.writerow(row[: len(COLUMNS)])
        progress(count)
    return count


def may_be_replaced(file: Path) -> bool:
    """Return whether an export may replace a file: it does not exist, is not regular, is empty, or is an export."""
    if not file.is_file():
        return True
    header = ",".join(COLUMNS).encode()
    try:
        with file.open("rb") as opened:
            begin = opened.read(len(codecs.BOM_UTF8) + len(header) + 2)
    except PermissionError:
        return False
    return not begin or begin.removeprefix(codecs.BOM_UTF8).startswith((header + b"\r\n", header + b"\n"))


def open_to_read(file: Path | int) -> IO[str]:
    """Open a file, or a file descriptor that stays open, for an `Import`, as UTF-8 that may begin with a BOM."""
    # A strict decoder reads ahead, so it would not report the line of an error.
    return open(file, encoding="utf-8-sig", errors="surrogateescape", newline="", closefd=isinstance(file, Path))
