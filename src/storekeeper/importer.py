"""Imports rows into a database, all or nothing, in the words that both databases understand. Imports the domain.

The rows are staged, and compared with the stores, before the lock of writers is taken; behind it they are compared
again only if there was a change in between.
"""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, get_type_hints

import msgspec
from msgspec.structs import astuple

from storekeeper.commands import matches, tag
from storekeeper.errors import KeyReused, PreconditionFailed
from storekeeper.imports import (
    MAX_LISTED,
    MAX_SHOWN_LENGTH,
    Decision,
    Found,
    Import,
    ListedChange,
    NeedsMatch,
    Plan,
    Problems,
    Refused,
    Report,
    Row,
    shown,
)
from storekeeper.search import MAX_SEARCHED_LENGTH, folded
from storekeeper.stores import Payload
from storekeeper.tables import CHANGES, CONTENT, EXTERNAL_IDS, FIELDS

STAGED, DECIDED = (
    {name: int if kind is int else str for name, kind in get_type_hints(columns).items()}
    for columns in (Row, Decision)
)
"""The columns of two temporary tables: the rows of a file, and what becomes of them."""

LOCK_TIMEOUT = 60.0
"""Seconds that an import waits for other writers, unless its caller says otherwise."""

CHUNK = 10_000
"""Rows that are compared with the stores at once, so that memory does not grow with the file."""


class Numbers(NamedTuple):
    """The numbers of a collection; `at` is the time of its latest change."""

    total: int
    version: int
    epoch: str
    at: int


class Source(Protocol):
    """The rows of a file; iterating them may be slow, and raises what is wrong with the file as a whole."""

    @property
    def problems(self) -> Problems:
        """The problems of single rows; complete after the iteration."""

    @property
    def repeated(self) -> Container[str]:
        """The keys that occur more than once; complete after the iteration."""

    def __iter__(self) -> Iterator[Row]:
        """Return an iterator of the rows."""


