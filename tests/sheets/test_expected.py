"""What each kind of sheet leads to: what is proposed without a word, and what an import with that
does."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import xlsxwriter  # type: ignore[import-untyped]  # it has no types
from msgspec.structs import replace

from storekeeper.api.query import parse_import_query
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.intake import Import
from storekeeper.sheets import BadFile
from storekeeper.sheets.look import as_query, refuse_unsaid
from storekeeper.sheets.look_types import Look
from storekeeper.sheets.notes import import_notes
from storekeeper.sheets.protocol import Layout, layout_of
from storekeeper.sheets.records import open_sheet
from storekeeper.sheets.rows import SheetRows
from storekeeper.storage import databases, intake
from tests.harness.databases import Sqlite, make
from tests.sheets.looking import look

Stores = dict[int, tuple[str, str | None]]
_STORES = "SELECT id, name, address FROM stores"
FILES = Path(__file__).parent / "files"


class Case(NamedTuple):
    """What a look proposes (`map` with the name and the address), and what else holds of it."""

    name: str | None
    address: str | None
    match: str | None
    unsaid: str = ""
    more: Mapping[str, Any] = {}
    stores: Mapping[int, tuple[str, str | None]] = {}
    bad: int = 0


SNAP = "{Street Number} {Street Name}, {Additional Address}, {City}, {State} {Zip Code}"
SQUARE = "{Address Line 1}, {Address Line 2}, {City}, {State} {Zip}"
SHOPIFY = "{Address1}, {Address2}, {City}, {Province Code} {Zip}"
GERMAN = Case(
    "Filialname",
    "{Straße}, {PLZ} {Ort}",
    "Filiale Nr.",
    "encoding map match",
    {"encoding": "cp1252", "delimiter": ";", "header_row": 1, "dropped": []},
    {1: ("Bäckerei Größe 0", "Königsallee 0, 01067 Düsseldorf")},
)
TITLES = Case(
    "Store",
    "{Street}, {Postcode / Town}",
    "No.",
    "map match",
    {"header_row": 5, "rows": 27},
    {1: ("Acme 1", "1 Long Lane, M0 1AA Manchester")},
    bad=1,  # "as of", below a total
)
EXPECTED = {
    "02-snap-historical.csv": Case("Store Name", SNAP, "Record ID", "map match", bad=24 - 20),
    "03-square.csv": Case(
        "Location Name",
        SQUARE,
        "name",
        "map",
        {"dropped": ["Country"]},
        {1: ("Bean There Mission", "10 Market St, Suite 5, Mission, CA 01000")},
    ),
    "04-shopify.csv": Case(
        "Name",
        SHOPIFY,
        "key:ID",
        "map match",
        {"dropped": ["Country Code"]},
        {1: ("Warehouse 0", "0 Rue Sainte-Catherine, Montréal, QC H3B 1A0")},
    ),
    "06-titles.csv": TITLES,
    "06-titles.xlsx": TITLES,
    "06-titles.xls": TITLES,
    "07-formulas.xlsx": Case(
        "Name",
        "Full address",
        "Store No",
        "map match",
        {"rows": 30, "dropped": []},
        {1: ("Boston Express 001", "1 Elm St, Boston MA 02100")},
        bad=1,  # a total
    ),
    "08-two-tables.xlsx": Case(
        "Store", "Address", "name", "map", {"unused": ["Region", "Manager"]}
    ),
    "09-several-sheets.xlsx": Case("Name", "Address", "name", "", {"sheet": "Stores"}),
    "09b-active-second.xlsx": Case(
        "Name", "Address", "name", "sheet", {"sheet": "2026"}, {1: ("New 0", "0 New St")}
    ),
    "10-german.csv": GERMAN,
    "10b-german-sep.csv": GERMAN._replace(more={"encoding": "cp1252", "header_row": 2, "rows": 20}),
    "10c-german-title.csv": GERMAN._replace(more={"encoding": "cp1252", "header_row": 3}),
    "11-unicode.txt": Case(
        "Store Name",
        "{Address}, {City}",
        "name",
        "map",
        {"encoding": "utf-16-le", "delimiter": "\t"},
        {3: ("Ørsted", 'Gade "A" 3, Århus')},
    ),
    "12-linebreaks.csv": Case(
        "Store",
        "Address",
        "name",
        "map",
        {"rows": 8},
        {1: ("Multi 0", "0 Long Lane\nFloor 2\nManchester")},
    ),
    "14-dupes.csv": Case("Name", "Address", "Store No", "match"),
    "15-unicode.csv": Case(
        "Name",
        "Address",
        "name",
        "",
        {},
        {4: ("Nbsp\u00a0Store", "12\u00a0Rue\u00a0X"), 7: ("Tab\tinside", "x\ty")},
    ),
    "16-injection.csv": Case("Name", "Address", "name", "", {}, {5: ("|pipe", "=1+1")}),
    "18-blank-header.csv": Case("Name", "Address", "name", "", {}, {1: ("A", "1 A St")}),
    "18-dup-headers.csv": Case(
        "Name",
        "{Address}, {Address (2)}, {City}",
        "name",
        "map",
        {},
        {1: ("A", "1 A St, Floor 2, York"), 2: ("B", "2 B St, Hull")},
    ),
    "18-short-rows.csv": Case(
        "Name", "Address", "name", "", {}, {2: ("B", "2 B St"), 3: ("C", None)}, bad=1
    ),
    "19-own-id.csv": Case("Store", "Address", "key:ID", "map match", {}, {1: ("Own 0", "0 St")}),
    "30-own-id-sorted.csv": Case(
        "Name", "Address", "key:ID", "match", {}, {1: ("Alpha", "1 A St")}
    ),
    "23-no-header.csv": Case(
        "1", "2", "name", "map", {"header_row": None}, {1: ("Shop 0", "0 High St, York")}
    ),
    "24-name-only.csv": Case("Store", None, "name", "map", {"rows": 5}, {1: ("Only 0", None)}),
    "25-quote.csv": Case(
        "Name",
        "Address",
        "name",
        "",
        {},
        {1: ('12" Pizza', "1 A St"), 2: ('Joe"s Diner', "2 B St"), 3: ("D", "4 D St")},
        bad=1,
    ),
    "26-long-names.csv": Case("Name", "Address", "name", bad=6, stores={1: ("Short", "1 St")}),
}
REFUSED = {
    "21-html.xls": "This is a web page",
    "22-list.pdf": "This is a PDF",
    "27b-encrypted.xlsx": "This workbook has a password",
}


def import_as(found: Look, data: bytes, database: Sqlite) -> tuple[ImportPlan, Stores]:
    """Import a file as a look proposes it; return what was done, and the stores by their ids."""
    order = parse_import_query(as_query(found.parameters).encode())
    make(database.url)
    with databases.database(database.url).session() as session:
        return _imported(session, data, order)


def _imported(session: Any, data: bytes, order: Import) -> tuple[ImportPlan, Stores]:
    layout = layout_of(order)
    sheet = open_sheet(io.BytesIO(data), layout)
    refuse_unsaid(sheet, layout)
    rows = SheetRows(sheet, layout)
    done = intake.import_rows(session, rows, replace(order, match=rows.match, skip_bad=True))
    assert isinstance(done, ImportPlan)
    stores = {id: (name, address) for id, name, address in session.execute(_STORES)}
    return done, stores


@pytest.mark.parametrize("name", EXPECTED)
def test_a_sheet_is_proposed_and_imported_as_a_person_reads_it(tmp_path: Path, name: str) -> None:
    data, case = (FILES / name).read_bytes(), EXPECTED[name]
    found = look(data)
    proposed = (found.name.value, found.address.value, found.match.value)
    assert proposed == (case.name, case.address, case.match)
    assert found.unsaid == case.unsaid.split()
    assert {key: getattr(found, key) for key in case.more} == case.more
    done, stores = import_as(found, data, Sqlite(tmp_path))
    assert {id: stores.get(id) for id in case.stores} == case.stores
    if name not in ("02-snap-historical.csv", "14-dupes.csv"):
        assert done.report.bad == case.bad
        assert len(stores) == found.rows - case.bad
    assert not {"Prepared by", "No.", "Name", "Store"} & {store[0] for store in stores.values()}


@pytest.mark.parametrize("name", [name for name in EXPECTED if EXPECTED[name].unsaid])
def test_what_is_unsaid_is_asked_with_the_line_that_would_do_it(name: str) -> None:
    sheet = open_sheet(io.BytesIO((FILES / name).read_bytes()))
    with pytest.raises(BadFile) as refused:
        refuse_unsaid(sheet, Layout())
    assert refused.value.query
    for part in EXPECTED[name].unsaid.split():
        assert f"--{part} " in refused.value.options


def test_a_sum_below_the_list_is_said() -> None:
    notes = look((FILES / "06-titles.csv").read_bytes()).notes
    assert notes == ["Row 32 looks like a sum, but is read as a store: Total, 25 stores"]


def test_an_import_says_what_it_cannot_tell_and_what_is_above_the_columns() -> None:
    def notes(name: str) -> list[str]:
        sheet = open_sheet(io.BytesIO((FILES / name).read_bytes()))
        return import_notes(sheet, SheetRows(sheet, Layout()))

    kind, above = notes("06-titles.xls")
    assert kind.startswith("In XLS, an error of the sheet, a formula without a value")
    assert above.partition(", so not imported: ")[0].endswith("above the names of the columns")
    assert notes("06-titles.csv") == [above]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_sheet_is_refused_in_one_true_sentence(name: str) -> None:
    with pytest.raises(BadFile, match=f"^{REFUSED[name]}"):
        open_sheet(io.BytesIO((FILES / name).read_bytes()))


PASTED = {
    "Leeds Central\t3 High St, Leeds\n" * 19 + "York\t4 Low St, York\n": ("1", "2", None, "\t"),
    "Name\tAddress (street, town)\nA\t1 St, B\nC\t2 St, D\n": (
        "Name",
        "Address (street, town)",
        1,
        "\t",
    ),
    "Economy Store, 1 High St\nUncle Nomad, 2 Low St\n": ("1", "2", None, ","),
    '"Best" Shop\t1 High St\nOther\t2 Low St\n': ("1", "2", None, "\t"),
    "Harbour;20 Quay Road, Portsmouth\nOld Mill;3 Mill Lane, Bath\n": ("1", "2", None, ";"),
    "name;address;Hours (Mon, Tue, Wed)\nA;1 St;9\nB;2 St;9\n": ("name", "address", 1, ";"),
    "Our stores, May 2026\nname;address\nA;1 St\nB;2 St, C\n": ("name", "address", 2, ";"),
    '"sep=;"\nname;address\nA;1 St\n': ("name", "address", 2, ";"),
    "Café Nord|Rue 1|75001|Paris\nCafé Sud|Rue 2|13001|Marseille\n": (
        "1",
        "{2}, {3} {4}",
        None,
        "|",
    ),
    '[{"name":"A"}]': ("name", None, None, None),
    '[\n  {\n    "name": "A"\n  }\n]\n': ("name", None, None, None),
}


@pytest.mark.parametrize("text", PASTED)
def test_what_is_pasted_is_split_as_it_looks(text: str) -> None:
    found = look(text.encode())
    name, address, header, delimiter = PASTED[text]
    assert (found.name.value, found.address.value) == (name, address)
    assert (found.header_row, found.delimiter) == (header, delimiter)


def test_a_literal_quotation_mark_is_part_of_a_name() -> None:
    layout = Layout(map={"name": "1", "address": "2"})
    data = '"Best" Shop\t1 High St\n"The "Mill" Inn, Bath"\t2 St\n"A\nB"\t3 St\n'
    rows = list(SheetRows(open_sheet(io.BytesIO(data.encode()), layout), layout))
    assert [row.name for row in rows] == ['"Best" Shop', 'The "Mill" Inn, Bath', "A\nB"]


ERRORS = ["#N/A", "#REF!", "#DIV/0!", "#NAME?", "#VALUE!", "#NULL!", "#NUM!"]


def test_an_error_or_a_formula_without_a_value_never_erases_an_address() -> None:
    def write(sheet: Any) -> None:
        for place, error in enumerate(ERRORS, 1):
            sheet.write_formula(place, 2, "=1/0", value=error)
        sheet.write_formula(8, 2, "=A1", value="")
        sheet.write_formula(9, 0, "=NA()", value="#N/A")
        sheet.write_number(10, 2, 17, sheet.padded)

    rows: list[list[object]] = [
        ["id", "name", "address"],
        *([number, f"S{number}"] for number in range(1, 11)),
    ]
    layout = Layout(match="id")
    read = list(SheetRows(open_sheet(io.BytesIO(padded_workbook(rows, write)), layout), layout))
    for row, error in zip(read, ERRORS, strict=False):
        assert f"address has an error ({error})" in (row.wrong or "")
    assert "address is a formula without a value: open and save" in (read[7].wrong or "")
    assert "id has an error (#N/A)" in (read[8].wrong or "")
    assert (read[9].wrong, read[9].address) == (None, "00017")


def padded_workbook(rows: Sequence[Sequence[object]], write: Any) -> bytes:
    """Return a workbook whose formula without a value has none, as openpyxl writes it."""
    file = io.BytesIO()
    with xlsxwriter.Workbook(file) as book:
        sheet = book.add_worksheet()
        sheet.padded = book.add_format({"num_format": "00000"})
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
        write(sheet)
    made = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            data = old.read(name).replace(b't="str"><f>A1</f><v></v>', b"><f>A1</f><v></v>")
            new.writestr(name, data)
    return made.getvalue()


def test_a_whole_number_is_an_id_however_it_is_written() -> None:
    layout = Layout(match="id")
    for data in (b"id,name\n1.0,A\n", b'{"id":1.0,"name":"A"}\n', b"id,name\n01,A\n"):
        [row] = SheetRows(open_sheet(io.BytesIO(data), layout), layout)
        assert (row.key, row.wrong) == ("1", None)


MARKED = [
    ("utf-16-le", b"\xff\xfe" + "address,name\n1 St,A\n".encode("utf-16-le")),
    (None, b"\xef\xbb\xbf\xef\xbb\xbfaddress,name\n1 St,A\n"),
    (None, b"\xff\xfe\xff\xfe" + "address,name\n1 St,A\n".encode("utf-16-le")),
    (None, b"\xff\xfe\0\0" + "address,name\n1 St,A\n".encode("utf-32-le")),
    ("cp1252", b"\xef\xbb\xbfaddress,name\n1 St,A\n"),
]


def test_a_mark_is_part_of_no_name() -> None:
    for encoding, data in MARKED:
        layout = Layout(encoding=encoding)
        [row] = SheetRows(open_sheet(io.BytesIO(data), layout), layout)
        assert (row.name, row.address) == ("A", "1 St")


FOREIGN = {
    "cp932": ("処理店", "cp932"),
    "cp1251": ("Магазин Центральный, улица Ленина", "cp1251"),
    "cp1253": ("Κατάστημα Αθήνα, Οδός Ερμού", "cp1253"),
    "cp1250": ("Łódź, ul. Świętokrzyska", "cp1250"),
    "gb18030": ("处理店 北京市", "gb18030"),
    "cp949": ("강남점 서울시", "cp949"),
    "big5": ("台北店 忠孝東路", "big5"),
    "cp1254": ("Şişli Mağazası, İstanbul", "cp1254"),
    "cp1255": ("סופר תל אביב", "cp1255"),
    "koi8-r": ("Пятёрочка, ул. Ленина, Москва", "koi8-r"),
    "iso8859-2": ("Żabka, ul. Świętokrzyska, Łódź", "iso8859-2"),
    "cp437": ("Café Ménil, Orléans", "cp850"),  # which reads it equally
    "cp850": ("Bäckerei Größe, Köln", "cp850"),
    "cp1252": ("Bäckerei Größe", "cp1252"),
}


def test_an_encoding_is_asked_with_a_line_as_each_has_it() -> None:
    for encoding, (text, first) in FOREIGN.items():
        data = f"name,address\n{text},1\n".encode(encoding)
        with pytest.raises(BadFile, match="line 2: not UTF-8, but perhaps another") as refused:
            refuse_unsaid(open_sheet(io.BytesIO(data)), Layout())
        assert refused.value.parameter == "encoding"
        found = {each.encoding: each.example for each in look(data).encodings}
        assert found[encoding] == f"{text},1"
        assert not first or next(iter(found)) == first


OTHERS: list[tuple[list[str], str, str | None, str | None]] = [
    (
        [
            "Code magasin;Enseigne;Adresse;Complément d'adresse;Code postal;Ville;Tél.",
            "12;Nord;1 rue A;Bât. B;75001;Paris;01 23 45 67 89",
            "13;Sud;2 rue B;;13001;Marseille;01",
        ],
        "Enseigne",
        "{Adresse}, {Complément d'adresse}, {Code postal} {Ville}",
        "Code magasin",
    ),
    (
        [
            "Tienda;Calle;Número;C.P.;Población;Provincia",
            "Centro;Mayor;3;28001;Madrid;Madrid",
            "Norte;Sol;4;08001;Barcelona;Barcelona",
        ],
        "Tienda",
        "{Calle} {Número}, {C.P.} {Población}, {Provincia}",
        "name",
    ),
    (
        [
            "Nr sklepu,Nazwa sklepu,Ulica,Nr domu,Kod pocztowy,Miasto,Telefon",
            "001,Żabka A,Długa,3,00-001,Warszawa,22",
            "002,Żabka B,Krótka,4a,30-001,Kraków,12",
        ],
        "Nazwa sklepu",
        "{Ulica} {Nr domu}, {Kod pocztowy} {Miasto}",
        "Nr sklepu",
    ),
    (
        [
            "店舗コード,店舗名,郵便番号,住所,電話番号",
            "001,渋谷店,150-0001,東京都渋谷区1-2,03",
            "002,梅田店,530-0001,大阪市北区3-4,06",
        ],
        "店舗名",
        "{郵便番号} {住所}",
        "店舗コード",
    ),
    (
        [
            "Standort,Straße,Hausnr.,PLZ,Ort,Land,E-Mail",
            "Nord,Weg,1,20095,Hamburg,Deutschland,a@b.de",
            "Wien,Gasse,2,1010,Wien,Österreich,c@d.at",
        ],
        "Standort",
        "{Straße} {Hausnr.}, {PLZ} {Ort}, {Land}",
        "name",
    ),
    (
        [
            "Branch Code,Branch,Address 1,Address 2,Town,County,Postcode,Telephone",
            "B1,Leeds,1 High St,,Leeds,W Yorks,LS1 1AA,0113",
            "B2,York,2 Low St,Unit 3,York,N Yorks,YO1 7AA,01904",
        ],
        "Branch",
        "{Address 1}, {Address 2}, {Town}, {County}, {Postcode}",
        "Branch Code",
    ),
    (
        [
            "Negozio,Indirizzo,CAP,Città,Prov",
            "Roma 1,Via Appia 3,00100,Roma,RM",
            "Milano 1,Via Po 4,20100,Milano,MI",
        ],
        "Negozio",
        "{Indirizzo}, {CAP} {Città}, {Prov}",
        "name",
    ),
    (
        [
            "Phone,Name,Zip",
            "0113 111,A,LS1",
            "0113 111,B,LS1",
        ],
        "Name",
        "Zip",
        "name",
    ),
    (
        [
            "Region,Name,Region Code",
            "North,A,1",
            "South,B,2",
        ],
        "Name",
        None,
        "name",
    ),
    (
        [
            "Foo,Bar,Baz",
            "Harbour,20 Quay Road,01904 555000",
            "Mill,3 Mill Lane,01904 555001",
            "Station,4 Way,01904 555002",
        ],
        "Foo",
        "Bar",
        "name",
    ),
]


@pytest.mark.parametrize(("lines", "name", "address", "match"), OTHERS)
def test_lists_of_other_languages_are_read_as_well(
    lines: list[str], name: str, address: str | None, match: str | None
) -> None:
    found = look("\n".join([*lines, ""]).encode())
    assert (found.name.value, found.address.value, found.match.value) == (name, address, match)
    assert found.header_row == 1


def test_a_key_that_the_list_knows_is_found_without_case_and_blanks() -> None:
    data = b"store number,name\n7,A\n8,A\n"
    assert look(data, ["Store Number"], is_empty=False).match.value == "store number"
    own = b"id,name,address,version\n1,A,,4.abcdefgh\n"
    assert look(own, is_empty=False).match.value == "id"
    asked = look(b"id,name,address\n1,A,\n", is_empty=False)
    assert (asked.match.value, asked.match_choices) == (None, ["key:id", "id", "name"])
    assert look(b"key:ID,name\n9,A\n", ["ID"], is_empty=False).match.value == "key:ID"
