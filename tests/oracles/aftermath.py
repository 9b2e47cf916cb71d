"""What a database holds once its service is gone, and whether that is consistent."""

from pathlib import Path
from typing import Any

import apsw
import psycopg

from storekeeper.storage.databases import sqlite_path
from storekeeper.storage.sql import CONTENT, STORES
from storekeeper.storage.sqlite import connections
from tests.harness.databases import make_file
from tests.oracles.history import Item, value_of
from tests.oracles.lincheck import Operation, Order, Violation, check

_ROWS = f"SELECT seq, store_id, {', '.join(CONTENT)} FROM changes ORDER BY seq"
_STORES = f"SELECT {', '.join(STORES)} FROM stores ORDER BY id"


def examine(path: Path) -> tuple[Order, list[Violation]]:
    """Open a database as a start does; return all writes in order, and what is wrong. Raises
    CannotStart."""
    make_file(path)
    connection = connections.connect(path)
    try:
        return _examine(connection)
    except apsw.CorruptError as error:
        return [], [Violation("corrupt", str(error))]
    finally:
        connection.close()


def _examine(connection: apsw.Connection) -> tuple[Order, list[Violation]]:
    found = [
        Violation("corrupt", str(text))
        for (text,) in connection.execute("PRAGMA integrity_check")
        if text != "ok"
    ]
    order, contradictions = _compare(
        list(connection.execute(_ROWS)), list(connection.execute(_STORES))
    )
    return order, found + contradictions


def examine_postgres(url: str) -> tuple[Order, list[Violation]]:
    """Do the same with a PostgreSQL database, which checks its pages itself."""
    with psycopg.connect(url) as connection:
        order, found = _compare(
            connection.execute(_ROWS).fetchall(), connection.execute(_STORES).fetchall()
        )
        counts = connection.execute("SELECT count, version FROM collection").fetchall()
    if counts != [(len({id for id, _ in order}), len(order))]:
        found.append(
            Violation("torn", "the numbers of stores and changes are not what is kept of them")
        )
    return order, found


def _compare(rows: list[Any], kept: list[Any]) -> tuple[Order, list[Violation]]:
    found = []
    if [seq for seq, *_ in rows] != list(range(1, len(rows) + 1)):
        found.append(Violation("gap", "the versions have a gap"))
    stores = {id: (id, *content, seq) for seq, id, *content in rows}
    if kept != sorted(stores.values()):
        found.append(Violation("torn", "the stores are not what the changes made of them"))
    if sorted(stores) != list(range(1, len(stores) + 1)):
        found.append(Violation("gap", "the ids have a gap"))
    return [
        (int(id), value_of(Item(int(id), name, address))) for _, id, name, address, *_ in rows
    ], found


def judge(history: list[Operation], database: str) -> list[Violation]:
    """Check a history against itself and against the order in the database."""
    if database.startswith("sqlite:"):
        order, found = examine(sqlite_path(database))
    else:
        order, found = examine_postgres(database)
    return found + check(history, order)
