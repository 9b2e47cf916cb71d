"""Writes of the shared collection: a batch of them is one transaction, under one lock. Imports the domain.

One row of the database is the lock of all writers on all machines, and contains the numbers that it guards. A batch
takes two round trips: the lock with the numbers and what the batch touches, then everything that is written, with its
COMMIT.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import cast

from storekeeper import commands
from storekeeper.commands import Command, Create, Result
from storekeeper.errors import Outcome, Unavailable
from storekeeper.events import Event, emit
from storekeeper.postgres import columns, keys
from storekeeper.postgres.batcher import Batch, Batcher
from storekeeper.postgres.pipeline import ConnectionLost, PipelineConnection, Statement, StatementError
from storekeeper.postgres.pool import NO_RESPONSE, RESPONSE_TIMEOUT, Pool, roll_back, single_row, to_unavailable
from storekeeper.postgres.reads import MAX_ID
from storekeeper.postgres.schema import COLLECTION
from storekeeper.stores import Payload, Store

_MAX_BATCH_BYTES = 4 * 2**20

STATEMENTS = {
    b"begin": "BEGIN ISOLATION LEVEL READ COMMITTED",
    # The lock and the numbers may be one statement because they are one row: a transaction that waited for the lock
    # gets the row as the previous one left it, not as the statement's snapshot has it.
    b"lock": columns.LOCK,
    # Behind the lock, in the same round trip: each statement sees all that was committed before it.
    b"touched": columns.TOUCHED,
    b"create": columns.INSERT,
    b"replace": columns.UPDATE,
    b"change": columns.ADD_CHANGES,
    b"count": f"UPDATE {COLLECTION} SET count = $1::int8, version = $2::int8, at = $3::int8 WHERE one = 1",
    b"commit": "COMMIT",
    b"rollback": "ROLLBACK",
    b"probe": "SAVEPOINT probe",
    b"undo": "ROLLBACK TO SAVEPOINT probe",
    **keys.STATEMENTS,
}
"""The statements that a connection has to prepare for writes."""

Writes = Batch[Command, Result]


class Writer:
    """Carries out writes; its futures raise Unavailable, PreconditionFailed, KeyReused, or what an invalid one is."""

    def __init__(self, pool: Pool, refused: Callable[[str], None]) -> None:
        self._pool = pool
        self._memory = keys.Memory()
        self._batcher = Batcher(
            self._commit,
            max_batch=1000,
            size=commands.size,
            max_batch_bytes=_MAX_BATCH_BYTES,
            gather=True,
            refused=refused,
        )

    def submit(self, command: Command) -> asyncio.Future[Store | None]:
        """Queue a command; its result is the store, None if there is no such store, or the error."""
        # What is both a result and an error settles the future as an error.
        return cast("asyncio.Future[Store | None]", self._batcher.add(command))

    async def probe(self, size: int) -> None:
        """Carry out a create of so many bytes, undo it and commit; raise Unavailable if any of that is refused.

        The create needs space on the disk, the commit needs the standby: having locked a row, it is written too.
        """
        with suppress(_InvalidWrite):
            probe = Create(Payload("Probe", "x" * size))
            await self._transact([probe], asyncio.get_running_loop().time() + RESPONSE_TIMEOUT, keep=False)

    async def close(self) -> None:
        """Finish every write that was submitted."""
        await self._batcher.close()

    async def _commit(self, batch: Writes, deadline: float) -> None:
        try:
            results = await self._transact([request.key for request in batch], deadline)
        except _InvalidWrite as invalid:
            if len(batch) == 1:
                batch[0].settle(invalid.error)
                return
            # One write is invalid. Each gets a transaction of its own, so that only that one fails.
            for request in batch:
                await self._commit([request], deadline)
        else:
            for request, result in zip(batch, results, strict=True):
                request.settle(result)

    async def _transact(self, batch: Sequence[Command], deadline: float, *, keep: bool = True) -> list[Result]:
        connection = await self._pool.acquire(deadline)
        try:
            return await _transaction(connection, batch, deadline, self._memory, keep=keep)
        except BaseException:
            await roll_back(connection, deadline)
            raise
        finally:
            self._pool.release(connection)


class _InvalidWrite(Exception):
    """A write of the batch is invalid; nothing was written."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def _statements(batch: commands.Batch, memory: keys.Memory, now: int) -> Iterator[Statement]:
    if batch.created:
        yield b"create", columns.as_arrays(batch.created)
    if batch.replaced:
        yield b"replace", columns.as_arrays(batch.replaced)
    if batch.changes:
        yield b"change", columns.as_arrays(batch.changes)
        yield b"count", (batch.count, batch.version, batch.at)
    if batch.keys:
        yield from memory.remember(batch.keys, now)


