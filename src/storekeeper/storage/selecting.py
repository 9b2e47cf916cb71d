"""Finds the stores that a list selects, in steps that both databases carry out (decision 57).

Each step asks statements, whose rows both databases return in one transaction. A list is sorted
as its stores were at the moment of its first page. By id that is a scan of the table. By the
latest change it follows the changes. By name it is a scan of the index of folded names, without
the stores that have changed since; these are read from the changes, and put where they were.
"""

import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from storekeeper.domain.changes import Cursor
from storekeeper.domain.errors import EpochEnded, InvalidInput
from storekeeper.domain.queries import Query, State
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.domain.search import BLANKS, MAX_SEARCHED_LENGTH, MAX_WORDS, fold
from storekeeper.domain.selection import (
    MAX_CANDIDATES,
    MAX_CHANGES_MEANWHILE,
    SORTS,
    Place,
    Selection,
    duplicates,
)
from storekeeper.domain.stores import MAX_INTEGER, MAX_NAME_LENGTH, NO_NAME
from storekeeper.storage.collection import Rows

TOO_LONG = "The list takes too long: narrow it"

MAX_RECENT = 20_000
"""Changes after a cursor up to which a list reads them, and not all stores."""

MAX_CHANGES_EACH = 10
"""Changes for each store, on average, up to which a list by the latest change follows them."""

MAX_BLANK_BYTES = 1000
"""Bytes of an address up to which it is read to see whether it is blank."""

_LAST_NAME = "\U0010ffff" * (18 * MAX_NAME_LENGTH + 1)
"""Longer than any name, and after the folded text of any name."""

_PARAMETER = re.compile(r":([a-z][a-z0-9_]*)")


class Dialect(NamedTuple):
    """What a database calls things: the function that finds a text in another one, the stores as
    they are scanned without an index, and a list of ids as rows."""

    position: str
    scan: str
    picked: str


class Statement(NamedTuple):
    """A statement and the names of its parameters, in the order in which they first occur."""

    text: str
    names: Sequence[str]

    def values(self, named: Mapping[str, Any]) -> Sequence[str | int]:
        """Return the parameters."""
        return [named[name] for name in self.names]


Ask = tuple[str, Mapping[str, Any]]
"""The name of a statement, and all that its parameters may be."""

Steps = Generator[Sequence[Ask], Sequence[Sequence[Sequence[Any]]], "Selected"]


class Selected(NamedTuple):
    """The ids of a page in its order, and the place after which the next one begins, None for
    the last page."""

    ids: Sequence[int]
    last: Place | None


