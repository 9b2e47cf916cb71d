"""Writes of the shared collection: a batch of them is one transaction, under one lock. Imports the domain.

One row is the lock of all writers on all machines, and contains the numbers that it guards. A batch takes two round
trips: the lock with the numbers and what the batch touches, then all that is written, with its COMMIT.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from storekeeper import commands
from storekeeper.commands import Command, Create, Key
from storekeeper.errors import NO_RESPONSE, NO_STANDBY, Outcome, Unavailable
from storekeeper.events import Event, emit
from storekeeper.postgres import keys
from storekeeper.postgres.pipeline import ConnectionLost, PipelineConnection, Result, Statement, StatementError, rows
from storekeeper.postgres.pool import RESPONSE_TIMEOUT, Pool, roll_back, single_row, to_unavailable
from storekeeper.postgres.schema import COLLECTION_TABLE, LOCK, as_arrays, as_table
from storekeeper.stores import Payload, Store
from storekeeper.tables import CHANGES, CONTENT, MAX_INTEGER, OF_CHANGE, STORES
from storekeeper.tokens import USED_INTERVAL

_STORE = [list(CHANGES).index(OF_CHANGE[name]) for name in STORES]
"""The columns of a change that are those of its store."""
_NEW = as_table(STORES)
_SET = ", ".join(f"{name} = new.{name}" for name in STORES if name != "id")
# The database compares: the address of a store does not come here. Null equals null.
_EQUAL = " AND ".join(f"stores.{name} IS NOT DISTINCT FROM new.{name}" for name in CONTENT)

STATEMENTS = {
    b"begin": "BEGIN ISOLATION LEVEL READ COMMITTED",
    # The lock and the numbers may be one statement because they are one row: a transaction that waited for the lock
    # gets the row as the previous one left it, not as the statement's snapshot has it.
    b"lock": LOCK,
    # Behind the lock, in the same round trip: each statement sees all that was committed before it.
    b"touched": f"""SELECT place, id, version, {_EQUAL}
      FROM {as_table({"place": int, "id": int, **CONTENT})} JOIN stores USING (id)""",
    b"create": f"INSERT INTO stores ({', '.join(STORES)}) SELECT * FROM {_NEW}",
    b"replace": f"UPDATE stores SET {_SET} FROM {_NEW} WHERE stores.id = new.id",
    b"change": f"INSERT INTO changes ({', '.join(CHANGES)}) SELECT * FROM {as_table(CHANGES)}",
    b"count": f"UPDATE {COLLECTION_TABLE} SET count = $1::int8, version = $2::int8, at = $3::int8 WHERE one = 1",
    b"commit": "COMMIT",
    b"rollback": "ROLLBACK",
    b"probe": "SAVEPOINT probe",
    b"undo": "ROLLBACK TO SAVEPOINT probe",
    b"used": f"""UPDATE tokens SET used = $2::int8 WHERE number = ANY($1::int8[])
      AND abs($2::int8 - coalesce(used, 0)) >= {USED_INTERVAL}""",
    **keys.STATEMENTS,
}
"""The statements that a connection has to prepare for writes."""

Execute = Callable[..., Awaitable[list[Result]]]
"""`_execute` on the connection of a transaction."""


class Writer:
    """Carries out batches of writes. `refused` gets the reason if the database refuses one."""

    def __init__(self, pool: Pool, refused: Callable[[str], None]) -> None:
        self._pool = pool
        self._refused = refused
        self._keys = keys.Keys()
        self._next_look = 0.0  # for old keys

    async def probe(self, size: int) -> None:
        """Carry out a create of so many bytes, undo it and commit; raise Unavailable if any of that is refused.

        The create needs space on the disk. The commit needs the standby, because the lock of the row is in the log.
        """
        probe = Create(Payload("Probe", "x" * size))
        try:
            await self._transact([probe], asyncio.get_running_loop().time() + RESPONSE_TIMEOUT, keep=False)
        except _InvalidWrite as invalid:  # a constraint may refuse this name; a trigger probably refuses every one
            if getattr(invalid.args[0], "sqlstate", None) == _RAISED:
                raise to_unavailable(*invalid.args, log=False) from None

    async def commit(self, batch: Sequence[Command], deadline: float) -> Sequence[commands.Result | Exception]:
        """Return what each command led to: what `commands.apply` says, Unavailable, or why it is invalid."""
        try:
            return await self._transact(batch, deadline)
        except Unavailable as error:
            self._refused(str(error))
            return [error] * len(batch)
        except _InvalidWrite as invalid:
            if len(batch) == 1:
                # Without a name: from Python 3.12 on, the error has this frame, by way of its own.
                return [to_unavailable(each) if isinstance(each, StatementError) else each for each in invalid.args]
        # Each gets a transaction of its own, so that only the invalid one fails.
        return [result for command in batch for result in await self.commit([command], deadline)]

    async def load_keys(self) -> None:
        """Read all keys that are remembered into this process's index. Raises Unavailable."""
        await self._keys.load(self._pool.execute)

    async def forget_keys(self) -> bool:
        """Delete some of the keys that are too old; return whether any were. Raises Unavailable."""
        deadline = asyncio.get_running_loop().time() + RESPONSE_TIMEOUT
        parameters = keys.expired(time.time_ns() // 1_000_000)
        (found,) = await self._pool.execute((b"expired", parameters), deadline=deadline)
        if rows(found) != [(True,)]:
            return False
        try:
            async with self._transaction(deadline) as execute:
                # Behind the lock: while a standby is away, one commit waits for it, and not one more each time.
                statements = (b"begin", ()), (b"lock", ()), (b"forget", parameters), (b"commit", ())
                *_, deleted, _ = await execute(*statements)
        except _InvalidWrite as invalid:  # by a trigger
            raise to_unavailable(*invalid.args) from None
        return bool(deleted.command_tuples)

    async def _transact(
        self, batch: Sequence[Command], deadline: float, *, keep: bool = True
    ) -> list[commands.Result]:
        """Carry out a batch as one transaction; without `keep`, undo what it writes, and log nothing."""
        if sent := commands.keys(batch):
            await self._keys.prepare(partial(self._pool.execute, deadline=deadline))
        async with self._transaction(deadline, log=keep) as execute:
            present, replicated, last_key = await self._begin(execute, batch, sent)
            now = time.time_ns() // 1_000_000
            applied = commands.apply(batch, present, now)
            # A write that changes nothing may acknowledge what was committed while the standby was away. So commit it
            # too: the COMMIT waits for the standby, because the lock of the row is in the log.
            if applied.writes or (replicated and any(isinstance(result, Store) for result in applied.results)):
                await self._finish(execute, applied, now, keep)
            if applied.keys:
                self._keys.committed(applied.keys, last_key, now)
            return applied.results

    @asynccontextmanager
    async def _transaction(self, deadline: float, *, log: bool = True) -> AsyncIterator[Execute]:
        """Yield what executes statements on a connection; roll back what they have not committed."""
        connection = await self._pool.acquire(deadline)
        try:
            yield partial(_execute, connection, deadline, log)
        finally:
            await roll_back(connection, deadline)
            self._pool.release(connection)

    async def _begin(
        self, execute: Execute, batch: Sequence[Command], sent: Sequence[Key]
    ) -> tuple[commands.Present, bool, int | None]:
        """Take the lock; return the present, whether COMMIT waits for a standby, and what `Keys.learn` returned."""
        touched = [row for row in commands.touched(batch) if row[1] <= MAX_INTEGER]
        stores: list[Statement] = [(b"touched", as_arrays(touched))] if touched else []
        asked = self._keys.known
        news = [self._keys.news()] if sent else []
        _, lock, *found = await execute((b"begin", ()), (b"lock", ()), *stores, *news)
        count, version, at, epoch, replicated = single_row(rows(lock))
        were = rows(found[0]) if stores else []
        versions, equal = {id: version for _, id, version, _ in were}, {place for place, _, _, equal in were if equal}
        last = self._keys.learn(found[-1], asked) if sent else None
        remembered = await self._keys.find(sent, execute, epoch) if sent else {}
        return commands.Present(count, version, at, epoch, versions, equal, remembered), replicated, last

    async def _finish(self, execute: Execute, batch: commands.Batch, now: int, keep: bool) -> None:
        changes, statements = as_arrays(batch.changes), list[Statement]()
        for name, latest in ((b"create", batch.created), (b"replace", batch.replaced)):
            if latest:  # most batches have one kind, and each store once
                arrays = changes if len(latest) == len(batch.changes) else as_arrays(latest.values())
                statements.append((name, [arrays[place] for place in _STORE]))
        if batch.changes:
            statements.append((b"change", changes))
            statements.append((b"count", (batch.count, batch.version, batch.at)))
        if batch.keys:
            statements += keys.remember(batch.keys, now, look=time.monotonic() >= self._next_look)
        if not keep:
            statements = [(b"probe", ()), *statements, (b"undo", ())]
        results = await execute(*statements, (b"commit", ()))
        affected = {name: result.command_tuples or 0 for (name, _), result in zip(statements, results, strict=False)}
        if (forgotten := affected.pop(b"forget", None)) is not None:
            self._next_look = 0.0 if forgotten else time.monotonic() + keys.LOOK_INTERVAL
        expected = sum(map(len, (batch.created, batch.replaced, batch.changes)))
        expected += bool(batch.changes) + bool(batch.keys)
        if (written := sum(affected.values())) != expected:
            if keep:
                reason = f"{written} of {expected} rows were written: a trigger or a rule kept out the others"
                emit(Event.DATABASE_REFUSED, sqlstate="00000", reason=reason)
            raise Unavailable("The database did not write everything", Outcome.UNKNOWN)


class _InvalidWrite(Exception):
    """A write of the batch is invalid, as the error in `args` says; nothing was written."""


async def _execute(
    connection: PipelineConnection, deadline: float, log: bool, *statements: Statement
) -> list[Result]:
    """Execute statements in one round trip; raise _InvalidWrite, or Unavailable with the outcome of a COMMIT."""
    last = len(statements) - 1
    commits = statements[last][0] == b"commit"
    try:
        results = await connection.execute(*statements, deadline=deadline)
    except ConnectionLost as error:
        raise Unavailable(NO_RESPONSE, Outcome.UNKNOWN if commits and error.sent else Outcome.NONE) from None
    except ValueError as error:
        raise _InvalidWrite(error) from None
    except StatementError as error:
        unknown = commits and error.index == last and not error.sqlstate.startswith(_ROLLED_BACK)
        if not unknown and error.sqlstate.startswith(_INVALID_DATA):
            raise _InvalidWrite(error) from None
        # Not in a variable: this frame and the error would refer to each other, and keep the writes of the batch.
        raise to_unavailable(error, Outcome.UNKNOWN if unknown else Outcome.NONE, log=log) from None
    if commits and results[last].command_status != b"COMMIT":
        raise Unavailable("The database rolled the write back")
    if commits and connection.warned:  # at COMMIT, and not in a trigger
        # The wait for a synchronous standby was cancelled: the writes are committed here, but perhaps nowhere else.
        # The server calls that a success; it is none, because a failover would lose them.
        raise Unavailable(NO_STANDBY, Outcome.UNKNOWN)
    return results


_RAISED = "P0001"
"""The SQLSTATE of RAISE EXCEPTION, in a trigger that somebody added."""

_INVALID_DATA = ("22", "23", _RAISED)
"""SQLSTATEs, or their classes, of what is wrong with the data of one write."""

_ROLLED_BACK = ("23", _RAISED, "40000", "40001", "40002", "40P01")
"""SQLSTATEs of a refused COMMIT after which nothing is committed. 40003 is `statement completion unknown`."""
