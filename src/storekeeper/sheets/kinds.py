"""What kind of file it is, by its first bytes and its parts; what is not a sheet is refused in one
true sentence."""

import codecs
import re
from typing import IO, Literal

from storekeeper.sheets import BadFile

Kind = Literal["csv", "jsonl", "json", "xlsx", "xls", "xlsb", "ods"]

SNIFFED_BYTES = 4096
MARKS = {
    # UTF-32 first: its mark begins as that of UTF-16 does.
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""The byte order marks, and which encoding each one tells."""

_ARCHIVES = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08", b"PK00")
"""How archives begin; a text may begin with a column `PK`."""

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HTML = re.compile(
    rb"\s*(<\?xml[^>]*\?>\s*)?(<!--.*?-->\s*)*<(!doctype html|html|head|body|table|meta)",
    re.IGNORECASE | re.DOTALL,
)
_SAVE = "save the list as CSV or XLSX"

_BEGINS = {
    b"%PDF": f"This is a PDF: {_SAVE}, from the program that made it",
    b"{\\rtf": f"This is a text document (RTF): {_SAVE}",
    b"\x89PNG": f"This is a picture: {_SAVE}",
    b"\xff\xd8\xff": f"This is a picture: {_SAVE}",
    b"GIF8": f"This is a picture: {_SAVE}",
    b"SQLite format 3\0": "This is a database, and no spreadsheet: export its list as CSV",
    b"\x1f\x8b": "This is a compressed file (gzip): unpack it first",
    b"7z\xbc\xaf": "This is a compressed file (7z): unpack it first",
    b"Rar!": "This is a compressed file (RAR): unpack it first",
}
_PARTS = {
    "xl/workbook.xml": "xlsx",
    "xl/workbook.bin": "xlsb",
}
_NO_SHEETS = {
    "word/": f"This is a Word document: {_SAVE}",
    "ppt/": f"This is a presentation: {_SAVE}",
    "Index/": f"This is a Numbers document: {_SAVE}",
    "META-INF/MANIFEST.MF": "This is a program, and no spreadsheet",
}
_STREAMS = {
    # The names of streams, as the directory of the file has them.
    "EncryptedPackage": "This workbook has a password: save it without one",
    "WordDocument": f"This is a Word document: {_SAVE}",
    "PowerPoint Document": f"This is a presentation: {_SAVE}",
}


def kind_of(file: IO[bytes]) -> Kind | None:
    """Return the kind of a workbook, None for what may be a text. Raises BadFile."""
    file.seek(0)
    begin = file.read(SNIFFED_BYTES)
    for mark, sentence in _BEGINS.items():
        if begin.startswith(mark) or (mark == b"%PDF" and mark in begin[:1024]):
            raise BadFile(sentence)
    if begin.startswith(_ARCHIVES):
        return _kind_of_archive(file)
    if begin.startswith(_OLE):
        return _kind_of_ole(file)
    _refuse_markup(begin)
    return None


def _refuse_markup(begin: bytes) -> None:
    plain = begin.removeprefix(codecs.BOM_UTF8)
    if plain.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        plain = plain.replace(b"\0", b"")[2:]
    if _HTML.match(plain):
        raise BadFile(
            "This is a web page, whatever it is called: open it in a spreadsheet, and save it as"
            " XLSX or CSV"
        )
    if plain.lstrip().startswith(b"<?xml"):
        raise BadFile(f"This is an XML document: open it in a spreadsheet, and {_SAVE}")


def _kind_of_archive(file: IO[bytes]) -> Kind:
    import zipfile  # noqa: PLC0415 - most files need none

    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            kind = archive.read("mimetype")[:200] if "mimetype" in names else b""
    except Exception as error:  # noqa: BLE001 - of any archive, however it is damaged
        raise BadFile(
            f"not an XLSX file that can be read ({str(error)[:100] or 'damaged'})"
        ) from None
    if b"opendocument.spreadsheet" in kind:
        return "ods"
    if kind:
        raise BadFile(
            f"This is a document of another kind ({kind.decode(errors='replace')[:60]}): {_SAVE}"
        )
    lowered = {name.lower().replace("\\", "/") for name in names}
    for part, found in _PARTS.items():
        if part in lowered:
            return found  # type: ignore[return-value]  # mypy takes the values for any text
    for part, sentence in _NO_SHEETS.items():
        if any(name.startswith(part) for name in names):
            raise BadFile(sentence)
    raise BadFile(f"not an XLSX file that can be read (it is a ZIP archive): unpack it, or {_SAVE}")


def _kind_of_ole(file: IO[bytes]) -> Kind:
    file.seek(0)
    data = file.read()
    for name, sentence in _STREAMS.items():
        if name.encode("utf-16-le") in data:
            raise BadFile(sentence)
    if not any(name.encode("utf-16-le") in data for name in ("Workbook", "Book")):
        raise BadFile(f"neither CSV, XLSX nor JSON lines, but an old Office document: {_SAVE}")
    return "xls"
