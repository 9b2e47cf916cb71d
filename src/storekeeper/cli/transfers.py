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
from storekeeper.cli.terminal import counted, ignore_interrupts, print_line, progress
from storekeeper.errors import CannotStart, Outcome, Unavailable
from storekeeper.settings import Settings
from storekeeper.stores import Payload

STANDARD_STREAM = Path("-")
"""Standard input or output."""

_HEADER = ",".join(Payload.__struct_fields__)


@with_settings("database")
def import_(
    file: Annotated[
        Path, typer.Argument(help=f"CSV file in UTF-8 with the header {_HEADER}; - reads standard input.")
    ],
    settings: Settings,
    *,
    add: Annotated[bool, typer.Option("--add", help="Add the rows as new stores, even if they have ids.")] = False,
) -> None:
    """Add all stores of a CSV file, or none.

    The service may be running. A file with a column of ids, such as an export, is refused if the database has stores.
    """
    from storekeeper import csvfile, databases

    database = databases.database(settings.database)
    into = database.name
    try:
        with csvfile.open_to_read(sys.stdin.fileno() if file == STANDARD_STREAM else file) as opened:
            source = csvfile.Import(opened, lambda line, message: print_line(f"{file}:{line}: {message}"))
            if made := not database.exists():
                into = f"the new database {into}"
            database.prepare(upgrade=False)
            with progress("Importing") as show:
                may_be_export = source.has_ids and not add
                payloads = source.payloads(show)
                ids = database.load(payloads, only_if_empty=may_be_export, committing=ignore_interrupts)
    except KeyboardInterrupt:  # before COMMIT
        print_line(f"Interrupted: nothing was imported into {into}")
        raise
    except csvfile.BadFile as error:
        raise CannotStart(f"{error}; nothing was imported into {into}", subject=str(file)) from None
    except OSError as error:
        raise CannotStart(f"cannot read {file}: {error.strerror}") from None
    except Unavailable as error:
        is_known = error.outcome is Outcome.NONE
        done = "nothing was imported" if is_known else "it is unknown whether the stores were imported"
        raise CannotStart(f"{error.problem}; {done}", subject=into) from None
    if not ids.start:  # the first store of a collection has the id 1
        raise CannotStart(
            f"{file} has a column of ids, as an export has, and {into} has stores: nothing was imported; with --add,"
            " the rows become new stores, which cannot be deleted"
        )
    print_line(
        f"{counted(len(ids), 'store')} imported{_as_ids(ids)} into {into}"
        + "; the file had other ids" * source.renumbered(ids)
        + "; start the service with the same --database" * made
    )


@with_settings("database")
def export(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="CSV file to write; - is standard output.")] = STANDARD_STREAM,
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite any file.")] = False,
) -> None:
    """Write all stores, as of one moment, as CSV in UTF-8.

    An existing file is overwritten only if it is empty or an export.
    """
    from storekeeper import csvfile, databases

    database = databases.database(settings.database)
    try:
        if databases.is_database_file(settings.database, Path("/dev/stdout") if file == STANDARD_STREAM else file):
            raise CannotStart(f"{file} is the database itself, or its log: name another file")
        if not (force or file == STANDARD_STREAM or csvfile.may_be_replaced(file)):
            raise CannotStart(f"{file} exists and is not an export: name another file, or overwrite it with --force")
        with (
            databases.existing(settings.database).snapshot() as snapshot,
            closing(snapshot.rows("stores")) as rows,
            progress("Exporting") as show,
            _output(file) as opened,
        ):
            count = csvfile.write(opened, rows, show)
    except BrokenPipeError:
        return  # the reader has closed its end
    except OSError as error:
        output = "standard output" if file == STANDARD_STREAM else file
        raise CannotStart(f"cannot write {output}: {error.strerror}") from None
    print_line(f"{counted(count, 'store')} exported from {database.name}")


def copy(
    source: Annotated[str, typer.Argument(help="URL of the database to read, as for --database.")],
    target: Annotated[str, typer.Argument(help="URL of an empty or a new database, of any kind.")],
    *,
    move: Annotated[
        bool, typer.Option("--move", help="Keep the epoch. Nobody may write to the source any more.")
    ] = False,
) -> None:
    """Copy a collection to another database.

    This also backs a collection up, restores a backup, and moves a collection. All stores, changes, keys and tokens
    are copied as of one moment, and verified; or nothing is copied. The service of the source may be running. The
    copy gets a new epoch: from now on, both may give one number to different changes, so no ETag of the source
    matches in the copy. With --move, the ETags of clients stay valid.
    """
    from storekeeper import databases

    try:
        with progress("Copying", "rows") as show:
            stores, changes, epoch = databases.copy(source, target, show, move=move, committing=ignore_interrupts)
    except KeyboardInterrupt:  # before COMMIT
        print_line(f"Interrupted: nothing was copied into {databases.database(target).name}")
        raise
    content = f"{counted(stores, 'store')} and {counted(changes, 'change')}"
    between = f"from {databases.database(source).name} into {databases.database(target).name}"
    kept = f"the copy keeps the epoch {epoch}: write no more to the source" if move else f"its new epoch is {epoch}"
    print_line(f"{content} copied {between}, and verified; {kept}")


def _as_ids(ids: range) -> str:
    if len(ids) < 2:
        return f" as {ids[0]}" if ids else ""
    return f" as {ids[0]} {'and' if len(ids) == 2 else 'to'} {ids[-1]}"


@contextmanager
def _output(file: Path) -> Iterator[typing.IO[str]]:
    """Open the output to write it. A file gets its name, and its old permissions, when it is complete."""
    if file != STANDARD_STREAM and (file.is_file() or not file.exists()):
        with atomicfile.replacing(file) as opened:
            yield opened
        return
    own = file != STANDARD_STREAM  # then it is a pipe, or /dev/stdout
    with open(file if own else sys.stdout.fileno(), "w", encoding="utf-8", newline="", closefd=own) as stream:
        try:
            yield stream
        except BaseException:
            # Throw away what is not written yet: if nobody reads, to close the stream would wait.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            raise
