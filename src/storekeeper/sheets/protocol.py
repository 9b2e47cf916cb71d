"""What the service and the reader, the process that reads files from outside, say to each other.

The service asks one `Question` over a pipe, as one frame, and leaves the pipe open: the reader ends
when it closes. The reader answers with frames of one `Message` each; the last one is `End` or
says why the file cannot be read. A frame is the length of what follows, in 4 bytes, and a value as
MessagePack.

The service trusts nothing that the reader says: a frame has a greatest length, and what is in it is
checked while it is decoded.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Annotated, Literal

import msgspec
from msgspec import Meta

from storekeeper.domain.intake import Import, SheetRow
from storekeeper.domain.stores import MAX_EXTERNAL_LENGTH
from storekeeper.sheets.look_types import Look

MAX_MEMORY = 2**30
"""Bytes of memory that the reader may take. macOS knows no such limit."""

MAX_FRAME_BYTES = 4 * 2**20
"""Bytes of one message of the reader: a row has 1 MiB at most, and what is wrong with it."""

BATCH_BYTES = 64 * 1024
"""Bytes of rows, about, that the reader sends at once."""

MAX_DESCRIBED = 4 * 2**20
"""Characters of the rows that a report has, each cell with CELL_SIZE more: a file may have
thousands of columns."""

MAX_DESCRIBED_ROW = 2**18
"""Characters of one of these rows, counted the same way."""

CELL_SIZE = 16

MAX_DESCRIBED_BYTES = 5 * MAX_DESCRIBED
"""Bytes of messages with these rows."""

MAX_LISTED_COLUMNS = 100
"""Unused columns that the reader names to the service."""

MAX_PROBLEM_LENGTH = 10_000
"""Characters of why a file cannot be read."""

MAX_LINE_LENGTH = 100_000
"""Characters of the line that says how a file is read."""

_LENGTH_BYTES = 4
_Note = Annotated[str, Meta(max_length=2000)]
_Text = Annotated[str, Meta(max_length=MAX_EXTERNAL_LENGTH + 10)]
"""A name as it is shown or matched, which may have a prefix."""

_Line = Annotated[str, Meta(max_length=MAX_LINE_LENGTH)]


class Layout(msgspec.Struct, frozen=True):
    """How to read a file: the part of an `Import` about that."""

    match: str | None = None
    add: bool = False
    map: Mapping[str, str] = {}
    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None
    header_row: int | Literal["none"] | None = None
    cut_names: bool = False
    attach: str | None = None


def layout_of(options: Import) -> Layout:
    """Return how an import says to read its file."""
    return msgspec.convert(options, Layout, from_attributes=True)


# What the service asks.


class AskRows(msgspec.Struct, tag=True, frozen=True):
    """Send the `Header` of the file, then all its `Rows`."""

    layout: Layout


class AskLook(msgspec.Struct, tag=True, frozen=True):
    """Send a `Looked`: what the file is. `known_keys` are the columns of outside keys that the
    list knows."""

    layout: Layout
    known_keys: list[str]
    list_is_empty: bool


class AskCells(msgspec.Struct, tag=True, frozen=True):
    """Send the `Cells` of the rows that begin at these lines, which ascend."""

    layout: Layout
    lines: list[int]


class AskRejects(msgspec.Struct, tag=True, frozen=True):
    """Send a CSV file, as `Part`s, of the rows that the file of messages names, each with its
    message. `write_reject` has written that file."""

    layout: Layout


Asked = AskRows | AskLook | AskCells | AskRejects


class Question(msgspec.Struct, frozen=True):
    """What is asked, and the seconds of processor time that the answer may take, None for no
    limit."""

    asked: Asked
    seconds: int | None = None


# What the reader says.


class Header(msgspec.Struct, tag=True, frozen=True):
    """The column that rows are matched by, and the one whose keys stores get, as the file has their
    names; the columns that mean nothing, and those of them that look like a part of an address;
    and what else to say about the file."""

    match: _Text | None
    unused: Annotated[list[_Text], Meta(max_length=MAX_LISTED_COLUMNS)]
    attach: _Text | None = None
    dropped: Annotated[list[_Text], Meta(max_length=MAX_LISTED_COLUMNS)] = []
    notes: Annotated[list[_Note], Meta(max_length=10)] = []


class Looked(msgspec.Struct, tag=True, frozen=True):
    """What the file is."""

    look: Look


class Rows(msgspec.Struct, tag=True, frozen=True):
    """The next rows, and how many bytes of the file were read for them; with the last ones, what
    else to say about the file."""

    rows: list[SheetRow]
    position: int = 0
    notes: Annotated[list[_Note], Meta(max_length=10)] = []


class Cells(msgspec.Struct, tag=True, frozen=True):
    """The cells of the row that begins at a line, cut as a report shows them, by their columns."""

    line: int
    cells: dict[str, str]


class Part(msgspec.Struct, tag=True, frozen=True):
    """The next bytes of a file."""

    data: bytes


class Refusal(msgspec.Struct, tag=True, frozen=True):
    """Why the file cannot be read, as `BadFile` has it."""

    problem: Annotated[str, Meta(max_length=MAX_PROBLEM_LENGTH + 1)]
    parameter: _Text = ""
    value: _Line = ""
    query: _Line = ""
    options: _Line = ""


class OverLimit(msgspec.Struct, tag=True, frozen=True):
    """The reader needs more memory than it may have."""


class End(msgspec.Struct, tag=True, frozen=True):
    """All is said."""


Message = Header | Looked | Rows | Cells | Part | Refusal | OverLimit | End


# Frames.


class BrokenFrame(Exception):
    """What was read is not what the other side says."""


encode = msgspec.msgpack.Encoder().encode


class TooLong(Exception):
    """A message that the other side would not take."""


def framed(value: object) -> bytes:
    """Return the frame of a value. Raises TooLong."""
    data = encode(value)
    if len(data) > MAX_FRAME_BYTES:
        raise TooLong
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def write_frame(descriptor: int, value: object) -> None:
    """Write the frame of a value to a pipe. Raises TooLong, OSError."""
    left = memoryview(framed(value))
    while left:
        left = left[os.write(descriptor, left) :]


def read_frame(read: Callable[[int], bytes]) -> bytes:
    """Return what the next frame has, b"" after the last one. Raises BrokenFrame.

    `read` returns at most the number of bytes it is asked for, b"" at the end.
    """
    length = int.from_bytes(_read_all(read, _LENGTH_BYTES), "big")
    if length > MAX_FRAME_BYTES:
        raise BrokenFrame(f"a message of {length:,} bytes")
    return _read_all(read, length)


def _read_all(read: Callable[[int], bytes], size: int) -> bytes:
    """Return `size` bytes, or none if there are fewer."""
    found = bytearray()
    while len(found) < size:
        if not (part := read(size - len(found))):
            return b""
        found += part
    return bytes(found)


# The file of messages of an `AskRejects`: in the order of the lines.


def write_reject(file: IO[bytes], line: int, message: str) -> None:
    """Add a row that is not imported, by the line where it begins, and why."""
    file.write(msgspec.json.encode((line, message)) + b"\n")


def read_rejects(file: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Yield what `write_reject` has written."""
    return map(msgspec.json.Decoder(tuple[int, str]).decode, file)
