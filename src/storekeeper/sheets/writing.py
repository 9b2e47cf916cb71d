"""Stores as CSV (RFC 4180), XLSX or JSON lines, a row at a time.

The same rows make the same bytes, whenever and wherever they are written.
"""

import codecs
import csv
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from storekeeper.domain.errors import InvalidInput, Unavailable
from storekeeper.domain.reasons import Reason, Violation

MAX_CELL_LENGTH = 32_767
MAX_ROWS = 2**20
"""Characters of a cell of XLSX, and rows of a sheet with its header."""

MAX_EXACT = 10**15 - 1
"""The greatest number whose digits a cell keeps."""

_1980 = datetime(1980, 1, 1, tzinfo=UTC)
_WIDTHS = (8, 32, 60, 20, 20)
_encode = msgspec.json.Encoder().encode

Row = Sequence[str | int | None]


def write(
    file: IO[bytes],
    format: str,
    columns: Sequence[str],
    rows: Iterable[Row],
    *,
    excel: bool = False,
    bom: bool = False,
) -> None:
    """Write rows of these columns; the first is an id. Raises InvalidInput, and Unavailable if
    the folder of temporary files is full.

    `excel` is for CSV: with a byte order mark and semicolons, as Excel expects it in many
    languages; `bom` is only the mark.
    """
    match format:
        case "csv":
            if excel or bom:
                file.write(codecs.BOM_UTF8)
            _write_csv(file, columns, rows, delimiter=";" if excel else ",")
        case "jsonl":
            file.writelines(_encode(dict(zip(columns, row, strict=True))) + b"\n" for row in rows)
        case "xlsx":
            _write_xlsx(file, columns, rows)


def _write_csv(
    file: IO[bytes], columns: Sequence[str], rows: Iterable[Row], *, delimiter: str
) -> None:
    # A TextIOWrapper would flush the file at its end, and a pipe blocks while no process reads it.
    writer = csv.writer(codecs.getwriter("utf-8")(file), delimiter=delimiter)
    writer.writerow(columns)
    writer.writerows(rows)


def _write_xlsx(file: IO[bytes], columns: Sequence[str], rows: Iterable[Row]) -> None:
    try:
        import xlsxwriter  # type: ignore[import-untyped]  # noqa: PLC0415 - it has no types; it is an extra
    except ImportError:
        raise _no_xlsx("XLSX needs XlsxWriter: install Storekeeper with its extra excel") from None
    try:
        folder = Path(tempfile.mkdtemp(prefix="storekeeper-"))
    except OSError as error:
        raise _no_space(error) from None
    try:
        # XlsxWriter goes back to what it wrote, which a pipe cannot.
        made = folder / "stores.xlsx"
        book = xlsxwriter.Workbook(made, {"constant_memory": True, "tmpdir": str(folder)})
        _make_book(book, columns, rows)
        with made.open("rb") as source:
            shutil.copyfileobj(source, file)
    finally:
        _remove(folder)


def _make_book(book: Any, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Make the workbook. Raises InvalidInput, Unavailable."""
    from xlsxwriter.exceptions import FileCreateError, FileSizeError  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    try:
        book.set_properties({"created": _1980})
        with _opened(book.add_worksheet("Stores")) as sheet:
            sheet.freeze_panes(1, 0)
            # As text: otherwise Excel would make dates and numbers of names, and cut the zeros in
            # front of keys.
            as_text = book.add_format({"num_format": "@"})
            sheet.set_column(0, 0, _WIDTHS[0])
            for column in range(1, len(columns)):
                width = _WIDTHS[min(column, len(_WIDTHS) - 1)]
                sheet.set_column(column, column, width, as_text)
            header = book.add_format({"bold": True, "num_format": "@"})
            last = _fill(sheet, columns, rows, header=header, as_text=as_text)
            sheet.autofilter(0, 0, last, len(columns) - 1)
            book.close()
    except OSError as error:
        raise _no_space(error) from None
    except FileCreateError as error:
        raise _no_space(error.args[0]) from None
    except FileSizeError:
        raise _no_xlsx("the file would be larger than 4 GiB") from None


@contextmanager
def _opened(sheet: Any) -> Iterator[Any]:
    """Close the files of a sheet at the end, which XlsxWriter leaves open if it fails."""
    try:
        yield sheet
    finally:
        for opened in (sheet.row_data_fh, sheet.fh):
            with suppress(OSError):  # no space for the rest
                opened.close()


def _remove(folder: Path) -> None:
    """Delete a folder of temporary files, and free their space."""
    for file in folder.iterdir():
        # If XlsxWriter fails as it packs them, some are still open, and would keep their space.
        with suppress(OSError):
            os.truncate(file, 0)
    shutil.rmtree(folder, ignore_errors=True)


def _no_space(error: OSError) -> Unavailable:
    return Unavailable(f"The folder of temporary files cannot be written: {error.strerror}")


def _fill(
    sheet: Any, columns: Sequence[str], rows: Iterable[Row], *, header: Any, as_text: Any
) -> int:
    """Write the header and the rows; return the number of the last one."""
    number = 0
    for column, name in enumerate(columns):
        sheet.write_string(0, column, name, header)
    for number, row in enumerate(rows, 1):
        if number == MAX_ROWS:
            raise _no_xlsx(f"a sheet of XLSX has {MAX_ROWS:,} rows at most")
        for column, cell in enumerate(row):
            text = "" if cell is None else str(cell)
            if len(text) > MAX_CELL_LENGTH:
                raise _no_xlsx(
                    f"a cell of XLSX has {MAX_CELL_LENGTH:,} characters at most, and the"
                    f" {columns[column]} of store {row[0]} has {len(text):,}"
                )
            if "\ufffe" in text or "\uffff" in text:
                raise _no_xlsx(
                    f"XML has no U+FFFE and U+FFFF, as the {columns[column]} of store {row[0]} has"
                )
            if column == 0 and isinstance(cell, int) and cell <= MAX_EXACT:
                sheet.write_number(number, column, cell)
            else:
                sheet.write_string(number, column, text, as_text)
    return number


def _no_xlsx(reason: str) -> InvalidInput:
    violation = Violation(Reason.NOT_IN_FORMAT, f"must be csv or jsonl: {reason}")
    return InvalidInput("query", {"format": violation})


def formula_like(row: Row) -> int:
    """Return how many cells of this row a spreadsheet takes for formulas, if it reads the row
    from CSV."""
    return sum(type(cell) is str and cell[:1] in _FORMULA for cell in row)


_FORMULA = {"=", "+", "-", "@", "\t", "\r"}
