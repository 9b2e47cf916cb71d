"""The blocking half of writing: a batch of commands becomes one transaction, one fsync. Imports apsw and the domain.

It runs on the writer thread and knows neither the event loop nor the queue.
"""

import time
from collections.abc import Sequence

import apsw

from storekeeper import commands as domain
from storekeeper.commands import (
    MAX_KEYS,
    MIN_KEY_AGE,
    MIN_KEYS,
    Batch,
    Before,
    Command,
    Remembered,
    apply,
)
from storekeeper.errors import Outcome, Unavailable
from storekeeper.events import Event, emit
from storekeeper.search import folded
from storekeeper.sqlite import connections, errors, statements
from storekeeper.sqlite.file_identity import FileIdentity
from storekeeper.write_state import PROBE_BYTES

_FILL_PROBE = f"INSERT OR REPLACE INTO probe (one, filler) VALUES (1, randomblob({PROBE_BYTES}))"
_EMPTY_PROBE = "DELETE FROM probe"

CommandResult = domain.Result | Exception
"""What a command led to, as `commands.apply` has it, or the error of the database."""


class Committer:
    """Owns the connection that writes. `identity` is that of the file when it was opened."""

    def __init__(self, connection: apsw.Connection, identity: FileIdentity) -> None:
        self.connection = connection
        self.identity = identity
        self._execute = connection.execute
        self._lock_deadline = 0.0
        connections.retry_lock_until(connection, lambda: self._lock_deadline)

    def commit(self, commands: Sequence[Command], deadline: float) -> list[CommandResult]:
        """Carry out commands in one transaction; return their results in the same order.

        If the file stays locked until `deadline`, on the monotonic clock, nothing is written. Raises Failure if the
        file was replaced, and apsw's errors after which nothing may be acknowledged any more.
        """
        self._lock_deadline = deadline
        try:
            return self._transact(commands)
        except (apsw.ConstraintError, UnicodeEncodeError, OverflowError) as error:
            if len(commands) == 1:
                return [error]
            # One command is invalid. Each gets a transaction of its own, so that only that one fails.
            return [result for command in commands for result in self.commit([command], deadline)]
        except apsw.Error as error:
            return [self._refusal(error) for _ in commands]

    def probe(self, deadline: float) -> Unavailable | None:
        """Write PROBE_BYTES and delete them; return why that is refused, None if it is not. Raises as `commit`."""
        self._lock_deadline = deadline
        try:
            for statement in (_FILL_PROBE, _EMPTY_PROBE):
                with connections.transaction(self.connection, "IMMEDIATE"):
                    self.identity.check()
                    self._execute(statement)
        except apsw.Error as error:
            return self._refusal(error)
        return None

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _refusal(self, error: apsw.Error) -> Unavailable:
        refusal = errors.to_unavailable(errors.classify(error, self.connection), Outcome.UNKNOWN)
        if refusal is None:
            raise error
        return refusal

    def _transact(self, commands: Sequence[Command]) -> list[CommandResult]:
        with connections.transaction(self.connection, "IMMEDIATE"):
            self.identity.check()  # before anything is written: others may use another log
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
        return list(batch.results)

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
        for statement, changes in ((statements.INSERT, batch.created), (statements.UPDATE, batch.replaced)):
            if changes:
                rows = [(seq, folded(name, address)) for seq, _, name, address, *_ in changes.values()]
                self._execute(statement, (statements.as_json(rows),))

    def _delete_keys(self, now: int) -> None:
        """Delete the oldest keys, if they need no longer be remembered (decision 36), in a transaction of its own."""
        last, at, newest = self._execute(statements.LAST_OLD_KEY).get or (1, now, 0)
        if last <= newest - (MIN_KEYS if at < now - MIN_KEY_AGE else MAX_KEYS):
            try:
                self._execute(statements.DELETE_KEYS, (last,))
            except (apsw.ConstraintError, apsw.SQLError, apsw.BusyError, apsw.FullError) as error:
                emit(Event.DATABASE_REFUSED, reason=f"old Idempotency-Keys stay: {error}")
