"""XLSX as records, with the text that each cell shows (ECMA-376).

No library that reads XLSX fast also tells an error, or a formula that has no value, from an
empty cell.
"""

import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from math import isfinite
from typing import IO
from xml.parsers import expat

from storekeeper.sheets import BadFile, Record
from storekeeper.sheets.cells import BadCell
from storekeeper.sheets.formats import BUILT_IN, GENERAL, Show, general, shower

MAX_COLUMN = 16_384
MAX_CELL_LENGTH = 2**20

_MAX_PARTS = MAX_CELL_LENGTH // 128
"""Pieces of a cell that the parser tells one by one: each has a line, or some kilobytes."""

_PART_BYTES = 64 * 1024
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, expat.ExpatError, struct.error, EOFError, LookupError),
    *(ValueError, TypeError, NotImplementedError, OverflowError, RuntimeError),
)
"""What reading a file raises that is not as it should be."""

_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")


class Workbook:
    """A workbook: the `names` of its visible sheets, and the `active` one, which opens. Raises
    BadFile."""

    def __init__(self, file: IO[bytes]) -> None:
        with _blaming():
            self._archive = zipfile.ZipFile(file)
            self._names = {name.lower(): name for name in self._archive.namelist()}
            main = self._main_part()
            targets = self._targets(main)
            self._texts_part = targets.get("sharedStrings", [""])[0]
            styles = targets.get("styles", [""])[0]
            self.active: str | None = None
            self._parts = self._sheets(main, self._ids(main))
            self.names = list(self._parts)
            self._shows = self._read_styles(styles)
        self._texts: list[str] | None = None

    def records(self, name: str) -> Iterator[Record]:
        """Yield the rows of a sheet that are not blank. Raises BadFile."""
        with _blaming():
            if self._texts is None:
                self._texts = self._read_texts()
            reader = _SheetReader(self._texts, self._shows)
            for _ in self._parse(self._parts[name], reader.start, reader.end, reader.text):
                yield from reader.take()
            yield from reader.take()

    # The parts.

    def _parse(
        self,
        part: str,
        start: Callable[[str, dict[str, str]], object],
        end: Callable[[str], object] | None = None,
        text: Callable[[str], object] | None = None,
    ) -> Iterator[None]:
        """Parse a part, and yield after each piece of it."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = text
        parser.StartDoctypeDeclHandler = _refuse_doctype
        with self._archive.open(self._names[part.lower()]) as opened:
            while data := opened.read(_PART_BYTES):
                parser.Parse(data)
                yield
        parser.Parse(b"", True)

    def _each(self, part: str, *elements: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the elements of these names in a part, with their attributes."""
        found: list[tuple[str, dict[str, str]]] = []

        def start(name: str, attributes: dict[str, str]) -> None:
            if (local := _local(name)) in elements:
                found.append((local, {_local(key): value for key, value in attributes.items()}))

        for _ in self._parse(part, start):
            yield from found
            found.clear()
        yield from found

    def _relations(self, part: str) -> Iterator[dict[str, str]]:
        folder, name = posixpath.split(part)
        relations = posixpath.join(folder, "_rels", f"{name}.rels")
        if relations.lower() not in self._names:
            return
        for _, each in self._each(relations, "Relationship"):
            if each.get("TargetMode") != "External":
                target = posixpath.join("/" + folder, each["Target"])
                yield each | {"Target": posixpath.normpath(target).lstrip("/")}

    def _main_part(self) -> str:
        for each in self._relations(""):
            if each["Type"].endswith("/officeDocument"):
                return each["Target"]
        return "xl/workbook.xml"

    def _targets(self, main: str) -> dict[str, list[str]]:
        """Return the parts of the workbook by their kind."""
        found: dict[str, list[str]] = {}
        for each in self._relations(main):
            found.setdefault(posixpath.basename(each["Type"]), []).append(each["Target"])
        return found

    def _ids(self, main: str) -> dict[str, str]:
        """Return the parts of worksheets, and of no other sheets, by their ids."""
        return {
            each["Id"]: each["Target"]
            for each in self._relations(main)
            if each["Type"].endswith("/worksheet")
        }

    def _sheets(self, main: str, parts: Mapping[str, str]) -> dict[str, str]:
        """Return the parts of the visible sheets by their names."""
        active = number = 0
        sheets: dict[str, str] = {}
        self._is_1904 = False
        for element, attributes in self._each(main, "workbookPr", "workbookView", "sheet"):
            if element == "workbookPr":
                self._is_1904 = attributes.get("date1904", "0") in ("1", "true")
            elif element == "workbookView":
                active = int(attributes.get("activeTab", "0"))
            else:
                part = parts.get(attributes.get("id", ""), "")
                name = attributes.get("name", "")
                if part and attributes.get("state", "visible") == "visible":
                    sheets[name] = part
                    self.active = name if number == active else self.active
                number += 1
        return sheets

    def _read_styles(self, part: str) -> list[Show]:
        """Return what shows numbers, by the number of the style of a cell."""
        if part.lower() not in self._names:
            return []
        codes, formats, depth = dict(BUILT_IN), [], [0]

        def start(name: str, attributes: dict[str, str]) -> None:
            local = _local(name)
            if local == "numFmt" and "numFmtId" in attributes:
                codes[int(attributes["numFmtId"])] = attributes.get("formatCode", GENERAL)
            elif local == "cellXfs":
                depth[0] = 1
            elif local == "xf" and depth[0]:
                formats.append(int(attributes.get("numFmtId", "0")))

        def end(name: str) -> None:
            if _local(name) == "cellXfs":
                depth[0] = 0

        for _ in self._parse(part, start, end):
            pass
        return [_shower(codes.get(each, GENERAL), self._is_1904) for each in formats]

    def _read_texts(self) -> list[str]:
        """Return the texts that cells share."""
        if self._texts_part.lower() not in self._names:
            return []
        reader = _TextReader()
        for _ in self._parse(self._texts_part, reader.start, reader.end, reader.text):
            pass
        return reader.texts


