"""Sorted and filtered lists of the SQLite collection, found on a thread."""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import apsw

from storekeeper.domain import search
from storekeeper.domain.errors import Unavailable
from storekeeper.storage import selecting
from storekeeper.storage.collection import Query, Row, State
from storekeeper.storage.selecting import Dialect, Selected, Statement, Twins
from storekeeper.storage.sqlite import connections
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.sqlite.statements import STATE, as_json

_DIALECT = Dialect(
    position="instr",
    scan="stores NOT INDEXED",
    picked="(SELECT value AS pick_id FROM json_each(:ids)) AS pick",
)
_STATEMENTS: Mapping[str, Statement] = {
    name: Statement(text.replace("$", "?"), names)
    for name, (text, names) in selecting.statements(_DIALECT).items()
}

_STEPS = 100_000
"""Steps of SQLite, about 5 ms, between two looks at the clock: each must wait for the
interpreter's lock."""


def select(identity: FileIdentity, twins: Twins, query: Query) -> tuple[State, Selected]:
    """Find a page of a selection; return the collection's numbers, and what it has. Raises
    EpochEnded, InvalidInput, Unavailable and apsw's errors.

    On a thread, because it may read all stores; so with a connection of its own.
    """
    deadline = time.monotonic() + search.TIMEOUT
    with closing(identity.connect(reader=True)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        try:
            with connections.transaction(connection, "DEFERRED"):
                state = State(*connection.execute(STATE).get[:3])
                return state, _carry_out(connection, selecting.select(query, state, twins))
        except apsw.InterruptError:
            raise Unavailable(selecting.TOO_LONG) from None


def _carry_out(connection: apsw.Connection, steps: selecting.Steps) -> Selected:
    """Return what the steps return, with the rows that they ask for."""
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
