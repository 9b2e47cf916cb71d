"""The rows of a file as an import takes them, and as the file has them. The reader runs this."""

import codecs
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from storekeeper.domain.intake import VERSION, SheetRow
from storekeeper.domain.problems import Wrong, encode_wrong, shown
from storekeeper.domain.reasons import Reason
from storekeeper.domain.stores import (
    MAX_EXTERNAL_LENGTH,
    MAX_NAME_LENGTH,
)
from storekeeper.sheets import BadFile, Record
from storekeeper.sheets.cells import (
    BadCell,
    BrokenRow,
    MergedCell,
    NoText,
    csv_line,
    text_of,
)
from storekeeper.sheets.columns import (
    MAX_COLUMNS,
    Columns,
    TooLong,
    check_size,
    named_columns,
    plain,
    unique,
    without_prefix,
)
from storekeeper.sheets.headers import MAX_ROWS_ABOVE, find_header, hint_rows, is_same_row
from storekeeper.sheets.keys import id_of, why_no_key
from storekeeper.sheets.protocol import CELL_SIZE, MAX_DESCRIBED, MAX_DESCRIBED_ROW, Layout
from storekeeper.sheets.records import Sheet

PROBLEM_COLUMN = "problem"
"""The column of a file of rejects that says why; an import ignores it."""

MAX_SAMPLE_ROWS = 200
"""Rows by which it is decided what a file is."""

MAX_LAST = 5
"""The last rows of a file, among which sums are looked for."""

_MAX_HINTS = 4
"""Rows below a header among which hints are looked for."""

_VERSION = re.compile(VERSION)


