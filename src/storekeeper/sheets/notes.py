"""What a person should know about a file besides its columns."""

import re
from collections.abc import Sequence

from storekeeper.domain.problems import MAX_BRIEF_LENGTH, shown
from storekeeper.sheets import Record
from storekeeper.sheets.cells import text_of
from storekeeper.sheets.records import Sheet
from storekeeper.sheets.rows import SheetRows

_CANNOT_TELL = (
    "In {kind}, an error of the sheet, a formula without a value and an empty cell look the same,"
    " and numbers come without their format (17 for 00017): save it as XLSX if that matters"
)

_MERGED = (
    "In {kind}, cells that are merged downwards have their text only in the first row: save it as"
    " XLSX if there are any"
)

_MAX_LISTED = 20
_WORD = re.compile(r"\w+")
_MAX_SUM_LENGTH = 60
_SUMS = {
    "total",
    "totals",
    "subtotal",
    "sum",
    "count",
    "summe",
    "gesamt",
    "insgesamt",
    "anzahl",
    "totale",
    "totaal",
    "aantal",
    "razem",
    "suma",
    "celkem",
    "итого",
    "всего",
    "合計",
    "合计",
}
_STORES = {
    "stores",
    "shops",
    "branches",
    "locations",
    "outlets",
    "rows",
    "records",
    "entries",
    "filialen",
    "märkte",
    "magasins",
    "tiendas",
    "negozi",
    "lojas",
    "winkels",
    "sklepów",
    "店舗",
}
_OTHERS = {
    "grand",
    "general",
    "sub",
    "of",
    "our",
    "in",
    "the",
    "all",
    "number",
    "store",
    "shop",
    "branch",
}
"""What may stand next to these words in a cell that counts the rows above it."""


def import_notes(sheet: Sheet, rows: SheetRows) -> list[str]:
    """Return what an import says, before it has read the rows."""
    notes = _notes_on_kind(sheet)
    if rows.above:
        notes.append(_not_imported(rows.above, "above the names of the columns"))
    return [*notes, *_notes_on_hints(rows)]


def look_notes(sheet: Sheet, rows: SheetRows, dropped: Sequence[str]) -> list[str]:
    """Return what a look says, after it has read the rows; `dropped` are columns."""
    notes = _notes_on_kind(sheet)
    if dropped:
        names = ", ".join(f'"{shown(name, MAX_BRIEF_LENGTH)}"' for name in dropped)
        notes.append(f"Not used, although it looks like a part of an address: {names}")
    notes += _notes_on_hints(rows)
    if rows.headers_again:
        notes.append(
            f"Bad rows, because they have the names of the columns again: {rows.headers_again:,},"
            f" the first is row {rows.first_header_again}"
        )
    return [*notes, *notes_on_sums(rows)]


def _notes_on_kind(sheet: Sheet) -> list[str]:
    notes = []
    if sheet.kind in ("xls", "xlsb", "ods"):
        notes.append(_CANNOT_TELL.format(kind=sheet.kind.upper()))
    if sheet.kind in ("xlsb", "ods"):
        notes.append(_MERGED.format(kind=sheet.kind.upper()))
    return notes


def _notes_on_hints(rows: SheetRows) -> list[str]:
    if not rows.hints:
        return []
    return [_not_imported(rows.hints, "part of the header")]


def notes_on_sums(rows: SheetRows) -> list[str]:
    """Return a note for each of the last rows, when they have been read, that looks like a sum."""
    notes = []
    for line, cells in rows.last:
        texts = [text_of(cell).strip() for cell in cells]
        if any(map(_is_sum, texts)):
            told = named([text for text in texts if text])
            notes.append(f"Row {line} looks like a sum, but is read as a store: {told}")
    return notes


def _is_sum(text: str) -> bool:
    """Return whether a cell has nothing but words such as `Total stores: 57`."""
    if len(text) > _MAX_SUM_LENGTH:
        return False
    found = set(_WORD.findall(text.casefold()))
    numbers = {word for word in found if word.isdigit()}
    if not found - numbers <= _SUMS | _STORES | _OTHERS:
        return False
    counts_stores = bool(found & _STORES) and (bool(numbers) or "number" in found)
    return bool(found & _SUMS) or counts_stores


def _not_imported(records: Sequence[Record], what: str) -> str:
    """Return a note about rows that stand together, with the cells of the first."""
    line, cells = records[0]
    rows = f"Row {line} is"
    if len(records) > 1:
        rows = f"Rows {line} to {records[-1][0]} are"
    told = named([text for cell in cells if (text := text_of(cell).strip())])
    return f"{rows} {what}, so not imported: {told}"


def named(names: Sequence[str]) -> str:
    """Return a list of names for one line."""
    listed = ", ".join(shown(name, MAX_BRIEF_LENGTH) for name in names[:_MAX_LISTED])
    more = len(names) - _MAX_LISTED
    return f"{listed} and {more} more" if more > 0 else listed
