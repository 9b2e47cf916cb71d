"""Which row of a file has the names of its columns: one that looks like headings, above rows that
do not."""

import re
from collections import Counter
from collections.abc import Sequence

from storekeeper.sheets.headings import is_heading, role_of

MAX_ROWS_ABOVE = 15
"""Rows among which the header is looked for."""

_MAX_TITLE_LENGTH = 60
_MAX_CELLS = 500
"""Cells of a row by which it is known."""
_MIN_ROWS = 3
"""Rows that must differ from a header whose words are not known."""

_MIN_HEADINGS = 3
"""Cells of a row that is the header wherever it stands, since all of them are headings."""

_IDENTIFIER = re.compile(r"[A-Za-z_]+\d{0,2}[A-Za-z_]*")
"""What programs call a column, such as `line2` or `enseigne1Etablissement`."""

_HINT = re.compile(
    r"[(\[<]?(required|optional|mandatory|recommended|text|string|number|integer|numeric|date"
    r"|decimal|yes ?/ ?no|pflicht(feld|angabe)?|freiwillig|zahl|ganzzahl|datum|obligatoire"
    r"|facultatif|texte|nombre|obligatorio|opcional|texto|n[uú]mero|obbligatorio|facoltativo|testo"
    r"|verplicht|optioneel|tekst|必須|任意|必填|选填)"
    r"[ ,:]*[(\[]?(max\.? ?)?(\d{1,4}( characters?| zeichen)?)?[)\]>]?\*?|[-=:]{2,}",
    re.IGNORECASE,
)
"""What a form says below a heading about its cells, or a line that is drawn there."""

_MIN_NUMBERED = 4
"""Columns from which on a row 1, 2, 3, 4 numbers them."""

_NUMBER = re.compile(r"[\d\s.,:/()+%€$£-]*\d[\d\s.,:/()+%€$£-]*")

Cells = Sequence[str]


def find_header(rows: Sequence[Cells]) -> int | None:
    """Return the place of the header among the first rows, which are not blank; None if there is
    none."""
    rows = [row[:_MAX_CELLS] for row in rows]
    width = _usual_width(rows)
    titles = 0
    while titles < min(len(rows), MAX_ROWS_ABOVE) and not _is_store(rows[titles], width):
        titles += 1
    places = range(min(titles + 1, len(rows), MAX_ROWS_ABOVE))
    known = [(_headings(rows[place], width), -place) for place in places]
    below = range(len(places), min(len(rows), MAX_ROWS_ABOVE))
    sure = [place for place in below if _is_surely_header(rows[place], width)]
    known += [(len(rows[place]), -place) for place in sure]
    best, place = max(known, default=(0, 0))
    if best > 0:
        return -place
    return next((place for place in places if _differs(rows[place], rows[place + 1 :])), None)


def hint_rows(rows: Sequence[Cells]) -> int:
    """Return how many of the rows below a header say what to fill in, or number the columns; the
    last row is never one."""
    count = 0
    while count < len(rows) - 1 and _is_hint(rows[count]):
        count += 1
    return count


def _is_hint(row: Cells) -> bool:
    cells = [cell.strip() for cell in row]
    filled = [cell for cell in cells if cell]
    if len(cells) >= _MIN_NUMBERED and cells == [str(number + 1) for number in range(len(cells))]:
        return True
    return len(filled) > 1 and all(map(_is_word_of_hints, filled))


def _is_word_of_hints(cell: str) -> bool:
    return len(cell) <= _MAX_TITLE_LENGTH and _HINT.fullmatch(cell) is not None


def is_same_row(header: Cells, row: Cells) -> bool:
    """Return whether a row has nothing but the names of the columns again, as that on the next
    page of a report has."""
    names = [cell.strip() for cell in header]
    cells = [cell.strip() for cell in row]
    missing = len(names) - len(cells)
    return _count(names) > 1 and names == cells + [""] * missing