class SheetRows:
    """The rows of a sheet, which can be read once, as a `Layout` says to. Raises BadFile.

    Its header is read at once; `described` and `rejects` are other ways to read the rest.
    """

    def __init__(self, sheet: Sheet, layout: Layout) -> None:
        self._cut_names = layout.cut_names
        self._is_book = sheet.is_book
        records = sheet.records()
        self.sample = list(islice(records, MAX_SAMPLE_ROWS))
        if not self.sample:
            raise BadFile("the file is empty")
        if len(self.sample[0][1]) > MAX_COLUMNS:
            raise BadFile(f"a file may have {MAX_COLUMNS:,} columns at most")
        place = _header_place(sheet, self.sample, layout)
        self.header_row = None if place is None else self.sample[place][0]
        self.above = self.sample[: place or 0]
        below = self.sample[0 if place is None else place + 1 :]
        self._header: list[str] = []
        self.hints: list[Record] = []
        """The rows below the header that say what to fill in."""
        if place is not None and not sheet.has_keys:
            self._header = _texts(self.sample[place][1])
            self.hints = below[: hint_rows([_texts(cells) for _, cells in below[:_MAX_HINTS]])]
        self._records = chain(below[len(self.hints) :], records)
        self.last = deque[Record](maxlen=MAX_LAST)
        """The last rows that were read."""
        self.headers_again = 0
        self.first_header_again = 0
        """How many rows have the names of the columns again, and the line of the first."""
        self.names = self._names_of(place)
        self._columns: Columns | None = None
        self._layout = layout

    @property
    def columns(self) -> Columns:
        """The columns, and what the caller says that they are. Raises BadFile."""
        if self._columns is None:
            self._columns = Columns(
                self.names, self._layout.map, self._layout.match, self._layout.attach
            )
        return self._columns

    def check(self) -> None:
        """Raise BadFile if the caller names columns that there are not."""
        Columns(self.names, self._layout.map, self._layout.match, is_look=True)

    @property
    def match(self) -> str | None:
        """What rows are matched by."""
        return self.columns.match

    def _names_of(self, place: int | None) -> list[str]:
        """Return the names of the columns, or their numbers if there is no header."""
        width = max(len(cells) for _, cells in self.sample)
        if place is None:
            return [str(number) for number in range(1, width + 1)]
        header = _texts(self.sample[place][1])
        missing = width - len(header) if self._is_book else 0
        return [*header, *[""] * missing]

    def records(self) -> Iterator[Record]:
        """Yield the rest of the rows as the file has them, without headers that occur again."""
        for line, cells in self._records:
            if not self._is_header_again(cells):
                self.last.append((line, cells))
                yield line, cells
                continue
            self.headers_again += 1
            self.first_header_again = self.first_header_again or line

    def _is_header_again(self, cells: Sequence[object]) -> bool:
        if not self._header or not cells or cells[0] != self._header[0]:
            return False  # as nearly always
        return is_same_row(self._header, _texts(cells))

    def __iter__(self) -> Iterator[SheetRow]:
        self._fields = self.columns.fields
        width = len(self.columns.names)
        fill = [""] if self._is_book else [None]
        for place, (line, cells) in enumerate(self._records, 1):
            if len(cells) < width:
                cells.extend(fill * (width - len(cells)))
            elif len(cells) > width and not self._is_book and any(cells[width:]):
                yield _too_many(place, line, len(cells), width)
                continue
            if type(cells) is BrokenRow:
                message = "A quotation mark is not closed"
                yield _bad_row(place, line, Wrong("row", "", Reason.UNCLOSED_QUOTE, message))
                continue
            if self._is_header_again(cells):
                yield _bad_row(place, line, Wrong("row", "", Reason.HEADER_AGAIN))
                continue
            self.last.append((line, cells))
            yield self._row(place, line, cells)

    def _row(self, place: int, line: int, cells: list[object]) -> SheetRow:
        try:
            values = {
                field: value.strip() if type(value) is str else value
                for field, of in self._fields.items()
                if (value := of(cells)) is not None
            }
            wrong: list[Wrong] = []
            name, address = self._content(values, wrong)
        except TooLong:
            message = "The name and the address of the row have more than 1 MiB as JSON"
            return _bad_row(place, line, Wrong("row", "", Reason.TOO_LARGE, message))
        version: str | None = str(values.get("version", ""))
        if version and not _VERSION.match(version):
            wrong.append(Wrong("version", version, Reason.NOT_VERSION))
            version = None
        key = self._key(cells, name, wrong)
        attach = self._attach(cells, wrong)
        text = text_of(values.get("id", ""))[:MAX_EXTERNAL_LENGTH].replace("\0", "")
        id = id_of(text, []) or text or None
        has_address = int("address" in values)
        if wrong:  # all of it is told at once
            if name == "" and self.match != "name":
                wrong.insert(0, Wrong("name", name, Reason.REQUIRED))
            if name is not None and not self._cut_names and len(name) > MAX_NAME_LENGTH:
                wrong.insert(0, Wrong("name", name, Reason.TOO_LONG))
            has_address, name, address = 0, None, None
        told = encode_wrong(wrong)
        content = (has_address, name, address)
        return SheetRow(place, line, key, version or None, told, *content, attach, id)

    def _content(
        self, values: Mapping[str, object], wrong: list[Wrong]
    ) -> tuple[str | None, str | None]:
        """Return name and address; the first is None if it is not given. Raises TooLong.

        A name that is blank or too long matters only if it is written, which the import decides.
        """
        texts: dict[str, str] = {}
        for field in ("name", "address"):
            value = values.get(field, "")
            if type(value) is MergedCell and field == "address":
                value = value.strip()
            if isinstance(value, BadCell | MergedCell):
                wrong.append(_bad_cell(field, value))
            elif type(value) is not str:
                wrong.append(Wrong(field, str(value), Reason.NOT_TEXT))
            elif "\0" in value:
                wrong.append(Wrong(field, value, Reason.HAS_NULLS))
            else:
                texts[field] = value
        if wrong:
            return None, None
        check_size(texts)
        name = texts["name"] if "name" in values else None
        return name, texts["address"] or None

    def _key(self, cells: Sequence[object], name: str | None, wrong: list[Wrong]) -> str | None:
        """Return what the row is matched by, None if it is a new store or the key is wrong."""
        if self.columns.key is None:
            return None
        if self.match == "name":
            return self._name_as_key(name, wrong)
        cell = self.columns.key(cells)
        text = text_of(cell).strip()
        if isinstance(cell, BadCell | MergedCell):
            wrong.append(_bad_cell(self.match or "", cell))
            return None
        if self.match == "id" and not isinstance(cell, NoText):
            return id_of(text, wrong)
        reason = why_no_key(cell, text)
        if reason is None:
            return text
        wrong.append(Wrong(self.match or "", text, reason))
        return None

    def _name_as_key(self, name: str | None, wrong: list[Wrong]) -> str | None:
        if name is None or wrong:
            return None
        if self._cut_names:
            name = name[:MAX_NAME_LENGTH].rstrip()
        name = name.replace("\r\n", "\n").replace("\r", "\n")  # as an export has it
        if name and len(name) <= MAX_NAME_LENGTH:
            return name
        wrong.append(Wrong("name", name, Reason.TOO_LONG if name else Reason.REQUIRED))
        return None

    def _attach(self, cells: Sequence[object], wrong: list[Wrong]) -> str | None:
        """Return the key that the store of a row gets, None if it gets none."""
        if self.columns.attach is None:
            return None
        cell = self.columns.attach(cells)
        text = text_of(cell).strip()
        column = self.columns.attached or ""
        if isinstance(cell, BadCell | MergedCell):
            wrong.append(_bad_cell(column, cell))
            return None
        if text and (reason := why_no_key(cell, text)):
            wrong.append(Wrong(column, text, reason))
            return None
        return text or None

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
        if self.header_row is not None:
            heading = [names[place] for place in kept]
            heading.append(PROBLEM_COLUMN)
            yield csv_line(heading)
        left = iter(messages)
        reject = next(left, None)
        for line, cells in self._records:
            if reject is None:
                return
            if line == reject[0]:
                padded = self.columns.without_merged(cells + [""] * (len(names) - len(cells)))
                line_cells = [padded[place] for place in kept]
                line_cells.append(reject[1])
                line_cells += padded[len(names) :]
                yield csv_line(line_cells)
                reject = next(left, None)


