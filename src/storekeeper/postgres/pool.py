"""A few connections, shared; lost ones are replaced, and while none is open all are refused. Imports the domain."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from storekeeper.errors import CannotStart, Unavailable
from storekeeper.events import Event, emit
from storekeeper.postgres.link import Link, Lost, Refused, Result, Statement

RESPONSE_TIMEOUT = 4.5
"""Seconds after which a request is answered in any case (decision 30: at most 5 s)."""

LIFE = 600.0
"""Seconds after which a connection is replaced: after a move or a change of plans nothing old stays for ever."""

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 1.0
"""Seconds between two attempts to connect: the first, and the most as they double."""

REMIND = 60.0
"""Seconds after which the log says again that the database is away."""

OLD = "old"
AWAY = "The database cannot be reached"
SLOW = "The database does not answer"
NOT_ONE = "The table collection does not have its one row"
CLOSED = "The service is shutting down"


class Pool:
    """Gives out links, at most `size` of them. `connect` opens one; `fail` is told when that can never succeed."""

    def __init__(self, connect: Callable[[], Awaitable[Link]], size: int, fail: Callable[[str], None]) -> None:
        self._connect = connect
        self._size = size
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._links: set[Link] = set()
        self._idle: list[Link] = []
        self._waiting: deque[asyncio.Future[Link]] = deque()
        self._refusal = ""
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self._connect_more()

    async def ask(self, *statements: Statement, deadline: float) -> list[Result]:
        """Ask what changes nothing; if the connection is lost, once more on another one. Raises Unavailable."""
        for _ in range(2):
            link = await self.take(deadline)
            try:
                return await link.ask(*statements, deadline=deadline)
            except Lost:
                continue
            except Refused as error:
                raise unavailable(error) from None
            finally:
                self.give(link)
        raise Unavailable(SLOW)

    async def take(self, deadline: float) -> Link:
        """Give a link, which has to be given back; raises Unavailable."""
        if self._refusal:
            raise Unavailable(self._refusal)
        if self._idle:
            return self._idle.pop()
        waiter: asyncio.Future[Link] = self._loop.create_future()
        self._waiting.append(waiter)
        self._connect_more()
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give(waiter.result())
            if isinstance(error, TimeoutError):
                raise Unavailable(SLOW) from None
            raise

    def give(self, link: Link) -> None:
        """Take a link back."""
        if link.lost:
            return
        if self._closed or self._loop.time() - link.since > LIFE:
            link.drop(CLOSED if self._closed else OLD)
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(link)
                return
        self._idle.append(link)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._refuse(CLOSED)
        for link in list(self._links):
            link.drop(CLOSED)
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting

    def _connect_more(self) -> None:
        if self._connecting is None and not self._closed:
            self._connecting = asyncio.create_task(self._keep_connecting())

    async def _keep_connecting(self) -> None:
        """Open what is wanted, at least one link; try until that is done."""
        try:
            while not self._links or (self._wanted() and len(self._links) < self._size):
                link = await self._patiently_connect()
                if link is None:
                    return
                if not link.lost:
                    self._links.add(link)
                    link.on_lost = self._forget
                    self.give(link)
        finally:
            self._connecting = None

    def _wanted(self) -> bool:
        return any(not waiter.done() for waiter in self._waiting)

    async def _patiently_connect(self) -> Link | None:
        pause, since, said = FIRST_PAUSE, self._loop.time(), -REMIND
        while True:
            try:
                link = await self._connect()
            except CannotStart as error:
                self._refuse(AWAY)
                self._fail(str(error))
                return None
            except Unavailable as error:
                if self._links:  # those will do, though the server lets in no more
                    return None
                self._refuse(AWAY)
                if self._loop.time() - said > REMIND:
                    said = self._loop.time()
                    emit(Event.DATABASE_AWAY, reason=str(error))
            else:
                if self._refusal:
                    self._refusal = ""
                    emit(Event.DATABASE_BACK, seconds=round(self._loop.time() - since, 1))
                return link
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(Unavailable(reason))

    def _forget(self, link: Link) -> None:
        self._links.discard(link)
        if link in self._idle:
            self._idle.remove(link)
        if self._closed:
            return
        if link.lost != OLD:
            # What ended one has probably ended all, and a dead host does not say so.
            for other in list(self._idle):
                other.drop(link.lost)
        self._connect_more()


def only(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the row of the table that has one; raise Unavailable if a restore left it otherwise."""
    if len(rows) != 1:
        emit(Event.DATABASE_REFUSED, sqlstate="00000", reason=NOT_ONE)
        raise Unavailable(NOT_ONE)
    return rows[0]


def unavailable(error: Refused) -> Unavailable:
    """Give what a client is told when the server refused a statement. What is out of the ordinary is logged."""
    kind = error.sqlstate[:2]
    if kind not in _ORDINARY:
        emit(Event.DATABASE_REFUSED, sqlstate=error.sqlstate, reason=str(error))
    return Unavailable(_ORDINARY.get(kind, "The database failed"))


# By class (appendix A of PostgreSQL's manual). Some engines that speak its protocol end a transaction with 40.
_ORDINARY = {
    "25": "The database is read-only",
    "40": "The database is busy",
    "53": "The database is out of space, memory or connections",
    "55": "The database is locked",
    "57": SLOW,
}
