"""What each column of a file has, by its heading or by what its cells look like."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from storekeeper.domain.intake import KEY_PREFIX
from storekeeper.sheets.headings import STRONG_ROLES, role_of

_NUMBER = re.compile(r"[\d\s.,:/()+-]*\d[\d\s.,:/()+-]*")
_HOUSE = re.compile(r"\d{1,5}( ?[-/] ?\d{1,5})? ?[A-Za-z]?")
_PHONE = re.compile(r"[+(]?[\d\s()/.+-]{7,}")
_POSTCODE = re.compile(r"([A-Z]{1,2}[- ]?)?\d{2,5}([- ]?\d{2,4})?|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}")


class Column(NamedTuple):
    """A column as the proposal sees it. `distinct` and `filled` are of the whole file, `distinct`
    None if it is not known; `is_empty` says that it has neither name nor cells."""

    name: str
    examples: Sequence[str]
    filled: int
    distinct: int | None
    is_empty: bool = False


class File(NamedTuple):
    """All that a proposal comes from. `rows` are those that differ from each other."""

    columns: Sequence[Column]
    rows: int
    has_header: bool
    known_keys: Sequence[str]
    """The columns of outside keys that the list knows."""
    list_is_empty: bool
    maps: Mapping[str, str]
    """What the caller has said."""
    match: str | None
    add: bool


def roles_of(file: File) -> list[str]:
    """Return the role of each column, "" for none: by its heading, or by its cells."""
    table = _table(file)
    if file.has_header:
        roles = [
            _role(column) if place in table else "" for place, column in enumerate(file.columns)
        ]
    else:
        roles = [""] * len(file.columns)
    if "street" in roles and "number" not in roles:
        _find_house_number(file, roles)
    _tell_keys_from_names(file, roles)
    if "name" not in roles:
        _find_bycells_of(file, roles, table)
    return roles


def _role(column: Column) -> str:
    if column.name.strip().casefold().startswith(KEY_PREFIX):
        return "key"
    return role_of(column.name)


def _table(file: File) -> set[int]:
    """Return the places of the columns of one table: of two that stand next to each other, with
    an empty column between, the first that has names of stores."""
    tables: list[set[int]] = [set()]
    for place, column in enumerate(file.columns):
        if column.is_empty:
            tables.append(set())
        else:
            tables[-1].add(place)
    named = [
        table for table in tables if any(_role(file.columns[place]) == "name" for place in table)
    ]
    if named and len(named[0]) > 1:
        return named[0]
    return set(range(len(file.columns)))


def _find_house_number(file: File, roles: list[str]) -> None:
    """A number next to the street, on its right, is that of the house."""
    place = roles.index("street") + 1
    if place < len(roles) and roles[place] == "key":
        cells = file.columns[place].examples
        if cells and all(_HOUSE.fullmatch(cell.strip()) for cell in cells):
            roles[place] = "number"


def _tell_keys_from_names(file: File, roles: list[str]) -> None:
    """A column `Store` that has nothing but numbers is a key, if another one has the names."""
    names = [place for place, role in enumerate(roles) if role == "name"]
    numbers = [place for place in names if _are_numbers(file.columns[place])]
    if len(numbers) < len(names):
        for place in numbers:
            roles[place] = "key"


def _are_numbers(column: Column) -> bool:
    cells = [cell for cell in column.examples if cell.strip()]
    return bool(cells) and all(_NUMBER.fullmatch(cell.strip()) for cell in cells)


def _find_bycells_of(file: File, roles: list[str], table: set[int]) -> None:
    """Find names and addresses by what the cells look like."""
    free = [place for place in sorted(table) if not roles[place] and file.columns[place].name]
    texts = [place for place in free if _is_text(file.columns[place])]
    if not texts:
        return
    plain = [place for place in texts if not _is_address(file.columns[place])]
    name = (plain or texts)[0]
    roles[name] = "name"
    if set(roles) & set(STRONG_ROLES):
        return
    for place in free:
        column = file.columns[place]
        if place == name or not column.examples:
            continue
        if _is_address(column):
            roles[place] = "street" if "street" not in roles else "line 2"
        elif "street" in roles:
            if all(map(_POSTCODE.fullmatch, cells_of(column))):
                roles[place] = "postcode" if "postcode" not in roles else ""
            elif place in texts and "city" not in roles:
                roles[place] = "city"
    if roles.count("street") == 1 and not {"city", "postcode", "line 2"} & set(roles):
        roles[roles.index("street")] = "address"


def cells_of(column: Column) -> list[str]:
    """Return the cells of a column by which it is known, without blank ones."""
    return [cell.strip() for cell in column.examples if cell.strip()]


def _is_text(column: Column) -> bool:
    cells = cells_of(column)
    words = [cell for cell in cells if any(map(str.isalpha, cell)) and "@" not in cell]
    return bool(cells) and 2 * len(words) > len(cells) and "://" not in cells[0]


def _is_address(column: Column) -> bool:
    """Return whether most cells have a number of a house and a word, or a comma between words."""
    cells = cells_of(column)
    like = [
        cell
        for cell in cells
        if (any(map(str.isdigit, cell)) and any(map(str.isalpha, cell)) and " " in cell)
        or ", " in cell
    ]
    return bool(cells) and 2 * len(like) > len(cells) and not any(map(_PHONE.fullmatch, cells))
