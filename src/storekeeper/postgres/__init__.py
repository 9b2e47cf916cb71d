"""The shared collection: one PostgreSQL database, any number of machines. Imports the domain and `concurrency`."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import psycopg

from storekeeper.collection import Listing, Moment, Query, State
from storekeeper.commands import KEYS_INTERVAL, MAX_BATCH, Command, size
from storekeeper.concurrency.threads import run_in_thread
from storekeeper.errors import FAILED, Unavailable
from storekeeper.postgres import past, reads, session, writes
from storekeeper.postgres.batcher import Batcher
from storekeeper.postgres.bulk import RENEW_EPOCH, load_all, opened, snapshot
from storekeeper.postgres.pipeline import ConnectionLost, PipelineConnection, StatementError, array, rows
from storekeeper.postgres.pool import RESPONSE_TIMEOUT, Pool, single_row
from storekeeper.postgres.schema import exists, prepare
from storekeeper.postgres.session import describe
from storekeeper.stores import Payload, Store
from storekeeper.tokens import Token
from storekeeper.write_state import WriteState

__all__ = ["RENEW_EPOCH", "PostgresCollection", "describe", "exists", "load_all", "open_collection", "opened"]
__all__ += ["prepare", "snapshot"]

FIRST_LOOK = 1.0
"""Seconds after which a new process reads the remembered keys, if no write with a key comes before."""

PROBE_SIZE = 1000
"""Bytes that a probe writes while writes are refused. Other probes write none: a vacuum would have to remove them."""

_STATEMENTS = reads.STATEMENTS | past.STATEMENTS | writes.STATEMENTS


class PostgresCollection:
    """A Collection in the database of a URL. Needs a running event loop.

    The database need not be reachable yet: until it is, every read and write raises Unavailable. `fail` is called
    once, on the loop, if this version cannot use the database. `reached` is called on a thread when the database was
    reached, again and again until it raises no Unavailable. Raises CannotStart for an invalid URL.
    """

    has_change_token = False  # asking for it would cost a round trip, which is what a read costs

    def __init__(self, url: str, fail: Callable[[str], None], reached: Callable[[], None]) -> None:
        self._url = url
        self._reached = reached
        self._conninfo = session.parameters(url)
        self._schema = ""
        self._pool = Pool(self._connect, fail)
        self._state = WriteState(self._begin_probe)
        reader = reads.Reader(self._pool)
        self._by_id = Batcher(reader.get, workers=2)
        self._states = Batcher(reader.state)
        self._lists = Batcher(reader.list_stores, max_batch=50)
        self._past = past.PastReader(self._pool)
        self._writer = writes.Writer(self._pool, self._state.refused)
        self._writes = Batcher(self._writer.commit, max_batch=MAX_BATCH, size=size, gather=True)
        self._probing: asyncio.Task[None] | None = None
        self._tending = asyncio.create_task(self._tend_keys())

    def get(self, id: int) -> asyncio.Future[Store | None]:
        return self._by_id.add(id)

    def get_at(self, id: int, at: Moment) -> asyncio.Future[Store | None]:
        return asyncio.ensure_future(self._past.get(id, at))

    def list(self, query: Query) -> asyncio.Future[Listing]:
        if query.at is not None:
            return asyncio.ensure_future(self._past.list_stores(query))
        return self._lists.add(query)

    def state(self) -> asyncio.Future[State]:
        return self._states.add(None)

    def write(self, command: Command) -> asyncio.Future[Store | None]:
        return self._writes.add(command)

    async def load(self, payloads: Iterable[Payload], *, only_if_empty: bool = False) -> range:
        await self.check()  # after that, its tables are there
        return await run_in_thread(lambda: load_all(self._url, payloads, only_if_empty=only_if_empty))

    async def tokens(self) -> Sequence[Token]:
        (result,) = await self._pool.execute((b"tokens", ()))
        return [Token(*row) for row in rows(result)]

    async def mark_used(self, numbers: Iterable[int], now: int) -> None:
        await self._pool.execute((b"used", (array(numbers), now)))

    def change_token(self) -> None:
        return None

    def changed_since(self, state: State) -> tuple[State, None]:
        return state, None

    async def check(self) -> None:
        # `get` of no id: other reads need the table `stores`, which alone may be locked or forbidden.
        state, _ = await self._pool.execute((b"state", ()), (b"get", (array(()),)))
        single_row(rows(state))

    async def refusal_of_writes(self) -> str:
        return await self._state.refusal()

    def _begin_probe(self) -> None:
        self._probing = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        reason = FAILED
        try:
            await self._writer.probe(PROBE_SIZE if self._state.reason else 0)
            reason = ""
        except Unavailable as error:
            reason = str(error)
        finally:
            self._state.probed(reason)

    async def _tend_keys(self) -> None:
        await asyncio.sleep(FIRST_LOOK)
        while True:
            with suppress(Unavailable, MemoryError):
                await self._writer.load_keys()
                while not self._state.reason and await self._writer.forget_keys():
                    pass
            await asyncio.sleep(KEYS_INTERVAL)

    async def close(self) -> None:
        self._state.close()
        self._tending.cancel()
        await asyncio.gather(*(each.close() for each in (self._by_id, self._states, self._lists, self._writes)))
        await self._pool.close()
        if self._probing is not None:
            await asyncio.wait([self._probing])

    async def _connect(self) -> PipelineConnection:
        """Open a connection and prepare its session; raises Unavailable, CannotStart."""
        if not self._schema:  # looked for once: another schema that hides it later is not ours
            self._schema = await run_in_thread(self._prepare)
        try:
            # On a thread: no loop ends while it looks a host's name up, for minutes if no name server responds.
            libpq = await run_in_thread(lambda: session.connect(self._conninfo))
            connection = PipelineConnection(libpq, _STATEMENTS)
            deadline = asyncio.get_running_loop().time() + RESPONSE_TIMEOUT
            await connection.set_up(session.setup_statements(session.SERVING), deadline)
            await connection.set_up((session.CHECK_CLAIM, session.set_search_path(self._schema)), deadline)
        except (psycopg.Error, ConnectionLost, StatementError) as error:
            raise session.translate(error, self._url) from None
        return connection

    def _prepare(self) -> str:
        schema = prepare(self._url)
        self._reached()
        return schema


open_collection = PostgresCollection
