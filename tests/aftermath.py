"""What a database holds once its service is gone, and whether it contradicts itself. Imports the service, psycopg."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg

from history import Item, value_of
from lincheck import Operation, Order, Violation, check
from storekeeper.service import sqlite_path
from storekeeper.sqlite import schema

_CHANGES = "SELECT seq, store_id, name, address FROM changes ORDER BY seq"
_STORES = "SELECT id, name, address, version FROM stores ORDER BY id"


def judge(history: Sequence[Operation], database: str) -> list[Violation]:
    """Check a history against itself, and against the order of the writes in the database."""
    order, found = examine(sqlite_path(database)) if database.startswith("sqlite:") else _examine_postgres(database)
    return found + check(history, order)


def examine(path: Path) -> tuple[Order, list[Violation]]:
    """Open a file as a start does; give all writes in their order, and what is wrong. Raises CannotStart."""
    schema.prepare(path)
    connection = schema.connect(path)
    try:
        checks = [str(text) for (text,) in connection.execute("PRAGMA integrity_check")]
        order, found = _examine(connection.execute(_CHANGES), connection.execute(_STORES))
    except apsw.CorruptError as error:
        return [], [Violation("corrupt", str(error))]
    finally:
        connection.close()
    return order, found + [Violation("corrupt", text) for text in checks if text != "ok"]


def _examine_postgres(url: str) -> tuple[Order, list[Violation]]:
    with psycopg.connect(url) as connection:
        return _examine(connection.execute(_CHANGES), connection.execute(_STORES))


def _examine(changes: Iterable[tuple[Any, ...]], stores: Iterable[tuple[Any, ...]]) -> tuple[Order, list[Violation]]:
    found = []
    rows = list(changes)
    if [seq for seq, *_ in rows] != list(range(1, len(rows) + 1)):
        found.append(Violation("gap", "the versions have a hole"))
    latest = {id: (id, name, address, seq) for seq, id, name, address in rows}
    if list(stores) != sorted(latest.values()):
        found.append(Violation("torn", "the stores are not what the changes made of them"))
    if sorted(latest) != list(range(1, len(latest) + 1)):
        found.append(Violation("gap", "the ids have a hole"))
    return [(id, value_of(Item(id, name, address))) for _, id, name, address in rows], found
