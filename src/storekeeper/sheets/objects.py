"""JSON lines, and an array of JSON, as rows: one object each."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import msgspec

from storekeeper.domain.problems import shown
from storekeeper.sheets import FIELDS, BadFile, Record
from storekeeper.sheets.cells import NoText

_SAMPLE = 100
"""Objects whose keys are the columns, with the fields of a store."""

_SAVE = "save the list of stores as an array, or each store as an object in a line of its own"

_BETWEEN = re.compile(r"[ \t\r\n,]*+")
"""What stands between the objects of an array."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

Numbered = Iterator[tuple[int, Mapping[str, object]]]


def of_lines(lines: Iterator[str]) -> Iterator[Record]:
    """Yield the keys of JSON lines, then the cells of each. Raises BadFile."""
    return _records(_objects(lines))


def of_array(text: str) -> Iterator[Record]:
    """Yield the keys of the objects of one array, then the cells of each. Raises BadFile."""
    return _records(_items(text))


def _records(objects: Numbered) -> Iterator[Record]:
    sample = list(islice(objects, _SAMPLE))
    if not sample:
        return
    columns = list(dict.fromkeys(chain(*(each for _, each in sample), FIELDS)))
    yield sample[0][0], list[object](columns)
    for number, record in chain(sample, objects):
        yield number, [record.get(name) for name in columns]


def _objects(lines: Iterator[str]) -> Numbered:
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    for place, (number, line) in enumerate(numbered):
        try:
            record = _object(line, number)
        except BadFile as error:
            raise error if place else BadFile(f"{error} in one line: {_SAVE}") from None
        if place == 0:
            _refuse_wrapper(record)
        yield number, record


def _refuse_wrapper(record: Mapping[str, object]) -> None:
    """Raise BadFile if the first object is not a store, but has a list of them."""
    if record.get("type") == "FeatureCollection":
        raise BadFile("This is GeoJSON: save its list of stores as CSV")
    lists = [name for name, cell in record.items() if _is_list_of_objects(cell)]
    if lists and "name" not in map(str.casefold, record):
        raise BadFile(f'This is one object of JSON with the list "{shown(lists[0], 40)}": {_SAVE}')


def _is_list_of_objects(cell: object) -> bool:
    return isinstance(cell, NoText) and cell.startswith("[{")


def _items(text: str) -> Numbered:
    """Yield the objects of an array, each with the line where it begins."""
    scan = json.JSONDecoder().raw_decode
    at, number = text.index("[") + 1, 1
    counted = 0
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing too
        number += text.count("\n", counted, at)
        counted = at
        if text.startswith("]", at):
            return
        try:
            _, end = scan(text, at)
        except (json.JSONDecodeError, RecursionError):
            raise BadFile(f"line {number}: not a JSON object") from None
        yield number, _object(text[at:end], number)
        at = end


def _object(text: str, number: int) -> Mapping[str, object]:
    try:
        return {name: _cell(value) for name, value in _decode(text).items()}
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        raise BadFile(f"line {number}: not a JSON object") from None


def _cell(value: object) -> object:
    """Return a value of JSON as a cell. Raises RecursionError."""
    if value is None:
        return ""
    return NoText(_encode(value).decode()) if isinstance(value, list | dict) else value
