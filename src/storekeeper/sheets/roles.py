"""What each column of a file has, by its heading or by what its cells look like."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from storekeeper.domain.intake import KEY_PREFIX
from storekeeper.sheets.headings import STRONG_ROLES, plain, role_of

_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"[\d\s.,:/()+-]*\d[\d\s.,:/()+-]*")
_CODE = re.compile(r"[\d\s.,:/()+-]*\d[\d\s.,:/()+-]*|[A-Z]{1,4}[-_./]?\d+([-_./]\d+)*")
_HOUSE = re.compile(r"\d{1,5}( ?[-/] ?\d{1,5})? ?[A-Za-z]?")
_POLISH_POSTCODE = re.compile(r"\d{2}-\d{3}")
_SHORT = re.compile(r"\d{1,4}([/-]\d{1,4})? ?[A-Za-z]?")
_LOCALITY = re.compile("locality|village|localite|localidad|localita")
_PLACE = re.compile("location|standort|locatie|ubicacion|lokalizacja")
_YES_OR_NO = {"yes", "no", "y", "n", "true", "false", "ja", "nein", "oui", "non", "si", "sí"}
_YES_OR_NO |= {"sim", "não", "nao"}
_STREETS = {"address", "street"}
_TWO_WORDS = re.compile(r"[^\W\d_]{2,} [^\W\d_]{2,}")
_COUNTRY = re.compile(r"[A-Z]{2}")
_STATE = re.compile(r"[A-Z]{2,3}")
_PHONE = re.compile(r"[+(]?[\d\s()/.+-]{7,}")
_MARKED_POSTCODE = re.compile(
    r"\d{2}-\d{3}|\d{3} \d{2}|\d{4,5}-\d{3,4}|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}"
)
_BEGINS_WITH_NUMBER = re.compile(r"\d{1,5}( ?[-/] ?\d{1,5})?[A-Za-z]?,? (?=[^\W\d])")
_STREET_WORDS = re.compile(
    r"(stra(ß|ss)e|gasse|allee|str\.|straat|laan|plein|g(a|ä)tan|v(ä|æ)gen|vej|gade)( |$)"
    r"|\b(street|road|avenue|lane|blvd|rue|calle|avenida|rua|via|viale|ul\.|ulica|улица|ул\.) "
    r"|\b(street|road|avenue|lane|st|rd|ave|blvd|hwy|weg|platz)\.?$"
    r"|[都道府県市区町村丁省区路街號号].*[\d一二三四五六七八九十]",
    re.IGNORECASE,
)
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
    _find_house_numbers(file, roles)
    _find_postcodes(file, roles)
    _tell_states(file, roles)
    _tell_towns(file, roles)
    _tell_localities(file, roles)
    _tell_keys_from_names(file, roles)
    if "name" not in roles:
        _find_by_cells(file, roles, table)
    elif not set(roles) & set(STRONG_ROLES):
        _find_address_by_cells(file, roles, table)
    return roles


def _role(column: Column) -> str:
    if column.name.strip().casefold().startswith(KEY_PREFIX):
        return "key"
    return role_of(column.name)


def _table(file: File) -> set[int]:
    """Return the places of the columns of one table. If there are several with an empty column
    between them, it is the first that has names of stores; if only a later one has the addresses,
    the empty column means nothing, and all columns are one table."""
    tables: list[set[int]] = [set()]
    for place, column in enumerate(file.columns):
        if column.is_empty:
            tables.append(set())
        else:
            tables[-1].add(place)
    every = set(range(len(file.columns)))
    for number, table in enumerate(tables):
        roles = _roles_in(file, table)
        if "name" in roles and len(table) > 1:
            later = _roles_in(file, set[int]().union(*tables[number + 1 :]))
            return table if _is_whole(roles, later) else every
    return every


def _is_whole(roles: set[str], later: set[str]) -> bool:
    """Return whether a table with names has its addresses, so that the columns right of it are
    another one: these may have the streets, if they have no names."""
    has_streets = not roles.isdisjoint(_STREETS)
    if not has_streets and "name" not in later and not later.isdisjoint(_STREETS):
        return False
    return not roles.isdisjoint(STRONG_ROLES) or later.isdisjoint(STRONG_ROLES)


def _roles_in(file: File, table: Iterable[int]) -> set[str]:
    return {_role(file.columns[place]) for place in table}


def _find_house_numbers(file: File, roles: list[str]) -> None:
    """A number next to a street is that of the house if the street has none; right of a column
    `Street` it is so in any case, and `Num` where a column has the kinds of streets."""
    if "number" in roles:
        return
    for place, column in enumerate(file.columns):
        if "way" in roles and roles[place] == "key" and plain(column.name) in ("num", "numero"):
            roles[place] = "number"
            return
    for street in [place for place, role in enumerate(roles) if role in ("street", "address")]:
        has_none = not any(_DIGIT.search(cell) for cell in cells_of(file.columns[street]))
        for place in _keys_next_to(street, roles):
            is_right = place > street and roles[street] == "street"
            column = file.columns[place]
            is_house = _are(column, _HOUSE) and not _are(column, _POLISH_POSTCODE)
            if (has_none or is_right) and is_house:
                roles[place] = "number"
                return


def _keys_next_to(place: int, roles: Sequence[str]) -> list[int]:
    """Return the places of keys right and left of a column."""
    return [
        each for each in (place + 1, place - 1) if 0 <= each < len(roles) and roles[each] == "key"
    ]


def _find_postcodes(file: File, roles: list[str]) -> None:
    """Where two columns look like postcodes, since `C P` may mean two things, the short one is
    the number of the house. Without any, a code next to the town is one if it is written so."""
    postcodes = [place for place, role in enumerate(roles) if role == "postcode"]
    short = [place for place in postcodes if _are(file.columns[place], _SHORT)]
    if "number" not in roles and len(short) == 1 and len(postcodes) > 1:
        roles[short[0]] = "number"
    if postcodes or "city" not in roles:
        return
    for place in _keys_next_to(roles.index("city"), roles):
        if _are(file.columns[place], _MARKED_POSTCODE):
            roles[place] = "postcode"
            return


def _tell_states(file: File, roles: list[str]) -> None:
    """A number is neither a state nor a town. A region next to the town that is written like `TX`
    is a state where a file has countries too, or where the postcode stands right of it."""
    for place, role in enumerate(roles):
        if role in ("state", "city") and _are(file.columns[place], _NUMBER):
            roles[place] = "region"
    if {"state", "county"} & set(roles) or "city" not in roles:
        return
    for place in (roles.index("city") + 1, roles.index("city") - 1):
        is_next = 0 <= place < len(roles) and roles[place] == "region"
        is_part = "country" in roles or roles[place + 1 : place + 2] == ["postcode"]
        if is_next and is_part and _are(file.columns[place], _STATE):
            roles[place] = "state"
            return


def _tell_towns(file: File, roles: list[str]) -> None:
    """A column `Location` has addresses if they look so, and there are no others. Next to another
    column of names it is the town, where there are streets or postcodes, but no town."""
    names = [place for place, role in enumerate(roles) if role == "name"]
    places = [place for place in names if _PLACE.fullmatch(plain(file.columns[place].name))]
    strong = set(roles) & set(STRONG_ROLES)
    if not places:
        return
    if not strong and _is_like(file.columns[places[0]], _is_surely_address):
        roles[places[0]] = "address"
    elif strong and not strong & {"city", "place", "address"} and len(places) < len(names):
        roles[places[0]] = "city"


def _tell_localities(file: File, roles: list[str]) -> None:
    """A locality next to a column of towns is a part of the town."""
    towns = [place for place, role in enumerate(roles) if role == "city"]
    localities = [place for place in towns if _LOCALITY.fullmatch(plain(file.columns[place].name))]
    if "district" not in roles and 0 < len(localities) < len(towns):
        roles[localities[0]] = "district"


def _tell_keys_from_names(file: File, roles: list[str]) -> None:
    """A column `Store` that has nothing but numbers or codes is a key, if another one has the
    names. A column `N` of words is not a key, and `Main branch` with yes and no has no names."""
    for place, role in enumerate(roles):
        column = file.columns[place]
        is_words = role == "key" and _is_like(column, _is_words)
        if is_words or (role == "name" and _are_answers(column)):
            roles[place] = ""
    names = [place for place, role in enumerate(roles) if role == "name"]
    codes = [place for place in names if _are(file.columns[place], _CODE)]
    if len(codes) < len(names):
        for place in codes:
            roles[place] = "key"


def _are(column: Column, pattern: re.Pattern[str]) -> bool:
    """Return whether all cells of a column are of one kind."""
    cells = cells_of(column)
    return bool(cells) and all(map(pattern.fullmatch, cells))


def _find_by_cells(file: File, roles: list[str], table: set[int]) -> None:
    """Find names and addresses by what the cells look like."""
    free = [place for place in sorted(table) if not roles[place] and file.columns[place].name]
    texts = [place for place in free if _is_text(file.columns[place])]
    if not texts:
        return
    name = min(texts, key=lambda place: (*_doubts_as_name(file.columns[place]), place))
    roles[name] = "name"
    if set(roles) & set(STRONG_ROLES):
        return
    for place in free:
        column = file.columns[place]
        if place == name or not column.examples:
            continue
        if _is_like(column, _is_address) and not _are(column, _POSTCODE):
            roles[place] = "street" if "street" not in roles else "line 2"
        elif "street" in roles:
            is_text = place in texts and 2 * column.filled > file.rows
            roles[place] = _place_of(column, roles, is_text=is_text)
    if roles.count("street") == 1 and not {"city", "postcode", "line 2"} & set(roles):
        roles[roles.index("street")] = "address"


def _find_address_by_cells(file: File, roles: list[str], table: set[int]) -> None:
    """Where no heading says it, the first column with streets has the addresses."""
    for place in sorted(table):
        if not roles[place] and _is_like(file.columns[place], _has_street):
            roles[place] = "address"
            return


def _place_of(column: Column, roles: Sequence[str], *, is_text: bool) -> str:
    """Return the role of a column right of the street, "" for none."""
    if _are(column, _POSTCODE):
        role = "postcode"
    elif _are(column, _STATE) and "city" in roles:
        role = "state"
    elif is_text and not _are(column, _STATE):
        role = "city"
    else:
        role = ""
    return "" if role in roles else role


def _doubts_as_name(column: Column) -> tuple[bool, bool, bool, bool]:
    """Return what speaks against a column that may have the names of stores."""
    repeats = column.distinct is not None and 2 * column.distinct <= column.filled
    is_surely_address = _is_like(column, _is_surely_address)
    return is_surely_address, _are(column, _CODE), repeats, _is_like(column, _is_address)


def cells_of(column: Column) -> list[str]:
    """Return the cells of a column by which it is known, without blank ones."""
    return [cell.strip() for cell in column.examples if cell.strip()]


def _is_text(column: Column) -> bool:
    cells = cells_of(column)
    if not cells or "://" in cells[0] or cells[0].startswith(("www.", "[", "{")):
        return False
    words = [cell for cell in cells if any(map(str.isalpha, cell)) and "@" not in cell]
    is_code = _are(column, _COUNTRY)
    return 2 * len(words) > len(cells) and not is_code and not _are_answers(column)


def _are_answers(column: Column) -> bool:
    """Return whether a column has nothing but yes and no."""
    cells = {cell.casefold() for cell in cells_of(column)}
    return bool(cells) and cells <= _YES_OR_NO


def _is_words(cell: str) -> bool:
    """Return whether a cell has two words next to each other."""
    return _TWO_WORDS.search(cell) is not None


def _is_like(column: Column, is_one: Callable[[str], bool]) -> bool:
    """Return whether most cells of a column are of one kind, and none is a phone number."""
    cells = cells_of(column)
    count = sum(map(is_one, cells))
    return 2 * count > len(cells) and not any(map(_PHONE.fullmatch, cells))


def _is_address(cell: str) -> bool:
    """Return whether a cell has a number of a house and a word, or a comma between words."""
    has_number = any(map(str.isdigit, cell)) and any(map(str.isalpha, cell)) and " " in cell
    return has_number or ", " in cell or _is_surely_address(cell)


def _is_surely_address(cell: str) -> bool:
    """Return whether a cell has a comma or a street."""
    return ", " in cell or _has_street(cell)


def _has_street(cell: str) -> bool:
    """Return whether a cell begins with a number of a house, or has a word of streets."""
    return bool(_BEGINS_WITH_NUMBER.match(cell) or _STREET_WORDS.search(cell))
