"""Files as spreadsheets and people make them, each with what an import says about it; made again
for each test."""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import xlsxwriter  # type: ignore[import-untyped]  # it has no types

Stores = list[tuple[str, str | None]]

ROWS: Stores = [
    ("Harbour", "20 Quay Road, Portsmouth"),
    ("Café Zürich", None),
    ("Old Mill", 'The "Mill"'),
]
"""What the valid files have."""


class File(NamedTuple):
    """A file: its bytes, the options that it needs, and the stores that come of it, or else what
    is said."""

    data: bytes
    stores: Stores | None = ROWS
    says: str = ""
    options: tuple[str, ...] = ()


def table(
    delimiter: str = ",", end: str = "\r\n", *, header: str = "name,address", quoted: bool = False
) -> str:
    """Return ROWS as CSV."""
    lines = [header.replace(",", delimiter)]
    for name, address in ROWS:
        cells = [name, address or ""]
        marked = [
            '"' + cell.replace('"', '""') + '"' if quoted or set(cell) & set(',;"\t') else cell
            for cell in cells
        ]
        lines.append(delimiter.join(marked))
    return end.join(lines) + end


def workbook(*rows: Sequence[object], write: Callable[[Any], object] = lambda _: None) -> bytes:
    """Return an XLSX file with these rows; `write` adds what rows cannot have."""
    file = io.BytesIO()
    with xlsxwriter.Workbook(file, {"strings_to_urls": False}) as book:
        book.set_properties({"created": datetime(1980, 1, 1, tzinfo=UTC)})
        sheet = book.add_worksheet()
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
        write(sheet)
    return file.getvalue()


