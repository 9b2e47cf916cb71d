"""Text files: their encoding, and their lines."""

import codecs
import io
from collections.abc import Iterator
from functools import partial
from typing import IO

from storekeeper.sheets import BadFile
from storekeeper.sheets.kinds import MARKS, SNIFFED_BYTES

MAX_LINE_LENGTH = 4 * 2**20

_PART_BYTES = 2**20

_MARK = "\ufeff"


def marked_encoding(file: IO[bytes]) -> str | None:
    """Return the encoding that the mark of a text tells, None without one."""
    file.seek(0)
    begin = file.read(SNIFFED_BYTES)
    return next((MARKS[mark] for mark in MARKS if begin.startswith(mark)), None)


def encoding_of(file: IO[bytes], said: str | None) -> str:
    """Return the encoding of a text without a mark: as the caller says, or UTF-8. Raises
    BadFile."""
    file.seek(0)
    begin = file.read(SNIFFED_BYTES)
    if said in ("utf-16", "utf-32"):
        order = f"{said.upper()} without a byte order mark does not say its byte order"
        raise BadFile(order, "encoding", f"{said}-le")
    if said is None and b"\0" in begin:
        raise _not_a_text(begin)
    if said is not None and said.startswith(("utf-16", "utf-32")):
        return said
    if b"\0" in begin:
        raise _not_a_text(begin)
    return "utf-8" if said in (None, "utf-8-sig") else str(said)


def _not_a_text(begin: bytes) -> BadFile:
    """Return what to say about a file with null bytes: between Latin letters, they are UTF-16."""
    for encoding, at in (("utf-16-le", 1), ("utf-16-be", 0)):
        half = begin[at::2]
        if half and 4 * half.count(0) > 3 * len(half) and 0 not in begin[1 - at :: 2]:
            return BadFile("it has UTF-16 without a byte order mark", "encoding", encoding)
    return BadFile("neither CSV, XLSX nor JSON lines: save it as one of these")


def first_undecodable(file: IO[bytes], encoding: str) -> int | None:
    """Return the first line of a text that is not of this encoding, None if it is."""
    file.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)()
    line, data = 1, b""
    try:
        while data := file.read(_PART_BYTES):
            decoder.decode(data)
            line += _lines_in(data)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        return line + _lines_in(data[: error.start])
    return None


def _lines_in(data: bytes) -> int:
    return data.count(b"\n") or data.count(b"\r")


class Undecodable(Exception):
    """A line is not of the encoding that the text should have."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(line)


def lines_of(file: IO[bytes], encoding: str) -> Iterator[str]:
    """Yield the lines of a text with their ends, without marks at its start. Raises BadFile,
    Undecodable."""
    file.seek(0)
    codecs.lookup(encoding)
    text = io.TextIOWrapper(file, encoding, "surrogateescape", newline="")
    try:
        lines = _checked(text)
        yield next(lines, "").lstrip(_MARK)
        yield from lines
    finally:
        if not file.closed:  # else it would be closed with `text`
            text.detach()


def _checked(text: IO[str]) -> Iterator[str]:
    # A strict decoder reads ahead, so it would not report the line of an error.
    number = 0
    try:
        for number, line in enumerate(iter(partial(text.readline, MAX_LINE_LENGTH), ""), 1):
            if len(line) == MAX_LINE_LENGTH:
                raise BadFile(f"line {number}: longer than {MAX_LINE_LENGTH:,} characters")
            line.encode()
            yield line
    except UnicodeEncodeError:
        raise Undecodable(number) from None
    except UnicodeDecodeError:
        raise Undecodable(number + 1) from None
