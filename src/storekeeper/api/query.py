"""The query of a target: which stores, page, moment and changes it asks for, and how to import and
export (decisions 18, 19, 37 to 40, 51).

Each function reads the parameters of its route, and ignores all others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, get_args
from urllib.parse import quote_from_bytes, unquote_to_bytes

from storekeeper.domain import search, selection
from storekeeper.domain.changes import NOW, ChangesQuery, Cursor, parse_cursor
from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.intake import Import, OnConflict
from storekeeper.domain.parameters import FLAG, Parameter, one_of, parse_ids, read
from storekeeper.domain.queries import AT, Moment, Query
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.domain.stores import MAX_EXTERNAL_LENGTH, MAX_INTEGER, NO_NAME
from storekeeper.domain.undo import Undo
from storekeeper.sheets import BadFile
from storekeeper.sheets.columns import check_match, parse_column, parse_maps
from storekeeper.sheets.delimiters import check_delimiter
from storekeeper.sheets.encodings import check_encoding
from storekeeper.sheets.export import PARAMETERS, Export, options_of

MAX_LIMIT = 1000
"""Stores of one page (decision 38), or changes."""

_NUMBER = re.compile(rb"[0-9]{1,19}")
_URI = "!$%&'()*+,-./:;=?@_~[]"
"""What a URI may have in addition to letters and digits. Targets have more (decision 48), which
would end or break a link."""


def parse_list_query(query: bytes) -> Query:
    """Return which stores a list has; raise InvalidInput with every violation."""
    if not query:
        return _ALL
    if query.startswith(b"name=") and b"&" not in query:  # as below, but most queries are like this
        name = query[5:].replace(b"+", b" ").replace(b"%20", b" ")
        if b"%" in name:
            name = unquote_to_bytes(name)
        return Query(_parse_name(name) or None)
    sent = _sent(query, _OF_LISTS)
    selects = not sent.keys().isdisjoint(selection.PARAMETERS)
    found = read(sent, _OF_SELECTIONS if selects else _OF_LISTS)
    if selects and (selected := selection.pop_selection(found)):
        found["selection"] = selected
    if "q" in found:
        found["search"] = found.pop("q")._replace(follows="after" in found)
        found.setdefault("limit", search.DEFAULT_LIMIT)
    if "selection" in found:
        found.setdefault("limit", MAX_LIMIT)
    return Query(**found)


def parse_store_query(query: bytes) -> Moment | None:
    """Return the moment at which to read a store, None for now; raise InvalidInput."""
    return _read(query, _OF_STORES).get("at")


def parse_export_query(query: bytes) -> Export:
    """Return which stores an export has, and how; raise InvalidInput with every violation."""
    return options_of(_sent(query, PARAMETERS))


def parse_changes_query(query: bytes) -> ChangesQuery:
    """Return which changes a request asks for; raise InvalidInput with every violation.

    Without `after`, it asks for all: in order `desc`, for those before now.
    """
    found = _read(query, _OF_CHANGES)
    newest_first = found.pop("order", "asc") == "desc"
    found.setdefault("after", NOW if newest_first else Cursor())
    return ChangesQuery(newest_first=newest_first, **found)


def parse_import_query(query: bytes) -> Import:
    """Return how to import; raise InvalidInput with every violation."""
    found = _read(query, _OF_IMPORTS)
    found.pop("look", None)
    _check_keys(found)
    if header := found.pop("header", None):
        found["header-row"] = header
    return Import(**{name.replace("-", "_"): value for name, value in found.items()})


def _check_keys(found: Mapping[str, Any]) -> None:
    """Raise InvalidInput for what can only be done with another `match`."""
    match = found.get("match", "").strip().casefold()
    by_key = match not in ("", "id", "name")
    if found.get("adopt") and not by_key:
        sentence = '"adopt" needs match=COLUMN: stores get the keys of that column'
        raise InvalidInput("query", {"adopt": Violation(Reason.EXCLUSIVE, sentence=sentence)})
    if "attach" in found and match != "id":
        sentence = '"attach" needs match=id: the stores of these ids get the keys of that column'
        raise InvalidInput("query", {"attach": Violation(Reason.EXCLUSIVE, sentence=sentence)})


def parse_undo_query(query: bytes) -> Undo:
    """Return which import to undo; raise InvalidInput with every violation."""
    found = _read(query, _OF_UNDO)
    missing = [name for name in ("from", "to") if name not in found]
    if missing:
        violation = Violation(Reason.REQUIRED, "is required")
        raise InvalidInput("query", dict.fromkeys(missing, violation))
    return Undo(found["from"], found["to"], found.get("dry-run", False))


def wants_look(query: bytes) -> bool:
    """Return whether the query of an import asks only what its file is."""
    return bool(_read(query, {"look": FLAG}).get("look"))


def parse_keys_query(query: bytes) -> Sequence[int]:
    """Return the ids of the stores whose outside keys a request asks for; raise InvalidInput."""
    ids: Sequence[int] = _read(query, _OF_KEYS).get("ids", ())
    return ids


def next_page(query: bytes, last: int | selection.Place) -> bytes:
    """Return the query of the page after the store `last`: all parameters as they were sent, except
    for `after`."""
    after = f"after={last}".encode()
    fields = query.split(b"&") if query else []
    for place, field in enumerate(fields):
        if unquote_to_bytes(field.partition(b"=")[0]) == b"after":
            fields[place] = after
    if after not in fields:
        fields.append(after)
    return quote_from_bytes(b"&".join(fields), _URI).encode()


def _read(query: bytes, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the values of those parameters that are in a query; raise InvalidInput with every
    violation."""
    return read(_sent(query, parameters), parameters)


