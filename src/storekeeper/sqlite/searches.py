"""Searches of the SQLite collection, each on a thread and a connection of its own. Imports `concurrency`, the domain.

A search may read all stores, which would keep the event loop from everybody else.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw

from storekeeper import search
from storekeeper.collection import Query, State
from storekeeper.concurrency.threads import run_in_thread
from storekeeper.concurrency.turns import Turns
from storekeeper.errors import Unavailable
from storekeeper.sqlite import connections
from storekeeper.sqlite.file_identity import FileIdentity
from storekeeper.sqlite.statements import STATE, decode_integers

_FIND = f"SELECT CAST(json_group_array(id) AS BLOB) FROM ({search.statement('instr')})"

_STEPS = 100_000
"""Steps of SQLite, about 5 ms, between two looks at the clock: each has to wait for the interpreter's lock."""


class Searches:
    """Runs searches of a file, at most `search.MAX_AT_ONCE` at once."""

    def __init__(self, path: Path, identity: FileIdentity) -> None:
        self._path = path
        self._identity = identity
        self._turns = Turns(search.MAX_AT_ONCE, search.TIMEOUT, search.TOO_LONG)

    async def find(self, query: Query) -> tuple[State, Sequence[int]]:
        """Return the collection's numbers, and what `Query.found` needs. Raises Unavailable and apsw's errors."""
        async with self._turns:
            return await run_in_thread(partial(self._find, query))

    def _find(self, query: Query) -> tuple[State, Sequence[int]]:
        assert query.search is not None
        assert query.limit is not None
        deadline = time.monotonic() + search.TIMEOUT
        self._identity.check()  # before too: closing the only connection to another file would delete the log
        with closing(connections.connect(self._path, reader=True)) as connection:
            self._identity.check()
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            try:
                with connections.transaction(connection, "DEFERRED"):
                    state = State(*connection.execute(STATE).get[:3])
                    values = query.search.parameters(query.after, query.limit + 1)
                    return state, decode_integers(connection.execute(_FIND, values).get)
            except apsw.InterruptError:
                raise Unavailable(search.TOO_LONG) from None