def bomb() -> bytes:
    """Return a workbook (ODS) of some 3 KiB whose cells have 2 GiB: each is the one text of a
    megabyte, again."""
    text = b"x" * 2**20
    content = (
        b'<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
        b' xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
        b' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body>'
        b'<office:spreadsheet><table:table table:name="Stores">'
        b"<table:table-row><table:table-cell table:number-columns-repeated='2000'"
        b" office:value-type='string'><text:p>" + text + b"</text:p></table:table-cell>"
        b"</table:table-row></table:table></office:spreadsheet></office:body>"
        b"</office:document-content>"
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as book:
        kind = "application/vnd.oasis.opendocument.spreadsheet"
        book.writestr("mimetype", kind, zipfile.ZIP_STORED)
        book.writestr("META-INF/manifest.xml", "<manifest/>")
        book.writestr("content.xml", content)
    return file.getvalue()


def lone_cell(sheet: Any) -> None:
    """Write the last cell that a sheet can have."""
    sheet.write(1_048_575, 16_383, "lone")


HEADED: list[Sequence[object]] = [
    ["name", "address"],
    *([name, address or ""] for name, address in ROWS),
]
MAPPED = ("--map", "name=Store Name", "--map", "address={Street}, {City} {Postcode}")
JOINED: Stores = [
    ("A", "1 Road, Town 12"),
    ("B", "Town 12"),
    ("C", "1 Road, 12"),
    ("D", "1 Road, Town"),
    ("E", None),
]
LIST = (
    "Store Name,Street,City,Postcode,Country\nA,1 Road,Town,12,X\nB,,Town,12,X\nC, 1  Road"
    " ,,12,X\nD,1 Road,Town,,X\n"
    "E,,,,X\n"
)

CORPUS: dict[str, Callable[[], File]] = {
    "Excel, English": lambda: File(table().encode("utf-8-sig")),
    "Excel, German": lambda: File(table(";").encode("utf-8-sig")),
    "Excel, German, as it was before 2016": lambda: File(
        table(";").encode("cp1252"),
        None,
        'line 3: not UTF-8, but perhaps another encoding (cp1252 reads "Café Zürich;"',
    ),
    "the same with its encoding": lambda: File(
        table(";").encode("cp1252"), options=("--encoding", "cp1252")
    ),
    "Excel, Unicode text": lambda: File(table("\t").encode("utf-16")),
    "UTF-16, big end first": lambda: File(b"\xfe\xff" + table("\t").encode("utf-16-be")),
    "UTF-16 without a mark": lambda: File(
        table().encode("utf-16-le"),
        None,
        "UTF-16 without a byte order mark: repeat with --encoding utf-16-le",
    ),
    "the same when it is named": lambda: File(
        table().encode("utf-16-le"), options=("--encoding", "utf-16-le")
    ),
    "UTF-16 that ends in the middle": lambda: File(
        table().encode("utf-16")[:-1], None, "not UTF-16"
    ),
    "Excel, Macintosh": lambda: File(table(end="\r").encode()),
    "Macintosh, its encoding": lambda: File(
        table(end="\r").encode("mac-roman"), options=("--encoding", "mac-roman")
    ),
    "LibreOffice": lambda: File(table(end="\n", quoted=True).encode()),
    "Google": lambda: File(table().encode().rstrip()),
    "tabs": lambda: File(table("\t", "\n").encode()),
    "no such encoding": lambda: File(
        table().encode(), None, "no such encoding", ("--encoding", "rot13")
    ),
    "header in capitals, another order": lambda: File(
        b"ADDRESS,Name \n1 Road,A\n", [("A", "1 Road")]
    ),
    "quoted newlines": lambda: File(b'name,address\r\n"A\r\nB","1\n2"\r\n', [("A\r\nB", "1\n2")]),
    "quoted delimiters in the header": lambda: File(
        b'"a,b",name;x,address\nA,B,C\n', [("B", "C")], options=("--map", "name=name;x")
    ),
    "empty rows and columns": lambda: File(
        b";;\n;name;address;;\n;;;;\n;A;1 Road;;\n;;;;\n\n;B;;;\n", [("A", "1 Road"), ("B", None)]
    ),
    "empty rows at the end": lambda: File(
        b"name,address\nA,1 Road\n" + b",\n" * 1000, [("A", "1 Road")]
    ),
    "more blank lines than a sheet has rows": lambda: File(
        b"name\nA\n" + b"\n" * 1_048_577, None, "more than 1,048,576 lines are blank"
    ),
    "names of 31 characters": lambda: File(
        ("name\n" + "".join(f"{'x' * 29}{number:02}\n" for number in range(50))).encode(),
        None,
        "50 names have more than 30 characters: line 2 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxx00' (31),"
        " line 3",
    ),
    "the same, cut": lambda: File(
        b"name\n" + b"x" * 31 + b"\n", [("x" * 30, None)], options=("--cut-names",)
    ),
    "30 emoji": lambda: File(("name\n" + "\U0001f3ea" * 30).encode(), [("\U0001f3ea" * 30, None)]),
    "formulas as text": lambda: File(
        b"name,address\n=1+1,@A1\n-5,+3\n", [("=1+1", "@A1"), ("-5", "+3")]
    ),
    "columns to map": lambda: File(LIST.encode(), JOINED, options=MAPPED),
    "columns that were not mapped": lambda: File(
        LIST.encode(), None, 'repeat with --map name="Store Name"'
    ),
    "a template without its end": lambda: File(
        LIST.encode(), None, "an unmatched brace", ("--map", "name={Store Name")
    ),
    "no header": lambda: File(
        b"A,1 Road\nB,\n",
        [("A", "1 Road"), ("B", None)],
        options=("--no-header", "--map", "name=1", "--map", "address=2"),
    ),
    "only a header": lambda: File(b"name,address\n", []),
    "nothing": lambda: File(b"", None, "the file is empty"),
    "blanks": lambda: File(b"\n \n\r\n", None, "the file is empty"),
    "JSON lines": lambda: File(
        "".join(
            json.dumps({"id": n, "name": name, "address": address}) + "\n"
            for n, (name, address) in enumerate(ROWS)
        ).encode()
    ),
    "JSON lines, some keys": lambda: File(
        b'{"name":"A"}\n\n{"address":"1","name":"B","x":[1]}\n', [("A", None), ("B", "1")]
    ),
    "JSON lines, wrong types": lambda: File(
        b'{"name":7}\n{"name":"B"}\n', None, "1 name is not a text: line 1 '7'"
    ),
    "JSON lines, broken": lambda: File(b'{"name":"A"}\n[1]\n', None, "line 2: not a JSON object"),
    "JSON over several lines": lambda: File(
        b'{\n"stores": [\n{"name": "A"}]}\n', None, "line 1: not a JSON object in one line: save"
    ),
    "JSON with a list": lambda: File(
        b'{"total": 1, "stores": [{"name": "A"}]}\n', None, 'object of JSON with the list "stores"'
    ),
    "GeoJSON": lambda: File(
        b'{"type": "FeatureCollection", "name": "Stores", "features": []}\n',
        None,
        "This is GeoJSON",
    ),
    "XLSX": lambda: File(workbook(*HEADED)),
    "XLSX with numbers, dates and truths": lambda: File(
        workbook(["name", "address"], [1757, 12.5], [True, "x"]), [("1757", "12.5"), ("TRUE", "x")]
    ),
    "XLSX that begins further down": lambda: File(
        workbook(
            write=lambda sheet: [sheet.write_row(5 + at, 3, row) for at, row in enumerate(HEADED)]
        )
    ),
    "XLSX, cells that share one long text": lambda: File(
        workbook(["name"], ["A", *["x" * 32_767] * 129]), None, "line 2: its cells have more than"
    ),
    "XLSX with formulas": lambda: File(
        workbook(
            ["name"],
            write=lambda sheet: sheet.write_formula(1, 0, '="Har"&"bour"', value="Harbour"),
        ),
        [("Harbour", None)],
    ),
    "XLSX, a lone cell at the end": lambda: File(
        workbook(*HEADED, write=lone_cell), None, "1 name is missing: line 1048576"
    ),
    "XLSX, a lone cell far below": lambda: File(
        workbook(*HEADED, write=lambda sheet: sheet.write(199_999, 0, "Last")),
        [*ROWS, ("Last", None)],
    ),
    "ODS, a bomb": lambda: File(bomb(), None, "needs more than 1 GiB of memory: save it as CSV"),
    "a text document": lambda: File(
        workbook(["x"]).replace(b"xl/workbook", b"xx/workbook"), None, "not an XLSX file"
    ),
    "a picture": lambda: File(
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(100), None, "This is a picture: save the list"
    ),
    "a picture of another kind": lambda: File(
        b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(100), None, "This is a picture"
    ),
    "old Excel": lambda: File(
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), None, "neither CSV, XLSX nor JSON lines"
    ),
}
