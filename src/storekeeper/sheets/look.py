"""What a file is: all that was found out about it, as one answer; and the refusal of a file that
can be read in more than one way."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from urllib.parse import quote

from storekeeper.domain.problems import MAX_BRIEF_LENGTH, shown
from storekeeper.sheets import FIELDS, BadFile
from storekeeper.sheets.columns import unique
from storekeeper.sheets.delimiters import DELIMITERS
from storekeeper.sheets.look_types import (
    MAX_COLUMNS_SHOWN,
    MAX_SAMPLE_ROWS,
    MAX_TEXT_LENGTH,
    ColumnLook,
    Look,
    SampleRow,
)
from storekeeper.sheets.notes import look_notes, named
from storekeeper.sheets.proposals import Proposal, propose
from storekeeper.sheets.protocol import AskLook, Layout
from storekeeper.sheets.records import Sheet
from storekeeper.sheets.roles import Column, File
from storekeeper.sheets.rows import SheetRows
from storekeeper.sheets.survey import Survey

_MAX_ENCODINGS = 5

Parameters = Mapping[str, str | list[str]]


def look_at(sheet: Sheet, asked: AskLook) -> Look:
    """Return what a file is. Raises BadFile."""
    rows = SheetRows(sheet, asked.layout)
    rows.check()
    survey = Survey(len(rows.names))
    sample: list[SampleRow] = []
    survey.add(_noted(rows, sample))
    columns = _columns(sheet, rows, survey)
    file = File(
        columns,
        survey.different_rows,
        rows.header_row is not None,
        asked.known_keys,
        asked.list_is_empty,
        asked.layout.map,
        asked.layout.match,
        asked.layout.add,
    )
    proposal = propose(file)
    unsaid = [*sheet.unsaid, *proposal.unsaid]
    parameters = _parameters(sheet, rows, proposal, asked.layout)
    return Look(
        kind=sheet.kind,
        encoding=sheet.encoding,
        encodings=sheet.encodings,
        delimiter=sheet.delimiter,
        delimiters=sheet.delimiters,
        sheet=sheet.name,
        sheets=sheet.sheets,
        header_row=None if sheet.has_keys else rows.header_row,
        rows=survey.rows,
        columns=_shown_columns(file, proposal, survey),
        sample=sample,
        name=proposal.name,
        address=proposal.address,
        match=proposal.match,
        match_choices=proposal.match_choices,
        unused=[
            column.name
            for column, use in zip(file.columns, proposal.uses, strict=True)
            if column.name and not use and not _is_made_up(sheet, column)
        ],
        dropped=proposal.dropped,
        notes=look_notes(sheet, rows, proposal.dropped),
        unsaid=unsaid,
        parameters=parameters,
        command=as_options(parameters),
    )


def refuse_unsaid(sheet: Sheet, layout: Layout) -> None:
    """Raise BadFile if a file can be read in more than one way, with the line that would do it
    (decision 64)."""
    if not sheet.unsaid:
        rows = SheetRows(sheet, layout)
        rows.check()
        survey = Survey(len(rows.names))
        survey.add(cells for _, cells in islice(rows.records(), len(rows.sample)))
        columns = _columns(sheet, rows, survey)
        has_header = rows.header_row is not None
        said = (layout.map, layout.match, layout.add)
        file = File(columns, survey.different_rows, has_header, [], True, *said)
        if not propose(file).unsaid:
            return
    look = look_at(sheet, AskLook(layout, [], list_is_empty=True))
    if not look.unsaid:
        return
    asked = {
        name: look.parameters[name] for name in look.parameters if _is_asked(name, look, layout)
    }
    first = look.unsaid[0]
    problem = "; ".join(_question(name, sheet, look) for name in look.unsaid)
    value = look.parameters.get(first, "")
    raise BadFile(
        problem,
        first,
        value if isinstance(value, str) else value[0],
        query=as_query(asked),
        options=as_options(asked),
    )


def _is_asked(name: str, look: Look, layout: Layout) -> bool:
    """Return whether a parameter is part of what must be said."""
    if name == "header-row":
        return (
            "map" in look.unsaid and layout.header_row is None and look.parameters[name] == "none"
        )
    return name in look.unsaid or (name == "add" and "match" in look.unsaid)


def _question(name: str, sheet: Sheet, look: Look) -> str:
    """Return what the caller must say, and between what."""
    match name:
        case "encoding":
            return f"line {sheet.bad_line}: not UTF-8, but perhaps another encoding{_in_each(look)}"
        case "delimiter":
            choices = " or ".join(DELIMITERS[each] for each in look.delimiters)
            return f"the cells may have a {choices} between them: say which"
        case "sheet":
            names = named([each.name for each in look.sheets if each.is_list])
            return f"several sheets look like lists ({names}): say which one"
        case "map":
            columns = [each.name for each in look.columns if each.name]
            listed = f"the columns are {named(columns)}"
            if look.header_row is None and not sheet.has_keys:
                listed = f"no row names the columns; the first is {named(look.sample[0].cells)}"
            return f"say which columns are name and address; {listed}"
        case _:
            choices = " or ".join(f'"{each}"' for each in look.match_choices)
            return f"say what tells the stores apart, {choices}, or that all rows are new (add)"


def _in_each(look: Look) -> str:
    examples = [
        f'{each.encoding} reads "{shown(each.example, MAX_BRIEF_LENGTH)}"'
        for each in look.encodings[:_MAX_ENCODINGS]
    ]
    return f" ({', '.join(examples)})"


def _noted(rows: SheetRows, sample: list[SampleRow]) -> Iterable[Sequence[object]]:
    """Yield the cells of all rows, and note the first ones."""
    for line, cells in rows.records():
        if len(sample) < MAX_SAMPLE_ROWS:
            texts = [_text(cell) for cell in cells[:MAX_COLUMNS_SHOWN]]
            sample.append(SampleRow(line, texts))
        yield cells


def _columns(sheet: Sheet, rows: SheetRows, survey: Survey) -> list[Column]:
    names = unique([name.strip() for name in rows.names])
    return [
        Column(
            "" if _is_absent(sheet, name, survey.filled[place]) else name,
            survey.cells[place],
            survey.filled[place],
            survey.distinct(place),
            is_empty=not survey.filled[place] and not (rows.header_row is not None and name),
        )
        for place, name in enumerate(names)
    ]


def _is_absent(sheet: Sheet, name: str, filled: int) -> bool:
    """Return whether a column stands for a field that no object of JSON has."""
    return sheet.has_keys and not filled and name in FIELDS


def _is_made_up(sheet: Sheet, column: Column) -> bool:
    return _is_absent(sheet, column.name, column.filled)


def _shown_columns(file: File, proposal: Proposal, survey: Survey) -> list[ColumnLook]:
    return [
        ColumnLook(
            shown(column.name, MAX_TEXT_LENGTH),
            survey.examples(place),
            column.filled,
            column.distinct,
            proposal.uses[place] or None,
            proposal.roles[place],
        )
        for place, column in enumerate(file.columns[:MAX_COLUMNS_SHOWN])
    ]


# The reading as parameters.


def _parameters(
    sheet: Sheet, rows: SheetRows, proposal: Proposal, layout: Layout
) -> dict[str, str | list[str]]:
    """Return the whole reading, as an import takes it."""
    found: dict[str, str | list[str]] = {}
    if sheet.encoding and not sheet.is_book:
        found["encoding"] = sheet.encoding
    if sheet.delimiter:
        found["delimiter"] = sheet.delimiter
    if sheet.name is not None:
        found["sheet"] = sheet.name
    if not sheet.has_keys:
        found["header-row"] = "none" if rows.header_row is None else str(rows.header_row)
    maps = {field: source for field, source in layout.map.items() if field in ("id", "version")}
    if proposal.name.value is not None:
        maps["name"] = proposal.name.value
    if proposal.address.value is not None or "address" in layout.map:
        maps["address"] = proposal.address.value or ""
    if maps:
        found["map"] = [f"{field}={source}" for field, source in maps.items()]
    if proposal.match.value is not None:
        found["match"] = proposal.match.value
    elif layout.add or not proposal.match_choices:
        found["add"] = "true"
    return found


def as_query(parameters: Parameters) -> str:
    """Return parameters as the query of a URL."""
    pairs = [
        f"{name}={quote(value, safe='=,:')}"
        for name, values in parameters.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    return "&".join(pairs)


def as_options(parameters: Parameters) -> str:
    """Return parameters as the options of the command."""
    parts = []
    for name, values in parameters.items():
        if name == "add":
            parts.append("--add")
            continue
        for value in [values] if isinstance(values, str) else values:
            field, separator, source = value.partition("=") if name == "map" else ("", "", value)
            parts.append(f"--{name} {field}{separator}{_quoted(source)}")
    return " ".join(parts)


def _quoted(text: str) -> str:
    """Return a text as a shell takes it."""
    text = "tab" if text == "\t" else text
    if text and all(each.isalnum() or each in "_-.:/" for each in text):
        return text
    return '"' + "".join(f"\\{each}" if each in '"\\$`' else each for each in text) + '"'


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)[:MAX_TEXT_LENGTH]
