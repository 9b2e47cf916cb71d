"""Imports without a command: a text as the rows of a file, into a database."""

import io
from collections.abc import Callable
from typing import Any

from storekeeper import databases, importer
from storekeeper.importer import Imported
from storekeeper.imports import Import, Plan
from storekeeper.sheets.records import open_sheet
from storekeeper.sheets.rows import Options, SheetRows
from tests.harness.databases import Database


def rows_of(data: str | bytes, **options: Any) -> SheetRows:
    """Return the rows of a file with this content."""
    content = data.encode() if isinstance(data, str) else data
    return SheetRows(open_sheet(io.BytesIO(content)), Options(**options))


def import_into(
    database: Database,
    data: str | bytes,
    match: str | None = None,
    *,
    approve: Callable[[Plan], None] = lambda _: None,
    options: dict[str, Any] | None = None,
    **order: Any,
) -> Imported:
    """Import a file with this content; `options` say how to read it, `order` what to do with it."""
    rows = rows_of(data, match=match, **(options or {}))
    opened = databases.database(database.url)
    opened.prepare()
    with opened.session() as session:
        return importer.carry_out(session, rows, Import(match=rows.match, **order), approve=approve)


def counts(done: Imported) -> dict[str, int]:
    """Return the counts of an import that are not 0."""
    report = done.report
    names = ("created", "replaced", "unchanged", "conflicts", "bad", "missing")
    return {name: count for name in names if (count := getattr(report, name))}
