"""The shared collection: one PostgreSQL database, any number of machines. Imports psycopg and the domain."""

import asyncio
from collections.abc import Callable, Iterable

import psycopg

from storekeeper.aside import aside
from storekeeper.collection import CREATE, Listing
from storekeeper.errors import Unavailable
from storekeeper.postgres import reads, schema, session, writes
from storekeeper.postgres.link import Link, Lost, Refused
from storekeeper.postgres.load import load
from storekeeper.postgres.pool import CLOSED, PATIENCE, Pool
from storekeeper.postgres.whole import whole
from storekeeper.stores import Payload, Store

__all__ = ["PostgresCollection", "exists", "prepare", "whole"]

CONNECTIONS = 5
"""The most that one process has: two for reads by id, one each for lists, pages of long lists, and writes."""

_STATEMENTS = reads.STATEMENTS | writes.STATEMENTS


def prepare(url: str) -> None:
    """Create or upgrade the database; raises CannotStart, Unavailable."""
    schema.prepare(schema.parameters(url))


def exists(url: str) -> bool:
    """Tell whether the database has a collection; raises CannotStart, Unavailable."""
    conninfo = schema.parameters(url)
    with schema.connect(conninfo) as connection:
        try:
            return schema.version(connection) > 0
        except psycopg.Error as error:
            raise Unavailable(schema.one_line(error, conninfo)) from None


class PostgresCollection:
    """A Collection in the database of a URL. Needs a running event loop.

    The database need not be there: until it is, every answer is Unavailable. `fail` is called once, on the loop,
    if it turns out to be one that this version cannot use. Raises CannotStart for a URL that is none.
    """

    def __init__(self, url: str, fail: Callable[[str], None]) -> None:
        self._conninfo = schema.parameters(url)
        self._schema = ""
        self._closed = False
        self._pool = Pool(self._connect, CONNECTIONS, fail)
        self._reader = reads.Reader(self._pool)
        self._writer = writes.Writer(self._pool)

    def get(self, id: int) -> asyncio.Future[Store | None]:
        """See Collection."""
        return self._reader.get(id)

    def list(self, name: str | None = None) -> asyncio.Future[Listing]:
        """See Collection."""
        return self._reader.list_stores(name)

    def create(self, payload: Payload) -> asyncio.Future[Store]:
        """See Collection."""
        # A create never answers None: that is for a replace whose store is missing.
        return self._writer.submit(CREATE, payload)  # type: ignore[return-value]

    def replace(self, id: int, payload: Payload) -> asyncio.Future[Store | None]:
        """See Collection."""
        if id == CREATE:
            nothing: asyncio.Future[Store | None] = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        return self._writer.submit(id, payload)

    async def load(self, payloads: Iterable[Payload], *, only_if_empty: bool = False) -> int:
        """See Collection."""
        if self._closed:
            raise Unavailable(CLOSED)
        await self._prepare()
        return await aside(lambda stop: load(self._conninfo, payloads, stop, only_if_empty=only_if_empty))

    def stamp(self) -> None:
        """See Collection: asking would cost a round trip, which is what a read costs."""

    async def check(self) -> None:
        """See Collection."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        await self._pool.ask((b"check", ()), deadline=deadline)

    async def close(self) -> None:
        """See Collection."""
        self._closed = True
        await asyncio.gather(self._writer.close(), self._reader.close())
        await self._pool.close()

    async def _connect(self) -> Link:
        """Open a connection that has all it needs; raises Unavailable, CannotStart."""
        conversation = session.conversation(session.SERVING, await self._prepare())
        try:
            link = Link(await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True))
            try:
                await link.prepare(conversation, _STATEMENTS, asyncio.get_running_loop().time() + PATIENCE)
            except BaseException:
                link.drop("it could not be prepared")
                raise
        except (psycopg.Error, Lost, Refused) as error:
            raise schema.no_session(error, self._conninfo) from None
        return link

    async def _prepare(self) -> str:
        """Return the schema of the collection: found once, for what comes to stand beside it later is not ours."""
        if not self._schema:
            self._schema = await aside(lambda _stop: schema.prepare(self._conninfo))
        return self._schema
