"""The command line: parses and prints. May import every part; each command imports what it needs when it runs."""

import asyncio
import inspect
import os
import sys
import typing
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from storekeeper import __version__, atomicfile
from storekeeper.collection import Collection
from storekeeper.errors import StorekeeperError
from storekeeper.settings import Settings, make, option, refuse_unknown, variable, without_service_links

EXIT_USAGE = 2
EXIT_BUG = 70
"""As EX_SOFTWARE of sysexits.h."""

MIN_TIMEOUT = 0.1
MAX_TIMEOUT = 60.0
STANDARD_STREAM = Path("-")
"""Standard input or output."""

app = typer.Typer(
    name="storekeeper",
    help="One list of a company's stores, kept durable and served over the Store Resource API.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut off what does not fit
)


class UsageError(Exception):
    """A command cannot be carried out; the message, one line, says what is wrong and what to do."""


def main() -> None:
    """Run a command; end with status 2 and one line on stderr if it cannot be carried out."""
    _open_standard_streams()
    for name in os.environ.keys() - without_service_links():
        del os.environ[name]
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()
    except TyperException as error:
        status = _report_failure(error.format_message())
    except (UsageError, StorekeeperError) as error:
        status = _report_failure(str(error))
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except OSError as error:
        # Python would write the rest of its output when it ends, and fail once more.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = _report_failure(f"cannot go on: {error.strerror}")
    except Exception as error:  # noqa: BLE001 - every bug is reported in one line
        status = _report_failure(f"a bug, please report it: {type(error).__name__}: {error}", EXIT_BUG)
    sys.exit(status)


def _report_failure(message: str, status: int = EXIT_USAGE) -> int:
    if message:
        _print_line(f"storekeeper: {message}")
    return status


def _print_line(message: str) -> None:
    # One line, even if a name in it has line breaks, and no control character that a terminal would obey.
    line = " ".join(message.split())
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    # The work is done: a message that cannot be printed must not make it look failed.
    with suppress(OSError):
        print(printable, file=sys.stderr)  # noqa: T201


def _open_standard_streams() -> None:
    """Open replacements for standard streams that are closed, so that no other file gets their numbers.

    Writing to such a standard output fails; what is written to such a standard error is lost.
    """
    for number, name, mode in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            os.open(os.devnull, mode)  # takes the lowest number that is free
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _options(*names: str) -> list[inspect.Parameter]:
    """Return Typer's parameters for settings."""
    hints = typing.get_type_hints(Settings, include_extras=True)
    defaults = dict(zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True))
    parameters = []
    for name in names:
        kind: Any
        kind, meta = typing.get_args(hints[name])
        flag = option(name)
        if kind is bool:
            flag += "/--no-" + name.replace("_", "-")
        annotation = Annotated[kind, typer.Option(flag, envvar=variable(name), help=meta.description)]
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation)
        )
    return parameters


def _with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of these settings to a command, which gets them as its argument `settings`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "settings"]

        def wrapped(**values: Any) -> Any:
            refuse_unknown()
            settings = make({name: values.pop(name) for name in names})
            return command(settings=settings, **values)

        wrapped.__signature__ = inspect.Signature(own + _options(*names))  # type: ignore[attr-defined]
        wrapped.__name__ = command.__name__
        wrapped.__doc__ = command.__doc__
        return wrapped

    return decorate


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"storekeeper {__version__}")  # noqa: T201
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())  # noqa: T201
        raise typer.Exit(EXIT_USAGE)


@app.command()
@_with_settings(*Settings.__struct_fields__)
def serve(settings: Settings) -> int:
    """Serve the stores until SIGTERM or Ctrl-C."""
    from storekeeper import service  # noqa: PLC0415

    return service.serve(settings)


@app.command("import")
@_with_settings("database")
def import_(
    file: Annotated[
        Path, typer.Argument(help="A CSV file in UTF-8 with the header name,address; - reads standard input.")
    ],
    settings: Settings,
) -> None:
    """Add all stores of a CSV file, or none.

    A running service may go on.
    """
    from storekeeper import csvfile  # noqa: PLC0415

    def report(line: int, message: str) -> None:
        _print_line(f"{file}:{line}: {message}")

    async def load(collection: Collection) -> int:
        with _progress("Importing") as progress:
            return len(await collection.load(csvfile.read(opened, report, progress)))

    try:
        # Never closed: after Ctrl-C a thread may still read from it, and closing would wait for that thread.
        opened = csvfile.open_to_read(sys.stdin.fileno() if file == STANDARD_STREAM else file)
        count = _with_collection(settings, load)
    except csvfile.BadFile as error:
        raise UsageError(f"{file}: {error}; nothing was imported") from None
    except csvfile.BadRows as error:
        raise UsageError(f"{file}: {error}; nothing was imported, mend them and import again") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    _print_line(f"{count} stores imported")


