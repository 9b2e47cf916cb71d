"""The commands that move stores: export, copy. Each imports what it needs when it runs."""

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
from storekeeper.cli.terminal import STANDARD_STREAM, counted, ignore_interrupts, print_line, progress
from storekeeper.errors import CannotStart
from storekeeper.settings import Settings


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
