"""The commands backup, verify, restore and copy."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from storekeeper.cli.options import with_settings
from storekeeper.cli.results import BackedUp, Copied, Json, LostChanges, Restored, Verified, report
from storekeeper.cli.terminal import counted, ignore_interrupts, progress, saying_if_interrupted
from storekeeper.settings import Settings

if TYPE_CHECKING:
    from storekeeper.storage.backups import Lost


@with_settings("database")
def backup(
    target: Annotated[
        Path,
        typer.Argument(help="A new file, or a folder, where the backup is named after its time."),
    ],
    settings: Settings,
    *,
    keep: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="<number>",
            help="How many backups stay in the folder; older ones are deleted.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Back up a collection into one file.

    The service may be running, on SQLite or PostgreSQL. The file is a SQLite database with all
    stores, changes, keys and tokens as of one moment. It gets its name when it is complete, on
    disk, and verified; its SHA-256 is next to it. Only its owner can read it.
    """
    from storekeeper.storage import backups, databases

    with saying_if_interrupted("there is no new backup"), progress("Backing up", "rows") as show:
        made = backups.back_up(
            settings.database, target, show, keep=keep, before_commit=ignore_interrupts
        )
    name = databases.database(settings.database).name
    counts = _counts(made.stores, made.changes)
    report(
        BackedUp(name, str(made.file), made.stores, made.changes),
        f"{counts} of {name} backed up into {made.file}, and verified",
        json=json,
    )


def verify(
    database: Annotated[
        str, typer.Argument(help="A file, such as a backup, or the URL of a database.")
    ],
    *,
    json: Json = False,
) -> int:
    """Check whether a database or a backup is valid.

    Ids and changes must have no gaps, and each store must be what its latest change made of it. A
    SQLite file must also be whole, and match the SHA-256 next to it, if there is one. Changes with
    a date after now get a remark, but are valid. The service may be running. The exit status is 0
    if everything is valid, 1 if not, 2 if that could not be checked.
    """
    from storekeeper.storage import backups, databases, verification

    url = backups.url_of(database)
    problems = verification.verify(url)
    name = databases.database(url).name
    remarks = [] if problems else verification.remarks(url)
    lines = [f"{name}: {problem}" for problem in problems] or [f"{name} is valid"]
    lines += [f"Remark: {remark}" for remark in remarks]
    report(Verified(name, not problems, problems, remarks), *lines, json=json)
    return int(bool(problems))


@with_settings("database")
def restore(
    file: Annotated[Path, typer.Argument(help="The backup.")],
    settings: Settings,
    *,
    json: Json = False,
) -> None:
    """Put a backup in the place of the database.

    Stop the service first. The backup is verified before anything is changed. What is there, even
    a damaged file or only a log, is kept under another name, and the command says what is lost. On
    PostgreSQL, the database must be empty. The collection gets a new epoch, so that no earlier ETag
    matches.
    """
    from storekeeper.storage import backups, databases

    with saying_if_interrupted("nothing was restored"), progress("Restoring", "rows") as show:
        done = backups.restore(file, settings.database, show, ignore_interrupts)
    name = databases.database(settings.database).name
    counts = _counts(done.stores, done.changes)
    lines = [f"{counts} restored into {name}; its new epoch is {done.epoch}"]
    if done.aside is not None:
        lines.append(f"What was there is now {done.aside}")
        lines += _lost_lines(done.lost, done.aside)
    aside = str(done.aside) if done.aside else None
    lost = _lost(done.lost) if done.lost else None
    restored = Restored(name, done.stores, done.changes, done.epoch, aside, lost)
    report(restored, *lines, json=json)


def _lost(lost: "Lost") -> LostChanges:
    after = lost.changes.start - 1
    return LostChanges(len(lost.changes), after, lost.stores, lost.valid_again, lost.gone)


def _lost_lines(lost: "Lost | None", aside: Path) -> Iterator[str]:
    from storekeeper.storage import backups

    if lost is None:
        yield "It cannot be read, so it is unknown what is lost"
        return
    if lost.changes:
        stores = ", ".join(map(str, lost.stores))
        if len(lost.stores) == 20:
            stores += ", …"
        line = (
            f"Lost: {counted(len(lost.changes), 'change')} that the backup does not have, of stores"
            f" {stores}: see them with storekeeper changes --database {backups.url_of(str(aside))}"
            f" --after {lost.changes.start - 1}"
        )
        if lost.changes.start == 1:
            line = f"It shares no change with the backup. {line}"
        yield line
    else:
        yield "No change is lost"
    if lost.valid_again:
        yield f"Revoked tokens are valid again: revoke {', '.join(lost.valid_again)}"
    if lost.gone:
        yield f"Tokens are gone: add {', '.join(lost.gone)} again"


def copy(
    source: Annotated[str, typer.Argument(help="URL of the database to read, as for --database.")],
    target: Annotated[
        str, typer.Argument(help="URL of a new file, or of an empty PostgreSQL database.")
    ],
    *,
    move: Annotated[
        bool,
        typer.Option("--move", help="Keep the epoch; refuse all writes to the source."),
    ] = False,
    json: Json = False,
) -> None:
    """Copy a collection to another database.

    All stores, changes, keys and tokens are copied as of one moment, and verified; or nothing is
    copied. The service of the source may be running. The copy gets a new epoch: from now on, both
    may give the same number to different changes, so no ETag of the source matches in the copy.
    With --move, the ETags of clients stay valid, and nothing can be written to the source any more,
    unless `storekeeper epoch --new` makes it a list of its own.
    """
    from storekeeper.storage import databases

    with (
        saying_if_interrupted("nothing was copied into the target"),
        progress("Copying", "rows") as show,
    ):
        stores, changes, epoch = databases.copy(
            source, target, show, move=move, before_commit=ignore_interrupts
        )
    names = databases.database(source).name, databases.database(target).name
    between = f"from {names[0]} into {names[1]}"
    kept = f"its new epoch is {epoch}"
    if move:
        kept = f"the copy keeps the epoch {epoch}; the source refuses all writes now"
    report(
        Copied(*names, stores, changes, epoch, move),
        f"{_counts(stores, changes)} copied {between}, and verified; {kept}",
        json=json,
    )


def _counts(stores: int, changes: int) -> str:
    return f"{counted(stores, 'store')} and {counted(changes, 'change')}"
