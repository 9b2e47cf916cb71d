"""The commands that move stores: import, export, copy. Each imports what it needs when it runs."""

import os
import sys
import typing
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from storekeeper import atomicfile
from storekeeper.cli.options import with_settings
from storekeeper.cli.terminal import print_line, progress
from storekeeper.errors import CannotStart, Outcome, Unavailable
from storekeeper.settings import Settings
from storekeeper.stores import Payload

STANDARD_STREAM = Path("-")
"""Standard input or output."""

_HEADER = ",".join(Payload.__struct_fields__)


@with_settings("database")
def import_(
    file: Annotated[
        Path, typer.Argument(help=f"A CSV file in UTF-8 with the header {_HEADER}; - reads standard input.")
    ],
    settings: Settings,
    *,
    add: Annotated[bool, typer.Option("--add", help="Add the rows even if they have ids, as new stores.")] = False,
) -> None:
    """Add all stores of a CSV file, or none.

    A service may run meanwhile. If the database has stores, a file with a column of ids, such as an
    export, is refused.
    """
    from storekeeper import csvfile, databases

    into = databases.describe(settings.database)
    try:
        with csvfile.open_to_read(sys.stdin.fileno() if file == STANDARD_STREAM else file) as opened:
            source = csvfile.Import(opened, lambda line, message: print_line(f"{file}:{line}: {message}"))
            if made := not databases.exists(settings.database):
                into = f"the new database {into}"
            databases.prepare(settings.database, upgrade=False)
            with progress("Importing") as show:
                may_be_export = source.has_ids and not add
                ids = databases.load(settings.database, source.payloads(show), only_if_empty=may_be_export)
    except csvfile.BadFile as error:
        raise CannotStart(f"{file}: {error}; nothing was imported into {into}") from None
    except OSError as error:
        raise CannotStart(f"{file} cannot be read: {error.strerror}") from None
    except Unavailable as error:
        done = "nothing was imported" if error.outcome is Outcome.NONE else "it is not known whether it was imported"
        raise CannotStart(f"{into}: {error}; {done}") from None
    if not ids.start:  # the first store of all has the id 1
        raise CannotStart(
            f"{file} has a column of ids, as an export has: its rows would be added to {into} again, as new stores"
            " that nobody can delete; nothing was imported; with --add they are added"
        )
    print_line(
        f"{_counted(len(ids), 'store')} imported{_as_ids(ids)} into {into}"
        + "; the file had other ids" * source.renumbered(ids)
        + "; a service has to be given the same --database" * made
    )


@with_settings("database")
def export(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="The CSV file to write; - is standard output.")] = STANDARD_STREAM,
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file, whatever it is.")] = False,
) -> None:
    """Write all stores as CSV.

    The stores are those of one moment, in UTF-8. An existing file is overwritten only if it is empty or an export.
    """
    from storekeeper import csvfile, databases

    try:
        if databases.is_database_file(settings.database, Path("/dev/stdout") if file == STANDARD_STREAM else file):
            raise CannotStart(f"{file} is the database itself, or its log: name another file")
        if not (force or file == STANDARD_STREAM or csvfile.may_be_replaced(file)):
            raise CannotStart(f"{file} exists and is no export: name another file, or overwrite it with --force")
        with (
            databases.snapshot(settings.database) as snapshot,
            closing(snapshot.rows("stores")) as rows,
            progress("Exporting") as show,
            _output(file) as opened,
        ):
            count = csvfile.write(opened, rows, show)
    except BrokenPipeError:
        return  # the reader of the output has closed it
    except OSError as error:
        raise CannotStart(
            f"{'standard output' if file == STANDARD_STREAM else file} cannot be written: {error.strerror}"
        ) from None
    print_line(f"{_counted(count, 'store')} exported from {databases.describe(settings.database)}")


def copy(
    source: Annotated[str, typer.Argument(help="The URL of the database to read, as --database takes it.")],
    target: Annotated[str, typer.Argument(help="The URL of an empty one, of any kind; a file is created.")],
    *,
    move: Annotated[
        bool, typer.Option("--move", help="Keep the epoch: nobody will write to the source again.")
    ] = False,
) -> None:
    """Copy a collection to another database.

    All stores, changes, keys and tokens are copied as of one moment, and verified; or nothing is copied. A service
    may run meanwhile: this is also how to make a backup, and to restore one. The copy gets a new epoch, so that no
    ETag of the source matches there: the same number may come to mean another change. With --move, clients go on with
    the ETags that they have.
    """
    from storekeeper import databases

    with progress("Copying", "rows") as show:
        stores, changes, epoch = databases.copy(source, target, show, move=move)
    told = f"it keeps the epoch {epoch}: write no more to the source" if move else f"its new epoch is {epoch}"
    counted = f"{_counted(stores, 'store')} and {_counted(changes, 'change')}"
    between = f"from {databases.describe(source)} into {databases.describe(target)}"
    print_line(f"{counted} copied {between}, and verified; {told}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _as_ids(ids: range) -> str:
    if len(ids) < 2:
        return f" as {ids[0]}" if ids else ""
    return f" as {ids[0]} {'and' if len(ids) == 2 else 'to'} {ids[-1]}"


@contextmanager
def _output(file: Path) -> Iterator[typing.IO[str]]:
    """Open the output for writing. A file gets its name, and its old permissions, only when it is complete."""
    if file != STANDARD_STREAM and (file.is_file() or not file.exists()):
        with atomicfile.replacing(file) as opened:
            yield opened
        return
    # Standard output stays open; what else there is, is a pipe, or /dev/stdout.
    own = file != STANDARD_STREAM
    with open(file if own else sys.stdout.fileno(), "w", encoding="utf-8", newline="", closefd=own) as stream:
        try:
            yield stream
        except BaseException:
            # Throw away what is not written yet: nobody may be reading, and closing would wait.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            raise
