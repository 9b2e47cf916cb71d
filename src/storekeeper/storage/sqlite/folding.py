"""The folded texts of the stores in a file: searches and sorted lists use these."""

import apsw

from storekeeper.domain.search import FOLDING
from storekeeper.storage import folding
from storekeeper.storage.sqlite.connections import transaction

NUMBER = "SELECT folding FROM collection"
"""Selects the number of what folded the texts."""

_SELECT_PIECE = folding.SELECT_PIECE.replace("$", "?")
_REFOLD = "UPDATE stores SET folded = ?2, folded_name = ?3 WHERE id = ?1"


def is_folded(connection: apsw.Connection) -> bool:
    """Return whether the texts are folded as this program does it."""
    # None: the row is gone, which is told later.
    return connection.execute(NUMBER).get in (FOLDING, None)


def set_number(connection: apsw.Connection) -> None:
    """Say that this program folded the texts."""
    connection.execute("UPDATE collection SET folding = ?", (FOLDING,))


def fold_again(connection: apsw.Connection) -> None:
    """Fold the texts of all stores, unless they are folded as this program does it.

    It is many transactions. Meanwhile only this program and later ones write, and they fold what
    they write; after a crash the next start begins again.
    """
    last: int | None = 0
    while last is not None and not is_folded(connection):
        with transaction(connection, "IMMEDIATE"):
            rows = connection.execute(_SELECT_PIECE, (last, folding.PIECE))
            last, changed = folding.refolded(rows)
            connection.executemany(_REFOLD, changed)
            if last is None:
                set_number(connection)
