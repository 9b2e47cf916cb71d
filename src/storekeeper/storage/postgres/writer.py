"""Writes of the shared collection: a batch is one transaction, under one lock.

One row is the lock of all writers on all machines, and contains the numbers that it guards. A
batch takes two round trips: the lock with the numbers and the rows that the batch concerns, then
all writes with their COMMIT.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from secrets import token_hex
from typing import Any

from storekeeper.concurrency.batcher import response_deadline
from storekeeper.domain import commands
from storekeeper.domain.commands import (
    MAX_KEPT_BYTES,
    MAX_KEYS,
    MAX_KEYS_DELETED,
    MIN_KEY_AGE,
    MIN_KEYS,
    Command,
    Remembered,
)
from storekeeper.domain.errors import NO_RESPONSE, NO_STANDBY, Outcome, Unavailable
from storekeeper.domain.search import fold, folded
from storekeeper.domain.stores import MAX_INTEGER, Payload, Store
from storekeeper.domain.tokens import USED_INTERVAL
from storekeeper.log.events import Event, emit
from storekeeper.storage import clock
from storekeeper.storage.postgres.pipeline import (
    ConnectionLost,
    Execute,
    PipelineConnection,
    Result,
    Statement,
    StatementError,
    array,
    rows,
)
from storekeeper.storage.postgres.pool import Pool, single_row, to_unavailable
from storekeeper.storage.postgres.schema import COLLECTION_TABLE, LOCK, as_arrays, as_table
from storekeeper.storage.sql import CHANGES, CONTENT, OF_CHANGE, SEARCHED, STORES
from storekeeper.storage.write_queue import BatchTooLarge, InvalidWrite
from storekeeper.storage.write_state import PROBE_BYTES

_STORE = [list(CHANGES).index(OF_CHANGE[name]) for name in STORES]
"""The places of a store's columns among those of its change."""
_NEW = as_table(SEARCHED)
_SET = ", ".join(f"{name} = new.{name}" for name in SEARCHED if name != "id")
# The database compares, so the address of a store does not travel here. Null equals null.
_EQUAL = " AND ".join(f"stores.{name} IS NOT DISTINCT FROM new.{name}" for name in CONTENT)
_KEEPS = {f"keeps_{name}": int for name in CONTENT}
_PATCHES = as_table({"place": int, "id": int, **CONTENT, **_KEEPS})
_EQUAL_IF_SENT = " AND ".join(
    f"(keeps_{name} = 1 OR stores.{name} IS NOT DISTINCT FROM new.{name})" for name in CONTENT
)
_KEPT_BYTES = "sum(CASE WHEN keeps_address = 1 THEN octet_length(stores.address) END) OVER ()"
_NEW_KEYS = as_table({"key": str, "request": int, "seq": int})

STATEMENTS = {
    b"begin": "BEGIN ISOLATION LEVEL READ COMMITTED",
    # The lock and the numbers can be one statement because they are one row: a transaction that
    # waited for the lock gets the row as the previous one left it, not as in the statement's
    # snapshot.
    b"lock": LOCK,
    # Under the lock, in the same round trip: a statement sees everything committed before it.
    b"replacements": f"""SELECT place, id, version, {_EQUAL}
      FROM {as_table({"place": int, "id": int, **CONTENT})} JOIN stores USING (id)""",
    # Addresses come here only if all of them together have at most $7 bytes.
    b"patches": f"""SELECT place, id, version, {_EQUAL_IF_SENT}, stores.name,
        CASE WHEN keeps_address = 1 AND {_KEPT_BYTES} <= $7::int8 THEN stores.address END,
        coalesce({_KEPT_BYTES}, 0)::int8
      FROM {_PATCHES} JOIN stores USING (id)""",
    b"create": f"INSERT INTO stores ({', '.join(SEARCHED)}) SELECT * FROM {_NEW}",
    b"replace": f"UPDATE stores SET {_SET} FROM {_NEW} WHERE stores.id = new.id",
    b"change": f"INSERT INTO changes ({', '.join(CHANGES)}) SELECT * FROM {as_table(CHANGES)}",
    b"count": f"""UPDATE {COLLECTION_TABLE}
      SET count = $1::int8, version = $2::int8, at = $3::int8 WHERE one = 1""",
    b"commit": "COMMIT",
    b"rollback": "ROLLBACK",
    # LIMIT makes the server look up each key in the index, even before it has statistics.
    b"find keys": """SELECT wanted.key, known.request, known.store_id, known.seq
      FROM unnest($1::text[]) AS wanted (key), LATERAL (
        SELECT request, store_id, seq FROM keys JOIN changes USING (seq)
        WHERE keys.key = wanted.key LIMIT 1) AS known""",
    b"find patched": """SELECT key, name, CASE WHEN bytes <= $2::int8 THEN address END, bytes FROM (
        SELECT wanted.key, name, address,
          coalesce(sum(octet_length(address)) OVER (), 0)::int8 AS bytes
        FROM unnest($1::text[]) AS wanted (key), LATERAL (
          SELECT name, address FROM keys JOIN changes USING (seq)
          WHERE keys.key = wanted.key LIMIT 1) AS known) AS found""",
    b"add keys": f"""INSERT INTO keys (n, key, request, seq, at)
      SELECT (SELECT coalesce(max(n), 0) FROM keys) + row_number() OVER (ORDER BY seq),
        key, request, seq, $4::int8
      FROM {_NEW_KEYS}""",
    # The server reads the array only if the last of these keys may be deleted.
    b"delete keys": f"""WITH old AS (
        SELECT n, at, (SELECT max(n) FROM keys) AS newest FROM keys
        WHERE n = (SELECT min(n) FROM keys) + {MAX_KEYS_DELETED - 1})
      DELETE FROM keys WHERE n = ANY(ARRAY(SELECT n FROM keys ORDER BY n LIMIT {MAX_KEYS_DELETED}))
        AND EXISTS (SELECT FROM old
          WHERE n <= newest - CASE WHEN at < $1::int8 THEN {MIN_KEYS} ELSE {MAX_KEYS} END)""",
    b"fill probe": "INSERT INTO probe (filler) VALUES ($1::text)",
    b"empty probe": "DELETE FROM probe",
    b"used": f"""UPDATE tokens SET used = $2::int8 WHERE number = ANY($1::int8[])
      AND abs($2::int8 - coalesce(used, 0)) >= {USED_INTERVAL}""",
}
"""The statements that a connection must prepare for writes."""


