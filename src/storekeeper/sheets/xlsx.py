"""XLSX as records. It needs a library, which the extra `excel` installs."""

from collections.abc import Iterator
from typing import IO

from python_calamine import CalamineError, CalamineWorkbook

from storekeeper.sheets import BadFile, Record

_PANIC = "PanicException"
"""The error of the library's own language when it meets what it did not expect; Python has no name
for it."""


def records(file: IO[bytes]) -> Iterator[Record]:
    """Yield the rows of the first sheet that are not blank. Raises BadFile."""
    try:
        sheet = CalamineWorkbook.from_filelike(file).get_sheet_by_index(0)
        for number, cells in enumerate(sheet.iter_rows(), 1):
            if any(cell != "" for cell in cells):
                yield number, [_text(cell) for cell in cells]
    except CalamineError as error:
        raise _unreadable(str(error)) from None
    except BaseException as error:
        if type(error).__name__ == _PANIC:
            raise _unreadable("damaged") from None
        raise


def _unreadable(reason: str) -> BadFile:
    return BadFile(f"not an XLSX file that can be read ({reason[:200]})")


def _text(cell: object) -> str:
    """Return a cell as a spreadsheet shows it, more or less: 17 for 17.0, dates as of ISO 8601."""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)
