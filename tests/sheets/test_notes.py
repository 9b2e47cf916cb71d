"""Rows that are not stores: hints below a header, headers that occur again, sums."""

import io

import pytest

from storekeeper.domain.problems import decode_wrong
from storekeeper.sheets.headers import find_header, hint_rows, list_rank
from storekeeper.sheets.notes import import_notes
from storekeeper.sheets.protocol import Layout
from storekeeper.sheets.records import open_sheet
from storekeeper.sheets.rows import SheetRows
from tests.sheets.corpus import workbook
from tests.sheets.looking import look

HEADER = "No,Name,Address,Town\n"
STORES = "".join(f"{number},S{number},{number} High St,York\n" for number in range(1, 13))
LAYOUT = Layout(map={"name": "Name", "address": "Address"})

HINTS = {
    "(Required),(Required),(Optional),\n": "Row 2 is part of the header, so not imported: "
    "(Required), (Required), (Optional)",
    "Text (30),text,Text(max 100),String*\n": "Row 2 is part of the header, so not imported: "
    "Text (30), text, Text(max 100), String*",
    "---,:---:,===,----\n": "Row 2 is part of the header, so not imported: ---, :---:, ===, ----",
    "1,2,3,4\n": "Row 2 is part of the header, so not imported: 1, 2, 3, 4",
    "Zahl,Pflichtfeld,optional,\n1,2,3,4\n": "Rows 2 to 3 are part of the header, so not imported:"
    " Zahl, Pflichtfeld, optional",
}
NO_HINTS = {
    "a store called like a number": ("No,Name,Address\n", "1,2,3\n4,B,5 St\n"),
    "a store called Text": (HEADER, "1,Text,2 St,York\n2,B,3 St,York\n"),
    "the only row": (HEADER, "1,2,3,4\n"),
    "one cell": ("Name\n", "Required\nB\n"),
}
SUMS = [
    *("Total", "TOTAL:", "Total stores", "Total: 57", "Total number of stores", "12 stores"),
    *("Number of stores: 12", "Anzahl Filialen: 12", "Summe", "Store count", "Grand total = 12"),
]
NO_SUMS = ["Total Wine", "Count Dracula", "Summers", "Stores", "12", "7 Eleven"]


def rows_of(text: str, layout: Layout = LAYOUT) -> SheetRows:
    return SheetRows(open_sheet(io.BytesIO(text.encode()), layout), layout)


@pytest.mark.parametrize("hints", HINTS)
def test_hints_below_a_header_are_told_and_are_not_stores(hints: str) -> None:
    text = HEADER + hints + STORES
    found = look(text.encode())
    assert (found.rows, found.notes) == (12, [HINTS[hints]])
    assert found.match.value == "No"
    sheet = open_sheet(io.BytesIO(text.encode()), LAYOUT)
    rows = SheetRows(sheet, LAYOUT)
    assert import_notes(sheet, rows) == [HINTS[hints]]
    read = list(rows)
    assert [row.name for row in read] == [f"S{number}" for number in range(1, 13)]
    assert read[0].line == 2 + hints.count("\n")


@pytest.mark.parametrize("kind", NO_HINTS)
def test_what_may_be_a_store_is_not_a_hint(kind: str) -> None:
    header, rows = NO_HINTS[kind]
    found = look((header + rows).encode())
    assert (found.rows, found.notes) == (rows.count("\n"), [])


def test_a_header_that_occurs_again_is_a_bad_row_and_no_store() -> None:
    text = HEADER + STORES + " No,Name ,Address,Town\n".replace(" No", "No") + "13,S13,13 St,Hull\n"
    text += HEADER + "14,S14,14 St,Hull\n"
    found = look(text.encode())
    assert found.rows == 14
    assert found.match.value == "No"
    assert found.notes == [
        "Bad rows, because they have the names of the columns again: 2, the first is row 14"
    ]
    read = list(rows_of(text))
    wrong = {row.line: decode_wrong(row.wrong) for row in read if row.wrong}
    assert {line: [each.reason for each in all] for line, all in wrong.items()} == {
        14: ["header_again"],
        16: ["header_again"],
    }
    assert [row.name for row in read if not row.wrong] == [f"S{number}" for number in range(1, 15)]


def test_a_store_called_like_its_column_is_a_store() -> None:
    for text in ("Name\nName\n", '{"Name":"Name"}\n', "Name,Address\nName,1 St\n"):
        [row] = rows_of(text, Layout(map={"name": "Name"}))
        assert (row.name, row.wrong) == ("Name", None)


def test_a_row_that_counts_the_stores_is_said_to_look_like_a_sum() -> None:
    for text in SUMS:
        [note] = look(f"{HEADER}{STORES}{text},,,\n".encode()).notes
        assert note == f"Row 14 looks like a sum, but is read as a store: {text}"
    for text in NO_SUMS:
        assert look(f"{HEADER}{STORES}99,{text},1 St,York\n".encode()).notes == []


def test_rows_of_blanks_are_not_rows() -> None:
    rows = [["Name", "Address"], ["A", "1 St"], [" ", "\u00a0"], ["\t", ""], ["B", " "]]
    assert look(workbook(*rows)).rows == 2


def test_a_longer_table_on_the_right_hides_no_key() -> None:
    lines = [f"{number},S{number},{number} St,,R{number},Low Rd\n" for number in range(1, 13)]
    lines += [f",,,,R{number},Low Rd\n" for number in range(13, 30)]
    found = look(("No.,Store,Address,,Store,Address\n" + "".join(lines)).encode())
    assert (found.name.value, found.address.value) == ("Store", "Address")
    assert found.match.value == "No."


def test_large_cells_do_not_make_the_search_for_a_header_slow() -> None:
    """An expression that begins again at each character of one would need hours."""
    cells = ["1" * 2**20 + "x", "x" * 2**20 + "-", "Text" + " " * 2**20 + "x"]
    rows = [cells, cells, ["A", "1 St", "York"]]
    assert list_rank([["Name", "Address", "Town"], *rows]) == 2
    assert hint_rows(rows) == 0
    assert find_header([["Foo", "Bar", "Baz"], *rows, *rows]) is None
