"""The rows of a file as an import takes them, and as the file has them. The reader runs this."""

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import chain, islice

import msgspec

from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.intake import VERSION, SheetRow
from storekeeper.domain.problems import Wrong, encode_wrong, shown
from storekeeper.domain.reasons import Reason
from storekeeper.domain.stores import (
    MAX_CONTENT_BYTES,
    MAX_EXTERNAL_LENGTH,
    MAX_INTEGER,
    MAX_NAME_LENGTH,
    check_payload,
)
from storekeeper.sheets import BadFile
from storekeeper.sheets.columns import Columns, TooLong
from storekeeper.sheets.protocol import CELL_SIZE, MAX_DESCRIBED, MAX_DESCRIBED_ROW, Layout
from storekeeper.sheets.records import NoText, Sheet

PROBLEM_COLUMN = "problem"
"""The column of a file of rejects that says why; an import ignores it."""

MAX_TITLES = 10
"""Rows with one cell above the names of the columns."""

_MAX_ESCAPED = 6
"""Bytes of a character in JSON, at most."""

_VERSION = re.compile(VERSION)
_encode = msgspec.json.Encoder().encode


class SheetRows:
    """The rows of a sheet, which can be read once, as a `Layout` says to. Raises BadFile.

    Its header is read at once; `described` and `rejects` are other ways to read the rest.
    """

    def __init__(self, sheet: Sheet, layout: Layout) -> None:
        self._cut_names = layout.cut_names
        self._has_header = layout.header
        self._records = sheet.records()
        self.columns = self._header(layout)
        self.match = self.columns.match

    def _header(self, layout: Layout) -> Columns:
        """Return the columns, by the first row that can name them; titles may stand above it,
        each in one cell."""
        first = next(self._records, None)
        if first is None:
            raise BadFile("the file is empty")
        if not layout.header:
            self._records = chain([first], self._records)
            return Columns(
                [str(number) for number, _ in enumerate(first[1], 1)], layout.map, layout.match
            )
        for _, cells in chain([first], islice(self._records, MAX_TITLES)):
            with suppress(BadFile) if sum(map(bool, cells)) == 1 else nullcontext():
                return Columns(cells, layout.map, layout.match)
        return Columns(first[1], layout.map, layout.match)  # raises

    def __iter__(self) -> Iterator[SheetRow]:
        for place, (line, cells) in enumerate(self._records, 1):
            yield self._row(place, line, cells)

    def _row(self, place: int, line: int, cells: list[object]) -> SheetRow:
        width = len(self.columns.names)
        if len(cells) < width or any(cells[width:]):
            message = f"The row has {len(cells)} cells instead of {width}"
            return _bad_row(place, line, Wrong("row", "", Reason.WRONG_CELLS, message))
        try:
            values = {
                field: value
                for field, of in self.columns.fields.items()
                if (value := of(cells)) is not None
            }
            wrong: list[Wrong] = []
            name, address = self._content(values, wrong)
        except TooLong:
            message = "The name and the address of the row have more than 1 MiB as JSON"
            return _bad_row(place, line, Wrong("row", "", Reason.TOO_LARGE, message))
        version: str | None = str(values.get("version", "")).strip()
        if version and not _VERSION.match(version):
            wrong.append(Wrong("version", version, Reason.NOT_VERSION))
            version = None
        key = self._key(cells, name, wrong)
        has_address = int("address" in values)
        return SheetRow(
            place, line, key, version or None, encode_wrong(wrong), has_address, name, address
        )

    def _content(
        self, values: Mapping[str, object], wrong: list[Wrong]
    ) -> tuple[str | None, str | None]:
        """Return name and address, if they are as they must be. Raises TooLong."""
        content = {"name": values.get("name", "-")}
        if values.get("address"):
            content["address"] = values["address"]
        name = content["name"]
        if self._cut_names and type(name) is str and len(name) > MAX_NAME_LENGTH:
            content["name"] = name[:MAX_NAME_LENGTH]
            wrong.append(
                Wrong("name", name, Reason.CUT, f'The name was cut to "{content["name"]}"')
            )
        try:
            payload = check_payload(content)
        except InvalidInput as error:
            for field, violation in error.violations.items():
                wrong.append(Wrong(field, str(content[field]), violation.reason))
            return None, None
        _check_size(payload.address or "", content)
        return payload.name if "name" in values else None, payload.address

    def _key(self, cells: Sequence[object], name: str | None, wrong: list[Wrong]) -> str | None:
        """Return what the row is matched by, None if it is a new store or the key is wrong."""
        if self.columns.key is None:
            return None
        if self.match == "name":
            return name
        cell = self.columns.key(cells)
        text = _text(cell).strip()
        if isinstance(cell, NoText):
            reason = Reason.NOT_TEXT
        elif self.match == "id":
            if not text:
                return None
            if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_INTEGER:
                return str(int(text))
            reason = Reason.UNKNOWN_STORE
        elif not text:
            reason = Reason.REQUIRED
        elif "\0" in text:
            reason = Reason.HAS_NULLS
        elif len(text) > MAX_EXTERNAL_LENGTH:
            reason = Reason.TOO_LONG
        else:
            return text
        wrong.append(Wrong(self.match or "", text, reason))
        return None

    # The rows as the file has them.

    def described(self, lines: Sequence[int]) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the cells by their columns of the rows that begin at these lines, up to
        MAX_DESCRIBED characters."""
        room, wanted = MAX_DESCRIBED, set(lines)
        names = [shown(name) or str(number) for number, name in enumerate(self.columns.names, 1)]
        for line, cells in self._records if lines else ():
            if line > lines[-1] or room <= 0:
                break
            if line in wanted:
                row = _shown_row(names, cells, min(room, MAX_DESCRIBED_ROW))
                room -= sum(map(len, chain(row, row.values()))) + CELL_SIZE * len(row)
                yield line, row

    def rejects(self, messages: Iterable[tuple[int, str]]) -> Iterator[bytes]:
        """Yield the parts of a CSV file with the rows of these lines, which ascend, each with its
        message, so that they can be corrected and imported."""
        names = self.columns.names
        kept = [place for place, name in enumerate(names) if name != PROBLEM_COLUMN]
        yield codecs.BOM_UTF8  # without it, Excel takes the file for another encoding
        if self._has_header:
            heading = [names[place] for place in kept]
            heading.append(PROBLEM_COLUMN)
            yield _csv_line(heading)
        left = iter(messages)
        reject = next(left, None)
        for line, cells in self._records:
            if reject is None:
                return
            if line == reject[0]:
                padded = cells + [""] * (len(names) - len(cells))
                line_cells = [padded[place] for place in kept]
                line_cells.append(reject[1])
                yield _csv_line(line_cells)
                reject = next(left, None)


def _bad_row(place: int, line: int, wrong: Wrong) -> SheetRow:
    return SheetRow(place, line, None, None, encode_wrong([wrong]), 0, None, None)


def _check_size(address: str, content: Mapping[str, object]) -> None:
    """Raise TooLong if a name and an address are too large."""
    if len(address) * _MAX_ESCAPED < MAX_CONTENT_BYTES // 2:
        return  # as nearly all are
    if len(_encode(content)) > MAX_CONTENT_BYTES:
        raise TooLong


def _shown_row(names: Sequence[str], cells: Sequence[object], room: int) -> dict[str, str]:
    """Return the cells by their columns, up to so many characters."""
    row: dict[str, str] = {}
    for name, cell in zip(names, cells, strict=False):
        row[name] = shown(_text(cell))
        room -= len(name) + len(row[name]) + CELL_SIZE
        if room <= 0:
            break
    return row


def _csv_line(cells: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)
