"""The query of a target: which stores, page, moment, changes (decisions 18, 19, 37 to 40, 51),
what an import or an export shall do.

Each function reads the parameters that its route has and ignores all others.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, get_args
from urllib.parse import quote_from_bytes, unquote_to_bytes

from storekeeper.domain import search
from storekeeper.domain.changes import NOW, ChangesQuery, Cursor, parse_cursor
from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.intake import Import, OnConflict
from storekeeper.domain.stores import MAX_EXTERNAL_LENGTH, MAX_INTEGER, MAX_NAME_LENGTH
from storekeeper.sheets import TYPES, BadFile
from storekeeper.sheets.columns import check_match, parse_maps
from storekeeper.sheets.encodings import check_encoding
from storekeeper.sheets.export import Export
from storekeeper.storage.collection import Moment, Query

Parameters: TypeAlias = dict[str, tuple[Callable[[bytes], Any], str]]
"""How the value of each parameter is read, if it is wrong with None, ValueError or BadFile; and
what it must be."""

MAX_LIMIT = 1000
"""Stores of one page (decision 38), or changes."""

_NO_NAME = "?" * (MAX_NAME_LENGTH + 1)
"""Longer than any name: what bytes that are not UTF-8 ask for equals none (decision 19)."""

_NUMBER = re.compile(rb"[0-9]{1,19}")
_TIME = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?Z"
)
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_URI = "!$%&'()*+,-./:;=?@_~[]"
"""What a URI may have beside letters and digits: targets have more (decision 48), which would
end or break a link."""


def parse_list_query(query: bytes) -> Query:
    """Return which stores a list shall have; raises InvalidInput with every violation."""
    if not query:
        return _ALL
    if query.startswith(b"name=") and b"&" not in query:  # as below, and most queries are like this
        name = query[5:].replace(b"+", b" ").replace(b"%20", b" ")
        return Query(_parse_name(unquote_to_bytes(name) if b"%" in name else name) or None)
    found = _read(query, _OF_LISTS)
    if "q" in found:
        found["search"] = found.pop("q")._replace(follows="after" in found)
        found.setdefault("limit", search.DEFAULT_LIMIT)
    return Query(**found)


def parse_store_query(query: bytes) -> Moment | None:
    """Return the moment at which a store shall be read, None for now; raises InvalidInput."""
    return _read(query, _OF_STORES).get("at")


def parse_export_query(query: bytes) -> Export:
    """Return which stores an export shall have, and how; raises InvalidInput with every
    violation."""
    found = _read(query, _OF_EXPORTS)
    names = {"q": "search", "with": "key_column"}
    return Export(**{names.get(name, name): value for name, value in found.items()})


def parse_changes_query(query: bytes) -> ChangesQuery:
    """Return which changes are asked for; raises InvalidInput with every violation.

    In order `desc`, those before now are all of them.
    """
    found = _read(query, _OF_CHANGES)
    newest_first = found.pop("order", "asc") == "desc"
    return ChangesQuery(
        newest_first=newest_first, **{"after": NOW if newest_first else Cursor()} | found
    )


def parse_import_query(query: bytes) -> Import:
    """Return how to import; raises InvalidInput with every violation."""
    return Import(
        **{name.replace("-", "_"): value for name, value in _read(query, _OF_IMPORTS).items()}
    )


def next_page(query: bytes, last: int) -> bytes:
    """Return the query of the page behind the store `last`: all parameters as they were sent,
    but `after`."""
    after = b"after=%d" % last
    fields = query.split(b"&") if query else []
    fields = [
        after if unquote_to_bytes(field.partition(b"=")[0]) == b"after" else field
        for field in fields
    ]
    if after not in fields:
        fields.append(after)
    return quote_from_bytes(b"&".join(fields), _URI).encode()


def _read(query: bytes, parameters: Parameters) -> dict[str, Any]:
    """Return the values of those parameters that are in a query and not empty; raises
    InvalidInput."""
    sent: dict[bytes, list[bytes]] = {}
    for field in query.replace(b"+", b" ").split(b"&"):
        key, _, value = field.partition(b"=")
        sent.setdefault(unquote_to_bytes(key), []).append(unquote_to_bytes(value))
    found: dict[str, Any] = {}
    violations: dict[str, str] = {}
    for name, (parse, rule) in parameters.items():
        values = sent.get(name.encode())
        if values is None or (values == [b""] and parse is not _parse_flag):
            continue
        if name == "map":  # the only one that may be repeated
            values = [b"\0".join(values)]
        try:
            parsed = parse(values[0]) if len(values) == 1 else None
        except (ValueError, BadFile):  # not UTF-8, for one
            parsed = None
        if parsed is None:
            violations[name] = f'"{name}" must be {rule}'
        else:
            found[name] = parsed
    for name, other in _EXCLUSIVE:
        if name in found and other in found:
            violations[name] = f'"{name}" must not be used together with "{other}"'
    if violations:
        raise InvalidInput("query", violations)
    return found


def _parse_name(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _NO_NAME


def _parse_search(value: bytes) -> search.Search | None:
    try:
        return search.parse(value.decode())
    except UnicodeDecodeError:
        return search.NOTHING


def _parse_number(value: bytes) -> int | None:
    number = int(value) if _NUMBER.fullmatch(value) else None
    return number if number is not None and number <= MAX_INTEGER else None


def _parse_limit(value: bytes) -> int | None:
    limit = _parse_number(value)
    return limit if limit is not None and 1 <= limit <= MAX_LIMIT else None


def _parse_moment(value: bytes) -> Moment | None:
    """Return the moment that a value of `at` names (decision 40)."""
    cursor = parse_cursor(value)
    if cursor is not None and cursor != NOW:
        return Moment(*cursor)
    time = _TIME.fullmatch(value)
    if time is None:
        return None
    second = datetime.fromisoformat(time[1].decode() + "+00:00")  # perhaps there is no such day
    # No change has a finer time than milliseconds, so what is cut off excludes none.
    milliseconds = (time[2] or b"").ljust(3, b"0")[:3]
    return Moment(time=(second - _1970) // timedelta(milliseconds=1) + int(milliseconds))


def _parse_flag(value: bytes) -> bool | None:
    # Empty means true here: who sends `?dry-run` must not import.
    return {b"": True, b"true": True, b"1": True, b"false": False, b"0": False}.get(value)


def _parse_column(value: bytes) -> str | None:
    column = value.decode()
    return (
        column
        if column.strip() and len(column) <= MAX_EXTERNAL_LENGTH and "\0" not in column
        else None
    )


def _parse_match(value: bytes) -> str | None:
    column = _parse_column(value)
    if column is not None:
        check_match(column)
    return column


def _one_of(*choices: str) -> Callable[[bytes], str | None]:
    return {choice.encode(): choice for choice in choices}.get


_EXCLUSIVE = (("at", "name"), ("at", "q"), ("q", "name"), ("add", "match"))
_ALL = Query()
_OF_STORES: Parameters = {
    "at": (_parse_moment, "a version, a cursor, or a time in UTC that ends in Z")
}
_OF_SEARCHES: Parameters = {
    "q": (_parse_search, f"{search.MAX_WORDS} words and {search.MAX_LENGTH} characters at most"),
    **_OF_STORES,
}
_OF_EXPORTS: Parameters = {
    **_OF_SEARCHES,
    "with": (_parse_column, f"the name of a column, of {MAX_EXTERNAL_LENGTH} characters at most"),
    "format": (_one_of(*TYPES), f"one of {', '.join(TYPES)}"),
}
_OF_LISTS: Parameters = {
    "name": (_parse_name, "a string"),
    "limit": (_parse_limit, f"an integer from 1 to {MAX_LIMIT}"),
    "after": (_parse_number, "the id of a store"),
    **_OF_SEARCHES,
}
_OF_CHANGES: Parameters = {
    "after": (parse_cursor, "a cursor, the number of a change, or now"),
    "limit": (_parse_limit, f"an integer from 1 to {MAX_LIMIT}"),
    "store": (_parse_number, "the id of a store"),
    "order": (_one_of("asc", "desc"), "asc or desc"),
}
_FLAG = (_parse_flag, "true or false")
_OF_IMPORTS: Parameters = {
    "match": (_parse_match, "id, name, or the name of a column, but for address and version"),
    "add": _FLAG,
    "map": (
        lambda value: parse_maps(value.decode().split("\0")),
        "for each of id, name, address and version one column or template, as in name=Store Name",
    ),
    "encoding": (
        lambda value: check_encoding(value.decode()),
        "the name of an encoding, such as cp1252",
    ),
    "header": (lambda value: False if value == b"none" else None, "none, or absent"),
    "on-conflict": (_one_of(*get_args(OnConflict)), "refuse, skip or overwrite"),
    "dry-run": _FLAG,
    "skip-bad": _FLAG,
    "cut-names": _FLAG,
}
