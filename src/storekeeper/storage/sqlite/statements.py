"""The statements that follow from the columns of the tables, for SQLite.

Many rows go to SQLite as one parameter: otherwise the thread would wait for the interpreter's lock
with every row. A row in JSONB is parsed once.
"""

from collections.abc import Iterable

import msgspec

from storekeeper.domain.commands import MAX_KEYS_DELETED
from storekeeper.storage.sql import CHANGES, CONTENT, OF_CHANGE, STORES
from storekeeper.storage.sqlite.migrations import CHANGES_TABLE

TOUCH_CHANGES = f"DELETE FROM {CHANGES_TABLE} WHERE false"
"""Writes nothing; it is refused once the list was moved, or upgraded by a later version: then this
table is a view."""

_encode = msgspec.json.Encoder().encode

decode_integers = msgspec.json.Decoder(list[int]).decode
"""Returns the integers of a JSON array."""

decode_patched = msgspec.json.Decoder(list[tuple[int, int, int, int, str, str | None]]).decode
"""Returns the rows of PATCHED."""

decode_replayed = msgspec.json.Decoder(list[tuple[str, str, str | None]]).decode
"""Returns the rows of REPLAYED."""


def as_json(values: Iterable[object]) -> str:
    """Return values, or rows of values, as one JSON array."""
    return _encode(list(values)).decode()


def _rows(columns: Iterable[str]) -> str:
    """Return the SELECT of the rows that a parameter has as JSON, under these names."""
    values = [f"json_extract(value, '$[{place}]') AS {name}" for place, name in enumerate(columns)]
    return f"SELECT {', '.join(values)} FROM jsonb_each(?)"


# The changes have just been written, so their pages are in memory. `LIMIT` keeps SQLite from
# reading all stores to find them.
_NEW = _rows(("seq", "folded", "folded_name"))
_CHANGED = f"FROM ({_NEW}) AS new CROSS JOIN {CHANGES_TABLE} AS change USING (seq)"
_VALUES = ", ".join(OF_CHANGE[name] for name in STORES)
INSERT = f"""INSERT INTO stores ({", ".join(STORES)}, folded, folded_name)
  SELECT {_VALUES}, folded, folded_name {_CHANGED}"""
"""Makes stores of changes, given by their versions, each with its folded texts."""
_SET = ", ".join(f"{name} = change.{OF_CHANGE[name]}" for name in STORES if name != "id")
UPDATE = f"""UPDATE stores SET {_SET},
    folded = change.folded, folded_name = change.folded_name
  FROM (SELECT * {_CHANGED} LIMIT -1) AS change WHERE stores.id = change.store_id"""
ADD_CHANGES = f"INSERT INTO {CHANGES_TABLE} ({', '.join(CHANGES)}) {_rows(CHANGES)}"
_IS_EQUAL = " AND ".join(f"stores.{name} IS new.{name}" for name in CONTENT)
COMPARE = f"""WITH new AS MATERIALIZED ({_rows(["place", "id", *CONTENT])})
  SELECT json_group_array(id), json_group_array(version),
    json_group_array(place) FILTER (WHERE {_IS_EQUAL})
  FROM new CROSS JOIN stores USING (id)"""
"""Selects from `commands.replacements` the ids that exist, their versions, and the places whose
content is equal."""
_PATCHES = ("place", "id", *CONTENT, *(f"keeps_{name}" for name in CONTENT))
_EQUAL = " AND ".join(f"(keeps_{name} OR stores.{name} IS new.{name})" for name in CONTENT)
_KEPT = ", ".join(f"iif(keeps_{name}, stores.{name}, new.{name})" for name in CONTENT)
PATCHED = f"""WITH new AS MATERIALIZED ({_rows(_PATCHES)})
  SELECT json_group_array(json_array(place, id, version, {_EQUAL}, {_KEPT}))
  FROM new CROSS JOIN stores USING (id)"""
"""Selects of `commands.patches` those whose store exists: place, id, version, whether its content
is equal, and what its name and address become."""
KEPT_BYTES = f"""WITH new AS MATERIALIZED ({_rows(_PATCHES)})
  SELECT ifnull(sum(octet_length(stores.address)), 0) FROM new CROSS JOIN stores USING (id)
  WHERE keeps_address"""
_KNOWN_KEYS = f"""FROM json_each(?) AS wanted CROSS JOIN keys ON keys.key = wanted.value
  CROSS JOIN {CHANGES_TABLE} USING (seq)"""
FIND_KEYS = f"SELECT keys.key, request, store_id, seq {_KNOWN_KEYS}"
REPLAYED = f"SELECT json_group_array(json_array(keys.key, name, address)) {_KNOWN_KEYS}"
"""Selects, for those keys that exist, the store as the change that is the response left it."""
REPLAYED_BYTES = f"SELECT ifnull(sum(octet_length(address)), 0) {_KNOWN_KEYS}"
ADD_KEYS = f"INSERT INTO keys (key, request, seq, at) {_rows(('key', 'request', 'seq', 'at'))}"
LAST_OLD_KEY = f"""SELECT n, at, (SELECT max(n) FROM keys) FROM keys
  WHERE n = (SELECT min(n) FROM keys) + {MAX_KEYS_DELETED - 1}"""
"""Selects the last of the keys that may be deleted at once, and the number of the newest."""
DELETE_KEYS = "DELETE FROM keys WHERE n <= ?"
STATE = f"""SELECT ifnull(count, 0), ifnull(seq, 0), epoch, ifnull(at, 0) FROM collection
  LEFT JOIN {CHANGES_TABLE} ON seq = (SELECT max(seq) FROM {CHANGES_TABLE})"""
"""Selects how many stores there are, the collection's version and epoch, and the time of its
latest change."""
