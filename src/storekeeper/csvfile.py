"""Stores as CSV (RFC 4180), in and out, a row at a time. Imports the domain.

An empty cell means that the field has no value.
"""

import codecs
import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO

from storekeeper.stores import Payload

_FIELDS = Payload.__struct_fields__
COLUMNS = ("id", *_FIELDS)
"""The columns of an export. An import needs all but the first; the collection assigns the ids."""


def write(file: IO[str], rows: Iterable[Sequence[object]], progress: Callable[[int], None]) -> int:
    """Write rows of `tables.STORES` to a file, opened with `newline=""`; return how many there are."""
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    count = 0
    for count, row in enumerate(rows, 1):
        writer.writerow(row[: len(COLUMNS)])
        progress(count)
    return count


def may_be_replaced(file: Path) -> bool:
    """Return whether an export may replace a file: it does not exist, is not regular, is empty, or is an export."""
    if not file.is_file():
        return True
    header = ",".join(COLUMNS).encode()
    try:
        with file.open("rb") as opened:
            begin = opened.read(len(codecs.BOM_UTF8) + len(header) + 2)
    except PermissionError:
        return False
    return not begin or begin.removeprefix(codecs.BOM_UTF8).startswith((header + b"\r\n", header + b"\n"))
