"""Files as records, each the cells of one row: CSV (RFC 4180), JSON lines, XLSX.

Nothing is guessed: a text is UTF-8, or UTF-16 with its byte order mark, or what the caller says.
"""

import codecs
import csv
import io
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import IO, Any, Literal, NamedTuple

import msgspec

from storekeeper.sheets import FIELDS, BadFile, Record, xlsx

Kind = Literal["csv", "jsonl", "xlsx"]

_MAX_CELL_LENGTH = 2**20
_MAX_LINE_LENGTH = 4 * 2**20
_DELIMITERS = ",;\t"
_SNIFFED_BYTES = 4096
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ENCODING = re.compile(
    r"utf-?(8|16|32)(-sig|-le|-be)?|(cp|iso8859-|mac-|koi8-|gb|big5|shift_jis|euc_).*"
)
"""Python's names of the encodings that spreadsheets are saved in: it has others that are no
encodings of texts."""


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def check_encoding(name: str) -> str:
    """Return Python's name of an encoding. Raises BadFile."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        found = ""
    if not _ENCODING.fullmatch(found):
        raise BadFile(f"no such encoding: {name[:40]!r}", "encoding", "cp1252")
    return found


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
            yield from xlsx.records(self.file)
            return
        text = io.TextIOWrapper(self.file, self.encoding, "surrogateescape", newline="")
        try:
            yield from (_csv if self.kind == "csv" else _json)(_lines(text, self.encoding))
        finally:
            if not self.file.closed:  # else it would be closed with `text`
                text.detach()


def open_sheet(file: IO[bytes], encoding: str | None = None) -> Sheet:
    """Return the sheet that a file is, by its first bytes. Raises BadFile."""
    encoding = check_encoding(encoding) if encoding else None
    file.seek(0)
    begin = file.read(_SNIFFED_BYTES)
    if begin.startswith(b"PK\x03\x04"):
        return Sheet(file, "xlsx", "")
    is_utf16 = begin.startswith(_UTF16)
    wide = is_utf16 or (encoding or "").startswith(("utf-16", "utf-32"))
    if not wide and b"\0" in begin:
        raise BadFile("neither CSV, XLSX nor JSON lines: save it as one of these")
    if begin.startswith(codecs.BOM_UTF8):
        encoding = "utf-8-sig"  # whatever was said: rejects are UTF-8, also of a file that is not
    encoding = encoding or ("utf-16" if is_utf16 else "utf-8-sig")
    is_json = not wide and begin.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")
    return Sheet(
        file, "jsonl" if is_json else "csv", "utf-8-sig" if encoding == "utf-8" else encoding
    )


def _lines(text: IO[str], encoding: str) -> Iterator[str]:
    # A strict decoder reads ahead, so it would not report the line of an error.
    number = 0
    try:
        for number, line in enumerate(iter(partial(text.readline, _MAX_LINE_LENGTH), ""), 1):
            if len(line) == _MAX_LINE_LENGTH:
                raise BadFile(f"line {number}: longer than {_MAX_LINE_LENGTH:,} characters")
            line.encode()
            yield line
    except UnicodeDecodeError:
        raise _undecodable(number + 1, encoding) from None
    except UnicodeEncodeError:
        raise _undecodable(number, encoding) from None


def _undecodable(line: int, encoding: str) -> BadFile:
    name = encoding.removesuffix("-sig").upper()
    return BadFile(f"line {line}: not {name}, but perhaps another encoding", "encoding", "cp1252")


def _csv(lines: Iterator[str]) -> Iterator[Record]:
    csv.field_size_limit(_MAX_CELL_LENGTH)
    skipped, first = 0, next(lines, "")
    while first and not first.strip(f"{_DELIMITERS}\r\n "):
        skipped, first = skipped + 1, next(lines, "")
    delimiter = max(
        _DELIMITERS, key=lambda each: len(next(csv.reader([first], delimiter=each), ""))
    )
    reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
    line = skipped + 1
    try:
        for cells in reader:
            if any(cells):
                yield line, list[object](cells)
            line = skipped + reader.line_num + 1
    except csv.Error as error:
        open_quote = ', since a " is not closed' * ("end of data" in str(error))
        raise BadFile(f"line {line}: {error}{open_quote}") from None


def _json(lines: Iterator[str]) -> Iterator[Record]:
    columns: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = {name: "" if cell is None else cell for name, cell in _decode(line).items()}
        except (msgspec.DecodeError, RecursionError):
            raise BadFile(f"line {number}: not a JSON object") from None
        if not columns:
            columns = list(record | dict.fromkeys(FIELDS))
            yield number, list[object](columns)
        yield number, [record.get(name) for name in columns]
