"""Domain: which stores a list selects, and in which order (decision 57)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from storekeeper.domain.changes import NOW, Cursor, parse_cursor
from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.parameters import Parameter, parse_flag
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.domain.search import MAX_SEARCHED_LENGTH, like_text
from storekeeper.domain.stores import MAX_INTEGER

MAX_CHANGES_MEANWHILE = 20_000
"""Changes that may come between the first page of a list sorted by name and a later one. After
more, the list must be read again."""

MAX_CANDIDATES = 100_000
"""Stores that are compared in full to find possible duplicates, those of the smallest ids."""

SORTS = ("id", "name", "changed")

_PLACE = re.compile(rb"([0-9]{1,19})(?:@(.*))?")


class Place(NamedTuple):
    """The place of a store in a sorted list at a moment. Without an epoch, it is of the current
    one; without a number, it is now."""

    id: int
    cursor: Cursor

    def __str__(self) -> str:
        return f"{self.id}@{self.cursor}"


class Selection(NamedTuple):
    """What a list selects: stores that changed after a cursor, have no address, or may be
    duplicates; all of them, in the order of `sort`, after a place.

    The order is that of the moment of the place, which is the moment of the first page: a store
    that changes while a client reads the pages stays in the place that it had.
    """

    sort: str = "id"
    is_descending: bool = False
    changed_after: Cursor | None = None
    no_address: bool = False
    duplicates: bool = False
    place: Place | None = None

    @property
    def has_filter(self) -> bool:
        """Whether it may leave out stores."""
        return self.changed_after is not None or self.no_address or self.duplicates


class StoreKeys(NamedTuple):
    """The keys that outside systems have for stores, by id and column: id, column and value of
    each. `version` and `epoch` are the collection's, of the same moment."""

    rows: Sequence[Sequence[Any]]
    version: int
    epoch: str


def parse_sort(value: bytes) -> tuple[str, bool] | None:
    """Return by what to sort and whether in descending order, None for another word."""
    sort = value.removeprefix(b"-").decode()
    return (sort, value.startswith(b"-")) if sort in SORTS else None


def parse_after(value: bytes) -> Place | int | None:
    """Return the place or the id that a text names, None if it names none."""
    found = _PLACE.fullmatch(value)
    if found is None or int(found[1]) > MAX_INTEGER:
        return None
    if found[2] is None:
        return int(found[1])
    cursor = parse_cursor(found[2])
    return None if cursor is None else Place(int(found[1]), cursor)


AFTER = Parameter(parse_after, "the id of a store, or its place ID@CURSOR as a link has it")
"""Where a page of a selection begins."""

_FILTER = Parameter(parse_flag, "true or false")

PARAMETERS: Mapping[str, Parameter] = {
    "sort": Parameter(parse_sort, "id, name or changed, with - in front for descending"),
    "changed-after": Parameter(parse_cursor, "a cursor, the number of a change, or now"),
    "no-address": _FILTER,
    "duplicates": _FILTER,
}
"""What makes a selection, by name."""


def pop_selection(found: dict[str, Any]) -> Selection | None:
    """Take these parameters out of those that were found; return what they select, None if that
    is the list as it is without them. Raises InvalidInput."""
    sort, is_descending = found.pop("sort", ("id", False))
    selection = Selection(
        sort,
        is_descending,
        found.pop("changed-after", None),
        found.pop("no-address", False),
        found.pop("duplicates", False),
    )
    if selection == Selection():
        if isinstance(found.get("after"), Place):
            violation = Violation(Reason.MALFORMED, "must be the id of a store")
            raise InvalidInput("query", {"after": violation})
        return None
    if "at" in found:
        sentence = '"at" must not be used together with a filter, or another "sort" than id'
        raise InvalidInput("query", {"at": Violation(Reason.EXCLUSIVE, sentence=sentence)})
    after = found.pop("after", None)
    if isinstance(after, int):
        after = Place(after, NOW)
    return selection._replace(place=after)


def duplicates(stores: Iterable[tuple[int, str, str | None]]) -> list[int]:
    """Return the ids of those stores, each with name and address, that another one is like."""
    by_text: dict[bytes, list[int]] = {}
    for id, name, address in stores:
        text = like_text(name, (address or "")[:MAX_SEARCHED_LENGTH])
        by_text.setdefault(text, []).append(id)
    return sorted(id for ids in by_text.values() if len(ids) > 1 for id in ids)
