"""Stores as CSV (RFC 4180), in and out, a row at a time. Imports the domain.

An empty cell is the same as no value: both are read and written as none.
"""

import codecs
import csv
from collections.abc import AsyncIterator, Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from storekeeper.collection import Listing
from storekeeper.errors import InvalidInput, StorekeeperError, Violation
from storekeeper.stores import Payload, check_payload

_FIELDS = Payload.__struct_fields__
COLUMNS = ("id", *_FIELDS)
"""The columns of an export. An import needs all but the first; ids are assigned by the collection."""

_CELLS = itemgetter(*COLUMNS)
_MAX_CELL_LENGTH = 2**20
_MAX_LINE_LENGTH = 4 * 2**20
"""Characters of a line: more than any that can be imported has, quotes and all."""

_MAX_SHOWN_LENGTH = 80
"""Characters of a header that an error message shows."""


class BadFile(StorekeeperError):
    """The file as a whole cannot be imported."""


class HasIds(StorekeeperError):
    """A row has an id, as in an export: an import would add its store again, under another id."""


class BadRows(StorekeeperError):
    """Some rows break the rules; `count` of `rows`. Each was reported when it was read."""

    def __init__(self, count: int, rows: int) -> None:
        self.count = count
        self.rows = rows
        super().__init__(f"{count} of {rows} rows are bad")


class Import:
    """A CSV file to import, opened by `open_to_read`; its header is read at once. Raises BadFile.

    `report` is called with line number and message for each bad row.
    """

    def __init__(self, file: IO[str], report: Callable[[int, str], None]) -> None:
        csv.field_size_limit(_MAX_CELL_LENGTH)
        self._reader = csv.reader(_lines(file), strict=True)
        self._report = report
        self._ids_met = False
        self._ids_are_row_numbers = True
        try:
            self._columns = _columns(next(self._reader, []))
        except csv.Error as error:
            raise BadFile(f"line 1: {error}") from None

    @property
    def has_ids(self) -> bool:
        """Whether there is a column of ids, as in an export."""
        return self._columns.id is not None

    def payloads(self, progress: Callable[[int], None], *, refuse_ids: bool) -> Iterator[Payload]:
        """Return the payloads. Raises BadFile, and with `refuse_ids` HasIds at the first row that has an id.

        Reads to the end even when rows are bad, then raises BadRows. `progress` is called now and then with the
        number of rows so far.
        """
        bad = rows = 0
        line = self._reader.line_num + 1
        try:
            for row in self._reader:
                if row:
                    rows += 1
                    if id := self._columns.id_of(row):
                        self._meet(id, rows, line, refuse=refuse_ids)
                    try:
                        yield _payload(row, self._columns)
                    except InvalidInput as error:
                        bad += 1
                        self._report(line, str(error))
                    if rows % 10_000 == 0:
                        progress(rows)
                line = self._reader.line_num + 1
        except csv.Error as error:
            raise BadFile(f"line {line}: {error}") from None
        if bad:
            raise BadRows(bad, rows)

    def _meet(self, id: str, row: int, line: int, *, refuse: bool) -> None:
        if refuse:
            raise HasIds(f"line {line} has the id {id[:_MAX_SHOWN_LENGTH]}")
        self._ids_met = True
        self._ids_are_row_numbers &= id == str(row)

    def renumbered(self, ids: range) -> bool:
        """Tell whether `ids`, which the rows got, are others than those in the file."""
        return self._ids_met and not (self._ids_are_row_numbers and ids.start == 1)


def _lines(file: IO[str]) -> Iterator[str]:
    number = 0
    while line := file.readline(_MAX_LINE_LENGTH):
        number += 1
        if len(line) == _MAX_LINE_LENGTH:
            raise BadFile(f"line {number}: longer than {_MAX_LINE_LENGTH:,} characters")
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError:
                raise BadFile(f"line {number}: not UTF-8") from None
        yield line


class _Columns(NamedTuple):
    """Where the cells of a row stand, and how many there are."""

    fields: list[tuple[str, int]]
    id: int | None
    width: int

    def id_of(self, row: list[str]) -> str:
        return row[self.id] if self.id is not None and self.id < len(row) else ""


def _columns(header: list[str]) -> _Columns:
    names = [cell.strip().lower() for cell in header]
    if sorted(names) not in (sorted(_FIELDS), sorted(COLUMNS)):
        shown = ",".join(header) or "empty"
        cut = "…" if len(shown) > _MAX_SHOWN_LENGTH else ""
        raise BadFile(f"line 1 has to be the header {','.join(_FIELDS)}; it is {shown[:_MAX_SHOWN_LENGTH]}{cut}")
    id = names.index("id") if "id" in names else None
    return _Columns([(name, names.index(name)) for name in _FIELDS], id, len(names))


def _payload(row: list[str], columns: _Columns) -> Payload:
    if len(row) != columns.width:
        raise InvalidInput("payload", [Violation(None, f"{len(row)} cells instead of {columns.width}")])
    return check_payload({name: row[place] for name, place in columns.fields if row[place]})


async def write(file: IO[str], listing: Listing, progress: Callable[[int], None]) -> int:
    """Write a listing, opened with `newline=""`; return how many stores it has."""
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    decode = msgspec.json.Decoder(list[dict[str, int | str | None]]).decode
    count = 0
    async for part in _parts(listing):
        rows = decode(b"[%b]" % part)
        writer.writerows(map(_CELLS, rows))
        count += len(rows)
        progress(count)
    return count


async def _parts(listing: Listing) -> AsyncIterator[bytes]:
    yield listing.first
    if listing.rest is not None:
        async for part in listing.rest:
            yield part.removeprefix(b",")


def may_be_replaced(file: Path) -> bool:
    """Tell whether an export may take the place of a file: there is none, or it is empty, or an export itself.

    What is no regular file is written to and not replaced.
    """
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
    """Open a file, or a file descriptor that stays open, for an `Import`: UTF-8 that may begin with a BOM."""
    # A strict decoder reads ahead: it would report an error too early, and not its line.
    return open(file, encoding="utf-8-sig", errors="surrogateescape", newline="", closefd=isinstance(file, Path))
