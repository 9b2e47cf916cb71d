"""What the command `import --look` says about a file."""

from collections.abc import Sequence

from storekeeper.cli.terminal import counted, print_line
from storekeeper.domain.problems import MAX_BRIEF_LENGTH, shown
from storekeeper.sheets.delimiters import DELIMITERS
from storekeeper.sheets.look_types import Choice, ColumnLook, Look

_MAX_ENCODINGS = 20
_MAX_COLUMNS = 40


def tell_look(look: Look) -> None:
    """Say what a file is, what an import would make of it, and the options that say so."""
    print_line(f"{look.kind}, {counted(look.rows, 'row')}{_layout(look)}")
    for each in look.encodings[:_MAX_ENCODINGS]:
        print_line(f"perhaps {each.encoding}: {shown(each.example, 2 * MAX_BRIEF_LENGTH)}")
    for name in (each.name for each in look.sheets if each.name != look.sheet):
        print_line(f"another sheet: {name}")
    for column in look.columns[:_MAX_COLUMNS]:
        print_line(_described(column))
    for part, choice in (("name", look.name), ("address", look.address), ("match", look.match)):
        print_line(f"{part}: {_chosen(choice)}")
    if look.unused:
        print_line(f"not used: {_listed(look.unused)}")
    for note in look.notes:
        print_line(note)
    print_line(f"import with: {look.command}")


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
