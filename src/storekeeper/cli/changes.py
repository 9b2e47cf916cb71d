"""The command that prints changes."""

import os
import stat
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from storekeeper.cli.cursors import cursor_of, read_saved, save
from storekeeper.cli.options import with_settings
from storekeeper.cli.terminal import print_line
from storekeeper.domain.errors import Unavailable
from storekeeper.settings import Settings

POLL_INTERVAL = 0.5
"""Seconds between two looks for changes with --follow."""

PAGE_SIZE = 1000
"""Changes that are read, printed and saved at once."""


@with_settings("database")
def changes(
    settings: Settings,
    *,
    after: Annotated[
        str, typer.Option(help="Begin after the change with this cursor or number; or now.")
    ] = "0",
    store: Annotated[
        int | None,
        typer.Option(min=1, metavar="<id>", help="Print only the changes of this store."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for further changes, until Ctrl-C.")
    ] = False,
    cursor_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the cursor to continue from, saved after each page that was printed."
        ),
    ] = None,
) -> None:
    """Print the changes as lines of JSON, oldest first.

    The service may be running. With --cursor-file, each change is printed at least once, whatever
    is killed; --after applies only until that file exists.
    """
    from storekeeper.domain.changes import ChangesQuery, Cursor
    from storekeeper.storage import databases

    saved = read_saved(cursor_file)
    if saved is None:
        cursor = cursor_of(after, "--after")
    else:
        cursor = cursor_of(saved, f"--cursor-file {cursor_file}")
    is_away = False
    while True:
        try:
            page = databases.read_changes(settings.database, ChangesQuery(cursor, PAGE_SIZE, store))
        except Unavailable as error:
            if not follow:
                raise
            if not is_away:
                print_line(f"storekeeper: {error}; trying again")
            is_away = True
        else:
            is_away = False
            lines = page.encode(with_by=True)
            _print(lines)
            seq = page.version
            if lines:
                seq = page.changes[len(lines) - 1].seq
            cursor = Cursor(seq, page.epoch)
            save(cursor_file, str(cursor))
            if lines:
                continue
        if not follow:
            return
        time.sleep(POLL_INTERVAL)


def _print(lines: list[bytes]) -> None:
    """Print lines; if they go to a file, they are on disk before their cursor is."""
    out = sys.stdout.buffer
    out.writelines(line + b"\n" for line in lines)
    out.flush()
    if lines and stat.S_ISREG(os.fstat(out.fileno()).st_mode):
        os.fsync(out.fileno())
