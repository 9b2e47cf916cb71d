"""XLSX as records, read by a process of its own, with little memory and time: a small file may
be a large sheet.

As a program, it reads the workbook on standard input, and writes its first sheet as JSON lines.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import IO

import msgspec

from storekeeper.sheets import BadFile, Record

MAX_MEMORY = 2**30
"""Bytes of memory that reading a workbook may take."""

MAX_SECONDS = 30
"""Seconds of processor time that reading a workbook may take."""

_READER = "python_calamine"
_TOO_LARGE = (
    f"the sheet needs more than {MAX_MEMORY >> 30} GiB of memory or {MAX_SECONDS} s: save it as CSV"
)
_decode = msgspec.json.Decoder(tuple[int, list[object]] | str).decode


def records(file: IO[bytes]) -> Iterator[Record]:
    """Yield the rows of the first sheet that are not blank. Raises BadFile."""
    if find_spec(_READER) is None:
        raise BadFile(
            "XLSX needs a library: install Storekeeper with its extra excel, or save the sheet as CSV"
        )
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    command = (sys.executable, "-P", "-m", __name__)
    with subprocess.Popen(  # noqa: S603 - ourselves
        command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            assert child.stdout is not None
            for line in child.stdout:
                record = _decode(line)
                if isinstance(record, str):
                    raise BadFile(record)
                yield record
        finally:
            child.kill()
    # What is killed for its time, or aborts for lack of memory, has ended by a signal, and said
    # nothing.
    if child.returncode:
        raise BadFile(_TOO_LARGE)


def _main() -> None:
    if sys.platform == "linux":  # elsewhere a process may not lower it
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from python_calamine import CalamineError, CalamineWorkbook  # noqa: PLC0415 - counts too

    write, encode = sys.stdout.buffer.write, msgspec.json.encode
    try:
        sheet = CalamineWorkbook.from_filelike(sys.stdin.buffer).get_sheet_by_index(0)
        for number, cells in enumerate(sheet.iter_rows(), 1):
            if any(cell != "" for cell in cells):
                write(encode((number, [_text(cell) for cell in cells])) + b"\n")
    except MemoryError:
        write(encode(_TOO_LARGE) + b"\n")
    except CalamineError as error:
        write(encode(f"not an XLSX file that can be read ({error})") + b"\n")
    sys.stdout.flush()


def _text(cell: object) -> str:
    """Return a cell as a spreadsheet shows it, more or less: 17 for 17.0, dates as of ISO 8601."""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


if __name__ == "__main__":
    _main()
