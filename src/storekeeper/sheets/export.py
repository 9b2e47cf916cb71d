"""Which stores an export has, and its columns, whatever the database and the format."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import IO, NamedTuple

import msgspec

from storekeeper.domain import search
from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.parameters import FLAG, Parameter, one_of, parse_ids, read
from storekeeper.domain.queries import AT, Moment, check_moment
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.domain.search import Search
from storekeeper.domain.stores import MAX_EXTERNAL_LENGTH, MAX_INTEGER, Payload
from storekeeper.sheets import TYPES
from storekeeper.sheets.columns import heading_of_keys, parse_column, without_prefix
from storekeeper.storage.collection import Rows, Snapshot
from storekeeper.storage.sql import FIELDS

COLUMNS = ("id", *Payload.__struct_fields__, "version")

_LATEST_TIME = "SELECT at FROM changes ORDER BY seq DESC LIMIT 1"
_SEQ_AT = "SELECT seq FROM changes WHERE at <= $1 ORDER BY seq DESC LIMIT 1"
_KEY_COLUMNS = "SELECT DISTINCT column_name FROM external_ids ORDER BY column_name"
_WITH_KEY = "SELECT store_id FROM external_ids WHERE value = $1"
_KEY = "(SELECT value FROM external_ids WHERE store_id = id AND column_name = ${})"
_AS_OF = f"""(SELECT store_id AS id, {FIELDS} FROM changes JOIN (
    SELECT max(seq) AS seq FROM changes WHERE seq <= {{version}} GROUP BY store_id)
  AS latest USING (seq)) AS past"""  # noqa: S608 - only from constants


ALL_KEYS = "all"
"""What asks for all columns of outside keys."""

MAX_KEY_COLUMNS = 50
"""Columns of outside keys that an export may have."""

MAX_IDS = 1000
"""Stores that an export may name one by one."""


class Export(msgspec.Struct, frozen=True):
    """An export: all stores, those that a search finds, those of `ids`, or as they were at a
    moment; ascending by id.

    `key_columns` are the columns whose keys of outside systems are next to each store; ALL_KEYS
    means all. `excel` and `bom` are for CSV: as Excel expects it in many languages, or only with a
    byte order mark, which tells Excel the encoding.
    """

    format: str = "csv"
    search: Search | None = None
    at: Moment | None = None
    ids: Sequence[int] | None = None
    key_columns: Sequence[str] = ()
    excel: bool = False
    bom: bool = False


def _parse_columns(values: Sequence[bytes]) -> tuple[str, ...] | None:
    columns = [parse_column(value) for value in values if value]
    found = tuple(dict.fromkeys(column for column in columns if column is not None))
    if None in columns or len(found) > MAX_KEY_COLUMNS:
        return None
    return found


PARAMETERS: Mapping[str, Parameter] = {
    "q": search.PARAMETER,
    "at": AT,
    "ids": Parameter(
        parse_ids(MAX_IDS),
        f"ids with commas between them, {MAX_IDS} at most",
        excludes=("q", "at"),
    ),
    "with": Parameter(
        _parse_columns,
        f"all, or the names of columns, of {MAX_EXTERNAL_LENGTH} characters at most",
        is_repeatable=True,
    ),
    "bom": FLAG,
    "format": Parameter(one_of(*TYPES), f"one of {', '.join(TYPES)}"),
}
"""The parameters of an export."""

_ATTRIBUTES = {"q": "search", "with": "key_columns"}


def options_of(sent: Mapping[str, Sequence[bytes]]) -> Export:
    """Return the export that these values of parameters ask for; raises InvalidInput with every
    violation."""
    found = read(sent, PARAMETERS)
    return Export(**{_ATTRIBUTES.get(name, name): value for name, value in found.items()})


class Written(NamedTuple):
    """What was written: how many stores, their version and epoch, and how many cells of CSV begin
    as formulas do."""

    stores: int
    version: int
    epoch: str
    formulas: int


def write(
    snapshot: Snapshot, options: Export, file: IO[bytes], progress: Callable[[int], None]
) -> Written:
    """Write an export; `progress` gets the number of each row that was read. Raises InvalidInput,
    EpochEnded, Unavailable."""
    from storekeeper.sheets import writing  # noqa: PLC0415 - a start of the service needs no csv and no zipfile

    _, version, epoch = snapshot.state()
    if options.at is not None:
        version = _version_at(snapshot, options.at, version, epoch)
    keys = _key_columns(snapshot, options.key_columns)
    columns = (*COLUMNS, *map(heading_of_keys, keys))
    count = formulas = 0

    def rows() -> Rows:
        nonlocal count, formulas
        for id, name, address, *of_outside in found:
            count += 1
            row = (id, name, address, f"{version}.{epoch}", *of_outside)
            if options.format == "csv":
                formulas += writing.formula_like(row)
            yield row

    with (
        closing(_select(snapshot, options, version, keys, progress)) as found,
        closing(rows()) as shown,
    ):
        writing.write(file, options.format, columns, shown, excel=options.excel, bom=options.bom)
    return Written(count, version, epoch, formulas)


def _version_at(snapshot: Snapshot, at: Moment, version: int, epoch: str) -> int:
    """Return the version at a moment. Raises EpochEnded, InvalidInput."""
    latest = next(snapshot.select(_LATEST_TIME), (0,))[0]
    check_moment(at, version, epoch, max(latest, time.time_ns() // 1_000_000))
    if at.time is None:
        return at.seq or 0
    return int(next(snapshot.select(_SEQ_AT, max(at.time, -MAX_INTEGER)), (0,))[0])


def _key_columns(snapshot: Snapshot, asked: Sequence[str]) -> list[str]:
    """Return the columns of keys as they are remembered. Raises InvalidInput."""
    if not asked:
        return []
    known = [str(name) for (name,) in snapshot.select(_KEY_COLUMNS)]
    if ALL_KEYS in asked:
        return known
    return list(dict.fromkeys(_known_column(known, column) for column in asked))


def _known_column(columns: Sequence[str], asked: str) -> str:
    if asked in columns:
        return asked
    for name in columns:
        meant = (asked.strip().casefold(), without_prefix(asked).casefold())
        if name.strip().casefold() in meant:
            return name
    known = f"these have keys: {', '.join(columns)}" if columns else "no store has any"
    rule = f"must be a column that stores have keys of; {known}"
    raise InvalidInput("query", {"with": Violation(Reason.NO_KEYS, rule)})


def _select(
    snapshot: Snapshot,
    options: Export,
    version: int,
    keys: Sequence[str],
    progress: Callable[[int], None],
) -> Rows:
    values: list[str | int] = list(keys)
    key = "".join(f", {_KEY.format(place)}" for place in range(1, len(keys) + 1))
    folded, source, where = "''", "stores", ""
    if options.search is not None:
        folded = "folded"
    if options.at is not None:
        values.append(version)
        source = _AS_OF.format(version=f"${len(values)}")
    if options.ids is not None:
        where = f"WHERE id IN ({', '.join(map(str, sorted(options.ids)))})"
    query = f"SELECT {folded}, id, {FIELDS}{key} FROM {source} {where} ORDER BY id"  # noqa: S608 - constants and numbers
    is_found = _finder(snapshot, options.search)
    for number, (text, id, *row) in enumerate(snapshot.select(query, *values), 1):
        if is_found(id, text):
            yield id, *row
        progress(number)


def _finder(snapshot: Snapshot, search: Search | None) -> Callable[[int, str], bool]:
    """Return the function that says, by id and searched text, whether a store is exported."""
    if search is None:
        return lambda _id, _text: True
    ids = {id for (id,) in snapshot.select(_WITH_KEY, search.text)} | {search.id}
    words = search.words
    return lambda store_id, text: store_id in ids or all(word in text for word in words)
