"""Imports rows into a database, all or nothing, in the words that both databases understand.

The rows are staged, and compared with the stores, before the lock of writers is taken; behind it
they are compared again only if there was a change in between.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from storekeeper.domain.commands import matches, tag
from storekeeper.domain.errors import KeyReused, PreconditionFailed, Unavailable
from storekeeper.domain.intake import (
    Counts,
    Decision,
    Found,
    Import,
    ListedChange,
    NeedsMatch,
    Numbers,
    Plan,
    Refused,
    Reject,
    SheetRow,
)
from storekeeper.domain.problems import MAX_LISTED, MAX_SHOWN_LENGTH, shown
from storekeeper.domain.search import MAX_SEARCHED_LENGTH
from storekeeper.storage import clock
from storekeeper.storage.sql import CHANGES, CONTENT, FIELDS

STAGED = """staged (place INTEGER PRIMARY KEY, line bigint, key text, version text, wrong text, has_address bigint,
  name text, address text)"""
"""The temporary table of the rows of a file. Its types mean the same to both databases, to
SQLite that `place` is the row's number."""

DECIDED = """decided (seq bigint, place INTEGER PRIMARY KEY, id bigint, is_new bigint, total bigint, folded text,
  folded_name text)"""
"""The temporary table of what becomes of the rows."""

REPEATED = "repeated (key text PRIMARY KEY, first bigint)"
"""The temporary table of the keys that occur more than once, and of their first places."""

LOCK_TIMEOUT = 60.0
"""Seconds that an import waits for other writers, unless its caller says otherwise."""

CHUNK = 10_000
"""Rows that are compared with the stores at once, so that memory does not grow with the file."""


