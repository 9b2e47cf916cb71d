"""What stands in the columns of a file, counted over all its rows."""

from collections.abc import Iterable, Sequence

from storekeeper.sheets.look_types import MAX_EXAMPLES, MAX_TEXT_LENGTH

MAX_COUNTED = 5_000_000
"""Different cells that are remembered: of more columns it is not known how often cells repeat."""

_MAX_KEPT = 60
"""Cells of each column by which it is decided what they look like."""

_MAX_REPEATED = 0.3
_MIN_ROWS = 1000
"""The share of cells that repeat from which on a column tells no rows apart, and from which row."""


class Survey:
    """Counts cells, and different ones; a row that repeats another one counts once."""

    def __init__(self, columns: int) -> None:
        self.rows = 0
        self.different_rows = 0
        self.filled = [0] * columns
        self.cells: list[list[str]] = [[] for _ in range(columns)]
        """The cells of the first rows, also blank ones."""
        self._seen: list[set[int] | None] = [set() for _ in range(columns)]
        self._lost: set[int] = set()
        self._at_end: dict[int, int] = {}
        self._all_rows: set[int] = set()
        self._counted = 0

    def add(self, rows: Iterable[Sequence[object]]) -> None:
        """Count these rows."""
        for row in rows:
            self.rows += 1
            if self._is_new(row):
                self.different_rows += 1
                self._add(row)

    def _is_new(self, row: Sequence[object]) -> bool:
        if len(self._all_rows) >= MAX_COUNTED:
            return True
        before = len(self._all_rows)
        self._all_rows.add(hash(tuple(row)))
        return len(self._all_rows) > before

    def _add(self, row: Sequence[object]) -> None:
        is_sample = self.different_rows <= _MAX_KEPT
        for place, cell in enumerate(row[: len(self.filled)]):
            if is_sample:
                self.cells[place].append("" if cell is None else str(cell)[:MAX_TEXT_LENGTH])
            if cell is None or cell == "":
                continue
            self.filled[place] += 1
            seen = self._seen[place]
            if seen is not None:
                seen.add(hash(cell.strip() if isinstance(cell, str) else cell))
                if self.filled[place] % _MIN_ROWS == 0:
                    self._forget(place, seen)

    def _forget(self, place: int, seen: set[int]) -> None:
        """Count no more of a column that repeats, or if there is too much to remember."""
        repeats = len(seen) < (1 - _MAX_REPEATED) * self.filled[place]
        if repeats:
            self._at_end[place] = len(seen)
        self._counted += _MIN_ROWS
        if self._counted > MAX_COUNTED:
            self._lost.add(place)
        if repeats or place in self._lost:
            self._seen[place] = None

    def distinct(self, place: int) -> int | None:
        """Return how many different cells a column has, at least; None if it is not known."""
        if place in self._lost:
            return None
        seen = self._seen[place]
        return self._at_end[place] if seen is None else len(seen)

    def examples(self, place: int) -> list[str]:
        """Return the first different cells of a column."""
        filled = [cell for cell in self.cells[place] if cell.strip()]
        return list(dict.fromkeys(filled))[:MAX_EXAMPLES]
