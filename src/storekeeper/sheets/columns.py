"""Which cells of a row are the fields of a store, by the names of their columns (decision 53)."""

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from storekeeper.domain.problems import MAX_BRIEF_LENGTH, shown
from storekeeper.domain.stores import MAX_EXTERNAL_LENGTH
from storekeeper.sheets import FIELDS, BadFile

Cell = Callable[[Sequence[object]], object]
"""Returns the value of a field in the cells of a row."""

_COLUMN = re.compile(r"\{([^{}]*)\}")
_MAX_SHOWN_COLUMNS = 20

_GAP = re.compile(r"[\s,]*\0[\s,\0]*")
"""A blank column with the blanks and commas beside it."""


class Columns:
    """The columns of a file, by its header; `maps` says from which columns a field comes. Raises
    BadFile.

    `match` is "id", "name", a column as the file has its name, or None. `ignored` are the
    columns that mean nothing.
    """

    def __init__(
        self, header: Sequence[object], maps: Mapping[str, str], match: str | None
    ) -> None:
        self.names = [str(name).strip() for name in header]
        self._used = set[int]()
        self.fields: dict[str, Cell] = {}
        for field in FIELDS:
            if field in maps:
                self.fields[field] = self._mapped(maps[field])
            elif field in map(str.casefold, self.names):
                self.fields[field] = itemgetter(self._place(field, "map"))
        if not {"name", "address"} & self.fields.keys():
            raise BadFile(
                f"no column is name or address; {self._listed()}", "map", f"name={self._example()}"
            )
        self.match, self.key = self._matched(match)
        self.ignored = [
            name for place, name in enumerate(self.names) if name and place not in self._used
        ]

    def _matched(self, match: str | None) -> tuple[str | None, Cell | None]:
        """Return what rows are matched by, as the file has its name, and the cell that has it."""
        if match is None:
            return None, None
        if (field := match.strip().casefold()) in ("id", "name"):
            if field not in self.fields:
                raise BadFile(
                    f"there is no column {field} to match rows by; {self._listed()}", "match"
                )
            return field, self.fields[field]
        place = self._place(match, "match")
        if len(self.names[place]) > MAX_EXTERNAL_LENGTH:
            raise BadFile(
                f"the name of the column has more than {MAX_EXTERNAL_LENGTH} characters", "match"
            )
        return self.names[place], itemgetter(place)

    def _mapped(self, template: str) -> Cell:
        if not set(template) & set("{}"):
            return itemgetter(self._place(template, "map"))
        parts = _COLUMN.split(template)
        if any(set(text) & set("{}") for text in parts[::2]):
            raise BadFile(f"{shown(template, MAX_BRIEF_LENGTH)!r} has an unmatched brace", "map")
        places = [self._place(name, "map") for name in parts[1::2]]
        return lambda row: _joined(parts, [row[place] for place in places])

    def _place(self, name: str, parameter: str) -> int:
        wanted = name.strip().casefold()
        places = [place for place, each in enumerate(self.names) if each.casefold() == wanted]
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


def parse_maps(values: Sequence[str]) -> dict[str, str]:
    """Return the columns or the template of each field that is mapped. Raises BadFile."""
    maps: dict[str, str] = {}
    for value in values:
        field, separator, source = value.partition("=")
        field = field.strip().casefold()
        if not separator or not source.strip() or field not in FIELDS or field in maps:
            raise BadFile(
                f"each of {', '.join(FIELDS)} can be mapped once, as in name=Store Name", "map"
            )
        maps[field] = source
    return maps


def _joined(parts: Sequence[str], cells: Sequence[object]) -> str:
    """Return the texts between the columns of a template, at even places of `parts`, with the
    cells in between."""
    values = ["" if cell is None else str(cell).strip() for cell in cells]
    if any("\0" in value for value in values):
        return "".join(values)  # is refused
    text = parts[0] + "".join(
        f"{value or chr(0)}{text}" for value, text in zip(values, parts[2::2], strict=True)
    )
    return " ".join(_GAP.sub(lambda gap: _separator(gap, len(text)), text).split())


def _separator(gap: re.Match[str], end: int) -> str:
    if gap.start() == 0 or gap.end() == end:
        return ""
    return ", " if "," in gap[0] else " "
