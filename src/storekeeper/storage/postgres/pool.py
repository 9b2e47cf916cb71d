"""The connection pool: replaces lost connections, and refuses requests while none is open."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from storekeeper.concurrency.batcher import RESPONSE_TIMEOUT
from storekeeper.domain.errors import (
    CLOSED,
    FAILED,
    LOCKED,
    NO_RESPONSE,
    CannotStart,
    Outcome,
    Unavailable,
)
from storekeeper.log.events import Event, emit
from storekeeper.storage.collection import Fail
from storekeeper.storage.postgres.pipeline import (
    ConnectionLost,
    PipelineConnection,
    Result,
    Statement,
    StatementError,
)

POOL_SIZE = 9
"""The most connections that one process opens: two each for reads by id and of the past, one each
for everything else."""

MAX_CONNECTION_AGE = 600.0
"""Seconds after which a connection is replaced, so that it does not keep an old server or old
plans for ever."""

RETRY_PAUSE = 0.5
"""Seconds between two attempts to connect."""

EXPIRED = "old"
UNREACHABLE = "The database cannot be reached"
NO_SINGLE_ROW = "The table collection does not have its one row"


class Pool:
    """The connections. `connect` opens one; `fail` is called with the error if it never can."""

    def __init__(self, connect: Callable[[], Awaitable[PipelineConnection]], fail: Fail) -> None:
        self._connect = connect
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._connections: set[PipelineConnection] = set()
        self._idle: list[PipelineConnection] = []
        self._waiting: deque[asyncio.Future[PipelineConnection]] = deque()
        self._refusal = ""
        self._outage_began = 0.0
        self._connecting: asyncio.Task[None] | None = None
        self._connect_more()

    async def execute(self, *statements: Statement, deadline: float | None = None) -> list[Result]:
        """Execute statements that may be executed twice, and again if the connection is lost.
        Raises Unavailable."""
        deadline = deadline or self._loop.time() + RESPONSE_TIMEOUT
        for _ in range(2):
            connection = await self.acquire(deadline)
            try:
                return await connection.execute(*statements, deadline=deadline)
            except ConnectionLost:
                continue
            except StatementError as error:
                raise to_unavailable(error, read=True) from None
            finally:
                self.release(connection)
        raise Unavailable(NO_RESPONSE)

    async def acquire(self, deadline: float) -> PipelineConnection:
        """Return a connection, which the caller must release; raise Unavailable."""
        if self._refusal:
            raise Unavailable(self._refusal)
        if self._idle:
            return self._idle.pop()
        waiter: asyncio.Future[PipelineConnection] = self._loop.create_future()
        self._waiting.append(waiter)
        self._connect_more()
        try:
            await asyncio.wait((waiter,), timeout=deadline - self._loop.time())
            if not waiter.done():
                raise Unavailable(NO_RESPONSE)
        except BaseException:
            if not waiter.done():
                self._waiting.remove(waiter)
            elif not waiter.exception():
                self.release(waiter.result())
            raise
        return waiter.result()

    def release(self, connection: PipelineConnection) -> None:
        """Take a connection back, and give it to the request that has waited longest."""
        if connection.lost:
            return
        if self._expired(connection):
            if len(self._connections) > 1:
                connection.drop(EXPIRED)
                return
            # The last connection stays until there is another, as the server may accept no more.
            self._connect_more()
        if self._waiting:
            self._waiting.popleft().set_result(connection)
        else:
            self._idle.append(connection)

    @asynccontextmanager
    async def connection(self, deadline: float) -> AsyncIterator[PipelineConnection]:
        """Lend a connection; at the end, roll back what is not committed. Raises Unavailable."""
        connection = await self.acquire(deadline)
        try:
            yield connection
        finally:
            await _roll_back(connection, deadline)
            self.release(connection)

    async def close(self) -> None:
        """Close every connection."""
        self._refuse(CLOSED)
        for connection in list(self._connections):
            connection.drop(CLOSED)
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))

    def _expired(self, connection: PipelineConnection) -> bool:
        return self._loop.time() - connection.since > MAX_CONNECTION_AGE

    def _connect_more(self) -> None:
        if self._connecting is None and self._refusal != CLOSED:
            self._connecting = asyncio.create_task(self._keep_connecting())

    async def _keep_connecting(self) -> None:
        """Open connections while requests wait for them, at least one that is not old; retry
        until that is done."""
        try:
            while self._needs_more():
                began = self._loop.time()
                try:
                    self._add(await self._connect())
                except CannotStart as error:
                    self._refuse(UNREACHABLE)
                    self._fail(error)
                    return
                except Exception as error:  # noqa: BLE001 - such as a lack of files: only this retries
                    self._record_outage(str(error), began)
                    await asyncio.sleep(RETRY_PAUSE)
        finally:
            self._connecting = None

    def _needs_more(self) -> bool:
        if not self._connections:
            return True
        if len(self._connections) >= POOL_SIZE:
            return False
        return bool(self._waiting) or all(map(self._expired, self._connections))

    def _add(self, connection: PipelineConnection) -> None:
        if self._refusal:
            self._refusal = ""
            emit(Event.DATABASE_REACHABLE, seconds=round(self._loop.time() - self._outage_began, 1))
        if not connection.lost:
            self._connections.add(connection)
            connection.on_lost = self._on_lost
            self.release(connection)
            # Otherwise an old one might serve again, as the last.
            for other in filter(self._expired, self._idle[:-1]):
                other.drop(EXPIRED)

    def _record_outage(self, reason: str, began: float) -> None:
        # Open ones suffice, although the server accepts no more.
        if self._connections:
            count = len(self._connections)
            emit(Event.DATABASE_UNREACHABLE, reason=reason, connections=count)
            return
        if not self._refusal:
            self._outage_began = began
        self._refuse(UNREACHABLE)
        emit(Event.DATABASE_UNREACHABLE, reason=reason)

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        while self._waiting:
            self._waiting.popleft().set_exception(Unavailable(reason))

    def _on_lost(self, connection: PipelineConnection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if connection.lost != EXPIRED:
            # What ended one connection has probably ended all; a dead host does not close them.
            for other in list(self._idle):
                other.drop(connection.lost)
        self._connect_more()


async def _roll_back(connection: PipelineConnection, deadline: float) -> None:
    """Roll back the transaction of a connection, if it is in one; drop the connection if that
    fails."""
    if connection.lost or connection.idle:
        return
    try:
        await connection.execute((b"rollback", ()), deadline=deadline)
    except (ConnectionLost, StatementError):
        connection.drop("it could not be rolled back")


def single_row(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the only row of a table; raise Unavailable if a restore left none, or several."""
    if len(rows) != 1:
        emit(Event.DATABASE_REFUSED, sqlstate="00000", reason=NO_SINGLE_ROW)
        raise Unavailable(NO_SINGLE_ROW)
    return rows[0]


def to_unavailable(
    error: StatementError, outcome: Outcome = Outcome.NONE, *, read: bool = False
) -> Unavailable:
    """Return the Unavailable for a statement that the server refused; log what is unexpected.

    A lock or a lack of space is logged only for a read: `WriteState` logs it for writes.
    """
    expected = _EXPECTED.get(error.sqlstate) or _EXPECTED.get(error.sqlstate[:2])
    if not expected or (read and error.sqlstate.startswith(("53", "55P03"))):
        emit(Event.DATABASE_REFUSED, sqlstate=error.sqlstate, reason=str(error))
    return Unavailable(expected or FAILED, outcome)


# By SQLSTATE or its class (appendix A of PostgreSQL's manual). Some engines that speak its protocol
# abort with class 40.
_EXPECTED = {
    "25006": "The database is read-only",
    "40": "The database is busy",
    "53": "The database is out of space, memory or connections",
    "55P03": LOCKED,
    "57": NO_RESPONSE,
}
