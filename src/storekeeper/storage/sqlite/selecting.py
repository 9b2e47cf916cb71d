"""Sorted and filtered lists of the SQLite collection, found on a thread."""

from collections.abc import Mapping
from typing import Any

import apsw

from storekeeper.domain.queries import Query, State
from storekeeper.storage import selecting
from storekeeper.storage.collection import Row
from storekeeper.storage.selecting import Dialect, Selected, Statement, Twins
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.sqlite.long_reads import long_read
from storekeeper.storage.sqlite.statements import as_json

_DIALECT = Dialect(
    position="instr",
    scan="stores NOT INDEXED",
    picked="(SELECT value AS pick_id FROM json_each(:ids)) AS pick",
)
_STATEMENTS: Mapping[str, Statement] = {
    name: Statement(text.replace("$", "?"), names)
    for name, (text, names) in selecting.statements(_DIALECT).items()
}


def select(identity: FileIdentity, twins: Twins, query: Query) -> tuple[State, Selected]:
    """Find a page of a selection; return the collection's numbers, and what it has. Raises
    EpochEnded, InvalidInput, Unavailable and apsw's errors."""
    with long_read(identity, selecting.TOO_LONG) as (connection, state):
        return state, _run(connection, selecting.select(query, state, twins))


def _run(connection: apsw.Connection, steps: selecting.Steps) -> Selected:
    """Give the steps the rows that they ask for; return what they return."""
    asked = next(steps)
    while True:
        found = [_rows(connection, name, named) for name, named in asked]
        try:
            asked = steps.send(found)
        except StopIteration as end:
            selected: Selected = end.value
            return selected


def _rows(connection: apsw.Connection, name: str, named: Mapping[str, Any]) -> list[Row]:
    statement = _STATEMENTS[name]
    if named.get("ids") is not None:
        named = {**named, "ids": as_json(named["ids"])}
    return connection.execute(statement.text, statement.values(named)).fetchall()