@app.command()
@_with_settings("database")
def export(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="The CSV file to write; - is standard output.")] = STANDARD_STREAM,
) -> None:
    """Write all stores as CSV.

    As they are at one moment, in UTF-8.
    """
    from storekeeper import csvfile, databases  # noqa: PLC0415

    async def save() -> int:
        async with databases.open_listing(settings.database) as listing:
            with _progress("Exporting") as progress, _output(file) as opened:
                return await csvfile.write(opened, listing, progress)

    if databases.is_database_file(settings.database, Path("/dev/stdout") if file == STANDARD_STREAM else file):
        raise UsageError(f"{file} is the database itself, or its log: name another file")
    try:
        count = asyncio.run(save())
    except BrokenPipeError:
        return  # the reader of the output has closed it
    except OSError as error:
        raise UsageError(
            f"{'standard output' if file == STANDARD_STREAM else file} cannot be written: {error.strerror}"
        ) from None
    _print_line(f"{count} stores exported")


@app.command()
def check(
    url: Annotated[str, typer.Argument(help="The address of any service, such as http://127.0.0.1:8080.")],
    *,
    read_only: Annotated[bool, typer.Option("--read-only", help="Add no store; leave out what writes.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit XML file too.")] = None,
    timeout: Annotated[float, typer.Option(min=MIN_TIMEOUT, max=MAX_TIMEOUT, help="Seconds for one exchange.")] = 7.0,
) -> int:
    """Tell whether a service conforms.

    To the Store Resource API; the exit status is 0 if it does, 1 if it does not, 2 if that could not be checked.
    """
    from storekeeper import conformance  # noqa: PLC0415

    if not MIN_TIMEOUT <= timeout <= MAX_TIMEOUT:  # the parser accepts nan
        raise UsageError(f"--timeout: from {MIN_TIMEOUT} to {MAX_TIMEOUT} seconds")
    return conformance.run(url, read_only=read_only, json=json, junit=junit, timeout=timeout)


@app.command()
def copy(
    source: Annotated[str, typer.Argument(help="The URL of the database to read, as --database takes it.")],
    target: Annotated[str, typer.Argument(help="The URL of an empty one, of any kind; a file is created.")],
) -> None:
    """Copy a collection to another database.

    All stores and changes, as they are at one moment, verified; or nothing. A running service may go on: this is
    also how a backup is made.
    """
    from storekeeper import databases  # noqa: PLC0415

    with _progress("Copying", "rows") as progress:
        stores, changes = databases.copy(source, target, progress)
    _print_line(f"{stores} stores and {changes} changes copied and verified")


@app.command()
def openapi() -> None:
    """Print the contract as an OpenAPI document."""
    from storekeeper.api.docs import encoded_document  # noqa: PLC0415

    print(encoded_document().decode())  # noqa: T201


def _with_collection(settings: Settings, action: Callable[[Collection], Awaitable[int]]) -> int:
    from storekeeper import databases  # noqa: PLC0415

    databases.prepare(settings.database)

    async def run() -> int:
        collection = databases.open_collection(settings.database, lambda _: None)
        try:
            return await action(collection)
        finally:
            await collection.close()

    return asyncio.run(run())


@contextmanager
def _output(file: Path) -> Iterator[typing.IO[str]]:
    """Open the output for writing. A file gets its name, and its old permissions, only when it is complete."""
    if file == STANDARD_STREAM:
        stream = open(sys.stdout.fileno(), "w", encoding="utf-8", newline="", closefd=False)  # noqa: SIM115
        with stream:
            yield stream
        return
    if file.exists() and not file.is_file():  # a pipe, or /dev/stdout
        with file.open("w", encoding="utf-8", newline="") as opened:
            yield opened
        return
    with atomicfile.replacing(file) as opened:
        yield opened


@contextmanager
def _progress(title: str, unit: str = "stores") -> Iterator[Callable[..., None]]:
    """Show on a terminal how many rows are done, and of how many if that is known."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:,}} {unit}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda count, total=None: bar.update(task, completed=count, total=total)
