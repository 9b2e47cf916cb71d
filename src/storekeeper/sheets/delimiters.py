"""Which character stands between the cells of a text."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from storekeeper.sheets import BadFile
from storekeeper.sheets.headings import is_heading

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
"""The characters that may stand between cells, and what people call them."""

_MAX_LINES = 200
_MAX_HEADERS = 20
_MAX_CELLS = 200
_MIN_AGREEMENT = 0.5
_DECIMAL = re.compile(r"(?<=\d),(?=\d)")


class _Fit(NamedTuple):
    """How well lines agree under a delimiter; the greatest fits best."""

    headings: int
    agreement: float
    columns: int


def check_delimiter(text: str) -> str:
    """Return the delimiter that a text names. Raises BadFile."""
    names = {name: delimiter for delimiter, name in DELIMITERS.items()}
    delimiter = {"\\t": "\t"}.get(text) or names.get(text.strip().lower(), text)
    if delimiter not in DELIMITERS:
        raise BadFile("the delimiter must be one of , ; | and tab", "delimiter")
    return delimiter


def declared(line: str) -> str:
    """Return the delimiter of a first line such as `sep=;`, which Excel reads, "" without one."""
    text = line.strip().strip('"').strip(" ")
    is_declared = text[:4].lower() == "sep=" and len(text) <= 5
    delimiter = text[4:] or ("\t" if line.strip("\r\n").strip('"').endswith("\t") else "")
    return delimiter if is_declared and delimiter in DELIMITERS else ""


def find_delimiters(lines: Sequence[str]) -> list[str]:
    """Return the delimiters that these first lines may have, the best first; more than one only
    if the lines do not say which."""
    sample = _rows(lines[:_MAX_LINES])
    if not sample:
        return [","]
    if (found := declared(lines[0])) or (found := _most_have_a_tab(sample)):
        return [found]
    fits = {each: _fit(sample, each) for each in DELIMITERS}
    ranked = sorted(DELIMITERS, key=lambda each: fits[each], reverse=True)
    best = fits[ranked[0]]
    if best.columns < 2:
        return [","]
    return [each for each in ranked if fits[each] == best or _is_as_good(fits[each], best)]


def _rows(lines: Sequence[str]) -> list[str]:
    """Return these lines without their ends, but for blank ones; what stands in quotes may have
    several."""
    rows: list[str] = []
    is_open = False
    for line in lines:
        if is_open:
            rows[-1] += line
        elif line.strip():
            rows.append(line)
        if line.count('"') % 2:
            is_open = not is_open
    if is_open:  # a mark that means itself
        rows = [line for line in lines if line.strip()]
    return [row.rstrip("\r\n") for row in rows]


def _most_have_a_tab(lines: Sequence[str]) -> str:
    return "\t" if 2 * sum("\t" in line for line in lines) > len(lines) else ""


def _is_as_good(fit: _Fit, best: _Fit) -> bool:
    """Return whether nothing speaks against another delimiter than the best one."""
    same = fit.headings == best.headings and fit.agreement == best.agreement
    return same and fit.columns >= 2


def _fit(lines: Sequence[str], delimiter: str) -> _Fit:
    """Return how well these lines agree under a delimiter.

    Commas before blanks are those of addresses, if most are; then they part no cells.
    """
    rows = [_split(line, delimiter) for line in lines]
    headings = max(map(_count_headings, rows[:_MAX_HEADERS]))
    widths = Counter(len(row) for row in rows)
    [(columns, count)] = widths.most_common(1)
    if columns == 1 and len(widths) > 1 and len(lines) > 1:
        wider = Counter({width: each for width, each in widths.items() if width > 1})
        [(columns, count)] = wider.most_common(1)
    agreement = round(count / len(rows), 2)
    if columns < 2 or agreement < _MIN_AGREEMENT:
        return _Fit(headings if columns > 1 and headings > 1 else 0, 0, min(columns, 1))
    if delimiter == "," and headings < 2 and (_is_prose(rows) or _are_decimals(lines)):
        agreement = round(agreement / 2, 2)
    return _Fit(headings if headings > 1 else 0, agreement, columns)


def _count_headings(row: Sequence[str]) -> int:
    return sum(is_heading(cell.strip()) for cell in row[:_MAX_CELLS])


def _is_prose(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether most commas stand before a blank, as they do in addresses."""
    cells = [cell for row in rows for cell in row[1:]]
    return 2 * sum(cell[:1] == " " for cell in cells) > len(cells)


def _are_decimals(lines: Sequence[str]) -> bool:
    """Return whether most commas stand between digits."""
    text = "\n".join(lines)
    return 2 * len(_DECIMAL.findall(text)) > text.count(",")


def _split(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=False), [])
    except csv.Error:
        return line.split(delimiter)
