"""The parts of statements that follow from the columns of the tables, for PostgreSQL. Imports the domain."""

from collections.abc import Iterable, Mapping

from storekeeper.postgres.pipeline import array
from storekeeper.postgres.schema import COLLECTION
from storekeeper.tables import CONTENT

TYPES = {int: "int8", str: "text"}

FIELDS = ", ".join(CONTENT)
"""The columns of what clients say of a store."""

# The last column: whether a COMMIT waits for a standby.
LOCK = f"""SELECT count, version, at, epoch, coalesce(current_setting('synchronous_standby_names', true), '') <> ''
  FROM {COLLECTION} WHERE one = 1 FOR UPDATE"""


def as_table(columns: Mapping[str, type]) -> str:
    """Return the FROM item `new` for what `as_arrays` returns of rows of these columns."""
    arrays = ", ".join(f"${number}::{TYPES[kind]}[]" for number, kind in enumerate(columns.values(), 1))
    return f"unnest({arrays}) AS new ({', '.join(columns)})"


def as_arrays(rows: Iterable[tuple[str | int | None, ...]]) -> tuple[str, ...]:
    """Return rows as one parameter for each column."""
    return tuple([array(column) for column in zip(*rows, strict=True)])
