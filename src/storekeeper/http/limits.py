"""The limits of one process: its connection limit, joined with its budgets. Imports events.

A request costs nothing here, only a new connection does. When there are too many, the connection limit finds those
that are idle, and closes them one by one, for each new connection the one that has been idle for longest.
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
"""Open files that are reserved for the database, its log, and all else that a process opens."""

MAX_REFUSED = 64
"""Connections beyond the limit that are refused with a response; further ones are closed without one."""

CLOCK_GAP = 2.0
"""Seconds between two sweeps that show that the process was paused: four times the usual interval."""

SWEEP_SLICE = 100
"""Connections that are swept in one loop iteration: about 0.1 ms."""

LOG_INTERVAL = 60.0
"""Seconds after which the log repeats that there are too many connections."""


class _Member(Protocol):
    """What the connection limit needs of a connection."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    responses_sent: int

    def is_idle(self) -> bool: ...
    def idle_since(self, now: float) -> float: ...
    def sweep(self, now: float) -> None: ...


def capacity() -> int:
    """Raise the limit of open files as far as it is useful and permitted; return how many connections that allows."""
    wanted = MAX_CONNECTIONS + RESERVED_FILES + MAX_REFUSED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):  # macOS has a further limit that it does not report
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(1, soft // 4, soft - RESERVED_FILES - MAX_REFUSED))


class ConnectionLimit:
    """The open connections of one process, at most about `maximum` of them."""

    def __init__(self) -> None:
        self.maximum = MAX_CONNECTIONS
        self._open: set[_Member] = set()
        self._idle: deque[tuple[_Member, int]] = deque()
        self._search_spent = False
        self._swept = 0.0
        self._skipped_sweep = False
        self._logged = -LOG_INTERVAL

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: _Member) -> bool:
        """Add a connection; at the limit, close the one idle for longest. Return False if none is idle."""
        fits = len(self._open) < self.maximum or self._evict_idle(connection.loop.time())
        self._open.add(connection)
        return fits

    def leave(self, connection: _Member) -> None:
        """Remove a connection."""
        self._open.discard(connection)

    @property
    def exhausted(self) -> bool:
        """Whether there are too many connections even to refuse another one with a response."""
        return len(self._open) > self.maximum + MAX_REFUSED

    async def sweep(self, now: float) -> None:
        """Enforce the timeouts of every connection, a few in each loop iteration; `now` is the loop's time."""
        self._search_spent = False
        if len(self._open) < self.maximum:
            self._idle.clear()
        was_paused, self._swept = now - self._swept > CLOCK_GAP, now
        if was_paused and not self._skipped_sweep:
            # Read first what arrived during the pause: a timeout may wait for just that.
            self._skipped_sweep = True
            return
        self._skipped_sweep = False
        for number, connection in enumerate(list(self._open), start=1):
            if connection in self._open:
                connection.sweep(now)
            if number % SWEEP_SLICE == 0:
                await asyncio.sleep(0)

    def _evict_idle(self, now: float) -> bool:
        while True:
            while self._idle:
                connection, responses_sent = self._idle.popleft()
                if connection.responses_sent == responses_sent and _is_evictable(connection):
                    connection.transport.close()
                    return True
            if self._search_spent:
                return False
            self._find_idle(now)

    def _find_idle(self, now: float) -> None:
        idle = [connection for connection in self._open if _is_evictable(connection)]
        idle.sort(key=lambda connection: connection.idle_since(now))
        self._idle.extend((connection, connection.responses_sent) for connection in idle)
        # This looked at every connection. If it found few, it is not repeated before the next sweep.
        self._search_spent = len(idle) * 16 <= len(self._open)
        if now - self._logged > LOG_INTERVAL:
            self._logged = now
            emit(Event.TOO_MANY_CONNECTIONS, connections=len(self._open), idle=len(idle))


def _is_evictable(connection: _Member) -> bool:
    transport = connection.transport
    return connection.is_idle() and not transport.is_closing() and not transport.get_write_buffer_size()


class Limits:
    """All limits of one process."""

    def __init__(self) -> None:
        self.connections = ConnectionLimit()
        self.sent = SendBudget()
        self.received = ReceiveBudget()