def _rows(batch: commands.Batch) -> int:
    """Return how many rows a batch writes, besides those that it deletes."""
    changes = len(batch.changes)
    return len(batch.created) + len(batch.replaced) + changes + bool(changes) + len(batch.keys)


async def _transaction(
    connection: PipelineConnection, batch: Sequence[Command], deadline: float, memory: keys.Memory, *, keep: bool
) -> list[Result]:
    connection.warning = ""
    present, replicated = await _begin(connection, batch, deadline, keep)
    now = time.time_ns() // 1_000_000
    applied = commands.apply(batch, present, now)
    # What is acknowledged because it is here already may have been committed while the standby was away. A COMMIT
    # waits for the standby although nothing is written: having locked a row, it is in the log.
    if not applied.writes and not (replicated and any(isinstance(result, Store) for result in applied.results)):
        await roll_back(connection, deadline)
        return applied.results
    statements = list(_statements(applied, memory, now))
    if not keep:
        statements = [(b"probe", ()), *statements, (b"undo", ())]
    affected = await _finish(connection, statements, deadline, keep)
    if (forgotten := affected.pop(b"forget", None)) is not None:
        memory.forgot(forgotten)
    written, expected = sum(affected.values()), _rows(applied)
    if written != expected:
        reason = f"{written} of {expected} rows were written: a trigger or a rule kept out the others"
        if keep:
            emit(Event.DATABASE_REFUSED, sqlstate="00000", reason=reason)
        raise Unavailable("The database did not write everything", Outcome.UNKNOWN)
    return applied.results


async def _begin(
    connection: PipelineConnection, requested: Sequence[Command], deadline: float, log: bool
) -> tuple[commands.Present, bool]:
    """Take the lock; return what the batch touches, and whether its COMMIT waits for a standby."""
    touched = [row for row in commands.touched(requested) if row[1] <= MAX_ID]
    stores: list[Statement] = [(b"touched", columns.as_arrays(touched))] if touched else []
    look_up = keys.look_up(requested)
    try:
        _, lock, *found = await connection.execute(
            (b"begin", ()), (b"lock", ()), *stores, *look_up, deadline=deadline
        )
    except ConnectionLost:
        raise Unavailable(NO_RESPONSE) from None
    except ValueError as error:
        raise _InvalidWrite(error) from None
    except StatementError as error:
        raise to_unavailable(error, log=log) from None
    count, version, at, epoch, replicated = single_row(lock.rows())
    rows = found[0].rows() if stores else []
    versions, equal = {id: version for _, id, version, _ in rows}, {place for place, _, _, equal in rows if equal}
    remembered = keys.remembered(found[-1], epoch) if look_up else {}
    return commands.Present(count, version, at, epoch, versions, equal, remembered), replicated


async def _finish(
    connection: PipelineConnection, statements: list[Statement], deadline: float, log: bool
) -> dict[bytes, int]:
    """Write and commit; return how many rows by statement.

    From here on, the outcome depends on what was sent and confirmed.
    """
    try:
        *written, commit = await connection.execute(*statements, (b"commit", ()), deadline=deadline)
    except ConnectionLost as error:
        raise Unavailable(NO_RESPONSE, Outcome.UNKNOWN if error.sent else Outcome.NONE) from None
    except ValueError as error:
        raise _InvalidWrite(error) from None
    except StatementError as error:
        if error.index < len(statements) and error.sqlstate.startswith(_INVALID_DATA):
            raise _InvalidWrite(error) from None
        refusal = to_unavailable(error, log=log)
        if error.index == len(statements) and not error.sqlstate.startswith(_ROLLED_BACK):
            refusal.outcome = Outcome.UNKNOWN
        raise refusal from None
    if commit.command != b"COMMIT":
        raise Unavailable("The database rolled the write back")
    if connection.warning:
        # The wait for a synchronous standby was cancelled: the writes are committed here, but perhaps nowhere else.
        # The server calls that a success; it is none, because a failover would lose them.
        raise Unavailable("The standby does not respond", Outcome.UNKNOWN)
    return {name: result.affected for (name, _), result in zip(statements, written, strict=True)}


_INVALID_DATA = ("22", "23")
"""Classes of SQLSTATE for invalid data."""

_ROLLED_BACK = ("23", "40000", "40001", "40002", "40P01")
"""SQLSTATEs of a refused COMMIT after which nothing is committed. 40003 is `statement completion unknown`."""
