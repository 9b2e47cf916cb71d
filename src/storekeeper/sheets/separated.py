"""Texts whose cells have a character between them (RFC 4180), as people and programs write them:
a quotation mark that encloses no cell means itself."""

import csv
import re
from collections.abc import Iterator
from typing import cast

from storekeeper.sheets import BadFile, Record
from storekeeper.sheets.cells import BrokenRow
from storekeeper.sheets.delimiters import declared

MAX_CELL_LENGTH = 2**20

MAX_BLANK_LINES = 1_048_576
"""Blank lines of a file: as many rows as a sheet of XLSX has, which may be saved as CSV."""

_MARK = '"'
_BLANK = " \t\u00a0"
_MARKS = re.compile('"+')


def records(lines: Iterator[str], delimiter: str) -> Iterator[Record]:
    """Yield the rows that are not blank. Raises BadFile."""
    csv.field_size_limit(MAX_CELL_LENGTH)
    numbered = _Lines(lines)
    blank = 0
    while line := numbered.next():
        number = numbered.number
        if not line.strip():
            blank += 1
            if blank > MAX_BLANK_LINES:
                raise BadFile(f"line {number}: more than {MAX_BLANK_LINES:,} lines are blank")
            continue
        if number == 1 and declared(line):
            continue
        cells = _cells(line, delimiter, numbered)
        if len(line) > MAX_CELL_LENGTH and max(map(len, map(str, cells))) > MAX_CELL_LENGTH:
            raise BadFile(f"line {number}: field larger than field limit ({MAX_CELL_LENGTH})")
        if (line[0] not in _BLANK and cells[0]) or any(str(cell).strip() for cell in cells):
            yield number, cells


class _Lines:
    """The lines of a text, which can be given back; `number` is that of the last one."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._back: list[str] = []
        self.number = 0

    def next(self) -> str:
        """Return the next line, "" at the end."""
        self.number += 1
        return self._back.pop() if self._back else next(self._lines, "")

    def give_back(self, lines: list[str]) -> None:
        """Take back the last lines, in their order."""
        self._back += reversed(lines)
        self.number -= len(lines)


def _cells(line: str, delimiter: str, lines: _Lines) -> list[object]:
    """Return the cells of a row, which may continue in the next lines within quotation marks."""
    if _MARK not in line:
        return cast("list[object]", line.rstrip("\r\n").split(delimiter))
    try:
        reader = csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=True)
        return cast("list[object]", next(reader, []))
    except csv.Error:
        return _careful(line, delimiter, lines)


def _careful(line: str, delimiter: str, lines: _Lines) -> list[object]:
    cells: list[object] = []
    at = 0
    while True:
        start = at + len(line[at:]) - len(line[at:].lstrip(" "))
        if not line.startswith(_MARK, start):
            end = _end(line, at, delimiter)
            cell = line[at:end]
        elif (run := _lone_mark(line, start + 1)) is not None:
            cell, end = _one_line_cell(line, start, run, delimiter)
        elif (found := _cell_of_lines(line, start, delimiter, lines)) is not None:
            cell, line, end = found
        else:
            return BrokenRow([*cells, *line[at:].rstrip("\r\n").split(delimiter)])
        cells.append(cell)
        if not line.startswith(delimiter, end):
            return cells
        at = end + 1


def _end(line: str, at: int, delimiter: str) -> int:
    """Return where a cell ends that begins here, without regard to marks."""
    end = line.find(delimiter, at)
    return len(line.rstrip("\r\n")) if end < 0 else end


def _lone_mark(line: str, at: int) -> int | None:
    """Return where the next mark is that is not doubled, from here."""
    for run in _MARKS.finditer(line, at):
        if len(run[0]) % 2:
            return run.end() - 1
    return None


def _closes(line: str, mark: int, delimiter: str) -> int | None:
    """Return where the cell ends that a mark closes, None if it closes none."""
    rest = line[mark + 1 :]
    end = mark + 1 + len(rest) - len(rest.lstrip(" "))
    is_end = line.startswith(delimiter, end) or line[end:].strip("\r\n") == ""
    return end if is_end else None


def _one_line_cell(line: str, start: int, mark: int, delimiter: str) -> tuple[str, int]:
    """Return a cell that begins with a mark and has another one in its line, and where it ends.

    What stands right of that mark says what it is: the end of the cell, an inner mark of a cell
    that another mark closes, or else all marks mean themselves.
    """
    end = _closes(line, mark, delimiter)
    if end is not None:
        return line[start + 1 : mark].replace('""', _MARK), end
    if line[mark + 1].isalnum():
        closing = mark
        while (found := _lone_mark(line, closing + 1)) is not None:
            closing = found
            end = _closes(line, closing, delimiter)
            if end is not None and not line.startswith(delimiter, closing - 1):
                return line[start + 1 : closing].replace('""', _MARK), end
    end = _end(line, start, delimiter)
    cell = line[start:end]
    return (cell[1:-1] if len(cell) > 1 and cell.rstrip().endswith(_MARK) else cell), end


def _cell_of_lines(
    line: str, start: int, delimiter: str, lines: _Lines
) -> tuple[str, str, int] | None:
    """Return a cell that ends in a later line, that line, and where the cell ends in it; None if
    nothing closes the cell."""
    parts = [line[start + 1 :]]
    taken: list[str] = []
    size = len(line)
    while size <= MAX_CELL_LENGTH and (more := lines.next()):
        taken.append(more)
        size += len(more)
        mark = _lone_mark(more, 0)
        if mark is None:
            parts.append(more)
            continue
        end = _closes(more, mark, delimiter)
        if end is None:
            break
        parts.append(more[:mark])
        return "".join(parts).replace('""', _MARK), more, end
    else:
        if size <= MAX_CELL_LENGTH:
            lines.number -= 1  # the end of the text is not a line
    lines.give_back(taken)
    return None