class Session(Protocol):
    """A connection to a database, for one import."""

    changes_table: str

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
        """Execute a statement with parameters `$1`, `$2`; return its rows."""

    def create(self, table: str, columns: Mapping[str, type]) -> None:
        """Create a temporary table whose key is its first column."""

    def fill(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows to a temporary table."""

    def reading(self) -> AbstractContextManager[None]:
        """Read the collection as of one moment, if the database can."""

    def writing(self, committing: Callable[[], None]) -> AbstractContextManager[Numbers]:
        """Begin to write: take the lock of writers. At the end, call `committing`, and commit."""

    def numbers(self) -> Numbers:
        """Return the numbers of the collection."""

    def write(self, rows: int, statement: str, values: tuple[Any, ...]) -> None:
        """Execute a statement that has to write so many rows."""

    def adding(self, rows: int, numbers: Numbers) -> AbstractContextManager[None]:
        """Prepare to add so many stores."""

    def set_numbers(self, numbers: Numbers) -> None:
        """Set the numbers of the collection."""


class Imported(NamedTuple):
    """What an import led to; without a plan, this is a replay of an earlier import."""

    report: Report
    ids: range
    before: str
    plan: Plan | None = None


class _Remembered(msgspec.Struct):
    """What the table `keys` has of an import."""

    report: Report
    before: str
    first: int


def carry_out(
    session: Session,
    source: Source,
    order: Import,
    *,
    approve: Callable[[Plan], None] = lambda _: None,
    committing: Callable[[], None] = lambda: None,
) -> Imported:
    """Import the rows of a source, all or none; return what was done.

    `approve` is called before the lock is taken, and again if the plan had to be made anew behind it; it may raise.
    Raises Refused, NeedsMatch, PreconditionFailed, KeyReused, and what the source and the database raise.
    """
    if replay := _replay(session, order):
        return replay
    _require_match(order, session.numbers())
    session.create("staged", STAGED)
    session.fill("staged", source)
    with session.reading():
        plan = _make_plan(session, source, order, session.numbers())
    if order.dry_run:
        return _imported(plan)
    _check(plan, approve)
    with session.writing(committing) as numbers:
        if replay := _replay(session, order):
            return replay
        if (numbers.version, numbers.epoch) != (plan.version, plan.epoch):
            plan = _make_plan(session, source, order, numbers)
            _check(plan, approve)
        _write(session, plan, numbers)
        return _imported(plan)


def load(
    session: Session, payloads: Iterable[Payload], *, only_if_empty: bool = False, token_number: int = 0
) -> range:
    """Create all of `payloads` in their order, or none; return their ids. Reads them once, and keeps none.

    The changes carry `token_number`. With `only_if_empty`, a collection that has stores is left as it is, and the
    result is range(0).
    """
    order = Import(add=not only_if_empty, token_number=token_number)
    try:
        return carry_out(session, _Payloads(payloads), order).ids
    except NeedsMatch:
        return range(0)


class _Payloads:
    """Payloads as the rows of a file."""

    def __init__(self, payloads: Iterable[Payload]) -> None:
        self._payloads = payloads
        self.problems = Problems()
        self.repeated: Container[str] = ()

    def __iter__(self) -> Iterator[Row]:
        for place, (name, address) in enumerate(map(astuple, self._payloads), 1):
            yield Row(place, place, None, None, 0, 1, name, folded(name, address), address)


def _require_match(order: Import, numbers: Numbers) -> None:
    if numbers.total and not (order.match or order.add):
        raise NeedsMatch("The list has stores")


def _check(plan: Plan, approve: Callable[[Plan], None]) -> None:
    if plan.refuses:
        raise Refused(plan)
    approve(plan)


def _imported(plan: Plan) -> Imported:
    first, before = plan.total + 1, f"{plan.version}.{plan.epoch}"
    return Imported(plan.report, range(first, first + plan.report.created), before, plan)


# The plan.

_FINAL_ADDRESS = "CASE staged.has_address WHEN 1 THEN staged.address ELSE stores.address END"
_FINAL_NAME = "coalesce(staged.name, stores.name)"
_IS_EQUAL = """(staged.name IS NULL OR staged.name = stores.name)
  AND (staged.has_address = 0 OR coalesce(staged.address, '') = coalesce(stores.address, ''))"""
_ALL_NEW = f"""INSERT INTO decided ({", ".join(DECIDED)})
  SELECT place, place, place + $1, 1, place, NULL FROM staged"""
_LIST = f"""SELECT staged.line, decided.id, decided.is_new,
    stores.name, substr(stores.address, 1, {MAX_SHOWN_LENGTH + 1}),
    {_FINAL_NAME}, substr({_FINAL_ADDRESS}, 1, {MAX_SHOWN_LENGTH + 1})
  FROM decided JOIN staged ON staged.place = decided.place LEFT JOIN stores ON stores.id = decided.id
  WHERE decided.n <= {MAX_LISTED} ORDER BY decided.n"""


def _find(match: str | None) -> tuple[str, str]:
    """Return the expression of the store that a staged row means, and of how many stores that could be."""
    if match is None:
        return "CAST(NULL AS bigint)", "1"
    if match == "id":
        return "CAST(staged.key AS bigint)", "1"
    if match == "name":
        same = "FROM stores AS same WHERE same.name = staged.key"
        return f"(SELECT min(same.id) {same})", f"(SELECT count(*) FROM (SELECT 1 {same} LIMIT 2) AS two)"
    return "(SELECT store_id FROM external_ids WHERE value = staged.key AND column_name = CAST($3 AS text))", "1"


def _compare(match: str | None) -> str:
    found, count = _find(match)
    return f"""SELECT staged.place, staged.line, staged.key, staged.version, staged.is_bad,
      CASE WHEN staged.name IS NULL THEN 0 ELSE 1 END, stores.id, stores.version, {_IS_EQUAL}, staged.means,
      CASE WHEN staged.folded IS NULL THEN {_FINAL_NAME} END,
      CASE WHEN staged.folded IS NULL THEN substr({_FINAL_ADDRESS}, 1, {MAX_SEARCHED_LENGTH}) END
    FROM (SELECT staged.*, {found} AS found, {count} AS means FROM staged WHERE place > $1 AND place <= $2) AS staged
      LEFT JOIN stores ON stores.id = staged.found
    ORDER BY staged.place"""


def _make_plan(session: Session, source: Source, order: Import, numbers: Numbers) -> Plan:
    total, version, epoch, _ = numbers
    if order.if_match is not None and not matches(order.if_match, current := tag(version, epoch)):
        raise PreconditionFailed(f"The list has changed: its version is {version} now", current)
    _require_match(order, numbers)
    plan = Plan(order, total, version, epoch, source.problems, source.repeated, folded)
    session.create("decided", DECIDED)
    ((rows,),) = session.execute("SELECT count(*) FROM staged")
    if not (order.match or source.problems.messages):
        session.execute(_ALL_NEW, (total,))
        plan.report.rows = plan.report.created = plan.changes = rows
    else:
        statement = _compare(order.match)
        column = (order.match,) if order.match not in (None, "id", "name") else ()
        for start in range(0, rows, CHUNK):
            found = session.execute(statement, (start, start + CHUNK, *column))
            session.fill("decided", plan.decide(Found(*row) for row in found))
    plan.report.changes = [_listed(*row) for row in session.execute(_LIST)]
    plan.finish()
    return plan


def _listed(
    line: int, id: int, is_new: int, name: str, address: str | None, new: str, new_address: str | None
) -> ListedChange:
    old, now = (
        {"name": name, "address": None if address is None else shown(address)}
        for name, address in ((name, address), (new, new_address))
    )
    return ListedChange(line, id, None if is_new else old, now)


# Writing.

_CHANGED = "FROM decided JOIN staged ON staged.place = decided.place"
_FOLDED = "coalesce(decided.folded, staged.folded)"
_CREATE = f"""INSERT INTO stores (id, version, folded, {FIELDS})
  SELECT decided.id, decided.n + $1, {_FOLDED}, staged.name, staged.address {_CHANGED}
  WHERE decided.is_new = 1 ORDER BY decided.n"""
_REPLACE = f"""UPDATE stores SET name = {_FINAL_NAME}, address = {_FINAL_ADDRESS},
    version = staged.n + $1, folded = staged.folded
  FROM (SELECT decided.id, decided.n, staged.name, staged.has_address, staged.address, {_FOLDED} AS folded
    {_CHANGED} WHERE decided.is_new = 0) AS staged
  WHERE stores.id = staged.id"""
_REMEMBER = f"""INSERT INTO external_ids ({", ".join(EXTERNAL_IDS)})
  SELECT decided.id, CAST($1 AS text), staged.key {_CHANGED} WHERE decided.is_new = 1"""
_FIND_KEY = "SELECT request, result FROM keys WHERE key = $1"
_ADD_KEY = """INSERT INTO keys (n, key, request, seq, at, result)
  SELECT coalesce(max(n), 0) + 1, CAST($1 AS text), $2, $3, $4, CAST($5 AS text) FROM keys"""


def _write(session: Session, plan: Plan, before: Numbers) -> None:
    order, report = plan.order, plan.report
    created, replaced, version = report.created, report.replaced, before.version + plan.changes
    now = time.time_ns() // 1_000_000
    after = Numbers(before.total + created, version, before.epoch, max(before.at, now))
    report.version = f"{version}.{before.epoch}"
    with session.adding(created, before):
        if created:
            session.write(created, _CREATE, (before.version,))
        if replaced:
            session.write(replaced, _REPLACE, (before.version,))
        if plan.changes:
            add_changes = f"""INSERT INTO {session.changes_table} ({", ".join(CHANGES)})
              SELECT decided.n + $1, stores.id, {", ".join(f"stores.{name}" for name in CONTENT)}, $2,
                decided.total + $3, $4
              FROM decided JOIN stores ON stores.id = decided.id ORDER BY decided.n"""
            session.write(plan.changes, add_changes, (before.version, after.at, before.total, order.token_number))
            session.set_numbers(after)
        if created and order.match not in (None, "id", "name"):
            session.write(created, _REMEMBER, (order.match,))
    # What changes nothing in a collection without changes has no version, and needs no replay.
    if order.key and version:
        key, request = order.key
        counts = msgspec.structs.replace(report, problems=[], changes=[])
        kept = _Remembered(counts, f"{plan.version}.{plan.epoch}", plan.total + 1)
        session.write(1, _ADD_KEY, (key, request, version, now, msgspec.json.encode(kept).decode()))


def _replay(session: Session, order: Import) -> Imported | None:
    """Return what an earlier import with the same key did. Raises KeyReused if that was another request."""
    if order.key is None or order.dry_run:
        return None
    key, request = order.key
    for known, result in session.execute(_FIND_KEY, (key,)):
        if known != request or result is None:
            raise KeyReused("The Idempotency-Key was used for another request: send a new one")
        kept = msgspec.json.decode(result, type=_Remembered)
        return Imported(kept.report, range(kept.first, kept.first + kept.report.created), kept.before)
    return None
