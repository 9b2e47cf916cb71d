"""The columns of PostgreSQL's tables, each named once, and the statements that follow. Imports the domain."""

from collections.abc import Iterable
from operator import attrgetter

from storekeeper.postgres.pipeline import array
from storekeeper.stores import Store

STORE = {"id": "bigint", "name": "text", "address": "text", "version": "bigint"}
"""Of `stores`, with their types; in this order stores become parameters too."""

CHANGE = {"seq": "version", "store_id": "id", "name": "name", "address": "address"}
"""Of `changes`, and which of a store's columns goes there. `at`, the time, is the batch's."""

_NAMES = ", ".join(STORE)
_PARAMETERS = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(STORE.values(), start=1))
_NEW = f"unnest({_PARAMETERS}) AS new ({_NAMES})"

INSERT = f"INSERT INTO stores ({_NAMES}) SELECT * FROM {_NEW}"
UPDATE = f"""UPDATE stores SET {", ".join(f"{name} = new.{name}" for name in STORE if name != "id")}
  FROM {_NEW} WHERE stores.id = new.id"""
ADD_CHANGES = f"""INSERT INTO changes ({", ".join(CHANGE)}, at)
  SELECT {", ".join(CHANGE.values())}, ${len(STORE) + 1}::bigint FROM {_NEW}"""
SELECT = f"SELECT {_NAMES} FROM stores WHERE id = ANY($1::bigint[])"

_values = attrgetter(*STORE)


def as_arrays(stores: Iterable[Store]) -> tuple[str, ...]:
    """Return stores as one parameter for each column."""
    return tuple([array(column) for column in zip(*map(_values, stores), strict=True)])
