"""Cells of a workbook that are merged downwards: all of their rows show what the first one has."""

import re
from collections.abc import Iterable
from typing import IO, NamedTuple

from storekeeper.sheets.cells import BadCell, MergedCell

_PART_BYTES = 2**20
_MAX_ELEMENT_BYTES = 1000

_ELEMENT = re.compile(
    rb"""<(?:\w+:)?mergeCell\s[^<>]*?ref\s*=\s*["']([A-Z]{1,3})(\d{1,7}):[A-Z]{1,3}(\d{1,7})["']"""
)


class Merge(NamedTuple):
    """A cell that reaches down to another row; all three count from 1."""

    column: int
    first: int
    last: int


class Merges:
    """Fills the cells of rows, which come in their order, that are merged with one above."""

    def __init__(self, merges: Iterable[Merge]) -> None:
        self._begin: dict[int, list[Merge]] = {}
        for merge in merges:
            if merge.last > merge.first:
                self._begin.setdefault(merge.first, []).append(merge)
        self._open: dict[int, tuple[int, object]] = {}
        """For each column, the last row of a merged cell, and what that cell has."""

    def fill(self, row: int, cells: list[object]) -> None:
        """Fill the cells of a row."""
        if not self._begin:
            return
        self._open = {
            column: (last, cell) for column, (last, cell) in self._open.items() if last >= row
        }
        for column, (_, cell) in self._open.items():
            _fill(cells, column, cell)
        for merge in self._begin.get(row, ()):
            if merge.column <= len(cells):
                self._open[merge.column] = (merge.last, cells[merge.column - 1])


def _fill(cells: list[object], column: int, cell: object) -> None:
    """Put what a merged cell has into a row, if the row has nothing there."""
    if cell == "" and type(cell) is not BadCell:
        return
    cells += [""] * (column - len(cells))
    if cells[column - 1] == "":
        cells[column - 1] = cell if type(cell) is BadCell else MergedCell(cell)


def merges_of(part: IO[bytes]) -> list[Merge]:
    """Return the merged cells of a sheet of XLSX, which stand after its rows."""
    merges = []
    rest = b""
    while data := part.read(_PART_BYTES):
        text = rest + data
        found = list(_ELEMENT.finditer(text)) if b"mergeCell" in text else []
        merges += [_merge(each) for each in found]
        end = found[-1].end() if found else 0
        rest = text[max(end, len(text) - _MAX_ELEMENT_BYTES) :]
    return merges


def _merge(found: re.Match[bytes]) -> Merge:
    column = 0
    for letter in found[1]:
        column = column * 26 + letter - ord("A") + 1
    return Merge(column, int(found[2]), int(found[3]))
