"""The statements that follow from the columns of the tables, for PostgreSQL. Imports the domain."""

from collections.abc import Iterable

from storekeeper.postgres.pipeline import array
from storekeeper.postgres.schema import COLLECTION
from storekeeper.tables import CHANGES, CONTENT, STORES

TYPES = {int: "int8", str: "text"}

_STORE = {"id": "store_id", "version": "seq"} | {name: name for name in CONTENT}
"""The columns of `stores`, and the column of a change that goes into each."""

FIELDS = ", ".join(CONTENT)
"""The columns of what clients say of a store."""

_PARAMETERS = ", ".join(f"${number}::{TYPES[kind]}[]" for number, kind in enumerate(CHANGES.values(), start=1))
_NEW = f"unnest({_PARAMETERS}) AS new ({', '.join(CHANGES)})"

INSERT = f"INSERT INTO stores ({', '.join(STORES)}) SELECT {', '.join(_STORE[name] for name in STORES)} FROM {_NEW}"
UPDATE = f"""UPDATE stores SET {", ".join(f"{name} = new.{_STORE[name]}" for name in STORES if name != "id")}
  FROM {_NEW} WHERE stores.id = new.store_id"""
ADD_CHANGES = f"INSERT INTO changes ({', '.join(CHANGES)}) SELECT * FROM {_NEW}"
SELECT = f"SELECT {', '.join(STORES)}, (SELECT epoch FROM {COLLECTION}) FROM stores WHERE id = ANY($1::int8[])"
# The database compares: the address of a store does not come here. Null equals null.
_EQUAL = " AND ".join(f"stores.{name} IS NOT DISTINCT FROM new.{name}" for name in CONTENT)
_CONTENT = ", ".join(f"${number}::{TYPES[kind]}[]" for number, kind in enumerate(CONTENT.values(), start=3))
TOUCHED = f"""SELECT new.place, id, version, {_EQUAL}
  FROM unnest($1::int8[], $2::int8[], {_CONTENT}) AS new (place, id, {FIELDS})
  JOIN stores USING (id)"""
# The last column: whether a COMMIT waits for a standby.
LOCK = f"""SELECT count, version, at, epoch, coalesce(current_setting('synchronous_standby_names', true), '') <> ''
  FROM {COLLECTION} WHERE one = 1 FOR UPDATE"""


def as_arrays(rows: Iterable[tuple[str | int | None, ...]]) -> tuple[str, ...]:
    """Return rows as one parameter for each column."""
    return tuple([array(column) for column in zip(*rows, strict=True)])
