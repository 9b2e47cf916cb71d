"""XLS, XLSB and ODS as records. They need a library, which the extra `excel` installs."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

from storekeeper.sheets import BadFile, Record
from storekeeper.sheets.merges import Merge, Merges

try:
    import python_calamine as calamine
except ImportError:  # it is an extra
    calamine = None  # type: ignore[assignment]

_PANIC = "PanicException"
"""The error of the library's own language when it meets what it did not expect; Python has no name
for it."""


class Workbook:
    """A workbook; which of its sheets opens is not known. Raises BadFile."""

    active = None

    def __init__(self, file: IO[bytes]) -> None:
        if calamine is None:
            raise BadFile(
                "XLS and ODS need a library: install Storekeeper with its extra excel, or save the"
                " sheet as XLSX or CSV"
            )
        self._errors = (calamine.CalamineError, calamine.PasswordError)
        file.seek(0)
        with _as_bad_file(self._errors):
            self._book = calamine.CalamineWorkbook.from_filelike(file)
            self.names = [
                each.name
                for each in self._book.sheets_metadata
                if each.typ == calamine.SheetTypeEnum.WorkSheet
                and each.visible == calamine.SheetVisibleEnum.Visible
            ]

    def records(self, name: str) -> Iterator[Record]:
        """Yield the rows of a sheet that are not blank. Raises BadFile."""
        with _as_bad_file(self._errors):
            sheet = self._book.get_sheet_by_name(name)
            merges = Merges(_merges(sheet.merged_cell_ranges or []))
            for number, values in enumerate(sheet.iter_rows(), 1):
                texts = [_text(value) for value in values]
                if any(map(str.strip, texts)):
                    cells = list[object](texts)
                    merges.fill(number, cells)
                    yield number, cells


def _merges(ranges: Iterable[tuple[tuple[int, int], tuple[int, int]]]) -> Iterator[Merge]:
    """Yield merged cells, which the library counts from 0."""
    for (first, column), (last, _) in ranges:
        yield Merge(column + 1, first + 1, last + 1)


@contextmanager
def _as_bad_file(errors: tuple[type[Exception], type[Exception]]) -> Iterator[None]:
    """Turn the two errors of the library, that of a password last, into one of ours."""
    try:
        yield
    except errors[1]:
        raise BadFile("This workbook has a password: save it without one") from None
    except errors[0] as error:
        raise _unreadable(str(error)) from None
    except BaseException as error:
        if type(error).__name__ == _PANIC:
            raise _unreadable("damaged") from None
        raise


def _unreadable(reason: str) -> BadFile:
    return BadFile(f"not a workbook that can be read ({reason[:200]})")


def _text(cell: object) -> str:
    """Return a cell as a spreadsheet shows it, as far as that can be told: 17 for 17.0, dates as
    of ISO 8601."""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)
