"""The blocking half of writing: a batch of commands becomes one transaction, one fsync. Imports apsw and the domain.

It runs on the writer thread and knows neither the event loop nor the queue.
"""

import time
from collections.abc import Sequence

import apsw
import msgspec

from storekeeper import commands as domain
from storekeeper.commands import Batch, Command, Create, Key, Present, Remembered, apply
from storekeeper.errors import Outcome, Unavailable
from storekeeper.sqlite import columns, errors, schema
from storekeeper.sqlite.file_identity import FileIdentity
from storekeeper.sqlite.keys import Keys
from storekeeper.stores import MAX_NAME_LENGTH, Payload

_STATE = f"""SELECT numbers.*, ifnull(keys.n, 0), ifnull(keys.at, 0) FROM ({columns.STATE}) AS numbers
  LEFT JOIN keys ON n = (SELECT max(n) FROM keys)"""

CommandResult = domain.Result | Exception
"""What a command led to, as `commands.apply` has it, or the error of the database."""


class Committer:
    """Owns the connection that writes. `identity` is that of the file when it was opened."""

    def __init__(self, connection: apsw.Connection, identity: FileIdentity) -> None:
        self.connection = connection
        self.identity = identity
        self._execute = connection.execute
        self._keys = Keys(connection.execute)
        self._lock_deadline = 0.0
        schema.retry_lock_until(connection, lambda: self._lock_deadline)

    def commit(self, commands: Sequence[Command], deadline: float, *, keep: bool = True) -> list[CommandResult]:
        """Carry out commands in one transaction; return their results in the same order.

        If the file stays locked until `deadline`, on the monotonic clock, nothing is written. Without `keep` the
        transaction is rolled back at its end. Raises Failure if the file was replaced, and apsw's errors after which
        nothing may be acknowledged any more.
        """
        self._lock_deadline = deadline
        try:
            return self._transact(commands, keep)
        except (apsw.ConstraintError, UnicodeEncodeError, OverflowError) as error:
            if len(commands) == 1:
                return [error]
            # One command is invalid. Each gets a transaction of its own, so that only that one fails.
            return [result for command in commands for result in self.commit([command], deadline)]
        except apsw.Error as error:
            classified = errors.classify(error, self.connection)
            results = [errors.to_unavailable(classified, Outcome.UNKNOWN) for _ in commands]
            if None in results:
                raise
            return list(results)

    def probe(self, deadline: float, size: int) -> str:
        """Return why a create of so many bytes would be refused now, "" if it would not; raises as `commit` does.

        Afterwards no process sees a difference, not even another change token: no cache is dropped.
        """
        # With no cache the statements themselves write pages into the log, which needs space on the disk; the next
        # transaction overwrites them. `cache_flush` would write them with the interpreter's lock held, and keep all
        # reads waiting for the disk.
        cache_size = self.connection.pragma("cache_size")
        self.connection.pragma("cache_size", 1)
        try:
            result = self.commit([Create(Payload("Probe", "x" * size))], deadline, keep=False)[0]
        except apsw.IOError as error:
            if getattr(error, "extendedresult", 0) != apsw.SQLITE_IOERR_WRITE:
                raise
            # No acknowledged write is lost, so reads go on until a client's write meets this error.
            return "The disk cannot be written"
        finally:
            self.connection.pragma("cache_size", cache_size)
        return str(result) if isinstance(result, Unavailable) else ""

    def load_keys(self) -> bool:
        """Load some of the Idempotency-Keys that are remembered; return whether there may be more."""
        try:
            return self._keys.load_some()
        except (
            apsw.Error,
            UnicodeDecodeError,
            msgspec.DecodeError,
            MemoryError,
        ):  # the next write with a key will meet it too, and report it
            return False

    def delete_old_keys(self, deadline: float) -> bool:
        """Delete some of the Idempotency-Keys that are too old; tell whether any were. Raises as `commit` does."""
        self._lock_deadline = deadline
        try:
            with schema.transaction(self.connection, "IMMEDIATE"):
                return self._keys.delete_old(time.time_ns() // 1_000_000)
        except apsw.Error as error:
            if errors.to_unavailable(errors.classify(error, self.connection), Outcome.NONE) is None:
                raise
            return False

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _transact(self, commands: Sequence[Command], keep: bool) -> list[CommandResult]:
        if keys := domain.keys(commands):
            self._keys.prepare()
        with schema.transaction(self.connection, "IMMEDIATE", "COMMIT" if keep else "ROLLBACK"):
            now = time.time_ns() // 1_000_000
            present, last_key = self._present(commands, keys)
            batch = apply(commands, present, now)
            if batch.writes:
                _check_overwritten(batch)
                if batch.keys:
                    self._keys.add(batch.keys, last_key, now)
                if batch.changes:
                    self._carry_out(batch)
            if not keep:
                self._execute(columns.STATE).get  # noqa: B018 - it evicts written pages from the cache
        if batch.keys and keep:
            self._keys.committed(batch.keys, now)
        self.identity.check()
        return list(batch.results)

    def _present(self, commands: Sequence[Command], keys: list[Key]) -> tuple[Present, int]:
        """Return what the batch touches, and the number of the last row of keys."""
        count, version, epoch, at, last_key, key_at = self._execute(_STATE).get
        versions: dict[int, int] = {}
        equal: list[int] = []
        # Ids are dense, and one that is greater may be no integer of SQLite's.
        touched = [row for row in domain.touched(commands) if row[1] <= count]
        for found in columns.execute(self._execute, columns.VERSIONS, touched):
            ids, their_versions, places = map(columns.numbers, found)
            versions.update(zip(ids, their_versions, strict=True))
            equal += places
        remembered: dict[str, Remembered] = self._keys.find(keys, (last_key, key_at), epoch) if keys else {}
        return Present(count, version, at, epoch, versions, frozenset(equal), remembered), last_key

    def _carry_out(self, batch: Batch) -> None:
        columns.execute(self._execute, columns.ADD_CHANGES, batch.changes)
        for statement, changes in ((columns.INSERT, batch.created), (columns.UPDATE, batch.replaced)):
            if changes:
                self._execute(statement, (columns.as_json([change[0] for change in changes.values()]),))


def _check_overwritten(batch: Batch) -> None:
    # The table `stores` checks only the last content of each store; `changes`, which has the others, checks none.
    if len(batch.changes) > len(batch.created) + len(batch.replaced):
        for _, _, name, *_ in batch.changes:
            if not 1 <= len(name) <= MAX_NAME_LENGTH:
                raise apsw.ConstraintError("a name is too long or empty")
