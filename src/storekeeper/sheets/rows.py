"""The rows of a file to import: what each says of its store, and what is wrong with it. Imports the domain.

Decisions 52, 53 and 55.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import msgspec

from storekeeper.errors import InvalidInput
from storekeeper.imports import (
    CELLS,
    CUT,
    HAS_NULLS,
    NO_TEXT,
    NO_VERSION,
    REQUIRED,
    TOO_LONG,
    UNKNOWN,
    Problem,
    Problems,
    Reason,
    Row,
    shown,
)
from storekeeper.search import folded
from storekeeper.sheets import ABSENT, BadFile, Record
from storekeeper.sheets.columns import Columns
from storekeeper.sheets.records import Sheet
from storekeeper.stores import MAX_NAME_LENGTH, check_payload
from storekeeper.tables import MAX_EXTERNAL_LENGTH, MAX_INTEGER

PROBLEM_COLUMN = "problem"
"""The column of a file of rejects that says why; an import ignores it."""

MAX_DESCRIBED = 4 * 2**20
"""Characters of the rows that a report has: a file may have thousands of columns."""

_VERSION = re.compile(r"[0-9]{1,18}\.[a-z2-7]{8}")
_REASONS = {
    "is required": REQUIRED,
    f"{MAX_NAME_LENGTH} characters long": TOO_LONG,
    "null characters": HAS_NULLS,
    "must be a string": NO_TEXT,
}
"""The reason for each sentence of the contract, by its end."""


class Options(msgspec.Struct, frozen=True):
    """How to read the rows of a file; see `Columns`. Without `header`, the columns are named 1, 2, 3, …"""

    match: str | None = None
    maps: Mapping[str, str] = {}
    header: bool = True
    cut_names: bool = False


class SheetRows:
    """An `importer.Source`: the rows of a sheet, which can be iterated once. Its header is read at once.

    Raises BadFile.
    """

    def __init__(self, sheet: Sheet, options: Options) -> None:
        self._sheet = sheet
        self.file = sheet.file
        self._options = options
        self._records = sheet.records()
        first = next(self._records, None)
        if first is None:
            raise BadFile("the file is empty")
        names = first[1] if options.header else [str(number) for number in range(1, len(first[1]) + 1)]
        self.columns = Columns(names, options.maps, options.match)
        if not options.header:
            self._records = sheet.records()
        self.match = self.columns.match
        self.problems, self.cut = Problems(), Problems()
        self.repeated = set[str]()
        self._seen = set[str]()

    def __iter__(self) -> Iterator[Row]:
        for place, (line, cells) in enumerate(self._records, 1):
            yield self._row(place, line, cells)

    def _row(self, place: int, line: int, cells: list[object]) -> Row:
        width = len(self.columns.names)
        if len(cells) < width or any(cells[width:]):
            self.problems.add(line, "row", "", CELLS, f"The row has {len(cells)} cells instead of {width}")
            return Row(place, line, None, None, 1, 0, None, None, None)
        values = {name: cell(cells) for name, cell in self.columns.fields.items()}
        wrong: list[tuple[str, object, Reason, str]] = []
        name, address = self._name(line, values.get("name", ABSENT)), values.get("address", ABSENT)
        all_new = self.match is None
        has_address = all_new or address is not ABSENT
        if name is ABSENT and all_new:
            name = ""
        address = address or None
        _check(name, address, wrong)
        version = _text(values.get("version", ABSENT))
        if version and not _VERSION.fullmatch(version):
            wrong.append(("version", version, NO_VERSION, ""))
        key = self._key(cells, name, wrong)
        if wrong:
            id = int(key) if key and self.match == "id" else None
            for column, value, reason, message in wrong:
                self.problems.add(line, column, value, reason, message, id)
            return Row(place, line, key, None, 1, 0, None, None, None)
        assert name is None or isinstance(name, str)
        assert address is None or isinstance(address, str)
        searched = folded(name, address) if name is not None and has_address else None
        return Row(place, line, key, version or None, 0, int(has_address), name, searched, address)

    def _name(self, line: int, name: object) -> object:
        if self._options.cut_names and isinstance(name, str) and len(name) > MAX_NAME_LENGTH:
            cut = name[:MAX_NAME_LENGTH]
            self.cut.add(line, "name", name, CUT, f'The name was cut to "{cut}"')
            return cut
        return name

    def _key(self, cells: Sequence[object], name: object, wrong: list[tuple[str, object, Reason, str]]) -> str | None:
        """Return what the row is matched by, None if it is a new store or the key is wrong."""
        if self.match is None or self.columns.key is None:
            return None
        if self.match == "name":
            key = None if wrong else name
        elif self.match == "id":
            key = _id(_text(self.columns.key(cells)), wrong)
        else:
            key = _outside_key(self.match, _text(self.columns.key(cells)), wrong)
        if not isinstance(key, str):
            return None
        if key in self._seen:
            self.repeated.add(key)
        self._seen.add(key)
        return key

    # The rows again, as the file has them.

    def _again(self) -> Iterator[Record]:
        records = self._sheet.records()
        if self._options.header:
            next(records)
        return records

    def describe(self, problems: Sequence[Problem]) -> None:
        """Add the rows of the file to problems, up to MAX_DESCRIBED characters."""
        room = MAX_DESCRIBED
        of_lines: dict[int, list[Problem]] = {}
        for problem in problems:
            of_lines.setdefault(problem.line, []).append(problem)
        names = [name or str(number) for number, name in enumerate(self.columns.names, 1)]
        for line, cells in self._again() if problems else ():
            for problem in of_lines.get(line, ()) if room > 0 else ():
                problem.row = dict(zip(names, map(shown, cells), strict=False))
                room -= sum(map(len, problem.row.values())) + sum(map(len, names))

    def write_rejects(self, file: IO[str], messages: Mapping[int, str]) -> None:
        """Write the rows of these lines as CSV, each with its message, so that they can be mended and imported."""
        names = self.columns.names
        kept = [place for place, name in enumerate(names) if name != PROBLEM_COLUMN]
        writer = csv.writer(file)
        if self._options.header:
            writer.writerow([*(names[place] for place in kept), PROBLEM_COLUMN])
        for line, cells in self._again():
            if (message := messages.get(line)) is not None:
                padded = [*cells, *[""] * len(names)]
                writer.writerow([*(padded[place] for place in kept), message])


def _check(name: object, address: object, wrong: list[tuple[str, object, Reason, str]]) -> None:
    payload: dict[str, object] = {"name": "-" if name is ABSENT else name}
    if address is not None:
        payload["address"] = address
    try:
        check_payload(payload)
    except InvalidInput as error:
        for field, message in error.violations.items():
            reason = next(reason for end, reason in _REASONS.items() if message.endswith(end))
            wrong.append((field, payload[field], reason, message))


def _text(cell: object) -> str:
    return "" if cell is ABSENT else str(cell).strip()


def _id(text: str, wrong: list[tuple[str, object, Reason, str]]) -> str | None:
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_INTEGER:
        return str(int(text))
    wrong.append(("id", text, UNKNOWN, ""))
    return None


def _outside_key(column: str, text: str, wrong: list[tuple[str, object, Reason, str]]) -> str | None:
    if text and len(text) <= MAX_EXTERNAL_LENGTH and "\0" not in text:
        return text
    if not text:
        wrong.append((column, text, REQUIRED, f'"{column}" is required'))
    elif "\0" in text:
        wrong.append((column, text, HAS_NULLS, f'"{column}" must not contain null characters'))
    else:
        rule = f"length must be less than or equal to {MAX_EXTERNAL_LENGTH} characters long"
        wrong.append((column, text, TOO_LONG, f'"{column}" {rule}'))
    return None
