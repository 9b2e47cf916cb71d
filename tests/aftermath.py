"""What a database holds once its service is gone, and whether it contradicts itself. Imports apsw and the service."""

from pathlib import Path

import apsw

from history import Item, value_of
from lincheck import Operation, Order, Violation, check
from storekeeper.service import sqlite_path
from storekeeper.sqlite import schema

_ROWS = "SELECT seq, store_id, name, address FROM changes ORDER BY seq"
_STORES = "SELECT id, name, address, version FROM stores ORDER BY id"


def examine(path: Path) -> tuple[Order, list[Violation]]:
    """Open a database as a start does; give all writes in their order, and what is wrong. Raises CannotStart."""
    schema.prepare(path)
    connection = schema.connect(path)
    try:
        return _examine(connection)
    except apsw.CorruptError as error:
        return [], [Violation("corrupt", str(error))]
    finally:
        connection.close()


def _examine(connection: apsw.Connection) -> tuple[Order, list[Violation]]:
    found = [
        Violation("corrupt", str(text)) for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"
    ]
    rows = list(connection.execute(_ROWS))
    if [seq for seq, *_ in rows] != list(range(1, len(rows) + 1)):
        found.append(Violation("gap", "the versions have a hole"))
    stores = {id: (id, name, address, seq) for seq, id, name, address in rows}
    if list(connection.execute(_STORES)) != sorted(stores.values()):
        found.append(Violation("torn", "the stores are not what the changes made of them"))
    if sorted(stores) != list(range(1, len(stores) + 1)):
        found.append(Violation("gap", "the ids have a hole"))
    return [(int(id), value_of(Item(int(id), name, address))) for _, id, name, address in rows], found


def judge(history: list[Operation], database: str) -> list[Violation]:
    """Check a history against itself and, where we can read it, against the order in the database."""
    if not database.startswith("sqlite:"):
        return check(history)
    order, found = examine(sqlite_path(database))
    return found + check(history, order)