class Twins:
    """The ids of possible duplicates at the version that was asked last."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._ids: Sequence[int] = ()

    def find(self, state: State) -> Generator[Sequence[Ask], Sequence[Rows], Sequence[int]]:
        """Return them at this state."""
        if self._state != state:
            (found,) = yield [("named alike", {})]
            named_alike = list(found)
            counted = Counter(folded for _, folded in named_alike)
            ids = [id for id, folded in named_alike if counted[folded] > 1]
            (candidates,) = yield [("candidates", {"ids": ids})]
            self._ids = duplicates(list(candidates))
            self._state = state
        return self._ids


def statements(dialect: Dialect) -> dict[str, Statement]:
    """Return all statements by name, in the words of a database."""
    found = {
        f"{sort} {order} {source}": _numbered(_sorted(sort, order, source, dialect))
        for sort, order, source in product(SORTS, ("ASC", "DESC"), _sources(dialect))
    }
    for order in ("ASC", "DESC"):
        found[f"follow {order}"] = _numbered(_followed(order))
    found["moved"] = _numbered(_moved(dialect))
    found["was"] = _numbered(_WAS)
    found["named alike"] = _numbered(_NAMED_ALIKE)
    found["candidates"] = _numbered(_candidates(dialect))
    return found


def select(query: Query, state: State, twins: Twins) -> Steps:
    """Find the page that a query with a selection asks for. Raises EpochEnded, InvalidInput."""
    selection, limit = query.selection, query.limit
    assert selection is not None
    assert limit is not None
    changed_after = -1
    if selection.changed_after is not None:
        changed_after = selection.changed_after.number(state.version, state.epoch)
    ids = (yield from twins.find(state)) if selection.duplicates else None
    first_seq = state.version
    if selection.place is not None:
        first_seq = selection.place.cursor.number(state.version, state.epoch)
    named = {
        "limit": limit + 1,
        "seq": first_seq,
        "changed_after": changed_after,
        "no_address": int(selection.no_address),
        "ids": ids,
        **_place_before_all(selection),
        **_filters(query),
    }
    if selection.place is not None:
        named |= yield from _place_of(selection, named)
    (found,) = yield [(_statement(query, selection, state), named)]
    if selection.sort == "name":
        found = yield from _with_moved(found, selection, named, state)
    page = [row[0] for row in found[:limit]]
    is_last = len(found) <= limit
    return Selected(page, None if is_last else Place(page[-1], Cursor(first_seq, state.epoch)))


def _place_before_all(selection: Selection) -> dict[str, str | int]:
    """Return the place before the first store."""
    if selection.is_descending:
        return {"place_name": _LAST_NAME, "place": MAX_INTEGER}
    return {"place_name": "", "place": 0}


def _place_of(
    selection: Selection, named: Mapping[str, Any]
) -> Generator[Sequence[Ask], Sequence[Rows], dict[str, str | int]]:
    """Return the place that the store of a place had. Raises InvalidInput if it had none."""
    assert selection.place is not None
    id = selection.place.id
    if selection.sort == "id":
        return {"place": id}
    (found,) = yield [("was", {**named, "place": id})]
    was = next(iter(found), None)
    if was is None:
        violation = Violation(Reason.MALFORMED, "must be a store that the list had then")
        raise InvalidInput("query", {"after": violation})
    name, seq = was
    if selection.sort == "changed":
        return {"place": seq}
    return {"place": id, "place_name": fold(name)}


def _with_moved(
    found: Sequence[Sequence[Any]], selection: Selection, named: Mapping[str, Any], state: State
) -> Generator[Sequence[Ask], Sequence[Rows], Sequence[Sequence[Any]]]:
    """Return stores that were found by name, each with its folded name, with those that have
    changed since, in the earlier order. Raises EpochEnded."""
    changes = state.version - named["seq"]
    if not changes:
        return found
    if changes > MAX_CHANGES_MEANWHILE:
        raise EpochEnded(
            f"More than {MAX_CHANGES_MEANWHILE} changes came since the first page: read the list"
            " again",
            f"{state.version}.{state.epoch}",
        )
    (moved,) = yield [("moved", named)]
    among = None if named["ids"] is None else set(named["ids"])
    begin = named["place_name"], named["place"]
    following: list[Sequence[Any]] = []
    for id, name in moved:
        place = fold(name), id
        follows = place < begin if selection.is_descending else place > begin
        if follows and (among is None or id in among):
            following.append((id, place[0]))
    following += found
    following.sort(key=lambda row: (row[1], row[0]), reverse=selection.is_descending)
    return following


def _statement(query: Query, selection: Selection, state: State) -> str:
    """Return the name of the statement that finds a page."""
    order = "DESC" if selection.is_descending else "ASC"
    has_all = query.search is None and query.name is None
    has_all = has_all and not (selection.no_address or selection.duplicates)
    is_short = state.version <= MAX_CHANGES_EACH * state.total
    if has_all and selection.sort == "changed" and is_short:
        return f"follow {order}"
    return f"{selection.sort} {order} {_source(query, selection, state)}"


def _source(query: Query, selection: Selection, state: State) -> str:
    """Return where a statement finds the stores that it filters."""
    if selection.duplicates:
        return "picked"
    after = selection.changed_after
    if after is not None and state.version - after.number(*state[1:]) <= MAX_RECENT:
        return "recent"
    return "filtered" if query.has_filter else "all"


def _filters(query: Query) -> dict[str, str | int]:
    """Return the parameters of a name and a search; empty ones let every store through."""
    named: dict[str, str | int] = {f"word{place}": "" for place in range(MAX_WORDS)}
    named |= {"text": "", "number": 0, "name": query.name or ""}
    if query.search is not None:
        named |= {f"word{place}": word for place, word in enumerate(query.search.words)}
        named |= {"text": query.search.text, "number": query.search.id}
    if query.name is not None and "\0" in query.name:
        named["name"] = NO_NAME  # libpq takes no U+0000, and no name has one
    return named


def _numbered(text: str) -> Statement:
    """Return a statement whose named parameters are numbers, in the order of their first use."""
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    return Statement(
        _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text), tuple(names)
    )


def _sources(dialect: Dialect) -> dict[str, str]:
    return {
        "all": "stores WHERE",
        "filtered": f"{dialect.scan} WHERE",
        "recent": f"{_RECENT} CROSS JOIN stores WHERE id = recent.store_id AND",
        "picked": f"{dialect.picked} CROSS JOIN stores WHERE id = pick_id AND",
    }


def _sorted(sort: str, order: str, source: str, dialect: Dialect) -> str:
    stores, where = _sources(dialect)[source], _where(dialect)
    after = ">" if order == "ASC" else "<"
    if sort == "id":
        return f"""SELECT id FROM {stores} id {after} CAST(:place AS bigint) AND {where}
          ORDER BY id {order} {_LIMIT}"""  # noqa: S608 - constants
    if sort == "name":
        return f"""SELECT id, folded_name FROM {stores} {where} AND version <= CAST(:seq AS bigint)
            AND (folded_name, id) {after} (CAST(:place_name AS text), CAST(:place AS bigint))
          ORDER BY folded_name {order}, id {order} {_LIMIT}"""  # noqa: S608 - constants
    return f"""SELECT id FROM (
        SELECT id, CASE WHEN version <= CAST(:seq AS bigint) THEN version ELSE (
          SELECT max(seq) FROM changes WHERE store_id = stores.id AND seq <= CAST(:seq AS bigint)
        ) END AS place FROM {stores} {where}) AS dated
      WHERE place {after} CAST(:place AS bigint) ORDER BY place {order} {_LIMIT}"""  # noqa: S608 - constants


def _followed(order: str) -> str:
    after = ">" if order == "ASC" else "<"
    return f"""SELECT store_id FROM changes AS latest
      WHERE seq <= CAST(:seq AS bigint) AND seq {after} CAST(:place AS bigint)
        AND seq > CAST(:changed_after AS bigint)
        AND seq = (SELECT max(later.seq) FROM changes AS later
          WHERE later.store_id = latest.store_id AND later.seq <= CAST(:seq AS bigint))
      ORDER BY seq {order} {_LIMIT}"""  # noqa: S608 - constants


def _moved(dialect: Dialect) -> str:
    return f"""SELECT id, earlier FROM (SELECT id, (
          SELECT was.name FROM changes AS was
          WHERE was.store_id = stores.id AND was.seq <= CAST(:seq AS bigint)
          ORDER BY was.seq DESC LIMIT 1) AS earlier
        FROM (SELECT DISTINCT store_id FROM changes WHERE seq > CAST(:seq AS bigint)) AS recent
          CROSS JOIN stores WHERE id = recent.store_id AND {_where(dialect)}) AS moved
      WHERE earlier IS NOT NULL"""  # noqa: S608 - constants


def _candidates(dialect: Dialect) -> str:
    return f"""SELECT id, name, substr(address, 1, {MAX_SEARCHED_LENGTH})
      FROM {_sources(dialect)["picked"]} true"""  # noqa: S608 - constants


@cache
def _where(dialect: Dialect) -> str:
    """Return the condition of all filters; a parameter that is empty turns its filter off."""
    # CASE looks for a word only in texts that have the words before it.
    lacking = " ".join(
        f"WHEN {dialect.position}(folded, CAST(:word{place} AS text)) = 0 THEN false"
        for place in range(MAX_WORDS)
    )
    return f"""version > CAST(:changed_after AS bigint)
      AND (CAST(:no_address AS bigint) = 0 OR {_BLANK})
      AND (CAST(:name AS text) = '' OR name = CAST(:name AS text))
      AND (CAST(:word0 AS text) = '' OR id = CAST(:number AS bigint)
        OR id IN (SELECT store_id FROM external_ids WHERE value = CAST(:text AS text))
        OR CASE {lacking} ELSE true END)"""  # noqa: S608 - constants


_LIMIT = "LIMIT CAST(:limit AS bigint)"
# The length is known without reading the address. Most addresses begin with a printable character
# of ASCII: to trim those would take three times as long.
_BLANK = f"""CASE WHEN address IS NULL THEN true
    WHEN octet_length(address) > {MAX_BLANK_BYTES} THEN false
    WHEN address BETWEEN '!' AND '~' THEN false
    ELSE ltrim(address, '{BLANKS}') = '' END"""
_RECENT = """(SELECT DISTINCT store_id FROM changes
  WHERE seq > CAST(:changed_after AS bigint)) AS recent"""
_WAS = """SELECT name, seq FROM changes
  WHERE store_id = CAST(:place AS bigint) AND seq <= CAST(:seq AS bigint)
  ORDER BY seq DESC LIMIT 1"""
# What is equal but for case and blanks has equal folded texts; only such stores are compared.
_NAMED_ALIKE = f"""SELECT id, folded FROM (
    SELECT folded_name AS twice FROM stores GROUP BY folded_name HAVING count(*) > 1) AS repeated
  CROSS JOIN stores WHERE folded_name = twice ORDER BY id LIMIT {MAX_CANDIDATES}"""  # noqa: S608 - constants
