"""What the parser of XLSX tells, as texts and rows (ECMA-376)."""

import re
from collections.abc import Iterator
from functools import lru_cache
from math import isfinite

from storekeeper.sheets import BadFile, Record
from storekeeper.sheets.cells import BadCell
from storekeeper.sheets.formats import Show, general
from storekeeper.sheets.merges import Merges

MAX_COLUMN = 16_384
MAX_CELL_LENGTH = 2**20
MAX_ROW_LENGTH = 4 * 2**20
"""Characters of a cell, and of a row: its cells may all have one text that they share."""

_MAX_PARTS = MAX_CELL_LENGTH // 128
"""Pieces of a cell that the parser tells one by one: each has a line, or some kilobytes."""

_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")


class TextReader:
    """Takes the elements of the texts that cells share, without the readings of Japanese ones."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._parts: list[str] = []
        self._size = 0
        self._is_text = self._is_reading = False

    def start(self, name: str, _: dict[str, str]) -> None:
        """Take the start of an element."""
        match local_name(name):
            case "si":
                self._parts.clear()
                self._size = 0
            case "rPh":
                self._is_reading = True
            case "t":
                self._is_text = not self._is_reading

    def text(self, data: str) -> None:
        """Take a text between elements."""
        if self._is_text:
            self._size += len(data)
            if self._size > MAX_CELL_LENGTH:
                raise BadFile(f"a cell has more than {MAX_CELL_LENGTH:,} characters")
            self._parts.append(data)

    def end(self, name: str) -> None:
        """Take the end of an element."""
        match local_name(name):
            case "si":
                self.texts.append(_unescaped("".join(self._parts)))
            case "rPh":
                self._is_reading = False
            case "t":
                self._is_text = False


class SheetReader:
    """Takes the elements of a sheet, and makes rows of them."""

    def __init__(self, texts: list[str], shows: list[Show], merges: Merges) -> None:
        self._texts = texts
        self._shows = shows
        self._merges = merges
        self._rows: list[Record] = []
        self._number = 0
        self._cells: list[object] = []
        self._column = 0
        self._kind = self._style = ""
        self._parts: list[str] = []
        self._has_formula = self._is_value = self._is_reading = False

    def take(self) -> Iterator[Record]:
        """Yield the rows since the last call."""
        rows, self._rows = self._rows, []
        return iter(rows)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Take the start of an element."""
        local = name if ":" not in name else local_name(name)
        if local == "c":
            reference = attributes.get("r")
            self._column = _column(reference) if reference else self._column + 1
            self._kind = attributes.get("t", "n")
            self._style = attributes.get("s", "")
            self._has_formula = False
            self._parts.clear()
        elif local in ("v", "t"):
            self._is_value = not self._is_reading
        elif local == "row":
            self._number = int(attributes.get("r") or self._number + 1)
            self._cells = []
            self._column = 0
        elif local == "f":
            self._has_formula = True
        elif local == "rPh":
            self._is_reading = True

    def text(self, data: str) -> None:
        """Take a text between elements."""
        if self._is_value:
            self._parts.append(data)
            if len(self._parts) > _MAX_PARTS:
                raise BadFile(f"line {self._number}: a cell has too many characters")

    def end(self, name: str) -> None:
        """Take the end of an element."""
        local = name if ":" not in name else local_name(name)
        if local in ("v", "t"):
            self._is_value = False
        elif local == "c":
            parts = self._parts
            cell = self._cell(parts[0] if len(parts) == 1 else "".join(parts))
            if cell or type(cell) is not str:
                missing = self._column - 1 - len(self._cells)
                if missing:
                    self._cells += [""] * missing
                self._cells.append(cell)
        elif local == "rPh":
            self._is_reading = False
        elif local == "row":
            self._end_row()

    def _end_row(self) -> None:
        if sum(map(len, self._cells)) > MAX_ROW_LENGTH:  # type: ignore[arg-type]  # all are texts
            message = f"line {self._number}: its cells have more than {MAX_ROW_LENGTH:,} characters"
            raise BadFile(message)
        if any(map(_has_content, self._cells)):
            self._merges.fill(self._number, self._cells)
            self._rows.append((self._number, self._cells))

    def _cell(self, value: str) -> str:
        kind = self._kind
        if kind == "s":
            return self._texts[int(value)] if value else ""
        if kind in ("str", "inlineStr"):
            return _unescaped(value)
        if kind == "e":
            return BadCell(value.strip() or "#N/A")
        if not value.strip():
            return BadCell("") if self._has_formula else ""
        if kind == "b":
            return "FALSE" if value.strip() == "0" else "TRUE"
        if kind == "d":
            return value.removesuffix("T00:00:00")
        style = int(self._style) if self._style else 0
        show = self._shows[style] if style < len(self._shows) else general
        number = float(value)
        return show(number) if isfinite(number) else value


def _has_content(cell: object) -> bool:
    return type(cell) is BadCell or str(cell).strip() != ""


@lru_cache(1000)
def local_name(name: str) -> str:
    """Return a name without its prefix."""
    return name.rpartition(":")[2]


def _column(reference: str) -> int:
    return _column_of(reference.rstrip("0123456789"))


@lru_cache(MAX_COLUMN)
def _column_of(letters: str) -> int:
    """Return the number of a column, from 1. Raises ValueError."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter.upper()) - ord("A") + 1
        if not 0 < number <= MAX_COLUMN:
            raise ValueError(f"there is no column {letters[:10]}")
    return number


def _unescaped(text: str) -> str:
    """Return a text with the characters that XML cannot have."""
    if "_x" not in text:
        return text
    return _ESCAPED.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    number = int(found[1], 16)
    return found[0] if 0xD800 <= number < 0xE000 else chr(number)
