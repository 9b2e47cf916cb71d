"""The command that prints changes. Imports what it needs when it runs."""

import re
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from storekeeper import atomicfile
from storekeeper.cli.options import with_settings
from storekeeper.cli.terminal import print_line
from storekeeper.errors import CannotStart, Unavailable
from storekeeper.settings import Settings

POLL_INTERVAL = 0.5
"""Seconds between two looks for changes with --follow."""

_CURSOR = re.compile(r"([0-9]{1,18})(?:\.([a-z2-7]{8}))?")


@with_settings("database")
def changes(
    settings: Settings,
    *,
    after: Annotated[str, typer.Option(help="Cursor or number of the change to begin behind.")] = "0",
    store: Annotated[int | None, typer.Option(min=1, help="Id of the store: print its changes alone.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for further changes, until Ctrl-C.")] = False,
    cursor_file: Annotated[
        Path | None, typer.Option(help="File with the cursor to go on from, saved after each page that was printed.")
    ] = None,
) -> None:
    """Print the changes as lines of JSON, the oldest first.

    The service may be running. With --cursor-file each change is printed at least once, whatever is killed.
    """
    from storekeeper import databases
    from storekeeper.changes import ChangesPage, ChangesQuery

    seq, epoch = _parse(_saved(cursor_file) or after, cursor_file if _saved(cursor_file) else None)
    while True:
        try:
            page: ChangesPage | None = databases.read_changes(settings.database, ChangesQuery(seq, store=store))
        except Unavailable as error:
            if not follow:
                raise
            print_line(f"storekeeper: {error}; trying again")
            page = None
        if page is not None:
            if epoch not in ("", page.epoch) or seq > page.version:
                raise CannotStart(
                    f"the cursor {seq}{'.' * bool(epoch)}{epoch} is of another history: read the list again, then go"
                    f" on from {page.version}.{page.epoch}"
                )
            lines = page.encode(with_by=True)
            sys.stdout.buffer.writelines(line + b"\n" for line in lines)
            sys.stdout.buffer.flush()
            seq, epoch = page.changes[len(lines) - 1].seq if lines else page.version, page.epoch
            _save(cursor_file, f"{seq}.{epoch}")
            if lines:
                continue
        if not follow:
            return
        time.sleep(POLL_INTERVAL)


def _saved(file: Path | None) -> str:
    try:
        return file.read_text().strip() if file else ""
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise CannotStart(f"cannot be read ({reason})", subject=f"--cursor-file {file}") from None


def _save(file: Path | None, cursor: str) -> None:
    if file is None or cursor == _saved(file):
        return
    try:
        with atomicfile.replacing(file) as opened:
            opened.write(f"{cursor}\n")
    except OSError as error:
        raise CannotStart(f"cannot be written ({error.strerror})", subject=f"--cursor-file {file}") from None


def _parse(cursor: str, file: Path | None) -> tuple[int, str]:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        subject = f"--cursor-file {file}" if file else "--after"
        raise CannotStart(f"no cursor: {cursor[:40]!r}; a cursor is as 17.abcdefgh, or a number", subject=subject)
    return int(found[1]), found[2] or ""
