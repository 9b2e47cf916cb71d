"""The columns of SQLite's tables, each named once, and the statements that follow from them. Imports the domain.

Rows go to SQLite as one JSON array of arrays: one step of its virtual machine, which runs without the interpreter's
lock, for a whole batch. Row by row, the thread would release that lock and wait for it again with every row.
"""

from collections.abc import Iterable

import msgspec

from storekeeper.stores import Store

STORE = ("id", "name", "address", "version")
"""The columns of `stores`, in the order of a row's array."""

CHANGE = {"seq": "version", "store_id": "id", "name": "name", "address": "address"}
"""The columns of `changes`, and the column of a store that goes into each; `at`, the time, is the batch's."""

_encode = msgspec.json.Encoder().encode


def as_json(stores: Iterable[Store]) -> str:
    """Return stores as one JSON array of rows."""
    return _encode([(store.id, store.name, store.address, store.version) for store in stores]).decode()


def _value(column: str) -> str:
    return f"value ->> {STORE.index(column)}"


INSERT = f"INSERT INTO stores ({', '.join(STORE)}) SELECT {', '.join(map(_value, STORE))} FROM json_each(?)"
UPDATE = f"""UPDATE stores SET {", ".join(f"{column} = {_value(column)}" for column in STORE[1:])}
  FROM json_each(?) WHERE stores.id = {_value("id")}"""
ADD_CHANGES = f"""INSERT INTO changes ({", ".join(CHANGE)}, at)
  SELECT {", ".join(map(_value, CHANGE.values()))}, ?2 FROM json_each(?1)"""
STATE = "SELECT ifnull((SELECT max(id) FROM stores), 0), ifnull((SELECT max(seq) FROM changes), 0)"
"""Selects how many stores there are, and the collection's version."""