class Session(Protocol):
    """A connection to a database, for one import or another command that writes."""

    changes_table: str
    """The table of changes."""

    collection_table: str
    """The table of the collection's epoch."""

    set_numbers: str
    """The statement that makes the numbers of the collection those of the latest change, if a
    table has them."""

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
        """Execute a statement with parameters `$1`, `$2`; return its rows."""

    def write(self, statement: str, values: tuple[Any, ...] = ()) -> int:
        """Execute a statement that writes; return how many rows it wrote."""

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows to a temporary table, which has just these columns."""

    def writing(self, before_commit: Callable[[], None]) -> AbstractContextManager[None]:
        """Begin to write: take the lock of writers. At the end, call `before_commit`, and commit."""


def keep_no_rejects() -> Reject:
    """Return what forgets why rows are not imported."""
    return lambda _line, _why: None


def import_rows(
    session: Session,
    rows: Iterable[SheetRow],
    options: Import,
    *,
    review: Callable[[Plan], None] = lambda _: None,
    before_commit: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
    begin_rejects: Callable[[], Reject] = keep_no_rejects,
) -> Plan | Counts:
    """Import the rows of a file, all or none; return what was done, its counts alone if this is
    a replay.

    `review` is called with the plan before the lock is taken, and again if it had to be made
    anew behind it; it may raise. Iterating the rows may be slow, and raises what is wrong with
    the file as a whole. `check` is called now and then before anything is written, and may raise.
    `begin_rejects` is called when a plan is begun: what it returns is told of each row that is not
    imported.

    Raises Refused, NeedsMatch, PreconditionFailed, KeyReused, and what the rows and the database
    raise.
    """
    if replay := _replay(session, options):
        return replay
    _require_match(options, _numbers(session))
    for table in (STAGED, DECIDED, REPEATED):
        session.execute(f"CREATE TEMPORARY TABLE {table}")
    session.fill("staged", SheetRow._fields, rows)
    session.execute(_FIND_REPEATED)
    plan = _make_plan(session, options, check, begin_rejects)
    review(plan)
    if options.dry_run:
        return plan
    _refuse(plan)
    with session.writing(before_commit):
        if replay := _replay(session, options):
            return replay
        if _numbers(session)[:3] != plan.numbers[:3]:
            plan = _make_plan(session, options, check, begin_rejects)
            review(plan)
            _refuse(plan)
        now = clock.now()
        _write(session, plan, now)
    if plan.report.created or plan.report.replaced:
        clock.WATCH.committed(now, plan.numbers.at)
    return plan


def _refuse(plan: Plan) -> None:
    if plan.refuses:
        raise Refused(plan.report)


# The plan.

_NUMBERS = """SELECT coalesce(changes.count, 0), coalesce(seq, 0), epoch, coalesce(changes.at, 0)
  FROM collection LEFT JOIN changes ON seq = (SELECT max(seq) FROM changes)"""
_FIND_REPEATED = """INSERT INTO repeated SELECT key, min(place) FROM staged
  WHERE key IS NOT NULL GROUP BY key HAVING count(*) > 1"""
_ADDRESS = "CASE staged.has_address WHEN 1 THEN staged.address ELSE stores.address END"
_NAME = "coalesce(staged.name, stores.name)"
_IS_EQUAL = """(staged.name IS NULL OR staged.name = stores.name)
  AND (staged.has_address = 0 OR coalesce(staged.address, '') = coalesce(stores.address, ''))"""
_CHANGED = "FROM decided JOIN staged ON staged.place = decided.place"
_LIST = f"""SELECT line, decided.id, is_new, stores.name, substr(stores.address, 1, {MAX_SHOWN_LENGTH + 1}),
    {_NAME}, substr({_ADDRESS}, 1, {MAX_SHOWN_LENGTH + 1})
  {_CHANGED} LEFT JOIN stores ON stores.id = decided.id ORDER BY decided.place LIMIT {MAX_LISTED}"""

_SAME_NAME = "FROM stores AS same WHERE same.name = staged.key"
_STORES = {
    None: ("CAST(NULL AS bigint)", "1"),
    "id": ("CAST(staged.key AS bigint)", "1"),
    "name": (
        f"(SELECT min(same.id) {_SAME_NAME})",
        f"(SELECT count(*) FROM (SELECT 1 {_SAME_NAME} LIMIT 2) AS two)",
    ),
}
"""For what rows are matched by, the expressions of the store that a row means, and of how many
that could be."""
_WITH_KEY = (
    "(SELECT store_id FROM external_ids WHERE value = staged.key AND column_name = CAST($3 AS text))",
    "1",
)


def _compare(match: str | None) -> str:
    found, count = _STORES.get(match, _WITH_KEY)
    return f"""SELECT staged.place, line, staged.key, staged.version, wrong, stores.id, stores.version, {_IS_EQUAL},
      matches, first, {_NAME}, substr({_ADDRESS}, 1, {MAX_SEARCHED_LENGTH})
    FROM (SELECT staged.*, {found} AS found, {count} AS matches FROM staged WHERE place > $1 AND place <= $2) AS staged
      LEFT JOIN stores ON stores.id = staged.found LEFT JOIN repeated ON repeated.key = staged.key
    ORDER BY staged.place"""


def _numbers(session: Session) -> Numbers:
    (row,) = session.execute(_NUMBERS)
    return Numbers(*row)


def _require_match(options: Import, numbers: Numbers) -> None:
    if numbers.total and not (options.match or options.add):
        raise NeedsMatch("The list has stores")


def _make_plan(
    session: Session,
    options: Import,
    check: Callable[[], None],
    begin_rejects: Callable[[], Reject],
) -> Plan:
    numbers = _numbers(session)
    current = tag(numbers.version, numbers.epoch)
    if options.if_match is not None and not matches(options.if_match, current):
        raise PreconditionFailed(
            f"The list has changed: its version is {numbers.version} now", current
        )
    _require_match(options, numbers)
    plan = Plan(options, numbers, begin_rejects())
    session.execute("DELETE FROM decided")
    ((rows,),) = session.execute("SELECT count(*) FROM staged")
    column = (options.key_column,) if options.key_column else ()
    for start in range(0, rows, CHUNK):
        check()
        found = session.execute(_compare(options.match), (start, start + CHUNK, *column))
        session.fill("decided", Decision._fields, plan.decide(map(Found._make, found)))
    plan.finish([_listed(*row) for row in session.execute(_LIST)])
    return plan


def _listed(line: int, id: int, is_new: int, *texts: str | None) -> ListedChange:
    name, address, *new = (text and shown(text) for text in texts)
    old = None if is_new else {"name": name, "address": address}
    return ListedChange(line, id, old, dict(zip(CONTENT, new, strict=True)))


# Writing.

_CREATE = f"""INSERT INTO stores (id, version, folded, folded_name, {FIELDS})
  SELECT id, seq, folded, folded_name, name, address {_CHANGED} WHERE is_new = 1 ORDER BY decided.place"""
_REPLACE = f"""UPDATE stores SET name = {_NAME}, address = {_ADDRESS}, version = seq,
    folded = staged.folded, folded_name = staged.folded_name
  FROM (SELECT id, seq, folded, folded_name, name, has_address, address {_CHANGED} WHERE is_new = 0) AS staged
  WHERE stores.id = staged.id"""
_ADD_CHANGES = f"""INSERT INTO {{table}} ({", ".join(CHANGES)})
  SELECT seq, stores.id, {", ".join(f"stores.{name}" for name in CONTENT)}, $1, total, $2, CAST(NULL AS text)
  FROM decided JOIN stores ON stores.id = decided.id ORDER BY place"""
_REMEMBER = f"""INSERT INTO external_ids (store_id, column_name, value)
  SELECT id, CAST($1 AS text), key {_CHANGED} WHERE is_new = 1"""
_FIND_KEY = "SELECT request, result FROM keys WHERE key = $1"
_ADD_KEY = """INSERT INTO keys (n, key, request, seq, at, result)
  SELECT coalesce(max(n), 0) + 1, CAST($1 AS text), $2, $3, $4, CAST($5 AS text) FROM keys"""


def _write(session: Session, plan: Plan, now: int) -> None:
    options, report, before = plan.options, plan.report, plan.numbers
    changes = report.created + report.replaced
    version = before.version + changes
    report.version = f"{version}.{before.epoch}"
    if report.created:
        _expect(report.created, session.write(_CREATE))
    if report.replaced:
        _expect(report.replaced, session.write(_REPLACE))
    if changes:
        add = _ADD_CHANGES.format(table=session.changes_table)
        _expect(changes, session.write(add, (max(before.at, now), options.token_number)))
        if session.set_numbers:
            _expect(1, session.write(session.set_numbers))
    if report.created and options.key_column:
        _expect(report.created, session.write(_REMEMBER, (options.key_column,)))
    # What changes nothing in a collection without changes has no version, and needs no replay.
    if options.idempotency_key and version:
        counts = msgspec.json.encode(msgspec.convert(report, Counts, from_attributes=True)).decode()
        _expect(1, session.write(_ADD_KEY, (*options.idempotency_key, version, now, counts)))


def _expect(rows: int, written: int) -> None:
    if rows != written:
        raise Unavailable("A trigger or a rule of the database kept rows out")


def _replay(session: Session, options: Import) -> Counts | None:
    """Return what an earlier import with the same key did. Raises KeyReused if that was another
    request."""
    if options.idempotency_key is None or options.dry_run:
        return None
    key, request = options.idempotency_key
    for known, result in session.execute(_FIND_KEY, (key,)):
        if known != request or result is None:
            raise KeyReused("The Idempotency-Key was used for another request: send a new one")
        counts = msgspec.json.decode(result, type=Counts)
        # The change is the same one under the epoch of now, of which clients need its tag.
        counts.version = f"{counts.version.partition('.')[0]}.{_numbers(session).epoch}"
        return counts
    return None
