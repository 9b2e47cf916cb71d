"""The statements that follow from the columns of the tables, for SQLite. Imports the domain.

Many rows go to SQLite in one statement, else the thread would wait for the interpreter's lock with every row. A table
of values costs half of what a JSON array costs that SQLite takes apart.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any

import apsw
import msgspec

from storekeeper.sqlite.migrations import CHANGES_TABLE
from storekeeper.tables import CHANGES, CONTENT, FIELDS, OF_CHANGE, STORES

_encode = msgspec.json.Encoder().encode

decode_integers = msgspec.json.Decoder(list[int]).decode
"""Returns the integers of a JSON array."""

MAX_ROWS = 64
"""Rows of one statement."""

Row = tuple[str | int | None, ...]


def as_json(values: Iterable[str | int]) -> str:
    """Return values as one JSON array."""
    return _encode(list(values)).decode()


def execute_with_rows(execute: Callable[..., apsw.Cursor], statement: str, rows: Sequence[Row]) -> list[Any]:
    """Execute a statement of this module as few times as it takes; return the one row of each time, None without any.

    `rows` are the parameters of its `{rows}`.
    """
    found, end, count = list[Any](), 0, len(rows)
    while end < count:
        # Only eights, then the rest: each size is a statement of its own, and SQLite's connection keeps a hundred.
        size = min(MAX_ROWS, (count - end) // 8 * 8 or count - end)
        chunk, end = rows[end : end + size], end + size
        found.append(execute(_with_rows(statement, size, len(rows[0])), tuple(chain.from_iterable(chunk))).get)
    return found


@cache
def _with_rows(statement: str, size: int, width: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement.format(rows=", ".join([row] * size))


# The changes were just written: their pages are in memory. `LIMIT` keeps SQLite from reading all stores to find them.
_CHANGED = f"FROM json_each(?) CROSS JOIN {CHANGES_TABLE} AS change ON seq = value"
_VALUES = ", ".join(f"change.{OF_CHANGE[name]}" for name in STORES)
INSERT = f"INSERT INTO stores ({', '.join(STORES)}) SELECT {_VALUES} {_CHANGED}"
"""Makes stores of the changes of these versions."""
UPDATE = f"""UPDATE stores SET {", ".join(f"{name} = change.{OF_CHANGE[name]}" for name in STORES if name != "id")}
  FROM (SELECT change.* {_CHANGED} LIMIT -1) AS change WHERE stores.id = change.store_id"""
ADD_CHANGES = f"INSERT INTO {CHANGES_TABLE} ({', '.join(CHANGES)}) VALUES {{rows}}"
COMPARE = f"""WITH new (place, id, {FIELDS}) AS (VALUES {{rows}})
  SELECT json_group_array(id), json_group_array(version),
    json_group_array(place) FILTER (WHERE {" AND ".join(f"stores.{name} IS new.{name}" for name in CONTENT)})
  FROM new CROSS JOIN stores USING (id)"""
"""Selects of `commands.replacements`: the ids that exist, their versions, and the places whose content is equal."""
FIND_KEYS = f"""SELECT keys.key, request, store_id, seq
  FROM json_each(?) AS wanted CROSS JOIN keys ON keys.key = wanted.value CROSS JOIN {CHANGES_TABLE} USING (seq)"""
ADD_KEYS = "INSERT INTO keys (key, request, seq, at) VALUES {rows}"
OLDEST_KEY = "SELECT n, at, (SELECT max(n) FROM keys) FROM keys ORDER BY n LIMIT 1"
DELETE_KEYS = """DELETE FROM keys WHERE n IN (SELECT n FROM keys ORDER BY n LIMIT ?)
  AND (n <= ? OR (n <= ? AND at < ?))"""
"""Of so many oldest keys deletes those up to a number, and those up to another one that are older than a time."""
STATE = f"""SELECT ifnull(count, 0), ifnull(seq, 0), epoch, ifnull(at, 0) FROM collection
  LEFT JOIN {CHANGES_TABLE} ON seq = (SELECT max(seq) FROM {CHANGES_TABLE})"""
"""Selects how many stores there are, the collection's version and epoch, and when its latest change was."""
