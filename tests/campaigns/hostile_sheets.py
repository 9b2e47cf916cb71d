"""Files that are made to stop or to fill a service, and how imports are asked to read them.

A seed and a number name each of them.
"""

import io
import json
import random
import zipfile
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlencode

from storekeeper.sheets.encodings import NAMES
from tests.sheets.corpus import CORPUS, workbook

CSV = "text/csv"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

SIZES = (10, *[1000] * 4, *[30_000] * 6, 300_000, 2**20 - 50, 2**20 + 50, 5 * 2**20)
"""Characters of one part of a file: most are small, as there are many files."""

RUNS = (",", ", ", " ", "\t", '"', '""', "x", "\0", "\x01", "\ufeff", "\u00a0", "\U0001f3ea", "\r")
"""What a long cell consists of."""

NAMES_OF_COLUMNS = ("id", "name", "address", "version", "a", "b", "k", "", "problem", "É")

Random = random.Random


class Hostile(NamedTuple):
    """One file: its kind, its bytes, its media type, and the query that it is sent with."""

    kind: str
    data: bytes
    type: str
    query: str


def hostile(seed: int, number: int) -> Hostile:
    """Return one of the files that a seed makes."""
    chance = Random(f"{seed}:{number}")
    kind = chance.choice(list(KINDS))
    data = KINDS[kind](chance)
    type = XLSX if kind.startswith("xlsx") else CSV
    query = [("add", "true")] if kind.startswith("corpus") else _query(chance)
    return Hostile(kind, data, type, urlencode(query))


def _query(chance: Random) -> list[tuple[str, str]]:
    """Return the parameters of an import: seldom more than one that may be wrong."""

    def seldom(rare: float = 0.05) -> bool:
        return chance.random() < rare

    query = [] if seldom(0.2) else [("dry-run", "true")]
    if seldom(0.4):
        query.append(("map", f"address={_template(chance)}"))
    if seldom():
        query.append(("map", f"{chance.choice(('name', 'id', 'version'))}={_template(chance)}"))
    if seldom(0.15):
        query.append(("encoding", _encoding(chance)))
    if seldom():
        query.append(("header", "none"))
    query += [(flag, "true") for flag in ("skip-bad", "cut-names") if seldom(0.6)]
    if seldom():
        query.append(("match", chance.choice(("k\0", "É", "1", "none"))))
    else:
        query.append(
            chance.choice((("add", "true"), ("add", "true"), ("match", "name"), ("match", "a")))
        )
    if seldom(0.3):
        query.append(("on-conflict", chance.choice(("refuse", "skip", "overwrite"))))
    return [("look", "true")] if seldom(0.2) else query


def _template(chance: Random) -> str:
    if chance.random() < 0.05:
        names = [name for name in NAMES_OF_COLUMNS if name]
        return "".join(chance.choices((*names, "{", "}", ",", "{1}", "{a}"), k=5))
    texts = [chance.choice((" ", ", ", "", ",, ")) for _ in range(3)]
    columns = [chance.choice(("{a}", "{name}")) for _ in texts]
    good = "".join(column + text for column, text in zip(columns, texts, strict=True))
    return good * chance.choice((1, 1, 10, 100))


def _encoding(chance: Random) -> str:
    made_up = f"cp{chance.randrange(10_000)}"
    return chance.choice((*sorted(NAMES), "utf-16", "utf-32", made_up, "rot13", "zlib", "\x00"))


