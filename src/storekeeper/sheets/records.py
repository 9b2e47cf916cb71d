"""Files as records, each the cells of one row, whatever their kind; and which encoding, delimiter
and sheet are read if the caller does not say it."""

import codecs
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import IO, Any

from storekeeper.sheets import BadFile, Record, objects, separated
from storekeeper.sheets.delimiters import find_delimiters
from storekeeper.sheets.encodings import check_encoding
from storekeeper.sheets.guesses import candidates
from storekeeper.sheets.headers import MAX_ROWS_ABOVE, list_rank
from storekeeper.sheets.kinds import Kind, kind_of
from storekeeper.sheets.look_types import Candidate, SheetOfBook
from storekeeper.sheets.protocol import Layout
from storekeeper.sheets.texts import (
    Undecodable,
    encoding_of,
    first_undecodable,
    lines_of,
    marked_encoding,
)

_SAMPLE_BYTES = 128 * 1024
_SAMPLE_ROWS = MAX_ROWS_ABOVE + 20
_BRIEF = 40

_NO_LAYOUT = Layout()


class Sheet:
    """A file to import, which can be read again from its beginning, and what it is.

    `unsaid` are those of encoding, delimiter and sheet that the caller has not said, and that are
    not the only reading: the best one is read then.
    """

    def __init__(self, file: IO[bytes], kind: Kind) -> None:
        self.file = file
        self.kind: Kind = kind
        self.unsaid: list[str] = []
        self.encoding: str | None = None
        self.encodings: list[Candidate] = []
        self.bad_line: int | None = None
        """The first line that is not UTF-8, if the encoding is unsaid."""
        self.delimiter: str | None = None
        self.delimiters: list[str] = []
        self.name: str | None = None
        self.sheets: list[SheetOfBook] = []

    @property
    def has_keys(self) -> bool:
        """Whether the names of columns are those of JSON."""
        return self.kind in ("json", "jsonl")

    @property
    def is_book(self) -> bool:
        """Whether it is a workbook, whose rows have no last cell."""
        return False

    def records(self) -> Iterator[Record]:
        """Yield the rows that are not blank. Raises BadFile."""
        raise NotImplementedError


class Text(Sheet):
    """A text: CSV, JSON lines, or an array of JSON."""

    def __init__(self, file: IO[bytes], layout: Layout) -> None:
        said = check_encoding(layout.encoding) if layout.encoding else None
        marked = marked_encoding(file)
        self._is_told = bool(said or marked)
        encoding = marked or encoding_of(file, said)
        super().__init__(file, "csv")
        self.encoding = encoding
        self.bad_line = None if self._is_told else first_undecodable(file, encoding)
        if self.bad_line is not None:
            self._guess(file)
        sample = _sample(file, self.encoding)
        self.kind = _kind_of_text(sample)
        if self.kind == "csv":
            self._find_delimiter(sample, layout.delimiter)

    def _guess(self, file: IO[bytes]) -> None:
        """Read the text in the encoding that it most likely has. Raises BadFile."""
        self.encodings = candidates(file)
        if not self.encodings:
            raise BadFile(f"line {self.bad_line}: not UTF-8, nor any encoding of lists")
        self.unsaid.append("encoding")
        self.encoding = self.encodings[0].encoding

    def _find_delimiter(self, sample: Sequence[str], said: str | None) -> None:
        self.delimiters = find_delimiters(sample)
        self.delimiter = said or self.delimiters[0]
        if said is None and len(self.delimiters) > 1:
            self.unsaid.append("delimiter")

    def records(self) -> Iterator[Record]:
        """Yield the rows that are not blank. Raises BadFile."""
        assert self.encoding
        if self.kind == "json":
            yield from objects.of_array(self._whole())
            return
        lines = lines_of(self.file, self.encoding)
        try:
            if self.kind == "csv":
                yield from separated.records(lines, self.delimiter or ",")
            else:
                yield from objects.of_lines(lines)
        except Undecodable as error:
            raise self.undecodable(error.line) from None
        finally:
            lines.close()  # type: ignore[attr-defined]  # a generator

    def _whole(self) -> str:
        """Return the whole text. Raises BadFile."""
        self.file.seek(0)
        try:
            return self.file.read().decode(str(self.encoding)).lstrip("\ufeff")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise self.undecodable(line) from None

    def undecodable(self, line: int) -> BadFile:
        """Return what to say about a text that has another encoding than it should have."""
        name = str(self.encoding).upper()
        if marked_encoding(self.file):
            return BadFile(f"line {line}: not {name}, although the file begins as if it were")
        problem = f"line {line}: not {name}, but perhaps another encoding"
        return BadFile(problem, "encoding", "cp1252")


