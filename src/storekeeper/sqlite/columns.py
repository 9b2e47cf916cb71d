"""The statements that follow from the columns of the tables, for SQLite. Imports the domain.

Rows go to SQLite as one JSON array of arrays: one step of its virtual machine, which runs without the interpreter's
lock, for a whole batch. Row by row, the thread would release that lock and wait for it again with every row.
"""

from collections.abc import Iterable

import msgspec

from storekeeper.sqlite.migrations import CHANGES
from storekeeper.tables import CHANGES as COLUMNS
from storekeeper.tables import STORES

_encode = msgspec.json.Encoder().encode

_STORE = {"id": "store_id", "name": "name", "address": "address", "version": "seq"}
"""The columns of `stores`, and the column of a change that goes into each."""


def as_json(rows: Iterable[tuple[str | int | None, ...]] | Iterable[int]) -> str:
    """Return rows as one JSON array."""
    return _encode(rows).decode()


def _value(column: str) -> str:
    return f"value ->> {list(COLUMNS).index(column)}"


_VALUES = ", ".join(_value(_STORE[name]) for name in STORES)
INSERT = f"INSERT INTO stores ({', '.join(STORES)}) SELECT {_VALUES} FROM json_each(?)"
UPDATE = f"""UPDATE stores SET {", ".join(f"{name} = {_value(_STORE[name])}" for name in STORES if name != "id")}
  FROM json_each(?) WHERE stores.id = {_value("store_id")}"""
ADD_CHANGES = (
    f"INSERT INTO {CHANGES} ({', '.join(COLUMNS)}) SELECT {', '.join(map(_value, COLUMNS))} FROM json_each(?)"
)
VERSIONS = """SELECT key, stores.id, version, name = value ->> 2 AND address IS value ->> 3
  FROM json_each(?) CROSS JOIN stores ON stores.id = value ->> 1"""
"""Selects of each of `commands.touched` its index in that list, id, version, and whether its content is equal."""
STATE = f"""SELECT ifnull(count, 0), ifnull(seq, 0), epoch, ifnull(at, 0) FROM collection
  LEFT JOIN {CHANGES} ON seq = (SELECT max(seq) FROM {CHANGES})"""
"""Selects how many stores there are, the collection's version and epoch, and when its latest change was."""