def _bad_row(place: int, line: int, wrong: Wrong) -> SheetRow:
    return SheetRow(place, line, None, None, encode_wrong([wrong]), 0, None, None)


def _too_many(place: int, line: int, cells: int, width: int) -> SheetRow:
    message = f"The row has {cells} cells instead of {width}"
    return _bad_row(place, line, Wrong("row", "", Reason.WRONG_CELLS, message))


def _bad_cell(column: str, cell: BadCell | MergedCell) -> Wrong:
    return Wrong(column, str(cell), Reason.BAD_CELL, f"{column} {cell.why}")


def _header_place(sheet: Sheet, sample: Sequence[Record], layout: Layout) -> int | None:
    """Return the place of the header among the first rows, None if there is none: as the caller
    says. If the caller does not, it is the first row that names the columns which the caller names,
    or what looks like a header."""
    if sheet.has_keys:
        return 0
    if layout.header_row == "none":
        return None
    if layout.header_row is not None:
        for place, (line, _) in enumerate(sample):
            if line >= layout.header_row:
                return place
        raise BadFile(f"the file has no row {layout.header_row}", "header-row")
    texts = [_texts(cells) for _, cells in sample]
    named = named_columns(layout.map, layout.match)
    for place, cells in enumerate(texts[:MAX_ROWS_ABOVE] if named else ()):
        names = unique([cell.strip() for cell in cells])
        if named <= {plain(form) for name in names for form in (name, without_prefix(name))}:
            return place
    found = find_header(texts)
    is_numbered = all(map(str.isdigit, named))
    return found if is_numbered or found is not None else 0


def _shown_row(names: Sequence[str], cells: Sequence[object], room: int) -> dict[str, str]:
    """Return the cells by their columns, cut where `room` characters are used up."""
    row: dict[str, str] = {}
    for name, cell in zip(names, cells, strict=False):
        row[name] = shown(text_of(cell))
        room -= len(name) + len(row[name]) + CELL_SIZE
        if room <= 0:
            break
    return row


def _texts(cells: Sequence[object]) -> list[str]:
    return [text_of(cell) for cell in cells]
