"""Cells of a workbook that are merged downwards."""

import io
from typing import Any

from storekeeper.domain.problems import decode_wrong
from storekeeper.sheets.merges import Merge, Merges, merges_of
from storekeeper.sheets.protocol import Layout
from storekeeper.sheets.records import open_sheet
from storekeeper.sheets.rows import SheetRows
from tests.sheets.corpus import workbook
from tests.sheets.looking import look


def _read(data: bytes, layout: Layout) -> list[tuple[str | None, str | None, list[str]]]:
    rows = SheetRows(open_sheet(io.BytesIO(data), layout), layout)
    return [
        (row.name, row.address, [each.message for each in decode_wrong(row.wrong or "[]")])
        for row in rows
    ]


def test_a_town_that_is_merged_over_rows_is_in_each_of_their_addresses() -> None:
    def write(sheet: Any) -> None:
        sheet.merge_range("A2:A4", "York")
        sheet.merge_range("A5:B6", "Bath")
        for row in range(1, 6):
            sheet.write_row(row, 2, [f"S{row}", f"{row} High St"])
        sheet.write_row(6, 2, ["S6", "6 High St"])

    data = workbook(["Town", "Area", "Name", "Street"], write=write)
    found = look(data)
    assert (found.address.value, found.match.value) == ("{Street}, {Town}", "name")
    layout = Layout(map={"name": "Name", "address": "{Street}, {Town}"})
    towns = ["York", "York", "York", "Bath", "Bath"]
    assert _read(data, layout) == [
        *((f"S{row}", f"{row} High St, {town}", []) for row, town in enumerate(towns, 1)),
        ("S6", "6 High St", []),
    ]
    assert _read(data, Layout(map={"name": "Name", "address": "Town"}))[2] == ("S3", "York", [])


def test_a_name_or_a_key_that_is_merged_is_not_a_second_store() -> None:
    def write(sheet: Any) -> None:
        sheet.merge_range("A2:A3", 7)
        sheet.merge_range("B2:B3", "Harbour")
        sheet.write_column("C2", ["1 Quay", "Portsmouth"])

    data = workbook(["No", "Name", "Address"], write=write)
    says = "is merged with the cell above: unmerge it, and write it in each row that is a store"
    first = ("Harbour", "1 Quay", list[str]())
    assert _read(data, Layout()) == [first, (None, None, [f"name {says}"])]
    keyed = _read(data, Layout(match="No"))
    assert keyed == [first, (None, None, [f"name {says}", f"No {says}"])]


def test_rejects_have_no_name_or_key_that_is_merged_with_the_row_above() -> None:
    def write(sheet: Any) -> None:
        sheet.merge_range("A2:A3", 7)
        sheet.merge_range("B2:B3", "Harbour")
        sheet.merge_range("D2:D3", "Portsmouth")
        sheet.write_column("C2", ["1 Quay", "2 Quay"])

    data = workbook(["No", "Name", "Street", "Town"], write=write)
    layout = Layout(match="No", map={"address": "{Street}, {Town}"})
    rows = SheetRows(open_sheet(io.BytesIO(data), layout), layout)
    _, _, line = rows.rejects([(3, "merged")])
    assert line.decode() == ",,2 Quay,Portsmouth,merged\r\n"


def test_a_header_may_be_merged_with_the_row_of_its_groups() -> None:
    def write(sheet: Any) -> None:
        sheet.merge_range("A1:A2", "Store no.")
        sheet.merge_range("B1:B2", "Store")
        sheet.merge_range("C1:D1", "Address")
        sheet.write_row("C2", ["Street", "City"])
        for row in range(2, 6):
            sheet.write_row(row, 0, [row, f"S{row}", f"{row} High St", "York"])

    found = look(workbook(write=write))
    assert found.header_row == 2
    proposed = (found.name.value, found.address.value, found.match.value)
    assert proposed == ("Store", "{Street}, {City}", "Store no.")


def test_merged_cells_are_found_wherever_the_parts_of_a_file_end() -> None:
    element = b'<x:mergeCell ref="AA2:AB3"/>'
    for size in range(2**20 - len(element), 2**20 + 2):
        assert merges_of(io.BytesIO(b" " * size + element)) == [Merge(27, 2, 3)]
    assert merges_of(io.BytesIO(b"<mergeCell ref='A1:A1'/><c ref='B1:B9'/>")) == [Merge(1, 1, 1)]


def test_only_the_rows_below_a_merged_cell_that_have_none_are_filled() -> None:
    merges = Merges([Merge(1, 2, 4), Merge(3, 5, 6)])
    rows: list[tuple[int, list[object]]] = [
        (1, ["", "a"]),
        (2, ["x", "b"]),
        (3, ["own", "c"]),
        (4, ["", "d"]),
        (5, ["", "e"]),
        (6, ["", "f"]),
    ]
    for number, cells in rows:
        merges.fill(number, cells)
    assert [cells[0] for _, cells in rows] == ["", "x", "own", "x", "", ""]
    assert [len(cells) for _, cells in rows] == [2] * 6
