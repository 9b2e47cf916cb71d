"""The limits of one process: how many connections it takes, and who makes room for one more. Imports events.

Nothing here is done for a request, only for a new connection: which ones are idle is found out when there are
too many, and remembered until that list is used up.
"""

import asyncio
import resource
from collections import deque
from contextlib import suppress
from typing import Protocol

from storekeeper.events import Event, emit
from storekeeper.http.budgets import ReceiveBudget, SendBudget

MAX_CONNECTIONS = 20_000
"""Connections of a process, however many files it may open: they cost memory too."""

RESERVED_FILES = 64
"""Files that are kept free for the database, its log, and what else a process opens."""

MAX_REFUSED = 64
"""Connections beyond the limit that get a response; what comes on top of them is closed without one."""

CLOCK_GAP = 2.0
"""Seconds between two sweeps after which something has stopped the process: four times what is usual."""

SWEEP_SLICE = 100
"""Connections that are swept before a request may come between: about 0.1 ms."""

LOG_INTERVAL = 60.0
"""Seconds after which the log says again that there are too many."""


class Member(Protocol):
    """What the connection limit needs of a connection."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    responses_sent: int

    def is_idle(self) -> bool:
        """Tell whether no request was begun that has no response yet."""
        ...

    def idle_since(self, now: float) -> float:
        """Return since when it is idle, on the loop's clock."""
        ...

    def sweep(self, now: float) -> None:
        """Enforce the timeouts."""
        ...


def capacity() -> int:
    """Let this process open as many files as it may and can use; return how many connections that allows."""
    wanted = MAX_CONNECTIONS + RESERVED_FILES + MAX_REFUSED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):  # macOS has one more limit, which it does not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(1, soft // 4, soft - RESERVED_FILES - MAX_REFUSED))


class ConnectionLimit:
    """The open connections of one process, at most about `maximum` of them."""

    def __init__(self, maximum: int = MAX_CONNECTIONS) -> None:
        self.maximum = maximum
        self._open: set[Member] = set()
        self._idle: deque[tuple[Member, int]] = deque()
        self._searched = False
        self._swept = 0.0
        self._spared = False
        self._logged = -LOG_INTERVAL

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, newcomer: Member) -> bool:
        """Take a connection in; beyond the limit, close the one that is idle for longest. False if none is."""
        fits = len(self._open) < self.maximum or self._make_room(newcomer.loop.time())
        self._open.add(newcomer)
        return fits

    def leave(self, connection: Member) -> None:
        """Forget a connection."""
        self._open.discard(connection)

    @property
    def overrun(self) -> bool:
        """Whether there are so many that there is no file left for a response."""
        return len(self._open) > self.maximum + MAX_REFUSED

    async def sweep(self, now: float) -> None:
        """Have every connection enforce its timeouts, a few in each loop iteration; `now` is the loop's time."""
        self._searched = False
        if len(self._open) < self.maximum:
            self._idle.clear()
        stood_still, self._swept = now - self._swept > CLOCK_GAP, now
        if stood_still and not self._spared:
            # What arrived meanwhile is read first: it may be just what a timeout waits for.
            self._spared = True
            return
        self._spared = False
        for number, connection in enumerate(list(self._open), start=1):
            if connection in self._open:
                connection.sweep(now)
            if number % SWEEP_SLICE == 0:
                await asyncio.sleep(0)

    def _make_room(self, now: float) -> bool:
        while True:
            while self._idle:
                connection, served = self._idle.popleft()
                if connection.responses_sent == served and _may_go(connection):
                    connection.transport.close()
                    return True
            if self._searched:
                return False
            self._search(now)

    def _search(self, now: float) -> None:
        idle = [connection for connection in self._open if _may_go(connection)]
        idle.sort(key=lambda connection: connection.idle_since(now))
        self._idle.extend((connection, connection.responses_sent) for connection in idle)
        # It took a look at each of them. If that brought little, it is not done again before the next sweep.
        self._searched = len(idle) * 16 <= len(self._open)
        if now - self._logged > LOG_INTERVAL:
            self._logged = now
            emit(Event.TOO_MANY_CONNECTIONS, connections=len(self._open), idle=len(idle))


def _may_go(connection: Member) -> bool:
    transport = connection.transport
    return connection.is_idle() and not transport.is_closing() and not transport.get_write_buffer_size()


class Limits:
    """All limits of one process."""

    def __init__(self) -> None:
        self.connections = ConnectionLimit()
        self.sent = SendBudget()
        self.received = ReceiveBudget()
