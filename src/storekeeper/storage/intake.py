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
from storekeeper.storage import clock, import_comparing, staging
from storekeeper.storage.import_renumbering import renumber
from storekeeper.storage.import_writing import listed_changes, shown_texts, write
from storekeeper.storage.sessions import Session, numbers_of, replayed, require_tag

CHUNK = 10_000
"""Rows that are compared with the stores at once, so that memory does not grow with the file."""


class _RowInConflict(NamedTuple):
    """What `import_comparing.conflicts` selects of a row, of its base and of its store."""

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
    planner = _Planner(session, options, check, begin_rejects)
    try:
        _require_match(options, numbers_of(session))
        planner.stage(rows)
        plan = planner.plan()
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
            plan = planner.plan()
            review(plan)
            _refuse(plan)
        now = clock.now()
        write(session, plan, now)
    if plan.changes:
        clock.WATCH.committed(now, plan.numbers.at)
    return plan


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


_TABLES_OF_PLAN = (
    "decided",
    "in_conflict",
    "resolved",
    "trimmed_names",
    "like_stores",
    "adoptable",
)


class _Planner:
    """Stages the rows of an import, and makes its plan: again, if others wrote meanwhile."""

    def __init__(
        self,
        session: Session,
        options: Import,
        check: Callable[[], None],
        begin_rejects: Callable[[], Reject],
    ) -> None:
        self._session = session
        self._options = options
        self._check = check
        self._begin_rejects = begin_rejects
        self._repeats = 0
        """How many rows were as an earlier one."""

    def stage(self, rows: Iterable[SheetRow]) -> None:
        """Put the rows into their table, each only once, and find the keys that occur again."""
        session, options = self._session, self._options
        for table in staging.TABLES:
            session.execute(f"CREATE TEMPORARY TABLE {table}")
        session.fill("staged", staging.STAGED_COLUMNS, staging.staged(rows, options))
        session.execute(staging.FIND_REPEATED)
        if not options.add:
            self._repeats = session.write(staging.DELETE_REPEATS)
        if self._repeats:
            session.execute("DELETE FROM repeated")
            session.execute(staging.FIND_REPEATED)
        if options.attach is not None:
            session.execute(staging.FIND_REPEATED_ATTACH)

    def plan(self) -> ImportPlan:
        """Return what becomes of the rows, in the list as it is now. Raises InvalidInput,
        NeedsMatch, PreconditionFailed."""
        session, options = self._session, self._options
        numbers = numbers_of(session)
        require_tag(options.if_match, numbers)
        _require_match(options, numbers)
        column = None
        if options.attaches is not None:
            column = known_column(session, options.attaches)
        plan = ImportPlan(options, numbers, self._begin_rejects(), column)
        self._prepare_tables(plan)
        self._decide(plan)
        if plan.in_conflict:
            _describe_conflicts(session, plan)
        return plan

    def _prepare_tables(self, plan: ImportPlan) -> None:
        """Fill the tables with which the rows are compared."""
        session, options = self._session, self._options
        for table in _TABLES_OF_PLAN:
            session.execute(f"DELETE FROM {table}")
        if options.match == "name":
            session.execute(staging.FIND_TRIMMED)
        if options.decisions:
            decisions = staging.resolved(options, plan.numbers)
            session.fill("resolved", staging.RESOLVED_COLUMNS, decisions)
        if options.adopt:
            self._find_adoptable(plan.column)

    def _find_adoptable(self, column: str | None) -> None:
        last = 0
        while stores := list(self._session.execute(staging.SOME_STORES, (last,))):
            self._check()
            likes = staging.likes(stores)
            self._session.fill("like_stores", ("like_digest", "id"), likes)
            last = stores[-1][0]
        self._session.execute(staging.FIND_ADOPTABLE, (column,))

    def _decide(self, plan: ImportPlan) -> None:
        """Compare all rows with the stores, some at a time, and decide what becomes of them."""
        session = self._session
        ((rows, last),) = session.execute(staging.COUNT_ROWS)
        statement = import_comparing.compare(self._options)
        values = import_comparing.parameters(plan.numbers, plan.column)
        for start in range(0, last, CHUNK):
            self._check()
            found = session.execute(statement, (start, start + CHUNK, *values))
            session.fill("decided", Decision._fields, plan.decide(map(Found._make, found)))
        plan.finish(listed_changes(session, self._options), rows, self._repeats)


def _describe_conflicts(session: Session, plan: ImportPlan) -> None:
    """Add to the problems of the report what the rows and the stores in conflict have."""
    session.fill("in_conflict", InConflict._fields, plan.in_conflict)
    column = plan.column if plan.options.key_column is not None else None
    values = (0, MAX_INTEGER, *import_comparing.parameters(plan.numbers, column))
    found = session.execute(import_comparing.conflicts(plan.options), values)
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
