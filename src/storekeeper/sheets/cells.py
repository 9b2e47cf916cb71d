"""Cells that are more than a text: what JSON and workbooks have and no store can."""

import csv
import io
from collections.abc import Sequence

from storekeeper.domain.problems import MAX_BRIEF_LENGTH, shown


def text_of(cell: object) -> str:
    """Return a cell as a text, "" for None."""
    return "" if cell is None else str(cell)


def csv_line(cells: Sequence[object]) -> bytes:
    """Return cells as a row of CSV."""
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


class NoText(str):
    """A list or an object of JSON, as JSON: no field of a store can be that."""

    __slots__ = ()


class BadCell(str):
    """A cell of a workbook without a value that a person could have meant; its text is what the
    sheet shows."""

    __slots__ = ()

    @property
    def why(self) -> str:
        """What is wrong with it, after the name of its column."""
        if self:
            return f"has an error ({shown(self, MAX_BRIEF_LENGTH)})"
        return "is a formula without a value: open and save the file in a spreadsheet"


class MergedCell(str):
    """What the cell above shows, with which this one is merged: a part of an address, but never
    the name or the key of one more store."""

    __slots__ = ()

    @property
    def why(self) -> str:
        """What is wrong with it as a name or a key, after the name of its column."""
        return "is merged with the cell above: unmerge it, and write it in each row that is a store"


class BrokenRow(list[object]):
    """The cells of a line whose quotation mark is not closed."""

    __slots__ = ()
