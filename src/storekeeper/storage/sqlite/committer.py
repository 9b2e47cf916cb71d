"""The blocking half of writing: a batch becomes one transaction, one fsync.

It runs on the writer thread and knows neither the event loop nor the queue.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apsw

from storekeeper.domain import commands as domain
from storekeeper.domain.commands import (
    MAX_KEYS,
    MIN_KEY_AGE,
    MIN_KEYS,
    Batch,
    Before,
    Command,
    Remembered,
    Result,
    apply,
)
from storekeeper.domain.errors import Outcome
from storekeeper.domain.search import folded
from storekeeper.log.events import Event, emit
from storekeeper.storage.sqlite import connections, errors, statements
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.write_queue import InvalidWrite
from storekeeper.storage.write_state import PROBE_BYTES

_FILL_PROBE = f"INSERT OR REPLACE INTO probe (one, filler) VALUES (1, randomblob({PROBE_BYTES}))"
_EMPTY_PROBE = "DELETE FROM probe"


class Committer:
    """Owns the connection that writes. `identity` is that of the file when it was opened.

    If the file stays locked until `deadline`, on the monotonic clock, nothing is written. Both
    methods raise Unavailable, and Failure, after which nothing may be acknowledged any more.
    """

    def __init__(self, connection: apsw.Connection, identity: FileIdentity) -> None:
        self.connection = connection
        self.identity = identity
        self._execute = connection.execute
        self._lock_deadline = 0.0
        connections.retry_lock_until(connection, lambda: self._lock_deadline)

    def commit(self, commands: Sequence[Command], deadline: float) -> list[Result]:
        """Carry out commands in one transaction; return their results in the same order. Raises
        InvalidWrite."""
        with self._raising(deadline):
            with self._transaction():
                now = time.time_ns() // 1_000_000
                batch = apply(commands, self._before(commands), now)
                if batch.changes:
                    self._add_changes(batch)
                if batch.keys:
                    rows = [(*entry, now) for entry in batch.keys]
                    self._execute(statements.ADD_KEYS, (statements.as_json(rows),))
            if batch.keys:
                self._delete_keys(now)
            self.identity.check()
        return batch.results

    def probe(self, deadline: float) -> None:
        """Write PROBE_BYTES and delete them."""
        with self._raising(deadline):
            for statement in (_FILL_PROBE, _EMPTY_PROBE):
                with self._transaction():
                    self._execute(statement)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    @contextmanager
    def _raising(self, deadline: float) -> Iterator[None]:
        self._lock_deadline = deadline
        try:
            yield
        except (apsw.ConstraintError, UnicodeEncodeError, OverflowError) as error:
            raise InvalidWrite(error) from None
        except BaseException as error:  # noqa: BLE001 - also a bug: nobody knows what it left
            unavailable = errors.to_unavailable(error, Outcome.UNKNOWN)
            raise unavailable or errors.to_failure(error, self.connection) from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with connections.transaction(self.connection, "IMMEDIATE"):
            self.identity.check()  # before anything is written: others may use another log
            yield

    def _before(self, commands: Sequence[Command]) -> Before:
        """Return what the batch needs to know of the collection."""
        count, version, epoch, at = self._execute(statements.STATE).get
        versions: dict[int, int] = {}
        equal: list[int] = []
        # Ids are dense, and one that is greater may be no integer of SQLite's.
        replacements = [row for row in domain.replacements(commands) if row[1] <= count]
        if replacements:
            found = self._execute(statements.COMPARE, (statements.as_json(replacements),)).get
            ids, their_versions, equal = map(statements.decode_integers, found)
            versions = dict(zip(ids, their_versions, strict=True))
        remembered: dict[str, Remembered] = {}
        if keys := domain.keys_of(commands):
            found_keys = self._execute(statements.FIND_KEYS, (statements.as_json(keys),))
            remembered = {key: Remembered(*values) for key, *values in found_keys}
        return Before(count, version, at, epoch, versions, frozenset(equal), remembered)

    def _add_changes(self, batch: Batch) -> None:
        self._execute(statements.ADD_CHANGES, (statements.as_json(batch.changes),))
        for statement, changes in (
            (statements.INSERT, batch.created),
            (statements.UPDATE, batch.replaced),
        ):
            if changes:
                rows = [
                    (seq, folded(name, address)) for seq, _, name, address, *_ in changes.values()
                ]
                self._execute(statement, (statements.as_json(rows),))

    def _delete_keys(self, now: int) -> None:
        """Delete the oldest keys, if they need no longer be remembered (decision 36), in a
        transaction of its own."""
        last, at, newest = self._execute(statements.LAST_OLD_KEY).get or (1, now, 0)
        if last <= newest - (MIN_KEYS if at < now - MIN_KEY_AGE else MAX_KEYS):
            try:
                self._execute(statements.DELETE_KEYS, (last,))
            except (apsw.ConstraintError, apsw.SQLError, apsw.BusyError, apsw.FullError) as error:
                emit(Event.DATABASE_REFUSED, reason=f"old Idempotency-Keys stay: {error}")
