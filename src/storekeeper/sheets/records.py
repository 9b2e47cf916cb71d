"""Files as records, each the cells of one row: CSV (RFC 4180), JSON lines, XLSX.

Nothing is guessed: a text is UTF-8, or UTF-16 with its byte order mark, or what the caller says.
"""

import codecs
import csv
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, Literal, NamedTuple

import msgspec

from storekeeper.sheets import FIELDS, BadFile, Record
from storekeeper.sheets.encodings import check_encoding

Kind = Literal["csv", "jsonl", "xlsx"]

_MAX_CELL_LENGTH = 2**20
_MAX_LINE_LENGTH = 4 * 2**20
_DELIMITERS = ",;\t"
_SNIFFED_BYTES = 4096
_MARKS = {
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class NoText(str):
    """A list or an object of JSON, as JSON: no field of a store can be that."""

    __slots__ = ()


class Sheet(NamedTuple):
    """A file to import, which can be read again from its begin, and what it is. Raises BadFile
    when it is read."""

    file: IO[bytes]
    kind: Kind
    encoding: str

    def records(self) -> Iterator[Record]:
        """Yield the rows that are not blank."""
        self.file.seek(0)
        if self.kind == "xlsx":
            yield from _xlsx_records()(self.file)
            return
        text = io.TextIOWrapper(self.file, self.encoding, "surrogateescape", newline="")
        try:
            yield from (_csv if self.kind == "csv" else _json)(_lines(text, self.encoding))
        finally:
            if not self.file.closed:  # else it would be closed with `text`
                text.detach()


def open_sheet(file: IO[bytes], encoding: str | None = None) -> Sheet:
    """Return the sheet that a file is, by its first bytes. Raises BadFile.

    What reading it needs is imported by then: the reader can open no file afterwards.
    """
    encoding = check_encoding(encoding) if encoding else None
    file.seek(0)
    begin = file.read(_SNIFFED_BYTES)
    if begin.startswith(b"PK\x03\x04"):
        _xlsx_records()
        return Sheet(file, "xlsx", "")
    is_utf16 = begin.startswith(_MARKS["utf-16"])
    wide = is_utf16 or (encoding or "").startswith(("utf-16", "utf-32"))
    if not wide and b"\0" in begin:
        raise BadFile("neither CSV, XLSX nor JSON lines: save it as one of these")
    if begin.startswith(codecs.BOM_UTF8):
        encoding = "utf-8-sig"  # whatever was said: rejects are UTF-8, also of a file that is not
    encoding = encoding or ("utf-16" if is_utf16 else "utf-8-sig")
    if not begin.startswith(_MARKS.get(encoding, b"")):
        order = f"{encoding.upper()} without a byte order mark does not say its byte order"
        raise BadFile(order, "encoding", f"{encoding}-le")
    is_json = not wide and begin.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")
    if encoding == "utf-8":
        encoding = "utf-8-sig"
    codecs.lookup(encoding)
    return Sheet(file, "jsonl" if is_json else "csv", encoding)


def _xlsx_records() -> Callable[[IO[bytes]], Iterator[Record]]:
    try:
        from storekeeper.sheets import xlsx  # noqa: PLC0415 - its library may be missing
    except ImportError:
        raise BadFile(
            "XLSX needs a library: install Storekeeper with its extra excel, or save the sheet as CSV"
        ) from None
    return xlsx.records


def _lines(text: IO[str], encoding: str) -> Iterator[str]:
    # A strict decoder reads ahead, so it would not report the line of an error.
    number = 0
    try:
        for number, line in enumerate(iter(partial(text.readline, _MAX_LINE_LENGTH), ""), 1):
            if len(line) == _MAX_LINE_LENGTH:
                raise BadFile(f"line {number}: longer than {_MAX_LINE_LENGTH:,} characters")
            line.encode()
            yield line
    except UnicodeEncodeError:
        raise _undecodable(number, encoding) from None
    except UnicodeDecodeError:
        raise _undecodable(number + 1, encoding) from None


def _undecodable(line: int, encoding: str) -> BadFile:
    name = encoding.removesuffix("-sig").upper()
    return BadFile(f"line {line}: not {name}, but perhaps another encoding", "encoding", "cp1252")


def _csv(lines: Iterator[str]) -> Iterator[Record]:
    csv.field_size_limit(_MAX_CELL_LENGTH)
    skipped, first = 0, next(lines, "")
    while first and not first.strip(f"{_DELIMITERS}\r\n "):
        skipped, first = skipped + 1, next(lines, "")
    delimiter = max(_DELIMITERS, key=partial(_width, first))
    is_at_end = False

    def all_lines() -> Iterator[str]:
        nonlocal is_at_end
        yield first
        yield from lines
        is_at_end = True

    reader = csv.reader(all_lines(), delimiter=delimiter, strict=True)
    line = skipped + 1
    try:
        for cells in reader:
            if any(cells):
                yield line, list[object](cells)
            line = skipped + reader.line_num + 1
    except csv.Error as error:
        # Only within quotes does a row need a line after the last one.
        why = ', since a " is not closed' if is_at_end else ""
        raise BadFile(f"line {line}: {error}{why}") from None


def _width(line: str, delimiter: str) -> int:
    """Return how many cells a line has with this delimiter, 0 if one is too long."""
    try:
        return len(next(csv.reader([line], delimiter=delimiter), ""))
    except csv.Error:
        return 0


def _json(lines: Iterator[str]) -> Iterator[Record]:
    columns: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = {name: _cell(value) for name, value in _decode(line).items()}
        except (msgspec.DecodeError, RecursionError):
            raise BadFile(f"line {number}: not a JSON object") from None
        if not columns:
            columns = list(record | dict.fromkeys(FIELDS))
            yield number, list[object](columns)
        yield number, [record.get(name) for name in columns]


def _cell(value: object) -> object:
    """Return a value of JSON as a cell. Raises RecursionError."""
    if value is None:
        return ""
    return NoText(_encode(value).decode()) if isinstance(value, list | dict) else value
