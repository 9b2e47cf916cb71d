"""The statements that follow from the columns of the tables, for PostgreSQL. Imports the domain."""

from collections.abc import Iterable

from storekeeper.postgres.pipeline import array
from storekeeper.postgres.schema import COLLECTION
from storekeeper.tables import CHANGES, STORES

TYPES = {int: "int8", str: "text"}

_STORE = {"id": "store_id", "name": "name", "address": "address", "version": "seq"}
"""The columns of `stores`, and the column of a change that goes into each."""

_PARAMETERS = ", ".join(f"${number}::{TYPES[kind]}[]" for number, kind in enumerate(CHANGES.values(), start=1))
_NEW = f"unnest({_PARAMETERS}) AS new ({', '.join(CHANGES)})"

INSERT = f"INSERT INTO stores ({', '.join(STORES)}) SELECT {', '.join(_STORE[name] for name in STORES)} FROM {_NEW}"
UPDATE = f"""UPDATE stores SET {", ".join(f"{name} = new.{_STORE[name]}" for name in STORES if name != "id")}
  FROM {_NEW} WHERE stores.id = new.store_id"""
ADD_CHANGES = f"INSERT INTO changes ({', '.join(CHANGES)}) SELECT * FROM {_NEW}"
SELECT = f"SELECT {', '.join(STORES)}, (SELECT epoch FROM {COLLECTION}) FROM stores WHERE id = ANY($1::int8[])"
# The database compares: the address of a store does not come here. Null equals null.
TOUCHED = """SELECT new.place, id, version, stores.name = new.name AND stores.address IS NOT DISTINCT FROM new.address
  FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[]) AS new (place, id, name, address)
  JOIN stores USING (id)"""
# The last column: whether a COMMIT waits for a standby.
LOCK = f"""SELECT count, version, at, epoch, coalesce(current_setting('synchronous_standby_names', true), '') <> ''
  FROM {COLLECTION} WHERE one = 1 FOR UPDATE"""


def as_arrays(rows: Iterable[tuple[str | int | None, ...]]) -> tuple[str, ...]:
    """Return rows as one parameter for each column."""
    return tuple([array(column) for column in zip(*rows, strict=True)])
