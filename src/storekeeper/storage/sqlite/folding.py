"""The folded texts of the stores in a file: those by which they are searched and sorted."""

from typing import Any

import apsw

from storekeeper.domain import search
from storekeeper.domain.search import FOLDING, MAX_SEARCHED_LENGTH

NUMBER = "SELECT folding FROM collection"
"""Selects the number of what folded the texts."""

_FOLD_AGAIN = f"""UPDATE stores SET folded_name = storekeeper_fold(name),
  folded = storekeeper_folded(name, substr(address, 1, {MAX_SEARCHED_LENGTH}))"""


def is_folded(connection: apsw.Connection) -> bool:
    """Return whether the texts are folded as this program does it."""
    # None: the row is gone, which is told later.
    return connection.execute(NUMBER).get in (FOLDING, None)


def fold_again(connection: apsw.Connection) -> None:
    """Fold the texts of all stores, unless they are folded as this program does it."""
    if is_folded(connection):
        return
    connection.create_scalar_function("storekeeper_folded", _folded, 2, deterministic=True)
    connection.create_scalar_function("storekeeper_fold", _fold, 1, deterministic=True)
    connection.execute(_FOLD_AGAIN)
    connection.execute("UPDATE collection SET folding = ?", (FOLDING,))


def _folded(*values: Any) -> str:
    return search.folded(*values)


def _fold(*values: Any) -> str:
    return search.fold(*values)
