"""What the columns of a file are for stores: a pure function that proposes name, address and key,
with a reason for each."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from storekeeper.domain.intake import KEY_PREFIX
from storekeeper.sheets import FIELDS
from storekeeper.sheets.addresses import propose_address
from storekeeper.sheets.headings import ADDRESS_ROLES, STRONG_ROLES, role_of
from storekeeper.sheets.look_types import Choice
from storekeeper.sheets.roles import Column, File, cells_of, roles_of

_MIN_FILLED = 0.9
"""The share of rows with a name that must have a key."""

_MAX_REPEATED = 0.25
"""The share of rows whose key may occur again, if it is called like one: these rows are bad."""


class Proposal(NamedTuple):
    """What columns are used for. `roles` has one for each column; `dropped` are those of an
    address that are not used; `unsaid` those choices that are not the only reading."""

    name: Choice
    address: Choice
    match: Choice
    match_choices: list[str]
    roles: list[str]
    uses: list[str]
    dropped: list[str]
    unsaid: list[str]


def propose(file: File) -> Proposal:
    """Return what the columns of a file are used for."""
    roles = roles_of(file)
    name = _name(file, roles)
    address, covered = propose_address(file, roles, name.value)
    match, choices = _match(file, roles, name.value)
    uses = _uses(file, name.value, address.value, match.value)
    dropped = [
        column.name
        for column, role, use in zip(file.columns, roles, uses, strict=True)
        if role in ADDRESS_ROLES and not use and column.filled and column.name not in covered
    ]
    unsaid = _unsaid(file, roles, name, address, match)
    return Proposal(name, address, match, choices, roles, uses, dropped, unsaid)


# The name.


def _name(file: File, roles: Sequence[str]) -> Choice:
    if "name" in file.maps:
        return Choice(file.maps["name"], "as you say")
    found = [
        place
        for place, role in enumerate(roles)
        if role == "name" and (file.columns[place].filled or not file.rows)
    ]
    if not found:
        return Choice(None, "no column has names")
    place = min(found, key=lambda each: _rank_of_name(file, each))
    column = file.columns[place]
    if not file.has_header:
        return Choice(column.name, "its cells look like names")
    why = "it is called so" if role_of(column.name) == "name" else "its cells look like names"
    if column.distinct is not None and column.distinct < column.filled:
        return Choice(column.name, f"{why}; some names occur more than once")
    return Choice(column.name, why)


def _rank_of_name(file: File, place: int) -> tuple[bool, bool, bool, int]:
    """Return what is least for the column that has the names: called exactly so, filled, and with
    names that tell stores apart."""
    column = file.columns[place]
    is_exact = _plain(column.name) == "name"
    rows = max(file.rows, 1)
    repeats = column.distinct is not None and 2 * column.distinct <= column.filled
    return not is_exact, 2 * column.filled < rows, repeats and file.rows > 1, place


# The key.


def _match(file: File, roles: Sequence[str], name: str | None) -> tuple[Choice, list[str]]:
    """Return what tells the store of a row, and what else could."""
    keys = [place for place, role in enumerate(roles) if role in ("key", "id")]
    rows = _named_rows(file, name)
    good = [place for place in keys if _is_key(file.columns[place], rows)]
    choices = [as_match(file.columns[place].name) for place in good]
    is_own = _is_own_export(file)
    ids = [place for place in keys if _plain(file.columns[place].name) == "id"]
    if ids:
        choices.insert(0 if is_own else len(choices), "id")
    if name is not None and _is_unique(file, name):
        choices.append("name")
    if file.match is not None:
        return Choice(file.match, "as you say"), choices
    if file.add:
        return Choice(None, "as you say: all rows are new stores"), choices
    if is_own:
        return Choice("id", "the file is an export of a list like this one"), choices
    known = [place for place in good if _is_known(file, file.columns[place].name)]
    if known:
        column = file.columns[known[0]].name
        return Choice(as_match(column), "the list has these numbers"), choices
    if ids and not file.list_is_empty:
        why = "say whether these are the ids of this list, or numbers of your own"
        return Choice(None, why), choices
    if good:
        column = file.columns[good[0]].name
        return Choice(as_match(column), _why_key(file, file.columns[good[0]])), choices
    if "name" in choices:
        return Choice("name", "no column is a key, and no name occurs twice"), choices
    return Choice(None, "no column is a key, and names occur more than once"), choices


def as_match(column: str) -> str:
    """Return how the keys of a column are asked for."""
    plain = _plain(column)
    return f"{KEY_PREFIX}{column}" if plain in FIELDS else column


def _why_key(file: File, column: Column) -> str:
    repeated = column.filled - (column.distinct or 0)
    why = "a number of your own for each store"
    if repeated:
        why += f"; {repeated:,} of them occur more than once, and those rows are bad"
    if not file.list_is_empty:
        why += (
            "; the list has none of these numbers yet, so each row is a new store unless you"
            " say --adopt"
        )
    return why


def _named_rows(file: File, name: str | None) -> int:
    """Return how many rows have a name; a longer table on the right has more rows."""
    filled = [column.filled for column in file.columns if column.name == name and column.filled]
    return min([file.rows, *filled])


def _is_key(column: Column, rows: int) -> bool:
    """Return whether a column tells the rows of a table apart, which has this number of them."""
    if not column.filled or column.distinct is None or column.filled < _MIN_FILLED * rows:
        return False
    return column.filled - column.distinct <= _MAX_REPEATED * column.filled


def _is_unique(file: File, name: str) -> bool:
    column = next((each for each in file.columns if _plain(each.name) == _plain(name)), None)
    return column is not None and bool(column.filled) and column.distinct == column.filled


def _is_known(file: File, name: str) -> bool:
    plain = "".join(_plain(name).removeprefix(KEY_PREFIX).split())
    return plain in {"".join(_plain(each).split()) for each in file.known_keys}


def _is_own_export(file: File) -> bool:
    """Return whether a file has the columns of our exports, and versions in them."""
    own = {_plain(column.name): column for column in file.columns}
    if not {"id", "name", "version"} <= own.keys():
        return False
    return any(re.fullmatch(r"\d{1,18}\.[a-z2-7]{8}", cell) for cell in cells_of(own["version"]))


# What is used, and what must be said.


def _uses(file: File, name: str | None, address: str | None, match: str | None) -> list[str]:
    in_address = {_plain(each) for each in re.findall(r"\{([^{}]*)\}", address or "")}
    in_address |= {_plain(address or "")}
    key = _plain(match or "").removeprefix(KEY_PREFIX)
    uses = []
    for column in file.columns:
        plain = _plain(column.name)
        use = ""
        if plain and plain == _plain(name or ""):
            use = "name"
        elif plain and plain in in_address:
            use = "address"
        elif plain and plain.removeprefix(KEY_PREFIX) == key:
            use = "key"
        elif plain == "version" and _is_own_export(file):
            use = "version"
        uses.append(use)
    return uses


def _unsaid(
    file: File, roles: Sequence[str], name: Choice, address: Choice, match: Choice
) -> list[str]:
    """Return which of map and match an import must be told."""
    own = [_plain(column.name) for column in file.columns]
    unsaid = []
    names_itself = "name" in own and not any(each.startswith("name (") for each in own)
    needs_name = "name" not in file.maps and name.value is not None and not names_itself
    addresses = [
        column.name
        for column, role in zip(file.columns, roles, strict=True)
        if role in STRONG_ROLES and column.filled and column.name != name.value
    ]
    is_plain = address.value is None or _plain(address.value) == "address"
    is_only = is_plain and {_plain(each) for each in addresses} <= {"address"}
    needs_address = "address" not in file.maps and bool(addresses) and not is_only
    if needs_name or (needs_address and not _is_own_export(file)):
        unsaid.append("map")
    is_told = file.match is not None or file.add
    is_new = file.list_is_empty and match.value in (None, "name", "id")
    if not is_told and not is_new:
        unsaid.append("match")
    return unsaid


def _plain(name: str) -> str:
    return name.strip().casefold()
