"""A few connections, shared; lost ones are replaced, and while none is open all are refused. Imports the domain."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from storekeeper.errors import CannotStart, Unavailable
from storekeeper.events import Event, emit
from storekeeper.postgres.pipeline import ConnectionLost, PipelineConnection, Result, Statement, StatementError

RESPONSE_TIMEOUT = 4.5
"""Seconds after which a request gets its response in any case (decision 30: at most 5 s)."""

MAX_CONNECTION_AGE = 600.0
"""Seconds after which a connection is replaced: after a move or a change of plans nothing old stays for ever."""

MIN_RETRY_PAUSE = 0.1
MAX_RETRY_PAUSE = 1.0
"""Seconds between two attempts to connect: the first, and the most as they double."""

LOG_INTERVAL = 60.0
"""Seconds after which the log says again that the database is away."""

OLD = "old"
AWAY = "The database cannot be reached"
SLOW = "The database does not answer"
NOT_ONE = "The table collection does not have its one row"
CLOSED = "The service is shutting down"


class Pool:
    """At most `size` connections. `connect` opens one; `fail` is told why that can never succeed."""

    def __init__(
        self, connect: Callable[[], Awaitable[PipelineConnection]], size: int, fail: Callable[[str], None]
    ) -> None:
        self._connect = connect
        self._size = size
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._connections: set[PipelineConnection] = set()
        self._idle: list[PipelineConnection] = []
        self._waiting: deque[asyncio.Future[PipelineConnection]] = deque()
        self._refusal = ""
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self._connect_more()

    async def execute(self, *statements: Statement, deadline: float) -> list[Result]:
        """Ask what changes nothing; if the connection is lost, once more on another one. Raises Unavailable."""
        for _ in range(2):
            connection = await self.acquire(deadline)
            try:
                return await connection.execute(*statements, deadline=deadline)
            except ConnectionLost:
                continue
            except StatementError as error:
                raise unavailable(error) from None
            finally:
                self.release(connection)
        raise Unavailable(SLOW)

    async def acquire(self, deadline: float) -> PipelineConnection:
        """Return a connection, which has to be given back; raises Unavailable."""
        if self._refusal:
            raise Unavailable(self._refusal)
        if self._idle:
            return self._idle.pop()
        waiter: asyncio.Future[PipelineConnection] = self._loop.create_future()
        self._waiting.append(waiter)
        self._connect_more()
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release(waiter.result())
            if isinstance(error, TimeoutError):
                raise Unavailable(SLOW) from None
            raise

    def release(self, connection: PipelineConnection) -> None:
        """Take a connection back."""
        if connection.lost:
            return
        if self._closed or self._loop.time() - connection.since > MAX_CONNECTION_AGE:
            connection.drop(CLOSED if self._closed else OLD)
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self._idle.append(connection)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._refuse(CLOSED)
        for connection in list(self._connections):
            connection.drop(CLOSED)
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting

    def _connect_more(self) -> None:
        if self._connecting is None and not self._closed:
            self._connecting = asyncio.create_task(self._keep_connecting())

    async def _keep_connecting(self) -> None:
        """Open what is wanted, at least one connection; try until that is done."""
        try:
            while not self._connections or (self._wanted() and len(self._connections) < self._size):
                connection = await self._retry_connecting()
                if connection is None:
                    return
                if not connection.lost:
                    self._connections.add(connection)
                    connection.on_lost = self._forget
                    self.release(connection)
        finally:
            self._connecting = None

    def _wanted(self) -> bool:
        return any(not waiter.done() for waiter in self._waiting)

    async def _retry_connecting(self) -> PipelineConnection | None:
        pause, since, logged = MIN_RETRY_PAUSE, self._loop.time(), -LOG_INTERVAL
        while True:
            try:
                connection = await self._connect()
            except CannotStart as error:
                self._refuse(AWAY)
                self._fail(str(error))
                return None
            except Unavailable as error:
                if self._connections:  # those will do, though the server lets in no more
                    return None
                self._refuse(AWAY)
                if self._loop.time() - logged > LOG_INTERVAL:
                    logged = self._loop.time()
                    emit(Event.DATABASE_AWAY, reason=str(error))
            else:
                if self._refusal:
                    self._refusal = ""
                    emit(Event.DATABASE_BACK, seconds=round(self._loop.time() - since, 1))
                return connection
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RETRY_PAUSE)

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(Unavailable(reason))

    def _forget(self, connection: PipelineConnection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._closed:
            return
        if connection.lost != OLD:
            # What ended one has probably ended all, and a dead host does not say so.
            for other in list(self._idle):
                other.drop(connection.lost)
        self._connect_more()


def only(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the row of the table that has one; raise Unavailable if a restore left it otherwise."""
    if len(rows) != 1:
        emit(Event.DATABASE_REFUSED, sqlstate="00000", reason=NOT_ONE)
        raise Unavailable(NOT_ONE)
    return rows[0]


def unavailable(error: StatementError) -> Unavailable:
    """Return what a client is told when the server refused a statement. What is out of the ordinary is logged."""
    kind = error.sqlstate[:2]
    if kind not in _EXPECTED:
        emit(Event.DATABASE_REFUSED, sqlstate=error.sqlstate, reason=str(error))
    return Unavailable(_EXPECTED.get(kind, "The database failed"))


# By class (appendix A of PostgreSQL's manual). Some engines that speak its protocol end a transaction with 40.
_EXPECTED = {
    "25": "The database is read-only",
    "40": "The database is busy",
    "53": "The database is out of space, memory or connections",
    "55": "The database is locked",
    "57": SLOW,
}
