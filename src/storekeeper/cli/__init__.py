"""The command line. Each command imports what it needs when it runs."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from storekeeper import __version__
from storekeeper.cli import backups, changes, exports, imports, mcp, ready, tokens, undo, webhooks
from storekeeper.cli.options import Commands, with_settings
from storekeeper.cli.results import Created, EpochIs, Json, encoded, report
from storekeeper.cli.service_address import TOKEN_VARIABLE, read_token
from storekeeper.cli.terminal import (
    ask,
    is_output_unread,
    open_standard_streams,
    print_line,
    print_now,
)
from storekeeper.domain.errors import CannotStart, Outcome, StorekeeperError
from storekeeper.settings import Settings, without_service_links

EXIT_USAGE = 2
EXIT_STATUSES = {
    0: "Done, or the service was told to stop.",
    1: (
        "check and verify: something is wrong. ready: the service is not ready. serve: it cannot"
        " continue now; start it again."
    ),
    2: "Fix the problem on the last line of stderr before you restart the service.",
    70: "A bug: report the line on stderr, and start the service again.",
    74: (
        "The database failed, its file was replaced or is locked, or there is not enough memory or"
        " space: start the service again."
    ),
    130: "Ctrl-C ended the command before it changed anything. While it commits, it ignores"
    " Ctrl-C.",
}


MIN_TIMEOUT = 0.1
MAX_TIMEOUT = 60.0

app = Commands(
    name="storekeeper",
    help="One list of a company's stores, kept durable and served over the Store Resource API.",
    epilog="\n\n".join(f"Exit status {status}: {text}" for status, text in EXIT_STATUSES.items()),
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut texts off
)


def main() -> None:
    """Run a command; if it fails, exit with status 2 after one line on stderr.

    If nothing reads its output any more, as in a pipe to `head`, it ends without a word.
    """
    open_standard_streams()
    for name in os.environ.keys() - without_service_links():
        del os.environ[name]
    try:
        status = _run()
    except TyperException as error:
        status = _report_failure(_explained(error))
    except StorekeeperError as error:
        problem = str(error)
        if getattr(error, "outcome", None) is Outcome.UNKNOWN:
            problem += "; it is unknown whether the command was carried out"
        status = _report_failure(problem, os.EX_IOERR if error.may_pass else EXIT_USAGE)
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except OSError as error:
        is_unread = isinstance(error, BrokenPipeError) and is_output_unread()
        _drop_output()
        status = 0
        if not is_unread:
            status = _report_failure(f"cannot continue: {error.strerror}")
    except (MemoryError, ImportError):  # too little memory, perhaps to load a library
        raise  # `__main__` reports it, as it does for this module
    except Exception as error:  # noqa: BLE001 - every bug is reported in one line
        status = _report_failure(
            f"bug, please report it: {type(error).__name__}: {error}", os.EX_SOFTWARE
        )
    sys.exit(status)


def _run() -> int:
    """Run a command; return its status. Raises OSError if its output cannot be written."""
    try:
        status: int = app(standalone_mode=False)
    except SystemExit as ended:
        # If nothing reads the output, Typer exits with 1: for `check`, that means that the service
        # violates the contract.
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        raise
    sys.stdout.flush()
    return status


def _drop_output() -> None:
    # Otherwise Python would write the rest of its output at the end, and fail again.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_failure(message: str, status: int = EXIT_USAGE) -> int:
    print_line(f"storekeeper: {message}")
    return status


def _explained(error: TyperException) -> str:
    # A URL in the wrong place may have a password.
    message = re.sub(r"(?<=://)\S*@", "***@", error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    return f"{message}; see {context.command_path} --help"


def _commit() -> str:
    """Return what `--version` says about the commit that was built; "" in a checkout."""
    try:
        commit = Path(__file__).parents[1].joinpath("commit.txt").read_text().strip()
    except OSError:
        return ""
    return f" (commit {commit})"


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"storekeeper {__version__}{_commit()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(EXIT_USAGE)


@app.command()
@with_settings(*Settings.__struct_fields__)
def serve(settings: Settings) -> int:
    """Serve the stores until SIGTERM or Ctrl-C."""
    from storekeeper.process import server

    return server.serve(settings)


@app.command()
@with_settings("database", "examples")
def create(settings: Settings, *, json: Json = False) -> None:
    """Make a database with a new list.

    The command is refused if there is a list already, so that none takes the place of another. On
    PostgreSQL, the database itself must exist, and be empty.
    """
    from storekeeper.domain.stores import EXAMPLES
    from storekeeper.storage import databases

    databases.create(settings.database, examples=settings.examples)
    name = databases.database(settings.database).name
    of = "with 3 example stores" if settings.examples else "without stores"
    stores = len(EXAMPLES) if settings.examples else 0
    report(Created(name, stores), f"A new list {of} is in {name}", json=json)


app.add_typer(tokens.app, name="token")
app.command("import")(imports.import_)
app.command()(undo.undo)
app.command()(exports.export)
app.command()(backups.copy)
app.command()(changes.changes)
app.command()(backups.backup)
app.command()(backups.verify)
app.command()(backups.restore)
app.command()(ready.ready)
app.command()(webhooks.webhooks)
app.command()(mcp.mcp)


@app.command()
@with_settings("database")
def epoch(
    settings: Settings,
    *,
    new: Annotated[
        bool, typer.Option("--new", help="Renew the epoch, so that no old ETag matches.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the epoch of the database, or renew it.

    The epoch is the second part of every ETag and cursor: it names the history that their number
    belongs to. Renew it after you restored an earlier state with anything but `storekeeper
    restore` or `storekeeper copy`, such as a copied file, a disk snapshot, pg_dump, or a standby
    that lagged. Otherwise new changes get the numbers of lost ones, and clients confuse them. The
    service may be running: it uses the new epoch by the time the command ends.
    """
    from storekeeper.storage import databases

    found = databases.epoch(settings.database, renew=new)
    name = databases.database(settings.database).name
    try:
        print_now(encoded(EpochIs(name, found, new)) if json else found)
    except OSError as error:
        if not new:
            raise
        raise CannotStart(
            f"the epoch is now {found}, but cannot be printed ({error.strerror})"
        ) from None


