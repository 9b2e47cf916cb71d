"""The rows of a file to import: what each says of its store, and what is wrong with it. Imports
the domain.

Decisions 52, 53 and 55.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import chain, islice
from typing import IO

from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.intake import Import, Row
from storekeeper.domain.problems import (
    CELLS,
    CUT,
    HAS_NULLS,
    NO_TEXT,
    NO_VERSION,
    REQUIRED,
    TOO_LONG,
    UNKNOWN,
    Problem,
    Wrong,
    encode_wrong,
    limited,
    shown,
)
from storekeeper.domain.stores import (
    MAX_EXTERNAL_LENGTH,
    MAX_INTEGER,
    MAX_NAME_LENGTH,
    check_payload,
)
from storekeeper.sheets import BadFile, Record
from storekeeper.sheets.columns import Columns
from storekeeper.sheets.records import open_sheet

PROBLEM_COLUMN = "problem"
"""The column of a file of rejects that says why; an import ignores it."""

MAX_TITLES = 10
"""Rows with one cell above the names of the columns."""

MAX_DESCRIBED = 4 * 2**20
"""Characters of the rows that a report has: a file may have thousands of columns."""

_VERSION = re.compile(r"[0-9]{1,18}\.[a-z2-7]{8}")
_REASONS = {
    limited(reason.rule, "name"): reason for reason in (REQUIRED, TOO_LONG, HAS_NULLS, NO_TEXT)
}
"""The reason for each rule of the contract."""


class SheetRows:
    """The rows of a file, which can be iterated once, as an `Import` says to read them. Raises
    BadFile.

    Its header is read at once. `check` is called with the place of each row, and may raise.
    """

    def __init__(
        self, file: IO[bytes], options: Import, check: Callable[[int], None] = lambda _: None
    ) -> None:
        self.file = file
        self._sheet = open_sheet(file, options.encoding)
        self._cut_names = options.cut_names
        self._check = check
        self._records = self._sheet.records()
        self._above = 0
        self.columns = self._header(options)
        self.match = self.columns.match

    def _header(self, options: Import) -> Columns:
        """Return the columns, by the first row that can name them; titles may stand above it,
        each in one cell."""
        first = next(self._records, None)
        if first is None:
            raise BadFile("the file is empty")
        if not options.header:
            self._records = chain([first], self._records)
            return Columns(
                [str(number) for number, _ in enumerate(first[1], 1)], options.map, options.match
            )
        for _, cells in chain([first], islice(self._records, MAX_TITLES)):
            self._above += 1
            with suppress(BadFile) if sum(map(bool, cells)) == 1 else nullcontext():
                return Columns(cells, options.map, options.match)
        return Columns(first[1], options.map, options.match)  # raises

    def __iter__(self) -> Iterator[Row]:
        for place, (line, cells) in enumerate(self._records, 1):
            self._check(place)
            yield self._row(place, line, cells)

    def _row(self, place: int, line: int, cells: list[object]) -> Row:
        wrong: list[Wrong] = []
        width = len(self.columns.names)
        if len(cells) < width or any(cells[width:]):
            wrong.append(
                Wrong("row", "", CELLS, f"The row has {len(cells)} cells instead of {width}")
            )
            return Row(place, line, None, None, encode_wrong(wrong), 0, None, None)
        values = {
            field: value
            for field, of in self.columns.fields.items()
            if (value := of(cells)) is not None
        }
        name, address = self._content(values, wrong)
        version = str(values.get("version", "")).strip()
        if version and not _VERSION.fullmatch(version):
            wrong.append(Wrong("version", version, NO_VERSION))
        key = self._key(cells, name, wrong)
        has_address = int("address" in values)
        return Row(
            place, line, key, version or None, encode_wrong(wrong), has_address, name, address
        )

    def _content(
        self, values: Mapping[str, object], wrong: list[Wrong]
    ) -> tuple[str | None, str | None]:
        """Return name and address, if they are as they must be."""
        content = {"name": values.get("name", "-")}
        if values.get("address"):
            content["address"] = values["address"]
        name = content["name"]
        if self._cut_names and isinstance(name, str) and len(name) > MAX_NAME_LENGTH:
            content["name"] = name[:MAX_NAME_LENGTH]
            wrong.append(Wrong("name", name, CUT, f'The name was cut to "{content["name"]}"'))
        try:
            payload = check_payload(content)
        except InvalidInput as error:
            for field, rule in error.violations.items():
                wrong.append(
                    Wrong(field, str(content[field]), _REASONS[rule.removeprefix(f'"{field}" ')])
                )
            return None, None
        return payload.name if "name" in values else None, payload.address

    def _key(self, cells: Sequence[object], name: str | None, wrong: list[Wrong]) -> str | None:
        """Return what the row is matched by, None if it is a new store or the key is wrong."""
        if self.columns.key is None:
            return None
        if self.match == "name":
            return name
        text = _text(self.columns.key(cells)).strip()
        if self.match == "id":
            if not text:
                return None
            if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_INTEGER:
                return str(int(text))
            reason = UNKNOWN
        elif text and len(text) <= MAX_EXTERNAL_LENGTH and "\0" not in text:
            return text
        else:
            reason = HAS_NULLS if "\0" in text else TOO_LONG if text else REQUIRED
        wrong.append(Wrong(self.match or "", text, reason))
        return None

    # The rows again, as the file has them.

    def _again(self) -> Iterator[Record]:
        return islice(self._sheet.records(), self._above, None)

    def describe(self, problems: Sequence[Problem]) -> None:
        """Add the rows of the file to problems, up to MAX_DESCRIBED characters."""
        room = MAX_DESCRIBED
        of_lines: dict[int, list[Problem]] = {}
        for problem in problems:
            of_lines.setdefault(problem.line, []).append(problem)
        names = [name or str(number) for number, name in enumerate(self.columns.names, 1)]
        for line, cells in self._again() if problems else ():
            for problem in of_lines.get(line, ()) if room > 0 else ():
                problem.row = {
                    name: shown(_text(cell)) for name, cell in zip(names, cells, strict=False)
                }
                room -= sum(map(len, chain(problem.row, problem.row.values())))

    def write_rejects(self, file: IO[str], messages: Mapping[int, str]) -> None:
        """Write the rows of these lines as CSV, each with its message, so that they can be
        mended and imported."""
        names = self.columns.names
        kept = [place for place, name in enumerate(names) if name != PROBLEM_COLUMN]
        writer = csv.writer(file)
        file.write("\ufeff")  # without it, Excel takes the file for another encoding
        if self._above:
            writer.writerow([*(names[place] for place in kept), PROBLEM_COLUMN])
        for line, cells in self._again():
            if line in messages:
                padded = [*cells, *[""] * len(names)]
                writer.writerow([*(padded[place] for place in kept), messages[line]])


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)
