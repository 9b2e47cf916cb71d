"""`make reference`: writes the generated part of each page of docs/reference, between two
markers."""

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
from storekeeper.cli.results import RESULTS
from storekeeper.settings import VARIABLES, Settings, option

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/reference"
SOURCE = ROOT / "src/storekeeper"
BEGIN, END = "<!-- made: begin (by make reference) -->", "<!-- made: end -->"

_LIMIT = re.compile(
    r"(MAX|MIN|RESERVED)_\w+|(\w+_)?(TIMEOUT|INTERVAL|DELAY|PAUSE|AGE|LIMIT|SIZE|BURST|BYTES)"
)
_OF_PYTHON = {"FIELD_BYTES", "PLAN_BYTES", "QUOTE_BYTES", "MAX_INTEGER"}
"""Constants that say how much memory something takes; they are not limits."""

_TIME = re.compile(r"TIMEOUT|INTERVAL|DELAY|PAUSE|AGE$|SECONDS|WAIT|_TIME$")


def main() -> None:
    """Update all pages."""
    for name in MADE:
        page = PAGES / f"{name}.md"
        page.write_text(renewed(name, page.read_text()))


def renewed(name: str, page: str) -> str:
    """Return the text of a page with its generated part updated."""
    before, _, rest = page.partition(BEGIN)
    return "\n".join([f"{before}{BEGIN}", *MADE[name](), f"{END}{rest.partition(END)[2]}"])


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def code(text: object) -> str:
    """Return a text as code; an empty text stays empty."""
    return f"`{text}`" if str(text) else ""


# The command line.


def commands() -> Iterator[str]:
    """Yield all commands with their `--help`."""
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
    """Yield the `--help` of one command."""
    context = typer.Context(command, info_name=path)
    yield f"\n## {path}\n\n{command.help}\n"
    if path == "storekeeper serve":
        yield "Its options are the [settings](settings.md)."
        return
    yield code(f"{path} {' '.join(command.collect_usage_pieces(context))}")
    if rows := [parameter(context, each) for each in command.params]:
        yield "\n| argument or option | default | what it does |\n|---|---|---|"
        yield from rows
    yield from printed(path.removeprefix("storekeeper "))


def printed(command: str) -> Iterator[str]:
    """Yield what a command prints with `--json`."""
    for part in RESULTS.get(command, ()):
        if isinstance(part, str):
            yield f"\nWith `--json`: {part}"
            continue
        yield f"\nWith `--json`: `{part.__name__}`. {part.__doc__}\n"
        yield "| field | type | what it is |\n|---|---|---|"
        for each in msgspec.structs.fields(part):
            kind, meta = typing.get_args(each.type)
            yield row(code(each.encode_name), code(json_type(kind)), meta.description)


def json_type(kind: Any) -> str:
    """Return what JSON calls a type."""
    names = {str: "string", int: "number", bool: "true or false", type(None): "null"}
    if kind in names:
        return names[kind]
    if typing.get_origin(kind) is list:
        return f"list of {json_type(typing.get_args(kind)[0])}"
    parts = typing.get_args(kind)
    return " or ".join(map(json_type, parts)) if parts else kind.__name__


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
        default = ""
        if field.default not in (None, ()):
            default = code(str(field.default).lower())
        names = code(option(field.name)), code(VARIABLES.get(field.name, ""))
        yield row(*names, values(kind, rest), default, rest[-1])


def values(kind: Any, rest: list[Any]) -> str:
    """Return the values that a setting accepts: words, or a range of numbers."""
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
            series = f"storekeeper_{name}"
            if family.kind == "counter":
                series += "_total"
            labels = ", ".join(code(label) for label in family.labels)
            yield row(code(series), family.kind, labels, family.help)
    yield f"\nHistograms have buckets up to {', '.join(map(str, BOUNDS))} seconds, and above."
    for name, label in (("writes", "result"), ("refused", "reason")):
        words = ", ".join(map(code, FAMILIES[name].labels[label]))
        yield f"\nThe {label} of `storekeeper_{name}_total` is one of {words}."


# The limits.


def limits() -> Iterator[str]:
    """Yield the constants that are limits, from all modules, each with its docstring."""
    yield "| constant | value | what it limits |"
    yield "|---|---:|---|"
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(
            part for part in path.relative_to(SOURCE).with_suffix("").parts if part != "__init__"
        )
        for names, text in documented(path):
            if found := [name for name in names if is_limit(module, name)]:
                shown = "; ".join(quantity(constant(module, name), name, text) for name in found)
                constants = ", ".join([code(f"{module}.{found[0]}"), *map(code, found[1:])])
                yield row(constants, shown, text)


def is_limit(module: str, name: str) -> bool:
    """Return whether a constant is a limit, judging by its name."""
    value = constant(module, name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or name.startswith("_") or name in _OF_PYTHON:
        return False
    return bool(_LIMIT.fullmatch(name))


def constant(module: str, name: str) -> Any:
    """Return the value of a constant."""
    return getattr(importlib.import_module(f"storekeeper.{module}"), name)


def documented(path: Path) -> Iterator[tuple[list[str], str]]:
    """Yield the constants of a module that have a docstring, with it.

    Constants on consecutive lines may share a docstring.
    """
    names: list[str] = []
    end = 0
    for node in ast.parse(path.read_text()).body:
        name, text = assigned_constant(node), literal_text(node)
        if text and names:
            yield names, " ".join(text.split())
        if not name:
            names = []
        elif node.lineno == end + 1:
            names.append(name)
        else:
            names = [name]
        end = node.end_lineno or 0


def assigned_constant(node: ast.stmt) -> str:
    """Return the name of the constant that a statement assigns, or ""."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        return name if name.isupper() else ""
    return ""


def literal_text(node: ast.stmt) -> str:
    """Return the text of a statement that is only a string, or ""."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else ""
    return ""


def quantity(value: float, name: str, text: str) -> str:
    """Return a value with the unit that its name or text implies."""
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