class PostgresWriter:
    """A `write_queue.Writer`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._deleting: asyncio.Task[None] | None = None

    async def probe(self, since: float) -> None:
        try:
            async with self._transaction(since) as execute:
                filler = token_hex(PROBE_BYTES // 2)  # which cannot be compressed
                for probe in ((b"fill probe", (filler,)), (b"empty probe", ())):
                    await execute((b"begin", ()), (b"lock", ()), probe, (b"commit", ()))
        except InvalidWrite as invalid:  # by a trigger
            raise invalid.args[0] from None

    async def commit(self, batch: Sequence[Command], since: float) -> Sequence[commands.Result]:
        async with self._transaction(since) as execute:
            before, replicated = await self._begin(execute, batch)
            now = clock.now()
            applied = commands.apply(batch, before, now)
            # A write that changes nothing may acknowledge what was committed while the standby was
            # away. So commit it too: the COMMIT waits for the standby, because the lock of the row
            # is in the log.
            has_stores = any(isinstance(result, Store) for result in applied.results)
            if applied.writes or (replicated and has_stores):
                await self._finish(execute, applied, now)
        if applied.changes:
            clock.WATCH.committed(now, before.at)
        if commands.keys_of(batch) and (self._deleting is None or self._deleting.done()):
            self._deleting = asyncio.create_task(self._delete_keys())
        return applied.results

    async def _delete_keys(self) -> None:
        """Delete old keys (decision 36), whatever happens to the writes; a refusal is logged."""
        with suppress(Unavailable):
            await self._pool.execute((b"delete keys", (clock.now() - MIN_KEY_AGE,)))

    @asynccontextmanager
    async def _transaction(self, since: float) -> AsyncIterator[Execute]:
        """Yield a function that executes statements on a connection; roll back what they have not
        committed."""
        deadline = response_deadline(since)
        async with self._pool.connection(deadline) as connection:
            yield partial(_execute, connection, deadline)

    async def _begin(
        self, execute: Execute, batch: Sequence[Command]
    ) -> tuple[commands.Before, bool]:
        """Take the lock; return what was before the batch, and whether COMMIT waits for a
        standby."""
        asked = _questions(batch)
        _, lock, *results = await execute((b"begin", ()), (b"lock", ()), *asked.items())
        count, version, at, epoch, replicated = single_row(rows(lock))
        found = {name: rows(result) for name, result in zip(asked, results, strict=True)}
        versions: dict[int, int] = {}
        equal: set[int] = set()
        kept: dict[int, tuple[str, str | None]] = {}
        for place, id, its_version, is_equal in found.get(b"replacements", ()):
            versions[id] = its_version
            if is_equal:
                equal.add(place)
        for place, id, its_version, is_equal, name, address, size in found.get(b"patches", ()):
            _check_size(batch, size)
            versions[id] = its_version
            kept[place] = name, address
            if is_equal:
                equal.add(place)
        remembered = {key: Remembered(*values) for key, *values in found.get(b"find keys", ())}
        for key, name, address, size in found.get(b"find patched", ()):
            _check_size(batch, size)
            remembered[key] = remembered[key]._replace(content=Payload(name, address))
        before = commands.Before(count, version, at, epoch, versions, equal, remembered, kept)
        return before, replicated

    async def _finish(self, execute: Execute, batch: commands.Batch, now: int) -> None:
        changes = as_arrays(batch.changes)
        statements: list[Statement] = []
        for name, latest in ((b"create", batch.created), (b"replace", batch.replaced)):
            if not latest:
                continue
            arrays = changes  # most batches have one kind, and each store once
            if len(latest) != len(batch.changes):
                arrays = as_arrays(latest.values())
            of_stores = [arrays[place] for place in _STORE]
            of_stores.append(array([folded(change[2], change[3]) for change in latest.values()]))
            of_stores.append(array([fold(change[2]) for change in latest.values()]))
            statements.append((name, of_stores))
        if batch.changes:
            statements.append((b"change", changes))
            statements.append((b"count", (batch.count, batch.version, batch.at)))
        if batch.keys:
            statements.append((b"add keys", (*as_arrays(batch.keys), now)))
        results = await execute(*statements, (b"commit", ()))
        expected = len(batch.created) + len(batch.replaced) + len(batch.changes) + len(batch.keys)
        if batch.changes:
            expected += 1  # the row with the numbers
        written = sum(result.command_tuples or 0 for result in results[: len(statements)])
        if written != expected:
            kept_out = "a trigger or a rule kept out the others"
            reason = f"{written} of {expected} rows were written: {kept_out}"
            emit(Event.DATABASE_REFUSED, sqlstate="00000", reason=reason)
            raise Unavailable("The database did not write everything", Outcome.UNKNOWN)


def _questions(batch: Sequence[Command]) -> dict[bytes, tuple[Any, ...]]:
    """Return the statements that say what a batch needs to know, each with its parameters."""
    # A single command is carried out whatever it keeps.
    max_bytes = MAX_KEPT_BYTES if len(batch) > 1 else MAX_INTEGER
    asked: dict[bytes, tuple[Any, ...]] = {}
    if replaced := [row for row in commands.replacements(batch) if row[1] <= MAX_INTEGER]:
        asked[b"replacements"] = as_arrays(replaced)
    if patches := [row for row in commands.patches(batch) if row[1] <= MAX_INTEGER]:
        asked[b"patches"] = (*as_arrays(patches), max_bytes)
    if keys := commands.keys_of(batch):
        asked[b"find keys"] = (array(keys),)
    if keys := commands.keys_of_patches(batch):
        asked[b"find patched"] = (array(keys), max_bytes)
    return asked


def _check_size(batch: Sequence[Command], size: int) -> None:
    """Raise BatchTooLarge if what a batch of several commands keeps was left in the database."""
    if len(batch) > 1 and size > MAX_KEPT_BYTES:
        raise BatchTooLarge


async def _execute(
    connection: PipelineConnection, deadline: float, *statements: Statement
) -> list[Result]:
    """Execute statements in one round trip.

    Raises InvalidWrite, and Unavailable with the outcome of a COMMIT.
    """
    last = len(statements) - 1
    commits = statements[last][0] == b"commit"
    try:
        results = await connection.execute(*statements, deadline=deadline)
    except ConnectionLost as error:
        outcome = Outcome.UNKNOWN if commits and error.sent else Outcome.NONE
        raise Unavailable(NO_RESPONSE, outcome) from None
    except ValueError as error:
        raise InvalidWrite(error) from None
    except StatementError as error:
        unknown = commits and error.index == last and not error.sqlstate.startswith(_ROLLED_BACK)
        if not unknown and error.sqlstate.startswith(_INVALID_DATA):
            raise InvalidWrite(to_unavailable(error)) from None
        # Not in a variable: this frame and the error would refer to each other, and keep the writes
        # of the batch.
        raise to_unavailable(error, Outcome.UNKNOWN if unknown else Outcome.NONE) from None
    if commits and results[last].command_status != b"COMMIT":
        raise Unavailable("The database rolled the write back")
    if commits and connection.warned:  # at COMMIT, and not in a trigger
        # The wait for a synchronous standby was cancelled: the writes are committed here, but
        # perhaps nowhere else. The server calls that a success, but a failover would lose them.
        raise Unavailable(NO_STANDBY, Outcome.UNKNOWN)
    return results


_RAISED = "P0001"
"""The SQLSTATE of RAISE EXCEPTION, in a trigger that an operator added."""

_INVALID_DATA = ("22", "23", _RAISED)
"""SQLSTATEs, or their classes, for invalid data of one write."""

_ROLLED_BACK = ("23", _RAISED, "40000", "40001", "40002", "40P01")
"""SQLSTATEs of a refused COMMIT after which nothing is committed. 40003 is `statement completion
unknown`."""
