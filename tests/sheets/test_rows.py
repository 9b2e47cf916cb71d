"""What the rows of a file become, whatever is in it: cells, templates, columns, encodings."""

import codecs
import encodings as python_encodings
import io
import json
import re
import time
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storekeeper.domain.intake import SheetRow
from storekeeper.domain.problems import MAX_WRONG_LENGTH, decode_wrong, message_of
from storekeeper.domain.stores import MAX_CONTENT_BYTES
from storekeeper.http.response import MAX_BODY_BYTES
from storekeeper.sheets import BadFile
from storekeeper.sheets.columns import MAX_COLUMNS, Columns, join
from storekeeper.sheets.encodings import NAMES, check_encoding
from storekeeper.sheets.protocol import Layout
from storekeeper.sheets.records import open_sheet
from storekeeper.sheets.rows import SheetRows


def rows(data: str | bytes, **layout: object) -> list[SheetRow]:
    """Return the rows of a file with this content; `layout` says how to read it."""
    asked = Layout(**layout)  # type: ignore[arg-type]
    file = io.BytesIO(data.encode() if isinstance(data, str) else data)
    return list(SheetRows(open_sheet(file, asked), asked))


def said(row: SheetRow) -> list[str]:
    return [
        each.message or message_of(each.reason, each.column)
        for each in decode_wrong(row.wrong or "[]")
    ]


# Templates.


def by_pattern(texts: Sequence[str], cells: Sequence[str]) -> str:
    """Return what decision 53 says a template becomes, by a pattern that takes quadratic time."""
    values = [cell.strip() for cell in cells]
    text = texts[0] + "".join(
        f"{value or chr(0)}{text}" for value, text in zip(values, texts[1:], strict=True)
    )

    def separator(gap: re.Match[str]) -> str:
        if gap.start() == 0 or gap.end() == len(text):
            return ""
        return ", " if "," in gap[0] else " "

    return " ".join(re.sub(r"[\s,]*\0[\s,\0]*", separator, text).split())


PIECES = st.text(st.sampled_from("a, \t\u00a0"), max_size=6)


@given(st.lists(st.tuples(PIECES, PIECES), min_size=1, max_size=5), PIECES)
@example([("", ""), (", ", "b")], "")
@example([("", ",,"), (" ", "")], " ,")
def test_blank_cells_vanish_with_the_blanks_and_commas_beside_them(
    pairs: list[tuple[str, str]], end: str
) -> None:
    texts = [*(text for text, _ in pairs), end]
    cells = [cell for _, cell in pairs]
    assert join(texts, range(len(cells)), cells) == by_pattern(texts, cells)


