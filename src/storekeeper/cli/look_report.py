"""What the command `import --look` says about a file."""

from collections.abc import Iterator, Sequence

from storekeeper.cli.results import report
from storekeeper.cli.terminal import counted
from storekeeper.domain.problems import MAX_BRIEF_LENGTH, shown
from storekeeper.sheets.delimiters import DELIMITERS
from storekeeper.sheets.look_types import Choice, ColumnLook, Look

_MAX_ENCODINGS = 20
_MAX_COLUMNS = 40


def tell_look(look: Look, *, json: bool) -> None:
    """Print what a file is, what an import would make of it, and the options that say so."""
    report(look, *_lines(look), json=json)


def _lines(look: Look) -> Iterator[str]:
    yield f"{look.kind}, {counted(look.rows, 'row')}{_layout(look)}"
    yield from _encodings(look)
    for name in (each.name for each in look.sheets if each.name != look.sheet):
        yield f"another sheet: {name}"
    for column in look.columns[:_MAX_COLUMNS]:
        yield _described(column)
    for part, choice in (("name", look.name), ("address", look.address), ("match", look.match)):
        yield f"{part}: {_chosen(choice)}"
    if look.unused:
        yield f"not used: {_listed(look.unused)}"
    yield from look.notes
    yield f"import with: {look.command}"


def _encodings(look: Look) -> Iterator[str]:
    """Yield the encodings that a text may have, those together that make one text of it."""
    names: dict[str, list[str]] = {}
    for each in look.encodings[:_MAX_ENCODINGS]:
        names.setdefault(shown(each.example, 2 * MAX_BRIEF_LENGTH), []).append(each.encoding)
    for example, of_example in names.items():
        yield f"perhaps {' or '.join(of_example)}: {example}"


def _layout(look: Look) -> str:
    parts = []
    if look.encoding:
        parts.append(f"encoding {look.encoding}")
    if look.delimiter:
        parts.append(f"{DELIMITERS[look.delimiter]} between cells")
    if look.sheet is not None:
        parts.append(f'sheet "{look.sheet}"')
    if look.header_row is not None:
        parts.append(f"header in row {look.header_row}")
    elif look.kind not in ("json", "jsonl"):
        parts.append("no header")
    return "".join(f", {part}" for part in parts)


def _described(column: ColumnLook) -> str:
    use = f" ({column.use})" if column.use else ""
    examples = ", ".join(repr(shown(each, MAX_BRIEF_LENGTH)) for each in column.examples)
    return f"{column.name or 'without a name'}{use}: {examples or 'empty'}"


def _chosen(choice: Choice) -> str:
    return f"{'none' if choice.value is None else choice.value} ({choice.reason})"


def _listed(names: Sequence[str]) -> str:
    return shown(", ".join(names), 4 * MAX_BRIEF_LENGTH)
