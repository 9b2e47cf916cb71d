"""Imports rows into a database, all or nothing, in the words that both databases understand.

The rows are staged, and compared with the stores, before the lock of writers is taken; under it
they are compared again only if a change in between concerns one of them.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from storekeeper.domain.changes import Cursor
from storekeeper.domain.errors import InvalidInput, PreconditionFailed, Unavailable
from storekeeper.domain.import_plan import ImportPlan, fields_in_conflict
from storekeeper.domain.import_rows import Decision, Found, InConflict
from storekeeper.domain.intake import (
    Counts,
    Import,
    NeedsMatch,
    Numbers,
    Refused,
    Reject,
    SheetRow,
)
from storekeeper.domain.problems import Conflict
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.domain.stores import MAX_INTEGER
from storekeeper.storage import clock, staging
from storekeeper.storage.import_renumbering import renumber
from storekeeper.storage.import_writing import listed_changes, shown_texts, write
from storekeeper.storage.sessions import Session, numbers_of, replayed, require_tag

CHUNK = 10_000
"""Rows that are compared with the stores at once, so that memory does not grow with the file."""


class _RowInConflict(NamedTuple):
    """What `staging.conflicts` selects of a row, of its base and of its store."""

    line: int
    name_is: int
    address_is: int
    store_version: int
    has_address: int
    base_name: str | None
    base_address: str | None
    old_name: str
    old_address: str | None
    given_name: str | None
    given_address: str | None
    at: int
    by: str | None
    user: str | None


def keep_no_rejects() -> Reject:
    """Return what forgets why rows are not imported."""
    return lambda _line, _why: None


def import_rows(
    session: Session,
    rows: Iterable[SheetRow],
    options: Import,
    *,
    review: Callable[[ImportPlan], None] = lambda _: None,
    before_commit: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
    begin_rejects: Callable[[], Reject] = keep_no_rejects,
) -> ImportPlan | Counts:
    """Import the rows of a file, all or none; return what was done, only its counts if this is
    a replay.

    `review` is called with the plan before the lock is taken, and again if another plan was made
    under it; it may raise. Iterating the rows may be slow, and raises what is wrong with
    the file as a whole. `check` is called now and then before anything is written, and may raise.
    `begin_rejects` is called when a plan is begun; what it returns is called for each row that is
    not imported.

    Raises Refused, NeedsMatch, PreconditionFailed, KeyReused, and what the rows and the database
    raise.
    """
    if replay := replayed(session, options, Counts):
        return replay
    try:
        _require_match(options, numbers_of(session))
        for table in staging.TABLES:
            session.execute(f"CREATE TEMPORARY TABLE {table}")
        session.fill("staged", staging.STAGED_COLUMNS, staging.staged(rows, options))
        repeats = _delete_repeats(session, options)
        plan = _make_plan(session, options, repeats, check, begin_rejects)
        review(plan)
        if options.dry_run:
            return plan
        _refuse(plan)
    except (NeedsMatch, PreconditionFailed, Refused):
        # Perhaps because the same request was carried out since the look above.
        if replay := replayed(session, options, Counts):
            return replay
        raise
    with session.writing(before_commit):
        if replay := replayed(session, options, Counts):
            return replay
        if not renumber(session, plan):
            plan = _make_plan(session, options, repeats, check, begin_rejects)
            review(plan)
            _refuse(plan)
        now = clock.now()
        write(session, plan, now)
    if plan.changes:
        clock.WATCH.committed(now, plan.numbers.at)
    return plan


def _delete_repeats(session: Session, options: Import) -> int:
    """Find the keys that occur more than once. Delete the rows that are as an earlier one; return
    how many those are."""
    session.execute(staging.FIND_REPEATED)
    repeats = 0 if options.add else session.write(staging.DELETE_REPEATS)
    if repeats:
        session.execute("DELETE FROM repeated")
        session.execute(staging.FIND_REPEATED)
    if options.attach is not None:
        session.execute(staging.FIND_REPEATED_ATTACH)
    return repeats


def _refuse(plan: ImportPlan) -> None:
    if plan.refuses:
        raise Refused(plan.report)


# The plan.

_KEY_COLUMNS = "SELECT DISTINCT column_name FROM external_ids"


def _require_match(options: Import, numbers: Numbers) -> None:
    if numbers.total and not (options.match or options.add):
        raise NeedsMatch("The list has stores")


def known_column(session: Session, column: str) -> str:
    """Return the name that the list has for a column of keys, the same for a new one (decision
    62). Raises InvalidInput if several are like it."""
    known = [name for (name,) in session.execute(_KEY_COLUMNS)]
    if column in known:
        return column
    alike = sorted(name for name in known if name.strip().casefold() == column.strip().casefold())
    if len(alike) > 1:
        columns = ", ".join(f'"{name}"' for name in alike)
        sentence = f'The list has several columns like "{column}": say which one, of {columns}'
        raise InvalidInput("query", {"match": Violation(Reason.AMBIGUOUS, sentence=sentence)})
    return alike[0] if alike else column


def _make_plan(
    session: Session,
    options: Import,
    repeats: int,
    check: Callable[[], None],
    begin_rejects: Callable[[], Reject],
) -> ImportPlan:
    numbers = numbers_of(session)
    require_tag(options.if_match, numbers)
    _require_match(options, numbers)
    column = None
    if options.attaches is not None:
        column = known_column(session, options.attaches)
    plan = ImportPlan(options, numbers, begin_rejects(), column)
    for table in (
        "decided",
        "in_conflict",
        "resolved",
        "trimmed_names",
        "like_stores",
        "adoptable",
    ):
        session.execute(f"DELETE FROM {table}")
    if options.match == "name":
        session.execute(staging.FIND_TRIMMED)
    if options.decisions:
        session.fill("resolved", staging.RESOLVED_COLUMNS, staging.resolved(options, numbers))
    if options.adopt:
        _find_adoptable(session, column, check)
    ((rows, last),) = session.execute(staging.COUNT_ROWS)
    statement, values = staging.compare(options), staging.parameters(numbers, column)
    for start in range(0, last, CHUNK):
        check()
        found = session.execute(statement, (start, start + CHUNK, *values))
        session.fill("decided", Decision._fields, plan.decide(map(Found._make, found)))
    plan.finish(listed_changes(session, options), rows, repeats)
    if plan.in_conflict:
        _describe_conflicts(session, plan)
    return plan


def _find_adoptable(session: Session, column: str | None, check: Callable[[], None]) -> None:
    last = 0
    while stores := list(session.execute(staging.SOME_STORES, (last,))):
        check()
        session.fill("like_stores", ("like_digest", "id"), staging.likes(stores))
        last = stores[-1][0]
    session.execute(staging.FIND_ADOPTABLE, (column,))


def _describe_conflicts(session: Session, plan: ImportPlan) -> None:
    """Add to the problems of the report what the rows and the stores in conflict have."""
    session.fill("in_conflict", InConflict._fields, plan.in_conflict)
    column = plan.column if plan.options.key_column is not None else None
    values = (0, MAX_INTEGER, *staging.parameters(plan.numbers, column))
    found = session.execute(staging.conflicts(plan.options), values)
    rows = {row.line: row for row in map(_RowInConflict._make, found)}
    for problem in plan.report.problems:
        if problem.reason is Reason.CONFLICT:
            if problem.line not in rows:
                raise Unavailable("A key of the file went meanwhile: repeat the import")
            problem.conflict = _conflict(plan.numbers.epoch, rows[problem.line])


def _conflict(epoch: str, row: _RowInConflict) -> Conflict:
    base = shown_texts(row.base_name, row.base_address)
    present = shown_texts(row.old_name, row.old_address)
    given = shown_texts(row.given_name, row.given_address)
    if given["name"] is None:
        given["name"] = present["name"]
    if not row.has_address:
        given["address"] = present["address"]
    known = None if base == {"name": None, "address": None} else base
    fields = fields_in_conflict(row.name_is, row.address_is)
    seen = str(Cursor(row.store_version, epoch))
    return Conflict(fields, seen, known, present, given, clock.utc(row.at), row.by, row.user)
