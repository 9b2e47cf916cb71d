"""The command `undo`."""

from collections.abc import Iterator
from typing import Annotated

import typer

from storekeeper.cli.cursors import cursor_of
from storekeeper.cli.options import with_settings
from storekeeper.cli.results import Imports, Json, ListedImport, print_json, report
from storekeeper.cli.terminal import (
    counted,
    ignore_interrupts,
    print_table,
    saying_if_interrupted,
    system_user,
)
from storekeeper.domain.errors import CannotStart, EpochEnded, InvalidInput
from storekeeper.domain.undo import Kept, Undo, UndoPlan
from storekeeper.settings import Settings

_MAX_LISTED = 20
"""Imports and undos, and stores that stay, that are printed."""


@with_settings("database")
def undo(
    settings: Settings,
    first: Annotated[
        str | None, typer.Argument(metavar="[FROM]", help="Cursor of its first change.")
    ] = None,
    last: Annotated[
        str | None, typer.Argument(metavar="[TO]", help="Cursor of its last change.")
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Undo an import or an undo, or list the latest ones.

    Without FROM and TO, it lists them. What still is as the import made it becomes what it was,
    field by field. What others changed since, and the stores that it created, stay, and are
    listed. The service may be running.
    """
    if first is None:
        _list(settings, json=json)
        return
    if last is None:
        raise CannotStart("TO is missing: say both cursors, as the import printed them")
    begin = cursor_of(first, "FROM", may_be_now=False)
    end = cursor_of(last, "TO", may_be_now=False)
    _undo(settings, Undo(begin, end, dry_run, user=system_user()), json=json)


def _list(settings: Settings, *, json: bool) -> None:
    from storekeeper.storage import databases
    from storekeeper.storage.undo import Recorded, latest_imports

    with databases.open_existing(settings.database).snapshot() as snapshot:
        found = latest_imports(snapshot, _MAX_LISTED)

    if json:
        print_json(Imports([ListedImport(*each) for each in found]))
        return

    def row(each: Recorded) -> list[str]:
        what = "import" if each.undoes is None else f"undo of {each.undoes}"
        return [each.first, each.last, each.at, what, each.file or "", each.who or ""]

    print_table([["FROM", "TO", "AT", "WHAT", "FILE", "BY"], *map(row, found)])


def _undo(settings: Settings, options: Undo, *, json: bool) -> None:
    from storekeeper.storage import databases
    from storekeeper.storage.undo import undo as undo_import

    database = databases.open_existing(settings.database)
    try:
        with (
            saying_if_interrupted(f"nothing was undone in {database.name}"),
            database.session() as session,
        ):
            plan = undo_import(session, options, before_commit=ignore_interrupts)
    except (EpochEnded, InvalidInput) as error:
        raise CannotStart(
            f"{error}: see them with storekeeper undo; nothing was undone", subject=database.name
        ) from None
    assert isinstance(plan, UndoPlan)  # without a key, there is no replay
    report(plan.report, *_lines(plan, database.name), json=json)


def _lines(plan: UndoPlan, name: str) -> Iterator[str]:
    report = plan.report
    for kept in report.stays[:_MAX_LISTED]:
        yield f"store {kept.id} stays as it is: {_reason(kept)}"
    if (more := report.kept - _MAX_LISTED) > 0:
        yield f"and {counted(more, 'store')} more"
    done = f"{counted(report.undone, 'store')} as before the import, {report.kept:,} kept"
    if report.dry_run:
        yield f"Dry run: {done} if undone in {name}, version {report.version}"
        return
    way_back = ""
    if report.first is not None:
        way_back = f"; undo this with storekeeper undo {report.first} {report.last}"
    yield f"{done} in {name}; version {report.version} now{way_back}"


def _reason(kept: Kept) -> str:
    if kept.created:
        return "the import created it"
    return f"its {' and '.join(kept.fields)} changed since"
