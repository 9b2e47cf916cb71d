"""XLSX as records, with the text that each cell shows (ECMA-376).

No library that reads XLSX fast also tells an error, or a formula that has no value, from an
empty cell.
"""

import posixpath
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import IO
from xml.parsers import expat

from storekeeper.sheets import BadFile, Record
from storekeeper.sheets.formats import BUILT_IN, GENERAL, Show, general, shower
from storekeeper.sheets.merges import Merge, Merges, merges_of
from storekeeper.sheets.xlsx_elements import SheetReader, TextReader, local_name

_PART_BYTES = 64 * 1024
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    expat.ExpatError,
    struct.error,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
)
"""What reading a file raises that is not as it should be."""


class Workbook:
    """A workbook: the `names` of its visible sheets, and the `active` one, which opens. Raises
    BadFile."""

    def __init__(self, file: IO[bytes]) -> None:
        with _as_bad_file():
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
        self._merges: dict[str, list[Merge]] = {}
        """The merged cells of the parts that have been read."""

    def records(self, name: str) -> Iterator[Record]:
        """Yield the rows of a sheet that are not blank. Raises BadFile."""
        with _as_bad_file():
            if self._texts is None:
                self._texts = self._read_texts()
            part = self._parts[name]
            if part not in self._merges:
                with self._archive.open(self._names[part.lower()]) as opened:
                    self._merges[part] = merges_of(opened)
            reader = SheetReader(self._texts, self._shows, Merges(self._merges[part]))
            for _ in self._parse(part, reader.start, reader.end, reader.text):
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
            if (local := local_name(name)) in elements:
                found.append((local, {local_name(key): value for key, value in attributes.items()}))

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
            local = local_name(name)
            if local == "numFmt" and "numFmtId" in attributes:
                codes[int(attributes["numFmtId"])] = attributes.get("formatCode", GENERAL)
            elif local == "cellXfs":
                depth[0] = 1
            elif local == "xf" and depth[0]:
                formats.append(int(attributes.get("numFmtId", "0")))

        def end(name: str) -> None:
            if local_name(name) == "cellXfs":
                depth[0] = 0

        for _ in self._parse(part, start, end):
            pass
        return [_shower(codes.get(each, GENERAL), self._is_1904) for each in formats]

    def _read_texts(self) -> list[str]:
        """Return the texts that cells share."""
        if self._texts_part.lower() not in self._names:
            return []
        reader = TextReader()
        for _ in self._parse(self._texts_part, reader.start, reader.end, reader.text):
            pass
        return reader.texts


@contextmanager
def _as_bad_file() -> Iterator[None]:
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
def _shower(code: str, is_1904: bool) -> Show:
    show = shower(code, is_1904=is_1904)
    return show if show is general else lru_cache(1000)(show)
