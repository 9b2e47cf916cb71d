"""Which cells of a row are the fields of a store, by the names of their columns (decision 53)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

import msgspec

from storekeeper.domain.intake import KEY_PREFIX
from storekeeper.domain.problems import MAX_BRIEF_LENGTH, shown
from storekeeper.domain.stores import MAX_CONTENT_BYTES, MAX_EXTERNAL_LENGTH
from storekeeper.sheets import FIELDS, BadFile
from storekeeper.sheets.cells import BadCell, MergedCell

Cell = Callable[[Sequence[object]], object]
"""Returns the value of a field in the cells of a row. Raises TooLong."""

MAX_COLUMNS = 16_384
"""Columns of a file, as many as a sheet of XLSX has."""

_MATCHED = ("id", "name")
"""The fields by which rows can be matched."""

_MAX_ESCAPED = 6
"""Bytes of a character in JSON, at most."""

_encode = msgspec.json.Encoder().encode
_COLUMN = re.compile(r"\{([^{}]*)\}")
_MAX_SHOWN_COLUMNS = 20
_BESIDE = " ,"
"""What vanishes next to a blank column. All blanks are one space by then."""


class TooLong(Exception):
    """What a template makes of a row is longer than any field may be."""


def check_size(content: Mapping[str, str]) -> None:
    """Raise TooLong if a name and an address are too large."""
    if sum(map(len, content.values())) * _MAX_ESCAPED < MAX_CONTENT_BYTES // 2:
        return  # as nearly all are
    if len(_encode(content)) > MAX_CONTENT_BYTES:
        raise TooLong


class Columns:
    """The columns of a file, by its header; `maps` says from which columns a field comes. Raises
    BadFile.

    `match` is "id", "name", a column as the file has its name, or None. `unused` are the
    columns that mean nothing. With `is_look`, neither name nor address must be said.
    """

    def __init__(
        self,
        header: Sequence[object],
        maps: Mapping[str, str],
        match: str | None,
        attach: str | None = None,
        *,
        is_look: bool = False,
    ) -> None:
        if len(header) > MAX_COLUMNS:
            raise BadFile(f"a file may have {MAX_COLUMNS:,} columns at most")
        self.names = unique([str(name).strip() for name in header])
        self._places = _places_of(self.names)
        self._used = set[int]()
        self.fields: dict[str, Cell] = {}
        for field in FIELDS:
            if field in maps:
                if maps[field]:  # else the caller wants none
                    self.fields[field] = self._mapped(maps[field])
            elif field in self._places:
                self.fields[field] = itemgetter(self._place(field, "map"))
        if not is_look and not {"name", "address"} & self.fields.keys():
            raise BadFile(
                f"no column is name or address; {self._listed()}", "map", f"name={self._example()}"
            )
        self.match, self.key = self._matched(match, is_look=is_look)
        self.attached, self.attach = None, None
        if attach is not None:
            self.attached, self.attach = self._keyed(attach, "attach")
        self.unused = [
            name for place, name in enumerate(self.names) if name and place not in self._used
        ]

    def _matched(
        self, match: str | None, *, is_look: bool = False
    ) -> tuple[str | None, Cell | None]:
        """Return what rows are matched by, as the file has its name, and the cell that has it."""
        if match is None:
            return None, None
        check_match(match)
        if (field := plain(match)) in _MATCHED:
            if field not in self.fields and not (field == "name" and is_look):
                raise BadFile(
                    f"there is no column {field} to match rows by; {self._listed()}", "match"
                )
            return field, self.fields.get(field)
        name, cell = self._keyed(match, "match")
        return heading_of_keys(name), cell

    def without_merged(self, cells: list[object]) -> list[object]:
        """Return the cells of a row, but no name and no key that is that of the row above: it
        would make a second store of the same name."""
        columns = (self.fields.get("name"), self.key, self.attach)
        try:
            found = [column(cells) for column in columns if column]
        except TooLong:
            return cells
        merged = [cell for cell in found if type(cell) is MergedCell]
        return ["" if any(cell is each for each in merged) else cell for cell in cells]

    def _keyed(self, column: str, parameter: str) -> tuple[str, Cell]:
        """Return the name of a column with keys, as the file has it, and the cell that has one."""
        heading = column if plain(column) in self._places else without_prefix(column)
        place = self._place(heading, parameter)
        name = without_prefix(self.names[place])
        if not 1 <= len(name) <= MAX_EXTERNAL_LENGTH or "\0" in name:
            raise BadFile(
                f"the name of the column has more than {MAX_EXTERNAL_LENGTH} characters, or null"
                " characters",
                parameter,
            )
        return name, itemgetter(place)

    def _mapped(self, template: str) -> Cell:
        if not set(template) & set("{}"):
            return itemgetter(self._place(template, "map"))
        parts = _COLUMN.split(template)
        if any(set(text) & set("{}") for text in parts[::2]):
            raise BadFile(f"{shown(template, MAX_BRIEF_LENGTH)!r} has an unmatched brace", "map")
        places = [self._place(name, "map") for name in parts[1::2]]
        return lambda row: join(parts[::2], places, row)

    def _place(self, name: str, parameter: str) -> int:
        places = self._places.get(plain(name), [])
        if len(places) != 1:
            how_many = "several columns are" if places else "no column is"
            raise BadFile(
                f'{how_many} named "{shown(name, MAX_BRIEF_LENGTH)}"; {self._listed()}', parameter
            )
        self._used.add(places[0])
        return places[0]

    def _listed(self) -> str:
        names = ", ".join(
            shown(name, MAX_BRIEF_LENGTH) for name in self.names[:_MAX_SHOWN_COLUMNS] if name
        )
        more = len(self.names) - _MAX_SHOWN_COLUMNS
        return f"the columns are {names or 'without names'}" + (
            f" and {more} more" if more > 0 else ""
        )

    def _example(self) -> str:
        # Most often, the column of names says so.
        named = [name for name in self.names if "name" in name.casefold()]
        return shown(next(iter([*named, *filter(None, self.names)]), "1"), MAX_BRIEF_LENGTH)


def unique(names: Sequence[str]) -> list[str]:
    """Return the names of columns, with a number where one occurs again: Address, Address (2)."""
    taken = {plain(name) for name in names}
    numbers: dict[str, int] = {}
    found = []
    for name in names:
        key = plain(name)
        number = numbers.get(key, 0) + 1
        while number > 1 and plain(f"{name} ({number})") in taken:
            number += 1
        numbers[key] = number
        found.append(f"{name} ({number})" if name and number > 1 else name)
    return found


def check_match(match: str) -> None:
    """Raise BadFile for what rows cannot be matched by: what a store has in common with others,
    and not with itself later."""
    if (field := plain(match)) in FIELDS and field not in _MATCHED:
        raise BadFile(
            f"rows cannot be matched by their {field}: say id, name, or the name of a column with"
            f" the keys of another system, {KEY_PREFIX}{field} if it is called like that",
            "match",
        )


def parse_column(value: bytes) -> str | None:
    """Return the name of a column, None if it cannot be one. Raises UnicodeDecodeError."""
    column = value.decode()
    is_name = column.strip() and len(column) <= MAX_EXTERNAL_LENGTH and "\0" not in column
    return column if is_name else None


def named_columns(maps: Mapping[str, str], match: str | None) -> set[str]:
    """Return the columns that maps and a match name, without what does not count."""
    names = set()
    for template in filter(None, maps.values()):
        names |= set(_COLUMN.findall(template)) if set(template) & set("{}") else {template}
    if match is not None and plain(match) not in _MATCHED:
        names.add(without_prefix(match))
    return {plain(name) for name in names}


def heading_of_keys(column: str) -> str:
    """Return the name that a column with the keys of an outside system has in a file, where
    fields mean themselves."""
    name = plain(column)
    is_taken = name in FIELDS or name.startswith(KEY_PREFIX)
    return f"{KEY_PREFIX}{column}" if is_taken else column


def without_prefix(name: str) -> str:
    """Return the column with the keys of an outside system that a name means."""
    stripped = name.strip()
    if plain(stripped).startswith(KEY_PREFIX):
        return stripped[len(KEY_PREFIX) :].strip()
    return name


def plain(name: str) -> str:
    """Return the name of a column without what does not count."""
    return name.strip().casefold()


def _places_of(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the places of each name, but for blank ones."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if name:
            places.setdefault(plain(name), []).append(place)
    return places


def parse_maps(values: Sequence[str]) -> dict[str, str]:
    """Return the columns or the template of each field that is mapped. Raises BadFile."""
    maps: dict[str, str] = {}
    for value in values:
        field, separator, source = value.partition("=")
        field = field.strip().casefold()
        is_none = field == "address" and separator and not source.strip()
        if not separator or field not in FIELDS or field in maps:
            raise BadFile(
                f"each of {', '.join(FIELDS)} can be mapped once, as in name=Store Name", "map"
            )
        if not source.strip() and not is_none:
            raise BadFile(f"say which column the {field} comes from, as in name=Store Name", "map")
        maps[field] = "" if is_none else source
    return maps


# Templates.


def join(texts: Sequence[str], places: Sequence[int], row: Sequence[object]) -> str | None:
    """Return the texts of a template with the cells of these places between them.

    Blank cells vanish with the blanks and commas next to them, runs of blanks become one. Takes
    time in proportion to the length of the result, which is measured first. If the row ends
    before all of these cells, it is None; a cell with an error is the result. Raises TooLong.
    """
    found = [row[place] for place in places]
    if found and not any(cell is not None for cell in found):
        return None
    for cell in found:
        if type(cell) is BadCell:
            return cell
    cells = {place: _without_runs(row[place]) for place in set(places)}
    if any("\0" in cell for cell in cells.values()):
        return "\0"  # is refused
    length = sum(map(len, texts)) + sum(len(cells[place]) for place in places)
    if length > MAX_CONTENT_BYTES:
        raise TooLong
    joined = texts[0] + "".join(
        f"{cells[place] or chr(0)}{text}" for place, text in zip(places, texts[1:], strict=True)
    )
    return _without_gaps(_without_runs(joined).split("\0"))


def _without_runs(cell: object) -> str:
    """Return a cell as a text with single blanks, and none at its ends."""
    return "" if cell is None else " ".join(str(cell).split())


def _without_gaps(pieces: Sequence[str]) -> str:
    """Join what stands between blank cells, without the blanks and commas next to these."""
    joined: list[str] = []
    last, has_comma = len(pieces) - 1, False
    for place, piece in enumerate(pieces):
        text = piece
        if place > 0:
            text = text.lstrip(_BESIDE)
            has_comma = has_comma or "," in piece[: len(piece) - len(text)]
        kept = text.rstrip(_BESIDE) if place < last else text
        if kept:
            if joined:
                joined.append(", " if has_comma else " ")
            joined.append(kept)
            has_comma = False
        has_comma = has_comma or "," in text[len(kept) :]
    return "".join(joined)