def _run(chance: Random, size: int | None = None) -> str:
    size = chance.choice(SIZES) if size is None else size
    piece = chance.choice(RUNS)
    return piece * (size // len(piece))


# Texts.


def _header(chance: Random) -> list[str]:
    names = [chance.choice(NAMES_OF_COLUMNS) for _ in range(chance.randrange(1, 6))]
    return ["name", "a", *names[2:]] if chance.random() < 0.9 else names


def _table(header: list[str], rows: list[list[str]], delimiter: str = ",") -> bytes:
    return "\n".join(delimiter.join(row) for row in [header, *rows]).encode() + b"\n"


def csv_long_cells(chance: Random) -> bytes:
    header = _header(chance)
    cells = [_run(chance) for _ in header]
    return _table(header, [[f'"{cell}"' if '"' not in cell else cell for cell in cells]])


def csv_long_header(chance: Random) -> bytes:
    return _table([*_header(chance), _run(chance)], [["A"] * 4])


def csv_many_columns(chance: Random) -> bytes:
    count = chance.choice((100, 16_382, 16_385, 100_000, 1_000_000))
    header = ["name", "a", *[""] * count]
    return _table(header, [["A"] * (count + chance.randrange(4))])


def csv_many_rows(chance: Random) -> bytes:
    """Return rows whose keys repeat, or that are bad, each for its reason."""
    row = chance.choice(("A,1\n", ",\n", f"{'x' * 31},1\n", "A\n", '"A","\n\n"\n', "\0,\0\n", "A,"))
    return b"name,a\n" + row.encode() * chance.choice((10, 10, 1000, 1000, 20_000, 200_000))


def csv_noise(chance: Random) -> bytes:
    letters = "\n\r,;\t\"' {}\\\0\x01aé\ufeff1.=+-@"
    noise = "".join(chance.choices(letters, k=chance.choice((5, 50, 5000))))
    return (chance.choice(("", "name,a\n")) + noise).encode()


def bytes_noise(chance: Random) -> bytes:
    begin = chance.choice((b"", b"PK\x03\x04", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"{"))
    return begin + chance.randbytes(chance.choice((5, 50, 5000, 100_000)))


def encoded(chance: Random) -> bytes:
    text = "name,a,k\n" + "Größe 店 Ω,Straße 1,7\n" * chance.choice((1, 1000))
    return text.encode(chance.choice(sorted(NAMES)), "replace")


def json_deep(chance: Random) -> bytes:
    depth = chance.choice((1, 100, *range(950, 1020, 3), 100_000))
    opening, closing = chance.choice((("[", "]"), ('{"a":', "}")))
    deep = opening * depth + ("1" if opening != "[" else "") + closing * depth
    column = chance.choice(("k", "name", "address", "version", "id", "a"))
    good = '{"name":"A","k":"1","a":"1","address":"","version":"","id":1}\n'
    return f'{good}{{"{column}":{deep}}}\n'.encode()


def json_values(chance: Random) -> bytes:
    values = (
        *("1e999", "-0", "1" * 5000, "1.5", "true", "null", '"\\u0000"', '"\\ud800"', "[]", "{}"),
        *('"' + "x" * 2**20 + '"', '"1\\u0000.abcdefgh"', "NaN", '"' + "\\u0001" * 10**5 + '"'),
    )
    never = ("1e999", "NaN", "ud800", "1" * 5000)
    columns = chance.choice((("name", "a"), ("id", "name", "address", "version", "a", "k\\u0000")))
    lines = [
        "{" + ",".join(f'"{column}":{chance.choice(values)}' for column in columns) + "}"
        for _ in range(3)
    ]
    if chance.random() < 0.7:
        lines = [line for line in lines if not any(bad in line for bad in never)] or ['{"name":1}']
    return "\n".join(lines).encode()


def json_many_keys(chance: Random) -> bytes:
    keys = {f"k{number}": "" for number in range(chance.choice((100, 20_000, 200_000)))}
    line = json.dumps({"name": "A", "a": "x", **keys})
    return (line + "\n" + '{"name":"B"}\n' * chance.choice((1, 1000))).encode()


# Workbooks.

_ENTITIES = b'<!DOCTYPE x [<!ENTITY a "xxxxxxxxxx">' + b"".join(
    b'<!ENTITY %c "%b">' % (letter, b"&%c;" % (letter - 1) * 10) for letter in range(98, 106)
)


def _packed(parts: dict[str, bytes]) -> bytes:
    """Return a good workbook with other parts."""
    source, file = io.BytesIO(workbook(["name", "a"], ["A", "x"])), io.BytesIO()
    with zipfile.ZipFile(source) as good, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bad:
        for name in good.namelist():
            made = zipfile.ZipInfo(name)  # of 1980, whenever that is
            bad.writestr(made, parts.get(name) or good.read(name), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def raw_workbook(content: bytes, texts: bytes = b"name", before: bytes = b"") -> bytes:
    strings = b"<sst>%b</sst>" % b"".join(b"<si><t>%b</t></si>" % each for each in (b"name", texts))
    sheet = before + b"<worksheet><sheetData>%b</sheetData></worksheet>" % content
    return _packed({"xl/sharedStrings.xml": strings, "xl/worksheets/sheet1.xml": sheet})


_HEAD = b'<row><c t="s"><v>0</v></c><c t="inlineStr"><is><t>a</t></is></c></row>'


def xlsx_repeated_text(chance: Random) -> bytes:
    """Return a workbook whose cells are all the one long text."""
    cells, rows = chance.choice(((1, 2000), (300, 1), (600, 1), (2, 100), (16_384, 1)))
    row = b"<row>%b</row>" % (b'<c t="s"><v>1</v></c>' * cells)
    return raw_workbook(_HEAD + row * rows, _run(chance).replace("\0", "x").encode())


def xlsx_far_cells(chance: Random) -> bytes:
    names = [
        f"{column}{row}" for column in ("A", "XFD", "XFE", "ZZZZ") for row in (2, 10**6, 10**9)
    ]
    cells = b"".join(
        b'<row r="%b"><c r="%b"><v>1</v></c></row>'
        % (name.lstrip("AXFDEZ").encode(), name.encode())
        for name in chance.sample(names, 2)
    )
    return raw_workbook(_HEAD + cells)


def xlsx_values(chance: Random) -> bytes:
    values = (
        b"1e999",
        b"NaN",
        b"99999999999999",
        b"-1",
        b"",
        b"\0",
        b"&#0;",
        b"x" * 10**5,
        b"45000.5",
    )
    kinds = (b"s", b"n", b"b", b"e", b"str", b"d", b"inlineStr", b"zz", b"")
    cells = b"".join(
        b'<c s="%d" t="%b"><f>1/0</f><v>%b</v></c>'
        % (chance.randrange(5), chance.choice(kinds), chance.choice(values))
        for _ in range(2)
    )
    return raw_workbook(_HEAD + b"<row>%b</row>" % cells)


def xlsx_xml(chance: Random) -> bytes:
    """Return a workbook with XML that grows, is deep, or does not end."""
    return chance.choice(
        (
            raw_workbook(_HEAD + b'<row><c t="str"><v>&i;</v></c></row>', before=_ENTITIES + b"]>"),
            raw_workbook(b"<row>" * 100_000),
            raw_workbook(b"<c>" * 1_000_000),
            raw_workbook(_HEAD + b"<row><c " + b'a="1" ' * 200_000 + b"/></row>"),
            raw_workbook(_HEAD + b"<!--" + b"-" * 2_000_000),
            _packed({"xl/workbook.xml": b"<workbook><sheets/></workbook>"}),
            _packed({"xl/_rels/workbook.xml.rels": b"<Relationships/>"}),
            _packed({"[Content_Types].xml": b" " * 10**7}),
        )
    )


def xlsx_damaged(chance: Random) -> bytes:
    return _damaged(chance, workbook(["name", "a"], *[["A", "x"]] * 20))


def corpus_damaged(chance: Random) -> bytes:
    name = chance.choice([each for each in CORPUS if "bomb" not in each and "lone" not in each])
    return _damaged(chance, CORPUS[name]().data)


def _damaged(chance: Random, data: bytes) -> bytes:
    """Return a file with some bytes changed, missing or repeated."""
    damaged = bytearray(data)
    for _ in range(chance.randrange(1, 8)):
        at = chance.randrange(len(damaged) + 1)
        match chance.randrange(4):
            case 0:
                damaged[at : at + 1] = chance.randbytes(1)
            case 1:
                del damaged[at : at + chance.randrange(1, 50)]
            case 2:
                damaged[at:at] = damaged[at : at + 50] * chance.choice((1, 3, 100))
            case _:
                damaged[at:at] = chance.choice((b"\0", b"\xff", b'"', b"\n", b"<", b"&#1;"))
    return bytes(damaged)


KINDS: dict[str, Callable[[Random], bytes]] = {
    make.__name__: make
    for make in (
        *(csv_long_cells, csv_long_header, csv_many_columns, csv_many_rows, csv_noise),
        *(bytes_noise, encoded, json_deep, json_values, json_many_keys),
        *(xlsx_repeated_text, xlsx_far_cells, xlsx_values, xlsx_xml, xlsx_damaged),
        *(corpus_damaged, corpus_damaged),
    )
}
