"""Reads that may look at all stores: each on a thread, with a connection of its own."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import apsw

from storekeeper.domain import search
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.queries import State
from storekeeper.storage.sqlite import connections
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.sqlite.statements import STATE

STEPS = 100_000
"""Steps of SQLite, about 5 ms, between two looks at the clock: each must wait for the
interpreter's lock."""


@contextmanager
def long_read(identity: FileIdentity, refusal: str) -> Iterator[tuple[apsw.Connection, State]]:
    """Begin a transaction that reads; yield its connection and the numbers of the collection.

    After `search.TIMEOUT` it ends with Unavailable, whose message is `refusal`. Raises apsw's
    errors too.
    """
    deadline = time.monotonic() + search.TIMEOUT
    with closing(identity.connect(reader=True)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
        try:
            with connections.transaction(connection, "DEFERRED"):
                yield connection, State(*connection.execute(STATE).get[:3])
        except apsw.InterruptError:
            raise Unavailable(refusal) from None
