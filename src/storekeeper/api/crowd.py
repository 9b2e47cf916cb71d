"""The open connections of one process: how many it takes, and who makes room for one more. Imports `api`, events.

Nothing here is done for a request, only for a new connection: which ones are idle is found out when there are
too many, and remembered until that list is used up.
"""

import asyncio
import resource
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from storekeeper.api.budgets import ReceiveBudget, SendBudget
from storekeeper.events import Event, emit

if TYPE_CHECKING:
    from storekeeper.api.connection import Connection

MOST = 20_000
"""Connections that a process takes at most, however many files it may open: they cost memory too."""

FILES = 64
"""Files that are kept free for the database, its log, and what else a process opens."""

REFUSED = 64
"""Connections beyond the most whose clients are told so; what comes on top of them is closed without a word."""

STANDSTILL = 2.0
"""Seconds between two sweeps after which something has stopped the process: four times what is usual."""

AT_ONCE = 100
"""Connections that are looked at before a request may come between: about 0.1 ms."""

REMIND = 60.0
"""Seconds after which the log says again that there are too many."""


def capacity() -> int:
    """Let this process open as many files as it may and can use; give how many connections that makes."""
    wanted = MOST + FILES + REFUSED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):  # macOS has one more limit, which it does not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MOST
    return min(MOST, max(1, soft // 4, soft - FILES - REFUSED))


class Crowd:
    """Every open connection of one process, at most about `most` of them, and the budgets that they share."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.received = ReceiveBudget()
        self.unsent = SendBudget()
        self._all: set[Connection] = set()
        self._idle: deque[tuple[Connection, int]] = deque()
        self._looked = False
        self._swept = 0.0
        self._spared = False
        self._said = -REMIND

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, newcomer: "Connection") -> bool:
        """Take one in; if that is one too many, close the one that is idle for longest. False if none is."""
        fits = len(self._all) < self.most or self._make_room(newcomer.loop.time())
        self._all.add(newcomer)
        return fits

    def leave(self, connection: "Connection") -> None:
        """Forget one."""
        self._all.discard(connection)

    @property
    def overrun(self) -> bool:
        """Whether there are so many that there is no file left for telling them."""
        return len(self._all) > self.most + REFUSED

    async def sweep(self, now: float) -> None:
        """Have every connection enforce its deadlines, a few in each turn of the loop; told the loop's time."""
        self._looked = False
        if len(self._all) < self.most:
            self._idle.clear()
        stood_still, self._swept = now - self._swept > STANDSTILL, now
        if stood_still and not self._spared:
            # What arrived meanwhile is read first: it may be just what is waited for.
            self._spared = True
            return
        self._spared = False
        for number, connection in enumerate(list(self._all), start=1):
            if connection in self._all:
                connection.sweep(now)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    def _make_room(self, now: float) -> bool:
        while True:
            while self._idle:
                connection, served = self._idle.popleft()
                if connection.served == served and _may_go(connection):
                    connection.transport.close()
                    return True
            if self._looked:
                return False
            self._look(now)

    def _look(self, now: float) -> None:
        idle = [connection for connection in self._all if _may_go(connection)]
        # What was served since the latest sweep has not been idle for longer than that.
        idle.sort(key=lambda connection: connection.since if connection.served == connection.counted else now)
        self._idle.extend((connection, connection.served) for connection in idle)
        # It took a look at each of them. If that brought little, it is not done again before the next sweep.
        self._looked = len(idle) * 16 <= len(self._all)
        if now - self._said > REMIND:
            self._said = now
            emit(Event.CROWDED, connections=len(self._all), idle=len(idle))


def _may_go(connection: "Connection") -> bool:
    transport = connection.transport
    return connection.is_idle() and not transport.is_closing() and not transport.get_write_buffer_size()
