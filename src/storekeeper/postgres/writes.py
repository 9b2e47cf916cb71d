"""Writes of the shared collection: all that wait in one transaction, under one lock. Imports the domain.

One row of the database is the lock of all writers on all machines and holds the numbers that it guards. A batch
takes two round trips: the lock with the numbers, then everything that is written with its COMMIT.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator

from storekeeper.collection import CREATE
from storekeeper.errors import Outcome, Unavailable
from storekeeper.events import Event, emit
from storekeeper.postgres.link import Link, Lost, Refused, Statement, array
from storekeeper.postgres.pool import SLOW, Pool, only, unavailable
from storekeeper.postgres.turns import Batch, Turns
from storekeeper.stores import Payload, Store

_BATCH_BYTES = 4 * 2**20

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

Write = tuple[int, Payload]
"""CREATE or the id of the store to replace, and its new content."""

Writes = Batch[Write, Store | None]


class Writer:
    """Carries out writes; its futures raise Unavailable, or what is wrong with a write that no client can send."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._turns = Turns(self._commit, most=1000, size=_size, most_size=_BATCH_BYTES, gather=True)

    def submit(self, id: int, payload: Payload) -> asyncio.Future[Store | None]:
        """Queue a write. Its future gets the store, None if there is none, or the error."""
        return self._turns.add((id, payload))

    async def close(self) -> None:
        """Finish every write that was submitted."""
        await self._turns.close()

    async def _commit(self, batch: Writes, deadline: float) -> None:
        try:
            stores = await self._transact(batch, deadline)
        except _Bad as bad:
            if len(batch) == 1:
                batch[0].answer(bad.error)
                return
            # One of them is bad. Each in a transaction of its own, so that only that one fails.
            for wish in batch:
                await self._commit([wish], deadline)
        else:
            for wish, store in zip(batch, stores, strict=True):
                wish.answer(store)

    async def _transact(self, batch: Writes, deadline: float) -> list[Store | None]:
        link = await self._pool.take(deadline)
        try:
            return await _transaction(link, batch, deadline)
        except BaseException:
            await _roll_back(link, deadline)
            raise
        finally:
            self._pool.give(link)


class _Bad(Exception):
    """Something is wrong with a write of the batch; nothing was written."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class _Plan:
    """What a batch does, from the count and version that it found."""

    def __init__(self, count: int, version: int) -> None:
        self._before = count
        self._count = count
        self._version = version
        self._stores: dict[int, Store] = {}
        self._changes: list[Store] = []

    def apply(self, id: int, payload: Payload) -> Store | None:
        """Add a write; gives what it answers."""
        # Ids are dense, so that the count alone says which exist.
        if id > self._count:
            return None
        if id == CREATE:
            id = self._count = self._count + 1
        self._version += 1
        store = Store(id, payload.name, payload.address, self._version)
        self._stores[id] = store
        self._changes.append(store)
        return store

    def statements(self) -> Iterator[Statement]:
        """Give what carries it out. A store that is written twice is written once, as it is in the end."""
        if created := [store for store in self._stores.values() if store.id > self._before]:
            yield b"create", _columns(created)
        if replaced := [store for store in self._stores.values() if store.id <= self._before]:
            yield b"replace", _columns(replaced)
        if self._changes:
            yield b"change", (*_columns(self._changes), time.time_ns() // 1_000_000)
            yield b"count", (self._count, self._version)

    @property
    def rows(self) -> int:
        """How many rows that writes."""
        return len(self._stores) + len(self._changes) + bool(self._changes)


async def _transaction(link: Link, batch: Writes, deadline: float) -> list[Store | None]:
    link.warning = ""
    try:
        _, lock = await link.ask((b"begin", ()), (b"lock", ()), deadline=deadline)
    except Lost:
        raise Unavailable(SLOW) from None
    except Refused as error:
        raise unavailable(error) from None
    count, version = only(lock.rows())
    plan = _Plan(count, version)
    stores = [plan.apply(*wish.key) for wish in batch]
    written = await _finish(link, list(plan.statements()), deadline)
    if written != plan.rows:
        reason = f"{written} of {plan.rows} rows were written: a trigger or a rule kept out the others"
        emit(Event.DATABASE_REFUSED, sqlstate="00000", reason=reason)
        raise Unavailable("The database did not write everything", Outcome.UNKNOWN)
    return stores


async def _finish(link: Link, statements: list[Statement], deadline: float) -> int:
    """Write and commit; return how many rows. From here on it matters what exactly was sent and answered."""
    try:
        *written, commit = await link.ask(*statements, (b"commit", ()), deadline=deadline)
    except Lost as error:
        raise Unavailable(SLOW, Outcome.UNKNOWN if error.sent else Outcome.NONE) from None
    except ValueError as error:
        raise _Bad(error) from None
    except Refused as error:
        if error.index < len(statements) and error.sqlstate.startswith(_BAD):
            raise _Bad(error) from None
        refusal = unavailable(error)
        if error.index == len(statements) and not error.sqlstate.startswith(_ROLLED_BACK):
            refusal.outcome = Outcome.UNKNOWN
        raise refusal from None
    if commit.command != b"COMMIT":
        raise Unavailable("The database rolled the write back")
    if link.warning:
        # Of a wait for a synchronous standby that was ended: committed here, but perhaps nowhere else. The server
        # calls that a success; it is none, for a failover would lose it.
        raise Unavailable("The standby does not answer", Outcome.UNKNOWN)
    return sum([result.affected for result in written])


async def _roll_back(link: Link, deadline: float) -> None:
    if link.lost:
        return
    try:
        await link.ask((b"rollback", ()), deadline=deadline)
    except (Lost, Refused):
        link.drop("it could not be rolled back")


_BAD = ("22", "23")
"""Classes of what is wrong with data."""

_ROLLED_BACK = ("23", "40000", "40001", "40002", "40P01")
"""What a refused COMMIT says when nothing is committed. 40003 is `statement completion unknown`."""


def _columns(stores: Iterable[Store]) -> tuple[str, str, str, str]:
    ids, names, addresses, versions = zip(
        *((store.id, store.name, store.address, store.version) for store in stores), strict=True
    )
    return array(ids), array(names), array(addresses), array(versions)


def _size(write: Write) -> int:
    return write[1].size