def _sent(query: bytes, parameters: Mapping[str, Parameter]) -> dict[str, list[bytes]]:
    """Return the values of each of these parameters in a query."""
    names = {name.encode(): name for name in parameters}
    sent: dict[str, list[bytes]] = {}
    for field in query.replace(b"+", b" ").split(b"&"):
        key, _, value = field.partition(b"=")
        name = names.get(unquote_to_bytes(key))
        if name is not None:
            sent.setdefault(name, []).append(unquote_to_bytes(value))
    return sent


def _parse_name(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return NO_NAME  # no store has a name that is not UTF-8 (decision 19)


def _parse_past_cursor(value: bytes) -> Cursor | None:
    """Return the cursor that a text names, None for another text and for now."""
    found = parse_cursor(value)
    return None if found == NOW else found


def _parse_number(value: bytes) -> int | None:
    if _NUMBER.fullmatch(value) and int(value) <= MAX_INTEGER:
        return int(value)
    return None


def _parse_limit(value: bytes) -> int | None:
    limit = _parse_number(value)
    if limit is None or not 1 <= limit <= MAX_LIMIT:
        return None
    return limit


def _parse_match(value: bytes) -> str | None:
    column = parse_column(value)
    if column is not None:
        with _as_wrong_value():
            check_match(column)
    return column


def _parse_maps(values: Sequence[bytes]) -> dict[str, str]:
    with _as_wrong_value():
        return parse_maps([value.decode() for value in values])


def _parse_encoding(value: bytes) -> str:
    with _as_wrong_value():
        return check_encoding(value.decode())


def _parse_header(value: bytes) -> str | None:
    return "none" if value == b"none" else None


def _parse_header_row(value: bytes) -> int | str | None:
    if value == b"none":
        return "none"
    return _parse_number(value) or None


def _parse_delimiter(value: bytes) -> str:
    with _as_wrong_value():
        return check_delimiter(value.decode())


def _parse_sheet(value: bytes) -> str | None:
    sheet = value.decode()
    return sheet if len(sheet) <= MAX_EXTERNAL_LENGTH else None


@contextmanager
def _as_wrong_value() -> Iterator[None]:
    try:
        yield
    except BadFile as error:
        raise ValueError from error


_ALL = Query()
_LIMIT = Parameter(_parse_limit, f"an integer from 1 to {MAX_LIMIT}")
_STORE = Parameter(_parse_number, "the id of a store")

_OF_STORES = {"at": AT}
_OF_LISTS = {
    "name": Parameter(_parse_name, "a string"),
    "limit": _LIMIT,
    "after": _STORE,
    "q": search.PARAMETER,
    "at": AT,
    **selection.PARAMETERS,
}
_OF_SELECTIONS = _OF_LISTS | {"after": selection.AFTER}
_OF_KEYS = {
    "ids": Parameter(parse_ids(MAX_LIMIT), f"ids with commas between them, {MAX_LIMIT} at most")
}
_OF_CHANGES = {
    "after": Parameter(parse_cursor, "a cursor, the number of a change, or now"),
    "limit": _LIMIT,
    "store": _STORE,
    "order": Parameter(one_of("asc", "desc"), "asc or desc"),
}
_REPORTED = Parameter(
    _parse_past_cursor, "the cursor of a change, as the report of an import has it"
)
_OF_UNDO = {
    "from": _REPORTED,
    "to": _REPORTED,
    "dry-run": FLAG,
}
_OF_IMPORTS = {
    "match": Parameter(
        _parse_match, "id, name, or the name of a column, but for address and version"
    ),
    "add": FLAG._replace(excludes=("match",)),
    "map": Parameter(
        _parse_maps,
        "for each of id, name, address and version one column or template, as in name=Store Name",
        is_repeatable=True,
    ),
    "encoding": Parameter(_parse_encoding, "the name of an encoding, such as cp1252"),
    "delimiter": Parameter(_parse_delimiter, "one of , ; | and tab"),
    "sheet": Parameter(
        _parse_sheet, f"the name of a sheet, of {MAX_EXTERNAL_LENGTH} characters at most"
    ),
    "header": Parameter(_parse_header, "none, or absent"),
    "header-row": Parameter(
        _parse_header_row, "the number of a row, from 1, or none", excludes=("header",)
    ),
    "look": FLAG,
    "adopt": FLAG,
    "attach": Parameter(parse_column, "the name of a column"),
    "on-conflict": Parameter(
        one_of(*get_args(OnConflict)), "refuse, skip, overwrite or ignore-version"
    ),
    "dry-run": FLAG,
    "skip-bad": FLAG,
    "cut-names": FLAG,
}
