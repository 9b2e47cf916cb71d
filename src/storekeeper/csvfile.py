"""Stores as CSV (RFC 4180), in and out, a row at a time. Imports the domain.

An empty cell and no address are the same in CSV: both are read and written as no address.
"""

import csv
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from storekeeper.collection import Listing
from storekeeper.errors import InvalidInput, StorekeeperError, Violation
from storekeeper.stores import Payload, check_payload

COLUMNS = ("id", "name", "address")
"""The columns of an export. An import needs the last two; it ignores ids, which the collection assigns."""

_MAX_CELL_LENGTH = 2**20
_MAX_LINE_LENGTH = 4 * 2**20
"""Characters of a line: more than any that can be imported has, quotes and all."""

_MAX_SHOWN_LENGTH = 80
"""Characters of a header that an error message shows."""


class BadFile(StorekeeperError):
    """The file as a whole cannot be imported."""


class BadRows(StorekeeperError):
    """Some rows break the rules; `count` of `rows`. Each was reported when it was read."""

    def __init__(self, count: int, rows: int) -> None:
        self.count = count
        self.rows = rows
        super().__init__(f"{count} of {rows} rows are bad")


class _Row(msgspec.Struct):
    id: int
    name: str
    address: str | None


def read(file: IO[str], report: Callable[[int, str], None], progress: Callable[[int], None]) -> Iterator[Payload]:
    """Return the payloads of a CSV file that was opened by `open_to_read`, or is standard input.

    Reads to the end even when rows are bad, calling `report` with line number and message for each, then
    raises BadRows. Raises BadFile. `progress` is called now and then with the number of rows so far.
    """
    csv.field_size_limit(_MAX_CELL_LENGTH)
    reader = csv.reader(_lines(file), strict=True)
    bad = rows = 0
    line = 1
    try:
        name, address, width = _columns(next(reader, []))
        line = reader.line_num + 1
        for row in reader:
            if row:
                rows += 1
                try:
                    yield _payload(row, name, address, width)
                except InvalidInput as error:
                    bad += 1
                    report(line, str(error))
                if rows % 10_000 == 0:
                    progress(rows)
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadFile(f"line {line}: {error}") from None
    if bad:
        raise BadRows(bad, rows)


def _lines(file: IO[str]) -> Iterator[str]:
    number = 0
    while line := file.readline(_MAX_LINE_LENGTH):
        number += 1
        if len(line) == _MAX_LINE_LENGTH:
            raise BadFile(f"line {number}: longer than {_MAX_LINE_LENGTH:,} characters")
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError:
                raise BadFile(f"line {number}: not UTF-8") from None
        yield line


def _columns(header: list[str]) -> tuple[int, int, int]:
    names = [cell.strip().lower() for cell in header]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or "name" not in names or "address" not in names or len(set(names)) != len(names):
        shown = ",".join(header) or "empty"
        cut = "…" if len(shown) > _MAX_SHOWN_LENGTH else ""
        raise BadFile(f"line 1 has to be the header name,address; it is {shown[:_MAX_SHOWN_LENGTH]}{cut}")
    return names.index("name"), names.index("address"), len(names)


def _payload(row: list[str], name: int, address: int, width: int) -> Payload:
    if len(row) != width:
        raise InvalidInput("payload", [Violation(None, f"{len(row)} cells instead of {width}")])
    value = {"name": row[name]}
    if row[address]:
        value["address"] = row[address]
    return check_payload(value)


async def write(file: IO[str], listing: Listing, progress: Callable[[int], None]) -> int:
    """Write a listing, opened with `newline=""`; return how many stores it has."""
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    decode = msgspec.json.Decoder(list[_Row]).decode
    count = 0
    async for part in _parts(listing):
        rows = decode(b"[%b]" % part)
        writer.writerows((row.id, row.name, row.address) for row in rows)
        count += len(rows)
        progress(count)
    return count


async def _parts(listing: Listing) -> AsyncIterator[bytes]:
    yield listing.first
    if listing.rest is not None:
        async for part in listing.rest:
            yield part.removeprefix(b",")


def open_to_read(file: Path | int) -> IO[str]:
    """Open a file, or a file descriptor that stays open, for `read`: UTF-8 that may begin with a BOM."""
    # A strict decoder reads ahead: it would report an error too early, and not its line.
    return open(file, encoding="utf-8-sig", errors="surrogateescape", newline="", closefd=isinstance(file, Path))
