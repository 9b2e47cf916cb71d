"""Which columns make up an address, in the order in which people write one."""

import re
from collections.abc import Callable, Mapping, Sequence

from storekeeper.sheets.columns import plain
from storekeeper.sheets.headings import ADDRESS_ROLES, LINES, STRONG_ROLES
from storekeeper.sheets.look_types import Choice
from storekeeper.sheets.roles import Column, File, cells_of

_WHOLE = "it has the whole address"
_PARTS = "these are the parts of an address, as people write it"

Group = Callable[..., str]
"""Returns the columns with these roles, in the order of the file, with blanks between them."""

_HOUSE = ("number", "number 2")
_STREET = ("way", "street", "address")

_NUMBER_LAST = re.compile(
    r"(stra(ß|ss)e|str\.|weg|platz|gasse|allee|ring|straat|laan|plein|gatan|v(ä|æ)gen|vej|gade|gata)$"
    r"|^(via|viale|corso|piazza|calle|avenida|av\.|rua|ul\.|ulica|ул\.|улица) ",
    re.IGNORECASE,
)
"""Streets that people write with the number of the house after the name."""

_MAX_COMPARED = 20
"""Addresses that are compared with the other columns of their rows."""

_EAST_ASIAN = re.compile("[\u3041-\u30ff\u3400-\u9fff]")
_BIG_TO_SMALL = ("state", "county", "city", "district", "street", "address", "number", "number 2")


def propose_address(
    file: File, roles: Sequence[str], name: str | None
) -> tuple[Choice, Sequence[str]]:
    """Return what an address comes from, and the columns that need not be used, since the address
    has their cells already."""
    if "address" in file.maps:
        return Choice(file.maps["address"] or None, "as you say"), []
    found = _places(file, roles, name)
    if not found:
        return Choice(None, "no column looks like an address: stores get none"), []
    covered = _covered(file, found)
    names = {role: file.columns[place].name for role, place in found.items()}
    used = {role: place for role, place in found.items() if role not in covered}
    needless = [names[role] for role in covered]
    if used.keys() == {"address"}:
        needless += _weak_columns(file, roles)
        return Choice(names["address"], _WHOLE), needless
    if len(used) == 1:
        [role] = used
        return Choice(names[role], "it is the only part of an address"), needless
    if _is_east_asian(file, used):
        return Choice(_east_asian(used, names), _PARTS), needless
    return Choice(_template(file, used), _PARTS), needless


def _weak_columns(file: File, roles: Sequence[str]) -> list[str]:
    """Return the columns, as that of the country, that a whole address can do without."""
    return [
        column.name
        for column, role in zip(file.columns, roles, strict=True)
        if role not in STRONG_ROLES
    ]


def _places(file: File, roles: Sequence[str], name: str | None) -> dict[str, int]:
    """Return the places of the columns that an address is made of, by role."""
    found: dict[str, int] = {}
    for place, role in enumerate(roles):
        column = file.columns[place]
        if role not in ADDRESS_ROLES or column.name == name:
            continue
        if not column.filled and role != "line 2":  # which later files may have
            continue
        if set(column.name) & set("{}"):  # a template cannot name it
            continue
        if role == "line 2" and column.name.endswith(" (2)") and _is_second(file, place, roles):
            continue
        found.setdefault(role, place)
    _arrange(file, found)
    return found if set(found) & set(STRONG_ROLES) else {}


def _arrange(file: File, found: dict[str, int]) -> None:
    """Leave out what an address does without, and find what stands for the town."""
    for role in ("region", "postcode 2"):
        found.pop(role, None)
    if "state" in found:
        found.pop("county", None)
    if "place" in found and "postcode" in found and "city" not in found:
        found["city"] = found.pop("place")
    if "district" in found and "city" not in found:
        found["city"] = found.pop("district")
    if "country" in found and not _tells_apart(file.columns[found["country"]]):
        del found["country"]


def _is_second(file: File, place: int, roles: Sequence[str]) -> bool:
    """Return whether a repeated column begins a second address, such as that for bills: then its
    town is repeated too."""
    rest = zip(file.columns[place:], roles[place:], strict=True)
    towns = [column.name for column, role in rest if role in ("city", "postcode", "place")]
    return any(name.endswith(" (2)") for name in towns)


