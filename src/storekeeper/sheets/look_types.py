"""What a file from outside is, as the console and commands show it and send it back."""

import msgspec

MAX_COLUMNS_SHOWN = 200
MAX_EXAMPLES = 3
MAX_SAMPLE_ROWS = 20
"""What a look has of a file: columns, examples of each, and first rows."""

MAX_TEXT_LENGTH = 200
"""Characters that a look shows of one cell."""


class Candidate(msgspec.Struct, frozen=True):
    """An encoding that a text may have, and a line of the file as it has it."""

    encoding: str
    example: str


class SheetOfBook(msgspec.Struct, frozen=True, rename="camel"):
    """A visible sheet of a workbook, and whether it looks like a list of stores."""

    name: str
    is_list: bool


class ColumnLook(msgspec.Struct, frozen=True, rename="camel"):
    """A column of a file: its name, or its number without a header; how many rows have a cell of
    it, and how many different ones these are, None if they were not counted to the end.

    `use` is what the proposal makes of it: name, address, key, version, or None for nothing;
    `looks_like` is what its heading says.
    """

    name: str
    examples: list[str]
    filled: int
    distinct: int | None
    use: str | None
    looks_like: str


class Choice(msgspec.Struct, frozen=True):
    """What a part of a store comes from, None for nothing, and why."""

    value: str | None
    reason: str


class SampleRow(msgspec.Struct, frozen=True):
    """A row of the file as it has it, and the line where it begins."""

    line: int
    cells: list[str]


class Look(msgspec.Struct, frozen=True, rename="camel"):
    """What a file is, and what an import would make of it.

    `parameters` is the whole reading, as an import takes it; `command` is the same as options.
    `unsaid` names those that an import asks for, because they are not the only reading.
    """

    kind: str
    encoding: str | None
    encodings: list[Candidate]
    delimiter: str | None
    delimiters: list[str]
    sheet: str | None
    sheets: list[SheetOfBook]
    header_row: int | None
    rows: int
    columns: list[ColumnLook]
    sample: list[SampleRow]
    name: Choice
    address: Choice
    match: Choice
    match_choices: list[str]
    unused: list[str]
    dropped: list[str]
    notes: list[str]
    unsaid: list[str]
    parameters: dict[str, str | list[str]]
    command: str