class Book(Sheet):
    """A workbook. One of its sheets is read."""

    def __init__(self, file: IO[bytes], kind: Kind, book: Any, said: str | None) -> None:
        super().__init__(file, kind)
        self._book = book(file)
        names = self._book.names
        ranks = [list_rank(self._sample(name)) for name in names]
        self.sheets = [
            SheetOfBook(name, rank == max(ranks) > 0)
            for name, rank in zip(names, ranks, strict=True)
        ]
        self._choose(said, ranks)

    @property
    def is_book(self) -> bool:
        """Whether it is a workbook, whose rows have no last cell."""
        return True

    def _choose(self, said: str | None, ranks: Sequence[int]) -> None:
        names = self._book.names
        if not names:
            raise BadFile("the workbook has no visible sheet")
        if said is not None:
            self.name = _named(said, names)
            return
        best = [name for name, rank in zip(names, ranks, strict=True) if rank == max(ranks)]
        active = self._book.active
        self.name = active if active in best else best[0]
        if len(best) > 1 and max(ranks) > 0:
            self.unsaid.append("sheet")

    def _sample(self, name: str) -> list[list[str]]:
        return [
            [str(cell) for cell in cells]
            for _, cells in islice(self._book.records(name), _SAMPLE_ROWS)
        ]

    def records(self) -> Iterator[Record]:
        """Yield the rows that are not blank. Raises BadFile."""
        return self._book.records(self.name)  # type: ignore[no-any-return]  # of one kind or another


def _class_of_books(kind: Kind) -> Any:
    """Return the class of workbooks of a kind. Raises BadFile."""
    if kind == "xlsx":
        from storekeeper.sheets.xlsx import Workbook  # noqa: PLC0415 - most files need none

        return Workbook
    from storekeeper.sheets.workbooks import (  # noqa: PLC0415 - as above
        Workbook as OtherWorkbook,
    )

    return OtherWorkbook


def prepare(file: IO[bytes], layout: Layout) -> Callable[[], Sheet]:
    """Return the function that opens a sheet. Raises BadFile, as that function does.

    What reading it needs is imported by then: the reader can open no file afterwards.
    """
    codecs.lookup("cp437")  # of the names in archives
    kind = kind_of(file)
    if kind is None:
        text = Text(file, layout)
        return lambda: text
    return partial(Book, file, kind, _class_of_books(kind), layout.sheet)


def open_sheet(file: IO[bytes], layout: Layout = _NO_LAYOUT) -> Sheet:
    """Return the sheet that a file is. Raises BadFile."""
    return prepare(file, layout)()


def _named(said: str, names: Sequence[str]) -> str:
    """Return the sheet of this name, exactly or else without case and blanks. Raises BadFile."""
    if said in names:
        return said
    for name in names:
        if name.strip().casefold() == said.strip().casefold():
            return name
    known = ", ".join(f'"{name[:_BRIEF]}"' for name in names[:20])
    raise BadFile(f'no sheet is called "{said[:_BRIEF]}"; the sheets are {known}', "sheet")


def _sample(file: IO[bytes], encoding: str | None) -> list[str]:
    """Return the first lines of a text, as far as they can be read."""
    file.seek(0)
    data = file.read(_SAMPLE_BYTES)
    text = data.decode(encoding or "utf-8", "replace").lstrip("\ufeff")
    # Not `str.splitlines`: a name may contain what that takes for line ends.
    lines = list(io.StringIO(text, newline=""))
    return lines[:-1] if len(data) == _SAMPLE_BYTES and len(lines) > 1 else lines


def _kind_of_text(sample: Sequence[str]) -> Kind:
    begin = "".join(sample[:100]).lstrip()
    if begin.startswith("{"):
        return "jsonl"
    if begin.startswith("[") and begin[1:].lstrip()[:1] in ("{", "]"):
        return "json"
    return "csv"