def _tells_apart(country: Column) -> bool:
    """Return whether a column has names of countries, and more than one."""
    cells = cells_of(country)
    return (country.distinct or 0) > 1 and not all(len(cell) <= 3 for cell in cells)


def _covered(file: File, found: Mapping[str, int]) -> list[str]:
    """Return the roles of the columns whose cells the addresses have already, as most whole ones
    have the town."""
    if "address" not in found:
        return []
    addresses = file.columns[found["address"]].examples[:_MAX_COMPARED]
    return [
        role
        for role, place in found.items()
        if role != "address" and _are_in(file.columns[place].examples, addresses)
    ]


def _are_in(parts: Sequence[str], addresses: Sequence[str]) -> bool:
    """Return whether four of five parts that are not blank stand in the addresses of their
    rows."""
    rows = list(zip(addresses, parts, strict=False))
    filled = [(address, part) for address, part in rows if part.strip()]
    within = [_has(plain(address), plain(part)) for address, part in filled]
    return bool(filled) and 10 * sum(within) >= 8 * len(filled)


def _has(address: str, part: str) -> bool:
    """Return whether an address has a part as whole words, after its street."""
    found = re.search(rf"(?<!\w){re.escape(part)}(?!\w)", address)
    if found is None:
        return False
    before = address[: found.start()]
    return "," in before or any(map(str.isdigit, before + part))


# The template.


def _template(file: File, places: Mapping[str, int]) -> str:
    """Return the template of an address that goes from the street to the country."""

    def group(*roles: str) -> str:
        used = sorted((each for each in roles if each in places), key=lambda each: places[each])
        return " ".join(f"{{{file.columns[places[each]].name}}}" for each in used)

    streets = [_street(file, places, group)]
    if "address" in places and "street" in places:
        streets = [group("address"), group(*_HOUSE, "way", "street")]
    street = min((places[role] for role in _STREET if role in places), default=0)
    left = [line for line in LINES if places.get(line, street) < street]  # as a building in London
    right = [line for line in LINES if line not in left]
    streets = [*map(group, left), *streets, *map(group, right), group("district")]
    if "state" in places:
        town = _with_state(places, group)
    elif "county" in places:
        town = [group("city"), group("county"), group("postcode")]
    else:
        town = [group("postcode", "city")]
    parts = [*streets, group("place"), *town, group("country")]
    return ", ".join(part for part in parts if part)


def _street(file: File, places: Mapping[str, int], group: Group) -> str:
    """Return street and number in the order of the file, but the number last where people write
    it so."""
    street = places.get("street", places.get("address"))
    if street is None or "number" not in places or "way" in places:
        return group(*_HOUSE, *_STREET)
    cells = cells_of(file.columns[street])
    if 2 * _count(_NUMBER_LAST, cells) > len(cells):
        return f"{group(*_STREET)} {group(*_HOUSE)}"
    return group(*_HOUSE, *_STREET)


def _count(pattern: re.Pattern[str], cells: Sequence[str]) -> int:
    """Return in how many cells a pattern is found."""
    return sum(pattern.search(cell) is not None for cell in cells)


def _with_state(places: Mapping[str, int], group: Group) -> list[str]:
    """Return town, state and postcode; a postcode that stands before the town stays there."""
    if {"postcode", "city"} <= places.keys() and places["postcode"] < places["city"]:
        return [group("postcode", "city"), group("state")]
    state_and_postcode = f"{group('state')} {group('postcode')}".strip()
    return [group("city"), state_and_postcode]


def _is_east_asian(file: File, places: Mapping[str, int]) -> bool:
    """Return whether a third of the cells of the addresses have Chinese characters or kana."""
    cells: list[str] = []
    for place in places.values():
        cells += cells_of(file.columns[place])
    return 3 * _count(_EAST_ASIAN, cells) > len(cells)


def _east_asian(places: Mapping[str, int], names: Mapping[str, str]) -> str:
    """Return the template of an address that goes from the country to the house: there are no
    blanks between state, town and street."""
    cells = {role: f"{{{names[role]}}}" for role in places}
    cells["body"] = "".join(cells.get(role, "") for role in _BIG_TO_SMALL)
    order = ("country", "postcode", "place", "body", *LINES)
    parts = [cells.get(role, "") for role in order]
    return " ".join(part for part in parts if part)
