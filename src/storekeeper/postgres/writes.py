"""Writes of the shared collection: all that wait in one transaction, under one lock. Imports the domain.

One row of the database is the lock of all writers on all machines and holds the numbers that it guards. A batch
takes two round trips: the lock with the numbers, then everything that is written with its COMMIT.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator

from storekeeper import commands
from storekeeper.commands import Command
from storekeeper.errors import Outcome, Unavailable
from storekeeper.events import Event, emit
from storekeeper.postgres.batcher import Batch, Batcher
from storekeeper.postgres.pipeline import ConnectionLost, PipelineConnection, Statement, StatementError, array
from storekeeper.postgres.pool import SLOW, Pool, only, unavailable
from storekeeper.stores import Store

_MAX_BATCH_BYTES = 4 * 2**20

STATEMENTS = {
    b"begin": "BEGIN ISOLATION LEVEL READ COMMITTED",
    # The lock and the numbers may be one statement because they are one row: whoever waited for it is given the
    # row as the one before left it, not as the statement's snapshot has it.
    b"lock": "SELECT count, version FROM collection WHERE one = 1 FOR UPDATE",
    b"create": """INSERT INTO stores (id, name, address, version)
      SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[])""",
    b"replace": """UPDATE stores SET name = new.name, address = new.address, version = new.version
      FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[]) AS new (id, name, address, version)
      WHERE stores.id = new.id""",
    b"change": """INSERT INTO changes (store_id, name, address, seq, at)
      SELECT *, $5::bigint FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[])""",
    b"count": "UPDATE collection SET count = $1::bigint, version = $2::bigint WHERE one = 1",
    b"commit": "COMMIT",
    b"rollback": "ROLLBACK",
}
"""What a connection has to have prepared for writes."""

Writes = Batch[Command, Store | None]


class Writer:
    """Carries out writes; its futures raise Unavailable, or what is wrong with a write that no client can send."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._batcher = Batcher(self._commit, maximum=1000, size=_size, maximum_size=_MAX_BATCH_BYTES, gather=True)

    def submit(self, command: Command) -> asyncio.Future[Store | None]:
        """Queue a command. Its future gets the store, None if there is none, or the error."""
        return self._batcher.add(command)

    async def close(self) -> None:
        """Finish every write that was submitted."""
        await self._batcher.close()

    async def _commit(self, batch: Writes, deadline: float) -> None:
        try:
            stores = await self._transact(batch, deadline)
        except _Bad as bad:
            if len(batch) == 1:
                batch[0].settle(bad.error)
                return
            # One of them is bad. Each in a transaction of its own, so that only that one fails.
            for request in batch:
                await self._commit([request], deadline)
        else:
            for request, store in zip(batch, stores, strict=True):
                request.settle(store)

    async def _transact(self, batch: Writes, deadline: float) -> list[Store | None]:
        connection = await self._pool.acquire(deadline)
        try:
            return await _transaction(connection, batch, deadline)
        except BaseException:
            await _roll_back(connection, deadline)
            raise
        finally:
            self._pool.release(connection)


class _Bad(Exception):
    """Something is wrong with a write of the batch; nothing was written."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def _statements(batch: commands.Batch) -> Iterator[Statement]:
    if batch.created:
        yield b"create", _columns(batch.created)
    if batch.replaced:
        yield b"replace", _columns(batch.replaced)
    if batch.changes:
        yield b"change", (*_columns(batch.changes), time.time_ns() // 1_000_000)
        yield b"count", (batch.count, batch.version)


def _rows(batch: commands.Batch) -> int:
    """Return how many rows a batch writes."""
    return len(batch.created) + len(batch.replaced) + len(batch.changes) + bool(batch.changes)


async def _transaction(connection: PipelineConnection, batch: Writes, deadline: float) -> list[Store | None]:
    connection.warning = ""
    try:
        _, lock = await connection.execute((b"begin", ()), (b"lock", ()), deadline=deadline)
    except ConnectionLost:
        raise Unavailable(SLOW) from None
    except StatementError as error:
        raise unavailable(error) from None
    count, version = only(lock.rows())
    applied = commands.apply([request.key for request in batch], count, version)
    written, expected = await _finish(connection, list(_statements(applied)), deadline), _rows(applied)
    if written != expected:
        reason = f"{written} of {expected} rows were written: a trigger or a rule kept out the others"
        emit(Event.DATABASE_REFUSED, sqlstate="00000", reason=reason)
        raise Unavailable("The database did not write everything", Outcome.UNKNOWN)
    return applied.results


async def _finish(connection: PipelineConnection, statements: list[Statement], deadline: float) -> int:
    """Write and commit; return how many rows. From here on it matters what exactly was sent and confirmed."""
    try:
        *written, commit = await connection.execute(*statements, (b"commit", ()), deadline=deadline)
    except ConnectionLost as error:
        raise Unavailable(SLOW, Outcome.UNKNOWN if error.sent else Outcome.NONE) from None
    except ValueError as error:
        raise _Bad(error) from None
    except StatementError as error:
        if error.index < len(statements) and error.sqlstate.startswith(_BAD):
            raise _Bad(error) from None
        refusal = unavailable(error)
        if error.index == len(statements) and not error.sqlstate.startswith(_ROLLED_BACK):
            refusal.outcome = Outcome.UNKNOWN
        raise refusal from None
    if commit.command != b"COMMIT":
        raise Unavailable("The database rolled the write back")
    if connection.warning:
        # Of a wait for a synchronous standby that was ended: committed here, but perhaps nowhere else. The server
        # calls that a success; it is none, for a failover would lose it.
        raise Unavailable("The standby does not answer", Outcome.UNKNOWN)
    return sum([result.affected for result in written])


async def _roll_back(connection: PipelineConnection, deadline: float) -> None:
    if connection.lost:
        return
    try:
        await connection.execute((b"rollback", ()), deadline=deadline)
    except (ConnectionLost, StatementError):
        connection.drop("it could not be rolled back")


_BAD = ("22", "23")
"""Classes of what is wrong with data."""

_ROLLED_BACK = ("23", "40000", "40001", "40002", "40P01")
"""What a refused COMMIT says when nothing is committed. 40003 is `statement completion unknown`."""


def _columns(stores: Iterable[Store]) -> tuple[str, str, str, str]:
    ids, names, addresses, versions = zip(
        *((store.id, store.name, store.address, store.version) for store in stores), strict=True
    )
    return array(ids), array(names), array(addresses), array(versions)


def _size(command: Command) -> int:
    return command.payload.size
