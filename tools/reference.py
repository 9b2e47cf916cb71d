"""`make reference`: writes what the pages of docs/reference have from the code, between two
markers of each."""

import ast
import importlib
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer

from storekeeper import cli
from storekeeper.api.metrics import BOUNDS, FAMILIES
from storekeeper.settings import Settings, option, variable

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/reference"
SOURCE = ROOT / "src/storekeeper"
BEGIN, END = "<!-- made: begin (by make reference) -->", "<!-- made: end -->"

_LIMIT = re.compile(
    r"(MAX|MIN|RESERVED)_\w+|(\w+_)?(TIMEOUT|INTERVAL|DELAY|PAUSE|AGE|LIMIT|SIZE|BURST|BYTES)"
)
_OF_PYTHON = {"FIELD_BYTES", "PLAN_BYTES", "QUOTE_BYTES", "MAX_INTEGER"}
"""What a thing takes, and no limit of it."""

_TIME = re.compile(r"TIMEOUT|INTERVAL|DELAY|PAUSE|AGE$|SECONDS|WAIT|_TIME$")


def main() -> None:
    """Make the pages anew."""
    for name in MADE:
        page = PAGES / f"{name}.md"
        page.write_text(renewed(name, page.read_text()))


def renewed(name: str, page: str) -> str:
    """Return the text of a page with what is made anew for it."""
    before, _, rest = page.partition(BEGIN)
    return "\n".join([f"{before}{BEGIN}", *MADE[name](), f"{END}{rest.partition(END)[2]}"])


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def code(text: object) -> str:
    """Return a text as code, nothing as nothing."""
    return f"`{text}`" if str(text) else ""


# The command line.


def commands() -> Iterator[str]:
    """Yield the commands with all that `--help` says of them."""
    root: Any = typer.main.get_command(cli.app)
    yield from described("storekeeper", root)
    for name, command in root.commands.items():
        yield from described(f"storekeeper {name}", command)
        for below, its in getattr(command, "commands", {}).items():
            yield from described(f"storekeeper {name} {below}", its)
    yield "\n## Exit statuses\n"
    yield row("status", "means")
    yield "|---:|---|"
    for status, text in cli.EXIT_STATUSES.items():
        yield row(str(status), text)


def described(path: str, command: Any) -> Iterator[str]:
    """Yield what `--help` says of one command."""
    context = typer.Context(command, info_name=path)
    yield f"\n## {path}\n\n{command.help}\n"
    if path == "storekeeper serve":
        yield "Its options are the [settings](settings.md)."
        return
    yield code(f"{path} {' '.join(command.collect_usage_pieces(context))}")
    if rows := [parameter(context, each) for each in command.params]:
        yield "\n| argument or option | default | what it does |\n|---|---|---|"
        yield from rows


def parameter(context: typer.Context, each: Any) -> str:
    """Return the row of an argument or an option."""
    name, default = each.name, each.default
    if each.param_type_name == "option":
        name = each.opts[0] if each.is_flag else f"{each.opts[0]} {each.make_metavar(context)}"
    if isinstance(default, bool) or default is None or callable(default):
        default = ""
    return row(code(name), code(default), each.help or "")


# The settings.


def settings() -> Iterator[str]:
    """Yield a row for each setting."""
    yield "| option | variable | values | default | what it does |"
    yield "|---|---|---|---|---|"
    for field in msgspec.structs.fields(Settings):
        kind, *rest = typing.get_args(field.type)
        default = code(str(field.default).lower()) if field.default not in (None, ()) else ""
        yield row(
            code(option(field.name)),
            code(variable(field.name)),
            values(kind, rest),
            default,
            rest[-1],
        )


def values(kind: Any, rest: list[Any]) -> str:
    """Return what a setting may be: the words, the numbers, or the kind of text."""
    for part in (kind, *typing.get_args(kind)):
        if typing.get_origin(part) is typing.Literal:
            return ", ".join(map(code, typing.get_args(part)))
    if isinstance(rest[0], msgspec.Meta):
        return f"{rest[0].ge} to {rest[0].le}"
    return "`true`, `false`" if kind is bool else ""


# The metrics.


def metrics() -> Iterator[str]:
    """Yield a row for each family of series."""
    yield "| series | kind | labels | what it has |"
    yield "|---|---|---|---|"
    for name, family in FAMILIES.items():
        if name != "pid":
            series = f"storekeeper_{name}{'_total' * (family.kind == 'counter')}"
            labels = ", ".join(code(label) for label in family.labels if label != "le")
            yield row(code(series), family.kind, labels, family.help)
    yield f"\nHistograms have buckets up to {', '.join(map(str, BOUNDS))} seconds, and above."
    for name, label in (("writes", "result"), ("refused", "reason")):
        words = ", ".join(map(code, FAMILIES[name].labels[label]))
        yield f"\nThe {label} of `storekeeper_{name}_total` is one of {words}."


# The limits.


def limits() -> Iterator[str]:
    """Yield the constants of all modules that are limits, with what the modules say of them."""
    yield "| constant | value | what it limits |"
    yield "|---|---:|---|"
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(
            part for part in path.relative_to(SOURCE).with_suffix("").parts if part != "__init__"
        )
        for names, text in documented(path):
            if found := [name for name in names if is_limit(module, name)]:
                shown = "; ".join(quantity(constant(module, name), name, text) for name in found)
                first, *others = map(code, [f"{module}.{found[0]}", *found[1:]])
                yield row(", ".join([first, *others]), shown, text)


def is_limit(module: str, name: str) -> bool:
    """Return whether a constant is a limit, by its name."""
    value = constant(module, name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and name[0] != "_" and name not in _OF_PYTHON and bool(_LIMIT.fullmatch(name))


def constant(module: str, name: str) -> Any:
    """Return the value of a constant."""
    return getattr(importlib.import_module(f"storekeeper.{module}"), name)


def documented(path: Path) -> Iterator[tuple[list[str], str]]:
    """Yield the constants of a module that have a docstring, with it; several lines of them may
    share one."""
    names: list[str] = []
    end = 0
    for node in ast.parse(path.read_text()).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(target := node.targets[0], ast.Name)
            and target.id.isupper()
        ):
            names = [*names * (node.lineno == end + 1), target.id]
        elif (
            names
            and isinstance(node, ast.Expr)
            and isinstance(text := ast.literal_eval(node.value), str)
        ):
            yield names, " ".join(text.split())
            names = []
        else:
            names = []
        end = node.end_lineno or 0


def quantity(value: float, name: str, text: str) -> str:
    """Return a value with its unit, as its name and text say it."""
    if "BYTES" in name or "ytes" in text[:12]:
        for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if value % size == 0:
                return f"{value // size:,} {unit}"
    if text.startswith("Milliseconds"):
        return f"{value / 3_600_000:g} h"
    if _TIME.search(name):
        return f"{value:g} s" if value >= 0.1 else f"{1000 * value:g} ms"
    return f"{value:,}"


MADE: dict[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "settings": settings,
    "metrics": metrics,
    "limits": limits,
}

if __name__ == "__main__":
    main()