class _TextReader:
    """Takes the elements of the texts that cells share, without the readings of Japanese ones."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._parts: list[str] = []
        self._size = 0
        self._is_text = self._is_reading = False

    def start(self, name: str, _: dict[str, str]) -> None:
        """Take the start of an element."""
        match _local(name):
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
        match _local(name):
            case "si":
                self.texts.append(_unescaped("".join(self._parts)))
            case "rPh":
                self._is_reading = False
            case "t":
                self._is_text = False


class _SheetReader:
    """Takes the elements of a sheet, and makes rows of them."""

    def __init__(self, texts: list[str], shows: list[Show]) -> None:
        self._texts = texts
        self._shows = shows
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
        local = name if ":" not in name else _local(name)
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
        local = name if ":" not in name else _local(name)
        if local in ("v", "t"):
            self._is_value = False
        elif local == "c":
            cell = self._cell("".join(self._parts))
            if cell != "" or type(cell) is not str:
                missing = self._column - 1 - len(self._cells)
                if missing:
                    self._cells += [""] * missing
                self._cells.append(cell)
        elif local == "rPh":
            self._is_reading = False
        elif local == "row" and self._cells:
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
        number = float(value)
        if not isfinite(number):
            return value
        style = int(self._style) if self._style else 0
        return self._shows[style](number) if style < len(self._shows) else general(number)


@contextmanager
def _blaming() -> Iterator[None]:
    try:
        yield
    except BadFile:
        raise
    except _DAMAGED as error:
        reason = str(error)[:200] or "damaged"
        raise BadFile(f"not an XLSX file that can be read ({reason})") from None


def _refuse_doctype(*_: object) -> None:
    raise BadFile("not an XLSX file that can be read (it has a document type)")


@lru_cache(1000)
def _local(name: str) -> str:
    """Return a name without its prefix."""
    return name.rpartition(":")[2]


@lru_cache(1000)
def _shower(code: str, is_1904: bool) -> Show:
    return lru_cache(1000)(shower(code, is_1904=is_1904))


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
