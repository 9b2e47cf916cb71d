"""The shared collection: one PostgreSQL database, any number of machines."""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import psycopg

from storekeeper.concurrency.batcher import RESPONSE_TIMEOUT, Batcher
from storekeeper.concurrency.interruption import Interruption
from storekeeper.concurrency.threads import run_in_thread, run_with
from storekeeper.domain.changes import ChangesPage, ChangesQuery
from storekeeper.domain.queries import Moment, Query, State
from storekeeper.domain.selection import StoreKeys
from storekeeper.domain.stores import Store
from storekeeper.domain.tokens import Token, Traces
from storekeeper.storage import sessions
from storekeeper.storage.collection import Collection, Fail, Listing, Snapshot, T
from storekeeper.storage.postgres import (
    connections,
    long_reads,
    moving,
    reads,
    schema,
    selecting,
    snapshot,
    writer,
)
from storekeeper.storage.postgres.pipeline import (
    ConnectionLost,
    PipelineConnection,
    StatementError,
    array,
    rows,
)
from storekeeper.storage.postgres.pool import Pool, single_row
from storekeeper.storage.postgres.selecting import Selecting
from storekeeper.storage.postgres.session import open_new_session, open_session
from storekeeper.storage.sessions import Session
from storekeeper.storage.write_queue import QueuedWrites, WriteQueue

_STATEMENTS = reads.STATEMENTS | long_reads.STATEMENTS | selecting.STATEMENTS | writer.STATEMENTS


class PostgresCollection(QueuedWrites, Collection):
    """A Collection in the database of a URL. Needs a running event loop.

    The database need not be reachable yet: until it is, every read and write raises Unavailable.
    `fail` is called once, on the loop, if this version cannot use the database. `on_reachable` is
    called on a thread when the database is reached, and again until it does not raise Unavailable.
    Raises CannotStart for an invalid URL.
    """

    def __init__(
        self, url: str, fail: Fail, on_reachable: Callable[[], None] = lambda: None
    ) -> None:
        self._url = url
        self._on_reachable = on_reachable
        self._conninfo = connections.parameters(url)
        self._schema = ""
        self._pool = Pool(self._connect, fail)
        self._reader = reads.Reader(self._pool)
        self._selecting = Selecting(self._pool)
        self._by_id = Batcher(self._reader.get, workers=2)
        self._queue = WriteQueue(writer.PostgresWriter(self._pool))

    def begin_reads(self, count: int = 1) -> float:  # noqa: ARG002 - as SQLite needs it
        return math.inf

    def end_reads(self) -> None:
        self._by_id.start()
        self._queue.start()

    def numbers(self) -> None:
        return None  # asking for them would cost a round trip, which is what a read costs

    def get(self, id: int) -> asyncio.Future[Store | None]:
        return self._by_id.add(id)

    def get_at(self, id: int, at: Moment) -> asyncio.Future[Store | None]:
        return asyncio.ensure_future(self._reader.get_at(id, at))

    def list(self, query: Query) -> asyncio.Future[Listing]:
        if query.selection is not None:
            return asyncio.ensure_future(self._selecting.listing(query))
        return asyncio.ensure_future(self._reader.listing(query))

    def keys(self, ids: Sequence[int]) -> asyncio.Future[StoreKeys]:
        return asyncio.ensure_future(self._selecting.keys(ids))

    def refused_lists(self) -> int:
        return self._reader.long_lists.refused

    def state(self) -> asyncio.Future[State]:
        return asyncio.ensure_future(self._reader.state())

    def changes(self, query: ChangesQuery) -> asyncio.Future[ChangesPage]:
        return asyncio.ensure_future(self._reader.changes(query))

    async def in_session(
        self, work: Callable[[Session], T], lock_timeout: float = sessions.LOCK_TIMEOUT
    ) -> T:
        await self.check()  # then its tables are there
        return await run_with(partial(open_session, self._url, lock_timeout=lock_timeout), work)

    async def with_snapshot(self, work: Callable[[Snapshot], T], interruption: Interruption) -> T:
        return await run_with(partial(snapshot.snapshot, self._url, interruption), work)

    async def tokens(self) -> Sequence[Token]:
        (result,) = await self._pool.execute((b"tokens", ()))
        return [Token(*row) for row in rows(result)]

    async def all_tokens(self) -> Sequence[Token]:
        (result,) = await self._pool.execute((b"all tokens", ()))
        return [Token(*row) for row in rows(result)]

    async def traces(self) -> Traces:
        (result,) = await self._pool.execute((b"traces", ()))
        return Traces(*single_row(rows(result)))

    async def restored(self) -> None:
        return None  # a restore fills an empty database, which a service finds only then

    async def mark_used(self, numbers: Iterable[int], now: int) -> None:
        await self._pool.execute((b"used", (array(numbers), now)))

    async def check(self) -> None:
        # Other reads need the table `stores`, and only that may be locked or forbidden: so `get` no
        # id.
        state, _ = await self._pool.execute((b"state", ()), (b"get", (array(()),)))
        single_row(rows(state))

    async def figures(self) -> Mapping[str, float | None]:
        (result,) = await self._pool.execute((b"figures", ()))
        size, backed_up = single_row(rows(result))
        return {
            "database_bytes": size,
            "last_backup_timestamp_seconds": backed_up and backed_up / 1000,
        }

    async def close(self) -> None:
        await asyncio.gather(self._by_id.close(), self._queue.close())
        await self._pool.close()

    async def _connect(self) -> PipelineConnection:
        """Open a connection and prepare its session; raises Unavailable, CannotStart."""
        if not self._schema:  # only once: a schema that hides it later is not ours
            self._schema = await run_in_thread(self._prepare)
        try:
            # On a thread, because a loop does not end while it looks up the name of a host: for
            # minutes, if no name server responds.
            libpq = await run_in_thread(lambda: connections.connect(self._conninfo))
            connection = PipelineConnection(libpq, _STATEMENTS)
            deadline = asyncio.get_running_loop().time() + RESPONSE_TIMEOUT
            await connection.set_up(connections.setup_statements(connections.SERVING), deadline)
            await connection.set_up(
                (connections.CHECK_CLAIM, connections.set_search_path(self._schema)), deadline
            )
        except (psycopg.Error, ConnectionLost, StatementError) as error:
            raise connections.translate(error, self._url) from None
        return connection

    def _prepare(self) -> str:
        found = schema.prepare(self._url)
        self._on_reachable()
        return found


class PostgresDatabase:
    """The database of a URL, which might not be reachable; see `databases.Database`."""

    renew_epoch = snapshot.RENEW_EPOCH
    check = snapshot.CHECK

    def __init__(self, url: str) -> None:
        self.name = connections.describe(url)
        self.open_collection = partial(PostgresCollection, url)
        self.prepare = partial(schema.prepare, url)
        self.create = partial(snapshot.create, url)
        self.exists = partial(schema.exists, url)
        self.session = partial(open_session, url)
        self.new_session = partial(open_new_session, url)
        self.snapshot = partial(snapshot.snapshot, url)
        self.target = partial(snapshot.target, url)
        self.freeze = partial(moving.freeze, url)
        self.thaw = partial(moving.thaw, url)
