"""Stores in files: what a program that reads the format finds in them."""

import csv
import io
import json
import sys
from collections.abc import Sequence
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from python_calamine import CalamineWorkbook

from storekeeper.domain.errors import InvalidInput
from storekeeper.sheets import writing
from tests.harness.transfers import TRICKY

COLUMNS = ("id", "name", "address", "version")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufffe\uffff"))
ROWS = st.lists(
    st.tuples(st.integers(1), TEXTS, st.none() | TEXTS, st.just("17.ab2c3d4e")), max_size=5
)
SHOWN = [
    (id, one.name, (one.address or "")[:30_000], "17.ab2c3d4e") for id, one in enumerate(TRICKY, 1)
]


def written(
    format: str, rows: Sequence[tuple[int, str, str | None, str]], *, excel: bool = False
) -> bytes:
    file = io.BytesIO()
    writing.write(file, format, COLUMNS, rows, excel=excel)
    return file.getvalue()


def cells(data: bytes) -> Sequence[Sequence[object]]:
    """Return what a program finds in the one sheet of an XLSX file."""
    [name] = (book := CalamineWorkbook.from_filelike(io.BytesIO(data))).sheet_names
    return book.get_sheet_by_name(name).to_python()


@given(ROWS)
def test_json_lines_have_what_was_written(rows: list[tuple[int, str, str | None, str]]) -> None:
    lines = written("jsonl", rows).split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line) for line in lines] == [
        dict(zip(COLUMNS, row, strict=True)) for row in rows
    ]


@given(ROWS, st.booleans())
def test_csv_has_what_was_written_as_text(
    rows: list[tuple[int, str, str | None, str]], excel: bool
) -> None:
    data = written("csv", rows, excel=excel)
    assert data.startswith(b"\xef\xbb\xbfid;name" if excel else b"id,name")
    text = io.StringIO(data.decode("utf-8-sig"), newline="")
    expected = [["" if cell is None else str(cell) for cell in row] for row in rows]
    assert list(csv.reader(text, delimiter=";" if excel else ",", strict=True)) == [
        [*COLUMNS],
        *expected,
    ]


@given(ROWS)
def test_xlsx_has_what_was_written_as_text(rows: list[tuple[int, str, str | None, str]]) -> None:
    expected = [
        [float(id) if id < 10**15 else str(id), *("" if cell is None else cell for cell in rest)]
        for id, *rest in rows
    ]
    assert cells(written("xlsx", rows)) == [[*COLUMNS], *expected]


def test_the_same_rows_are_the_same_bytes() -> None:
    for format in ("csv", "xlsx", "jsonl"):
        assert written(format, SHOWN) == written(format, SHOWN)
    with ZipFile(io.BytesIO(written("xlsx", SHOWN))) as parts:
        assert {part.date_time[0] for part in parts.infolist()} == {1980}


def test_a_text_that_no_cell_of_xlsx_holds_is_refused_and_not_cut() -> None:
    longest = (1, "A", "x" * writing.MAX_CELL_LENGTH, "1.ab2c3d4e")
    assert cells(written("xlsx", [longest]))[1][2] == "x" * writing.MAX_CELL_LENGTH
    with pytest.raises(InvalidInput, match="the address of store 2 has 32,768"):
        written("xlsx", [longest, (2, "B", "x" * 32_768, "1.ab2c3d4e")])


def test_more_rows_than_a_sheet_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_ROWS", 3)
    assert len(cells(written("xlsx", SHOWN[:2]))) == 3
    with pytest.raises(InvalidInput, match="3 rows at most"):
        written("xlsx", SHOWN[:3])


def test_without_the_extra_xlsx_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(InvalidInput, match=r"must be csv or jsonl: .* with its extra excel"):
        written("xlsx", [])


@pytest.mark.parametrize(
    ("row", "expected"),
    [((1, "=A", "\t1"), 2), ((1, "A", "-1"), 1), ((1, "a=b", ""), 0), ((-1, "a"), 0)],
)
def test_cells_that_begin_as_formulas_are_counted(row: writing.Row, expected: int) -> None:
    assert writing.formula_like(row) == expected


def test_a_workbook_has_numbers_for_ids_a_bold_header_a_filter_and_widths() -> None:
    with ZipFile(io.BytesIO(written("xlsx", SHOWN))) as parts:
        sheet = parts.read("xl/worksheets/sheet1.xml").decode()
        styles = parts.read("xl/styles.xml").decode()
    assert f'<autoFilter ref="A1:D{len(SHOWN) + 1}"/>' in sheet
    assert "<b/>" in styles
    assert '<c r="A2"><v>1</v></c>' in sheet
    assert sheet.count("<col ") == len(COLUMNS)