@app.command()
def check(
    url: Annotated[
        str, typer.Argument(help="Address of any service, such as http://127.0.0.1:8080.")
    ],
    *,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Add no stores: skip the checks that write.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Add stores, which cannot be deleted, without asking.")
    ] = False,
    json: Json = False,
    timeout: Annotated[
        float,
        typer.Option(
            min=MIN_TIMEOUT, max=MAX_TIMEOUT, metavar="<seconds>", help="For one request."
        ),
    ] = 7.0,
    token: Annotated[
        Path | None,
        typer.Option(
            help="A file with the token to send. Without it, the token in"
            f" {TOKEN_VARIABLE} is sent."
        ),
    ] = None,
) -> int:
    """Check whether a service conforms to the Store Resource API.

    The exit status is 0 if it does, 1 if it does not, 2 if that could not be checked. The checks
    that write add stores, which cannot be deleted. So it asks first, unless there are only the
    examples.
    """
    from msgspec.structs import asdict

    import storeapi_check
    from storekeeper.domain.stores import EXAMPLES

    if not MIN_TIMEOUT <= timeout <= MAX_TIMEOUT:  # the parser accepts nan
        raise CannotStart(f"--timeout: from {MIN_TIMEOUT} to {MAX_TIMEOUT} seconds, not {timeout}")

    def ask_first(most: int) -> None:
        intent = f"to check {url} adds up to {most} stores, which cannot be deleted"
        ask(intent, "nothing was added; --read-only checks without adding")

    return storeapi_check.run(
        url,
        read_only=read_only,
        json=json,
        timeout=timeout,
        token=read_token(token),
        ask=None if yes else ask_first,
        examples=[{"id": id} | asdict(store) for id, store in enumerate(EXAMPLES, 1)],
    )


@app.command()
def openapi() -> None:
    """Print the contract as an OpenAPI document."""
    from storekeeper.api.routes.docs import encoded_document

    print(encoded_document().decode(), end="")
