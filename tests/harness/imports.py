"""Imports without a command: a text, as the rows of a file, into a database."""

import io
from collections.abc import Callable
from typing import Any

import msgspec

from storekeeper.domain.changes import Cursor, parse_cursor
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.intake import Counts, Import, Reject
from storekeeper.domain.undo import Undo, UndoCounts, UndoPlan
from storekeeper.sheets.protocol import layout_of
from storekeeper.sheets.records import open_sheet
from storekeeper.sheets.rows import SheetRows
from storekeeper.storage import databases, intake
from storekeeper.storage.undo import undo
from tests.harness.databases import Database, make


def import_into(
    database: Database,
    data: str,
    match: str | None = None,
    *,
    review: Callable[[ImportPlan], None] = lambda _: None,
    begin_rejects: Callable[[], Reject] = intake.keep_no_rejects,
    **order: Any,
) -> ImportPlan:
    """Import a file with this content; `order` says how."""
    done = import_or_replay(
        database, data, match, review=review, begin_rejects=begin_rejects, **order
    )
    assert isinstance(done, ImportPlan)
    return done


def import_or_replay(
    database: Database,
    data: str,
    match: str | None = None,
    *,
    review: Callable[[ImportPlan], None] = lambda _: None,
    begin_rejects: Callable[[], Reject] = intake.keep_no_rejects,
    **options: Any,
) -> ImportPlan | Counts:
    """Import a file with this content, or return the result of an earlier import with the same
    key."""
    order = Import(match, **options)
    layout = layout_of(order)
    rows = SheetRows(open_sheet(io.BytesIO(data.encode()), layout), layout)
    make(database.url)
    opened = databases.database(database.url)
    with opened.session() as session:
        return intake.import_rows(
            session,
            rows,
            msgspec.structs.replace(order, match=rows.match),
            review=review,
            begin_rejects=begin_rejects,
        )


def counts(done: ImportPlan) -> dict[str, int]:
    """Return the counts of an import that are not 0."""
    report = done.report
    names = (
        "created",
        "replaced",
        "unchanged",
        "conflicts",
        "bad",
        "missing",
        "repeated",
        "adopted",
    )
    return {name: count for name in names if (count := getattr(report, name))}


# Undo.


def cursor(text: str | None) -> Cursor:
    assert text is not None
    found = parse_cursor(text.encode())
    assert found is not None
    return found


def undo_range(
    database: Database, first: str | None, last: str | None, **options: Any
) -> UndoPlan | UndoCounts:
    with databases.database(database.url).session() as session:
        return undo(session, Undo(cursor(first), cursor(last), **options))


def undone(database: Database, done: Any, **options: Any) -> UndoPlan:
    """Undo an import or an undo."""
    plan = undo_range(database, done.report.first, done.report.last, **options)
    assert isinstance(plan, UndoPlan)
    return plan
