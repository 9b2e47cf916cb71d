"""The limits of one process: its connections, and the memory that they may take.

The connection limit costs time for a new connection, not for a request. At the limit, each new
connection closes the one that has been idle for longest.

A response that the kernel takes at once is not counted, nor is a request that comes whole and
gets its response at once. All others count against the send budget and the receive budget, from
the first byte or in advance.
"""

import asyncio
import resource
import socket
from collections import deque
from contextlib import suppress
from typing import Protocol

from storekeeper.http.deadlines import Deadlines
from storekeeper.log.events import Event, emit

MAX_CONNECTIONS = 20_000
"""Connections of a process, however many files it may open: they cost memory too."""

RESERVED_FILES = 64
"""Open files that are reserved for the database, its log, and all else that a process opens."""

MAX_REFUSED = 64
"""Connections beyond the limit that are refused with a response; further ones are closed without
one."""

CLOCK_GAP = 2.0
"""Seconds between two sweeps after which the process must have been paused: four times the usual
interval."""

SWEEP_SLICE = 100
"""Connections that are swept in one loop iteration: about 0.1 ms."""

MAX_UNSENT_BYTES = 108 * 2**20
"""Bytes of responses that wait for all clients, in addition to the 1 KiB that each may leave
unsent uncounted."""

MAX_RECEIVED_BYTES = 64 * 2**20
"""Bytes of requests that are incomplete, waiting or without a response, of all connections
together."""

SMALL_BYTES = 4096
"""A connection with no more bytes than this may use the reserve. A request with a usual store
takes fewer."""

RESERVED_BYTES = 64 * 2**20
"""Bytes beyond MAX_RECEIVED_BYTES that only small requests may use, so that large ones cannot
keep them out."""

OVERHEAD = 512
"""Bytes that Python, uvloop and libuv take for an unsent response, in addition to its own."""

MAX_UNSENT_IN_KERNEL = 128 * 1024
"""Unsent bytes that the kernel takes for one connection: more would only cost memory."""


class _Reader(Protocol):
    """What the send budget needs of a connection's flow."""

    transport: asyncio.Transport


class _Receiver(Protocol):
    """What the receive budget needs of what a connection has received."""

    def give_way(self) -> None: ...


class _Member(Protocol):
    """What the connection limit needs of a connection."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    deadlines: Deadlines

    @property
    def responses_sent(self) -> int: ...
    def is_idle(self) -> bool: ...
    def sweep(self, now: float) -> None: ...


def raise_files_limit() -> int:
    """Raise the limit of open files as far as useful and permitted; return how many connections
    it then allows."""
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
        self.maximum = raise_files_limit()
        self.open: set[_Member] = set()
        self._idle: deque[tuple[_Member, int]] = deque()
        self._search_spent = False
        self._swept = 0.0
        self._skipped_sweep = False
        self.refused = 0

    def enter(self, connection: _Member) -> bool:
        """Add a connection; at the limit, close the one idle for longest. Return False if none
        is idle."""
        fits = len(self.open) < self.maximum or self._evict_idle(connection.loop.time())
        if not fits:
            self.refused += 1
        self.open.add(connection)
        return fits

    @property
    def exhausted(self) -> bool:
        """Whether there are too many connections even to refuse another one with a response."""
        return len(self.open) > self.maximum + MAX_REFUSED

    async def sweep(self, now: float) -> None:
        """Enforce the timeouts of every connection, a few in each loop iteration; `now` is the
        loop's time."""
        self._search_spent = False
        if len(self.open) < self.maximum:
            self._idle.clear()
        was_paused, self._swept = now - self._swept > CLOCK_GAP, now
        if was_paused and not self._skipped_sweep:
            # Read first what arrived during the pause: a timeout may wait for just that.
            self._skipped_sweep = True
            return
        self._skipped_sweep = False
        for number, connection in enumerate(list(self.open), start=1):
            try:
                connection.sweep(now)
            except Exception as error:  # noqa: BLE001 - a bug ends this connection, and not the timeouts of all
                emit(Event.BUG, error=error)
                connection.transport.abort()
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
        idle = [connection for connection in self.open if _is_evictable(connection)]
        idle.sort(
            key=lambda connection: connection.deadlines.idle_since(now, connection.responses_sent)
        )
        self._idle.extend((connection, connection.responses_sent) for connection in idle)
        # This looked at every connection. If it found few, it is not repeated before the next
        # sweep.
        self._search_spent = len(idle) * 16 <= len(self.open)
        emit(Event.TOO_MANY_CONNECTIONS, connections=len(self.open), idle=len(idle))


def _is_evictable(connection: _Member) -> bool:
    transport = connection.transport
    return (
        connection.is_idle()
        and not transport.is_closing()
        and not transport.get_write_buffer_size()
    )


class SendBudget:
    """The connections with unsent bytes, oldest first; `size` is what these take in memory, in
    bytes."""

    def __init__(self) -> None:
        self.size = self.refused = 0
        self._leases: dict[_Reader, int] = {}

    def lease(self, connection: _Reader, size: int) -> None:
        """Count a response that waits: its whole size, because its bytes are kept until the last
        is sent.

        If the budget is used up, the connections that have had unsent bytes for longest are
        aborted.
        """
        if connection not in self._leases:
            size += OVERHEAD
        self.size += size
        self._leases[connection] = self._leases.get(connection, 0) + size
        while self.size > MAX_UNSENT_BYTES and len(self._leases) > 1:
            slowest = next(iter(self._leases))
            self.release(slowest)
            slowest.transport.abort()
            self.refused += 1
            emit(Event.SLOW_READERS, readers=len(self._leases), bytes=self.size)

    def release(self, connection: _Reader) -> None:
        """Release the charge of a connection: its bytes were sent, or the client is gone."""
        self.size -= self._leases.pop(connection, 0)


class ReceiveBudget:
    """Counts the bytes of requests that are incomplete, waiting or without a response, in
    `size`.

    Where there is no room, the requests that have been incomplete for longest give way: so a
    client that only holds what it began keeps no other one out.
    """

    def __init__(self) -> None:
        self.size = self.refused = 0
        self._held: dict[_Receiver, int] = {}
        self._may_give_way: dict[_Receiver, None] = {}
        """The connections with large incomplete requests, those of the oldest first."""

    def hold(self, receiver: _Receiver, size: int, *, may_give_way: bool) -> bool:
        """Count `size` bytes for one connection, instead of those before; return whether there is
        room.

        `may_give_way` says whether its request may still be refused.
        """
        before = self._held.pop(receiver, 0)
        self.size += size - before
        if size:
            self._held[receiver] = size
        if may_give_way and size > SMALL_BYTES:
            self._may_give_way.setdefault(receiver)
        else:
            self._may_give_way.pop(receiver, None)
        limit = MAX_RECEIVED_BYTES
        if size <= SMALL_BYTES:
            limit += RESERVED_BYTES
        if size > before:
            self._make_room(receiver, limit)
        return self.size <= limit

    def _make_room(self, receiver: _Receiver, limit: int) -> None:
        while self.size > limit:
            oldest = next(iter(self._may_give_way), receiver)
            if oldest is receiver:
                return
            oldest.give_way()


class Limits:
    """All limits of one process."""

    def __init__(self) -> None:
        self.connections = ConnectionLimit()
        self.send_budget = SendBudget()
        self.receive_budget = ReceiveBudget()


def limit_unsent(listener: socket.socket) -> None:
    """Limit the unsent bytes that the kernel keeps for each connection that `listener` accepts."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None:
        listener.setsockopt(socket.IPPROTO_TCP, option, MAX_UNSENT_IN_KERNEL)