def list_rank(rows: Sequence[Cells]) -> int:
    """Return how much the first rows of a sheet look like a list of stores: 2 if a heading says
    what they are, 1 if they are a table, 0 if they are neither."""
    place = find_header(rows)
    if place is not None and place + 1 < len(rows):
        below = rows[place + 1 :]
        roles = {
            role_of(cell)
            for at, cell in enumerate(rows[place])
            if is_heading(cell) and not _are_numbers(below, at)
        }
        if "name" in roles or {"address", "street"} & roles:
            return 2
    wide = [row for row in rows if _count(row) > 1]
    return int(len(wide) > 1 and 2 * len(wide) > len(rows))


def _are_numbers(rows: Sequence[Cells], place: int) -> bool:
    """Return whether a column has nothing but numbers, such as how many stores a region has."""
    cells = [row[place] for row in rows if place < len(row) and row[place].strip()]
    return bool(cells) and all(map(_is_number, cells))


def _is_number(cell: str) -> bool:
    return len(cell) <= _MAX_TITLE_LENGTH and _NUMBER.fullmatch(cell) is not None


def _count(row: Cells) -> int:
    """Return how many cells of a row are not empty."""
    return len(list(filter(None, row)))


def _usual_width(rows: Sequence[Cells]) -> int:
    """Return how many cells most rows have that are not blank."""
    widths = Counter(map(_count, rows))
    return max(widths, key=lambda width: (widths[width], width), default=0)


def _headings(row: Cells, width: int) -> int:
    """Return how many cells of a row are headings, 0 if the row is not a header."""
    cells = [cell for cell in row if cell.strip()]
    headings = [cell for cell in cells if is_heading(cell)]
    if len(cells) > 1 and any(cell.strip().casefold() == "name" for cell in headings):
        return len(headings)
    data = [cell for cell in cells if cell not in headings and _is_data(cell)]
    if not headings or len(data) >= max(len(headings), 1) or (data and len(headings) < 2):
        return 0
    if len(cells) == 1 and width > 1 and role_of(headings[0]) not in ("name", "address"):
        return 0
    if len(cells) == 1 and width > 1 and headings[0].strip().casefold() not in ("name", "address"):
        return 0  # a title such as "Stores"
    return len(headings)


def _is_surely_header(row: Cells, width: int) -> bool:
    """Return whether most cells of a row are headings, and none is data. Then the rows above it
    are titles, even if they have data, such as the period of a report."""
    cells = [cell for cell in row if cell.strip()]
    is_full = len(cells) >= max(width, _MIN_HEADINGS)
    return (
        is_full
        and 4 * sum(map(is_heading, cells)) > 3 * len(cells)
        and not any(_is_data(cell) and not is_heading(cell) for cell in cells)
    )


def _is_store(row: Cells, width: int) -> bool:
    """Return whether a row is as full as most, and has data: then it is not a title."""
    cells = [cell for cell in row if cell.strip()]
    is_full = width > 1 and len(cells) >= width
    return is_full and any(_is_data(cell) and not is_heading(cell) for cell in cells)


def _is_data(cell: str) -> bool:
    """Return whether a cell is the content of a store, and no heading."""
    if len(cell) > _MAX_TITLE_LENGTH:
        return True
    if _IDENTIFIER.fullmatch(cell):
        return False
    return any(map(str.isdigit, cell)) or "@" in cell or "://" in cell


def _differs(row: Cells, below: Sequence[Cells]) -> bool:
    """Return whether a row of words stands above numbers, whatever its language: in one column
    of nothing but numbers, or in two whose cells have digits. If a word has a digit itself, as in
    `Sales 2026`, it takes two columns of numbers."""
    cells = [cell for cell in row if cell.strip()]
    rows = [each for each in below[:MAX_ROWS_ABOVE] if _count(each) > 1]
    if len(cells) < 2 or len(set(cells)) < len(cells) or len(rows) < _MIN_ROWS:
        return False
    if any("@" in cell or "://" in cell or _is_number(cell) for cell in cells):
        return False
    with_numbers = with_digits = 0
    for place, cell in enumerate(row):
        column = [each[place] for each in rows if place < len(each) and each[place].strip()]
        if not cell.strip() or 10 * len(column) < 8 * len(rows):
            continue
        with_numbers += all(map(_is_number, column))
        with_digits += all(any(map(str.isdigit, each)) for each in column)
    if any(map(_is_data, cells)):
        return with_numbers > 1
    return with_numbers > 0 or with_digits > 1
