"""A search of the SQLite collection, on a thread and a connection of its own. Imports apsw and the domain.

A search may read all stores, which would keep the event loop from everybody else.
"""

import time
from collections.abc import Sequence
from contextlib import closing

import apsw

from storekeeper import search
from storekeeper.collection import Query, State
from storekeeper.errors import Unavailable
from storekeeper.sqlite import connections
from storekeeper.sqlite.file_identity import FileIdentity
from storekeeper.sqlite.statements import STATE, decode_integers

_FIND = f"SELECT CAST(json_group_array(id) AS BLOB) FROM ({search.statement('instr')})"

_STEPS = 100_000
"""Steps of SQLite, about 5 ms, between two looks at the clock: each has to wait for the interpreter's lock."""


def find(identity: FileIdentity, query: Query) -> tuple[State, Sequence[int]]:
    """Return the collection's numbers, and what `Query.found` needs. Raises Unavailable and apsw's errors."""
    assert query.search is not None
    assert query.limit is not None
    deadline = time.monotonic() + search.TIMEOUT
    with closing(identity.connect(reader=True)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        try:
            with connections.transaction(connection, "DEFERRED"):
                state = State(*connection.execute(STATE).get[:3])
                values = query.search.parameters(query.after, query.limit + 1)
                return state, decode_integers(connection.execute(_FIND, values).get)
        except apsw.InterruptError:
            raise Unavailable(search.TOO_LONG) from None
