"""The command that exports stores."""

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer
from msgspec.structs import replace

from storekeeper.cli.options import with_settings
from storekeeper.cli.results import Exported, Json, report
from storekeeper.cli.terminal import (
    STANDARD_STREAM,
    counted,
    is_standard_output,
    print_line,
    progress,
)
from storekeeper.domain.errors import CannotStart, EpochEnded, InvalidInput
from storekeeper.settings import Settings, option
from storekeeper.storage import atomicfile

if TYPE_CHECKING:
    from storekeeper.sheets.export import Written


@with_settings("database")
def export(  # noqa: PLR0913 - each is an option
    settings: Settings,
    file: Annotated[
        Path,
        typer.Argument(
            help="File to write: its ending .csv, .xlsx or .jsonl is its format; - is CSV on"
            " standard output."
        ),
    ] = STANDARD_STREAM,
    *,
    format: Annotated[
        Literal["csv", "xlsx", "jsonl"] | None,
        typer.Option(help="The format, whatever the file's ending is."),
    ] = None,
    q: Annotated[
        str, typer.Option(help="Only the stores that a search finds: words of name and address.")
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            help="The stores as they were: at a version, a cursor, or a time in UTC that ends in Z."
        ),
    ] = "",
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Add this column: the keys of an outside system, as an import had them;"
            " repeatable. `all` adds all.",
        ),
    ] = None,
    excel: Annotated[
        bool,
        typer.Option("--excel", help="CSV for Excel: with a byte order mark, and ; between cells."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file.")] = False,
    json: Json = False,
) -> None:
    """Write stores as CSV, XLSX or JSON lines.

    The stores are of one moment. The columns are id, name, address and version: from the version, a
    later import finds out what has changed meanwhile. An existing file, perhaps with edits, is
    overwritten only with --force. The service may be running.
    """
    if json and is_standard_output(file):
        raise CannotStart("--json: name a file, because standard output gets the stores")
    wanted = {"q": [q], "at": [at], "with": with_ or [], "format": [format or _format(file)]}
    given = {name: list(map(os.fsencode, values)) for name, values in wanted.items()}
    try:
        written = _export(settings.database, file, given, excel=excel, force=force)
    except InvalidInput as error:
        raise CannotStart(error.told(option)) from None
    except EpochEnded as error:
        raise CannotStart(str(error), subject="--at") from None
    except BrokenPipeError:
        return  # the reader has closed its end
    except OSError as error:
        name = "standard output" if file == STANDARD_STREAM else file
        raise CannotStart(f"cannot write {name}: {error.strerror}") from None
    _tell(settings.database, file, written, json=json)


def _export(
    url: str, file: Path, given: Mapping[str, list[bytes]], *, excel: bool, force: bool
) -> "Written":
    """Write the file; return what it has. Raises CannotStart, InvalidInput, EpochEnded, OSError."""
    from storekeeper.sheets import export as exports
    from storekeeper.storage import databases

    output_file = Path("/dev/stdout") if file == STANDARD_STREAM else file
    if databases.is_database_file(url, output_file):
        raise CannotStart(f"{file} is the database itself, or its log: name another file")
    options = replace(exports.options_of(given), excel=excel)
    if _is_kept(file) and not force:
        raise CannotStart(f"{file} exists: name another file, or overwrite it with --force")
    with (
        databases.open_existing(url).snapshot() as snapshot,
        progress("Exporting") as show,
        _output(file, overwrite=force) as output,
    ):
        return exports.write(snapshot, options, output.buffer, show)


def _tell(url: str, file: Path, written: "Written", *, json: bool) -> None:
    from storekeeper.storage import databases

    name = databases.database(url).name
    said = f"{counted(written.stores, 'store')} exported from {name}"
    if is_standard_output(file):
        print_line(said)
    else:
        report(Exported(name, str(file), written.stores, written.formulas), said, json=json)
    if written.formulas:
        print_line(
            f"{counted(written.formulas, 'cell')} with a sign in front (=, +, -, @ or a tab) that a"
            " spreadsheet may take for a formula: use .xlsx for people"
        )


def _format(file: Path) -> str:
    end = file.suffix.lower()
    if end not in ("", ".csv", ".xlsx", ".jsonl"):
        raise CannotStart(
            f"{file}: an export cannot be {end}: name it .csv, .xlsx or .jsonl, or use --format"
        )
    return end[1:] or "csv"


def _output(file: Path, *, overwrite: bool) -> AbstractContextManager[TextIO]:
    """Open the output to write it. A file gets its name, and its old permissions, when it is
    complete."""
    if file == STANDARD_STREAM:
        return atomicfile.into_stream(sys.stdout.fileno())
    return atomicfile.replacing(file, overwrite=overwrite)


def _is_kept(file: Path) -> bool:
    """Return whether only --force may overwrite a file."""
    return file != STANDARD_STREAM and not atomicfile.is_stream(file) and file.exists()