@pytest.mark.parametrize("cell", [",", ", ", " ", "x,", "a b"])
def test_a_template_takes_time_in_proportion_to_its_cells(cell: str) -> None:
    def seconds(size: int) -> float:
        began = time.thread_time()
        for _ in range(5):
            join(["", " ", ""], [0, 1], [cell * (size // len(cell)), ""])
        return time.thread_time() - began

    seconds(10_000)
    assert seconds(400_000) < 100 * max(seconds(20_000), 0.001), "400 times, if it is quadratic"


@pytest.mark.parametrize("times", [100, 1000])
def test_what_a_template_makes_is_measured_before_it_is_made(times: int) -> None:
    data = "name,a\nStore," + "x" * (2**20 - 100) + "\nOther,x\n"
    large, other = rows(data, map={"address": "{a}" * times})
    assert said(large) == ["The name and the address of the row have more than 1 MiB as JSON"]
    assert (large.name, large.address) == (None, None)
    assert (other.name, other.address) == ("Other", "x" * times)


def test_a_row_may_be_as_large_as_the_body_of_a_post() -> None:
    assert MAX_CONTENT_BYTES == MAX_BODY_BYTES
    for cell in ("x", "é", "\x01", "\\", "\U0001f3ea"):
        size = len(json.dumps(cell, ensure_ascii=False).encode()) - 2
        room = MAX_CONTENT_BYTES - len(b'{"name":"A","address":""}')
        fits, larger = (cell * count for count in (room // size, room // size + 1))
        good, bad = rows("\n".join(json.dumps({"name": "A", "address": a}) for a in (fits, larger)))
        assert (good.wrong, good.address) == (None, fits)
        assert (len(said(bad)), bad.address) == (1, None)


# Columns.


def test_a_file_with_too_many_columns_is_refused() -> None:
    assert Columns(["name", *["x"] * (MAX_COLUMNS - 1)], {}, None).match is None
    with pytest.raises(BadFile, match="16,384 columns at most"):
        rows("name" + ",x" * 1_000_000 + "\n")


def test_a_template_may_name_columns_as_often_as_it_likes() -> None:
    header = [f"c{number}" for number in range(MAX_COLUMNS)]
    began = time.thread_time()
    columns = Columns(header, {"name": "{c16383}" * 2500}, None)
    assert time.thread_time() - began < 1
    assert columns.fields["name"](["x"] * MAX_COLUMNS) == "x" * 2500


# Texts.


def test_a_wide_encoding_without_a_mark_is_asked_for_its_order() -> None:
    for width in ("16", "32"):
        data = "name\nStore\n".encode(f"utf-{width}-le")
        with pytest.raises(BadFile, match="does not say its byte order") as refused:
            rows(data, encoding=f"utf-{width}")
        assert (refused.value.parameter, refused.value.value) == ("encoding", f"utf-{width}-le")
        assert rows(data, encoding=refused.value.value)[0].name == "Store"


def test_a_first_line_of_any_length_is_read_or_refused() -> None:
    with pytest.raises(BadFile, match=r"line \d: field larger than field limit"):
        rows("name," + "x" * (2**20 + 1) + "\nStore,\n")
    wide = "name," + "x" * (2**20 - 1) + "," + "y" * 2**20
    assert rows(f"{wide}\nStore,,\n")[0].name == "Store"


def test_a_list_of_json_is_no_text_that_could_be_cut() -> None:
    data = '{"name":["a long list of one long text"],"k":{"a":1}}\n'
    [row] = rows(data, cut_names=True)
    assert (row.name, said(row)) == (None, ['"name" must be a string'])
    [row] = rows(data, match="k", map={"name": "k"})
    assert (row.key, len(said(row))) == (None, 2)


def test_a_long_array_of_json_takes_no_longer_than_lines_of_it() -> None:
    array = json.dumps([{"name": f"Store {number}"} for number in range(40_000)])
    began = time.process_time()
    assert len(rows(array, add=True)) == 40_000
    assert time.process_time() - began < 10  # where each object looks at the rest, it takes 40 s


def test_json_in_a_cell_is_as_deep_as_it_likes() -> None:
    for depth in (1, 100, 900, 980, 987, 990, 995, 1000, 100_000):
        nested = "[" * depth + "]" * depth
        for column in ("k", "name", "address", "version", "id", "other"):
            data = f'{{"name":"A","k":"1"}}\n{{"name":"A","k":"1","{column}":{nested}}}\n'
            try:
                _, row = rows(data, match="k")
            except BadFile as error:
                assert depth > 900
                assert str(error) == "line 2: not a JSON object"
            else:
                assert (row.wrong is None) == (column in ("other", "id"))


NULS = [
    ("name", "null characters"),
    ("address", "null characters"),
    ("version", "is not the version of an export"),
    ("k", "null characters"),
]


@pytest.mark.parametrize(("column", "message"), NULS)
def test_a_null_character_makes_a_bad_row_without_one(column: str, message: str) -> None:
    record = {"name": "A", "address": "1 Road", "version": "", "k": "7"} | {column: "1\0.abcdefgh"}
    [row] = rows(json.dumps(record), match="k")
    assert message in " ".join(said(row))
    assert not any("\0" in value for value in row if isinstance(value, str))


def test_no_column_with_a_null_character_is_a_key() -> None:
    with pytest.raises(BadFile, match="or null characters"):
        rows(json.dumps({"name": "A", "k\0": "7"}), match="k\0")


def test_what_is_wrong_with_a_row_is_short_however_long_its_cells() -> None:
    long = "\0" * 100_000
    record = {"name": long, "address": long, "version": long, "k": long}
    [row] = rows(json.dumps(record), match="k", cut_names=True)
    assert 0 < len(row.wrong or "") <= MAX_WRONG_LENGTH


# Encodings.


SPELLED = {
    "UTF-8": "utf-8",
    "utf8": "utf-8",
    "windows-1252": "cp1252",
    "Windows-874": "cp874",
    "latin1": "iso8859-1",
    "ISO-8859-15": "iso8859-15",
    "Shift_JIS": "shift_jis",
    "windows-31j": "cp932",
    "euc-kr": "euc_kr",
    "GB18030": "gb18030",
    "Big5": "big5",
    "KOI8-R": "koi8-r",
    "macintosh": "mac-roman",
    "utf-16le": "utf-16-le",
    "utf-32": "utf-32",
}


def test_encodings_are_found_by_the_names_that_programs_have_for_them() -> None:
    assert {name: check_encoding(name) for name in SPELLED} == SPELLED
    for name in NAMES:
        assert codecs.lookup(check_encoding(name)).name == check_encoding(name)


@pytest.mark.parametrize(
    "name", ["rot13", "hex", "zlib", "idna", "unicode_escape", "cp037", "", "x" * 10_000]
)
def test_what_is_no_encoding_of_texts_is_refused(name: str) -> None:
    with pytest.raises(BadFile, match="no such encoding") as refused:
        check_encoding(name)
    assert len(str(refused.value)) < 100


def test_python_remembers_no_name_of_an_encoding_that_somebody_makes_up() -> None:
    remembered = python_encodings._cache
    before = len(remembered)
    for number in range(1000):
        with pytest.raises(BadFile):
            check_encoding(f"cp{number}000")
    assert len(remembered) == before
