"""The command `import`."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Literal

import typer
from msgspec.structs import replace

from storekeeper.cli.import_report import changes_of, hint, remedy, tell_end
from storekeeper.cli.import_review import MAX_UNASKED, Review
from storekeeper.cli.look_report import tell_look
from storekeeper.cli.options import with_settings
from storekeeper.cli.rejects import Rejects
from storekeeper.cli.results import Json
from storekeeper.cli.terminal import (
    PRINT_ROWS,
    STANDARD_STREAM,
    ask,
    ignore_interrupts,
    is_standard_output,
    on_terminal,
    print_line,
    print_lines,
    progress,
    saying_if_interrupted,
    system_user,
)
from storekeeper.domain.errors import CannotStart, InvalidInput, Missing, Outcome, Unavailable
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.intake import Import, NeedsMatch, OnConflict, Refused, SheetRow
from storekeeper.domain.problems import MAX_BRIEF_LENGTH, shown
from storekeeper.domain.stores import MAX_NAME_LENGTH
from storekeeper.settings import Settings
from storekeeper.sheets import BadFile, protocol
from storekeeper.sheets.columns import parse_maps
from storekeeper.sheets.delimiters import check_delimiter
from storekeeper.sheets.reading import Known, Reading, known_to
from storekeeper.sheets.reading import look as look_at

_THREE_WAYS = (
    "it has stores: say which of them the rows mean, with --match id, --match name or --match"
    " COLUMN (the key that another system has for a store), or that all rows are new stores, with"
    " --add"
)

_DROPPED = "Not used, although they look like parts of an address"


@with_settings("database")
def import_(  # noqa: PLR0913 - each is an option
    file: Annotated[Path, typer.Argument(help="CSV, XLSX or JSON lines; - reads standard input.")],
    settings: Settings,
    *,
    match: Annotated[
        str | None,
        typer.Option(
            help="How a row finds its store: by id, by name, or by a column of the file; key:id is"
            " a column with the name id."
        ),
    ] = None,
    add: Annotated[bool, typer.Option("--add", help="Add all rows as new stores.")] = False,
    map: Annotated[
        list[str] | None,
        typer.Option(
            help='Take a field from other columns: name="Store Name", address="{Street}, {City}";'
            " repeatable."
        ),
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of a text file, such as cp1252.")
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="What is between cells: , ; | or tab.")
    ] = None,
    sheet: Annotated[str | None, typer.Option(help="The sheet of a workbook to read.")] = None,
    header_row: Annotated[
        str | None,
        typer.Option(
            metavar="N|none",
            help="The row with the names of the columns; none: they are named 1, 2, 3, …",
        ),
    ] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="The same as --header-row none.")
    ] = False,
    on_conflict: Annotated[
        OnConflict,
        typer.Option(
            help="What to do with a row if it and others changed the same field of its store;"
            " ignore-version writes every row that differs."
        ),
    ] = "refuse",
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Let the one store with the name and address of a row get its new key.",
        ),
    ] = False,
    attach: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Give the keys of this column to the stores; needs --match id."
        ),
    ] = None,
    cut_names: Annotated[
        bool, typer.Option("--cut-names", help=f"Cut names at {MAX_NAME_LENGTH} characters.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Import the valid rows although others are bad.")
    ] = False,
    rejects: Annotated[
        Path | None,
        typer.Option(
            help="Write the rows that are not imported to this CSV file; implies --skip-bad."
        ),
    ] = None,
    look: Annotated[
        bool, typer.Option("--look", help="Say what the file is and how it would be read.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Make the database if it is missing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help=f"Add more than {MAX_UNASKED} stores without asking.")
    ] = False,
    json: Json = False,
) -> None:
    """Import the stores of a spreadsheet, all or none.

    A row adds a store, or replaces the one that it means. The columns id, name, address and
    version need no --map; others are ignored, or mapped. The service may be running. In an empty
    list, all rows are new stores; otherwise use --match or --add.
    """
    if match and add:
        raise CannotStart("--add: cannot be used together with --match")
    by = (match or "").strip().casefold()
    if adopt and by in ("", "id", "name"):
        raise CannotStart("--adopt: needs --match COLUMN, whose keys the stores get")
    if attach is not None and by != "id":
        raise CannotStart("--attach: needs --match id, which says whose the keys are")
    options = Import(
        match,
        add,
        _maps(map or []),
        encoding,
        _delimiter(delimiter),
        sheet,
        _header_row("none" if no_header else header_row),
        cut_names,
        on_conflict,
        skip_bad or rejects is not None,
        dry_run,
        adopt=adopt,
        attach=attach,
        file=None if file == STANDARD_STREAM else file.name,
        user=system_user(),
    )
    if look:
        _look_at(settings, file, options, json=json)
        return
    if rejects is None:
        _import_file(settings, file, options, None, create=create, yes=yes, json=json)()
        return
    if json and is_standard_output(rejects):
        raise CannotStart("--json: standard output gets the rejects; name another file for them")
    with Rejects(rejects, file, settings.database) as rejected:
        tell = _import_file(settings, file, options, rejected, create=create, yes=yes, json=json)
        rejected.send()
    tell()


def _look_at(settings: Settings, file: Path, options: Import, *, json: bool) -> None:
    """Say what a file is, for the list that there is, or for a new one."""
    from storekeeper.storage import databases

    known = Known([], is_empty=True)
    with _telling_failures(file, "any list"), _opened(file) as opened:
        if databases.database(settings.database).exists():
            with databases.open_existing(settings.database).snapshot() as snapshot:
                known = known_to(snapshot)
        tell_look(look_at(opened, protocol.layout_of(options), known), json=json)


def _import_file(
    settings: Settings,
    file: Path,
    options: Import,
    rejects: Rejects | None,
    *,
    create: bool,
    yes: bool,
    json: bool,
) -> Callable[[], None]:
    """Import a file; return what tells the result."""
    from storekeeper.storage import databases, intake

    url = settings.database
    database = databases.database(url)
    is_new = not database.exists()
    target = f"the new database {database.name}" if is_new else database.name
    with _telling_failures(file, target), ExitStack() as stack:
        opened = stack.enter_context(_opened(file))
        rows = stack.enter_context(Reading(opened, protocol.layout_of(options)))
        if is_new and not create:
            _ask_whether_to_create(database.name, dry_run=options.dry_run)
        if is_new and options.dry_run:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            url = f"sqlite:///{folder}/empty.db"
            database = databases.database(url)
            databases.create(url, examples=False)
        begins = is_new and not options.dry_run
        if not begins:
            database.prepare(upgrade=False)
        _tell_columns(rows)
        opening = database.new_session() if begins else database.session()
        session = stack.enter_context(opening)
        options = replace(options, match=rows.match, attach=rows.attach)
        plan = intake.import_rows(
            session,
            _with_progress(rows, os.fstat(opened.fileno()).st_size),
            options,
            review=Review(rows, rejects, yes=yes, describe=json),
            before_commit=ignore_interrupts,
            begin_rejects=rejects.begin if rejects else intake.keep_no_rejects,
        )
        assert isinstance(plan, ImportPlan)  # without a key, there is no replay
        if plan.refuses:  # a dry run
            print_lines(changes_of(plan.report))
            raise Refused(plan.report)
    as_notes = rejects is not None and rejects.to_standard_output
    return partial(tell_end, plan, target, is_new=is_new, json=json, as_notes=as_notes)


def _tell_columns(rows: Reading) -> None:
    """Say which columns of a file are not used, and what else is to be known about it."""
    if ignored := ", ".join(rows.unused):
        print_line(f"Ignored columns: {shown(ignored, 4 * MAX_BRIEF_LENGTH)}")
    print_lines(rows.notes)
    if dropped := ", ".join(rows.dropped):
        print_line(f"{_DROPPED}: {shown(dropped, 4 * MAX_BRIEF_LENGTH)}")


def _ask_whether_to_create(name: str, *, dry_run: bool) -> None:
    """Ask whether to begin a list. Raises CannotStart without a terminal: a nightly import must not
    begin one on a disk that is not mounted."""
    if not on_terminal():
        raise Missing(name, "storekeeper create, or import --create")
    if not dry_run:
        ask(f"there is no {name}: the import begins a new list there", "nothing was imported")


def _with_progress(rows: Reading, size: int) -> Iterator[SheetRow]:
    """Yield the rows of a file of this size, and show the progress."""
    with progress("Reading", "rows") as show:
        for row in rows:
            yield row
            if row.place % PRINT_ROWS == 0:
                total = row.place * size // rows.position if rows.position else None
                show(row.place, total)


@contextmanager
def _telling_failures(file: Path, target: str) -> Iterator[None]:
    """Turn errors into one line that says whether anything was imported."""
    try:
        with saying_if_interrupted(f"nothing was imported into {target}"):
            yield
    except NeedsMatch:
        raise CannotStart(f"{_THREE_WAYS}; nothing was imported", subject=target) from None
    except InvalidInput as error:
        raise CannotStart(f"{error}; nothing was imported", subject=target) from None
    except BadFile as error:
        raise CannotStart(
            f"{error}{hint(error)}; nothing was imported into {target}", subject=str(file)
        ) from None
    except Refused as error:
        done = f"Nothing was imported into {target}: {error.why}"
        raise CannotStart(f"{done}; {remedy(error.report)}", subject=str(file)) from None
    except OSError as error:
        raise CannotStart(f"cannot read {file}: {error.strerror}") from None
    except Unavailable as error:
        done = "it is unknown whether the stores were imported"
        if error.outcome is Outcome.NONE:
            done = "nothing was imported"
        raise CannotStart(f"{error.problem}; {done}", subject=target) from None


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """Open a file to read it more than once; if it cannot be read twice, copy it to a file without
    a name."""
    with _standard_input() if file == STANDARD_STREAM else file.open("rb") as opened:
        if opened.seekable():
            yield opened
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(opened, copy)
            yield copy


def _standard_input() -> IO[bytes]:
    """Open it with another descriptor: the reading process has its own input at this number."""
    return os.fdopen(os.dup(sys.stdin.fileno()), "rb")


def _delimiter(text: str | None) -> str | None:
    try:
        return None if text is None else check_delimiter(text)
    except BadFile as error:
        raise CannotStart(str(error), subject="--delimiter") from None


def _header_row(text: str | None) -> int | Literal["none"] | None:
    if text is None or text == "none":
        return text  # type: ignore[return-value]  # mypy does not narrow it
    if text.isascii() and text.isdigit() and 0 < int(text) < 10**9:
        return int(text)
    raise CannotStart("must be the number of a row, from 1, or none", subject="--header-row")


def _maps(values: list[str]) -> Mapping[str, str]:
    try:
        return parse_maps(values)
    except BadFile as error:
        raise CannotStart(str(error), subject="--map") from None
