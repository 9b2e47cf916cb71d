"""What the connections of a process may hold in memory together: a send budget, a receive budget. Imports events.

Nothing is done for a response that the kernel takes at once, nor for a request that comes whole and gets its response
at once. All else counts, from the first byte or in advance.
"""

import asyncio
from collections import Counter
from typing import Protocol

from storekeeper.events import Event, emit

MAX_UNSENT_BYTES = 72 * 2**20
"""Bytes of responses that wait for all clients together, beside what is reserved."""

HIGH_WATER = 64 * 1024
"""Bytes that asyncio lets a transport hold before it says so."""

MAX_RESERVATIONS = 896
"""Connections for each of which HIGH_WATER bytes are reserved, 56 MiB in all. Their responses are counted only beyond
that, so that small ones of a loop iteration are sent together; all other connections count from the first byte."""

MAX_RECEIVED_BYTES = 64 * 2**20
"""Bytes of requests that are unfinished, wait, or have no response yet, of all connections together."""

SMALL_BYTES = 4096
"""Bytes that a connection may hold of the reserve: more than a request takes that has any usual store."""

RESERVED_BYTES = 64 * 2**20
"""Bytes on top of that for connections that hold little: large requests cannot keep small ones out."""

OVERHEAD = 512
"""Bytes that Python, uvloop and libuv take for a response that waits, beside its own."""

LOG_INTERVAL = 60.0
"""Seconds after which the log says again that the send budget was used up."""


class Reader(Protocol):
    """What the send budget needs of a connection."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop


class SendBudget:
    """The connections whose kernel has not taken all, oldest first; `size` is what they hold, in bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._leases: dict[Reader, int] = {}
        self._reserved: set[Reader] = set()
        self._shared: dict[Reader, bytes] = {}
        self._readers_of: Counter[int] = Counter()
        self._logged = -LOG_INTERVAL

    def reserve(self, connection: Reader) -> bool:
        """Reserve HIGH_WATER bytes for a new connection; False if its transport has to say that any byte waits."""
        if len(self._reserved) >= MAX_RESERVATIONS:
            return False
        self._reserved.add(connection)
        return True

    def forget(self, connection: Reader) -> None:
        """Release all that a connection held, and its reservation."""
        self._reserved.discard(connection)
        self.release(connection)

    def lease(self, connection: Reader, size: int, shared: bytes | None = None) -> None:
        """Count a response that waits: its whole size, because its bytes are kept until the last is sent.

        A `shared` part of it, a cached response, counts once for all connections. If the budget is used up, the
        connections that have been reading for longest are closed.
        """
        if connection not in self._leases:
            size += OVERHEAD
        if shared is not None and connection not in self._shared:
            size -= len(shared)
            self._share(connection, shared)
        self.size += size
        self._leases[connection] = self._leases.get(connection, 0) + size
        while self.size > MAX_UNSENT_BYTES and len(self._leases) > 1:
            self._drop(next(iter(self._leases)), connection.loop.time())

    def release(self, connection: Reader) -> None:
        """Count no longer what a connection held: it was sent, or the client is gone."""
        self.size -= self._leases.pop(connection, 0)
        shared = self._shared.pop(connection, None)
        if shared is not None:
            self._readers_of[id(shared)] -= 1
            if not self._readers_of[id(shared)]:
                del self._readers_of[id(shared)]
                self.size -= len(shared)

    def _share(self, connection: Reader, shared: bytes) -> None:
        # As long as a connection holds it, no other object has its id.
        self._shared[connection] = shared
        if not self._readers_of[id(shared)]:
            self.size += len(shared)
        self._readers_of[id(shared)] += 1

    def _drop(self, connection: Reader, now: float) -> None:
        self.release(connection)
        connection.transport.abort()
        if now - self._logged > LOG_INTERVAL:
            self._logged = now
            emit(Event.SLOW_READERS, readers=len(self._leases), bytes=self.size)


class ReceiveBudget:
    """What all connections hold of requests that are unfinished, wait, or have no response yet: `size`, in bytes."""

    def __init__(self) -> None:
        self.size = 0

    def allows(self, size: int) -> bool:
        """Tell whether a connection may hold so many bytes, counted already or about to be."""
        return self.size <= MAX_RECEIVED_BYTES or (
            size <= SMALL_BYTES and self.size <= MAX_RECEIVED_BYTES + RESERVED_BYTES
        )

    def lease(self) -> "Lease":
        """Return a part for one connection, which is empty at first."""
        return Lease(self)


class Lease:
    """A part of the receive budget, `size` bytes; it belongs to one connection."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: ReceiveBudget) -> None:
        self._budget = budget
        self.size = 0

    def add(self, size: int) -> None:
        """Make it so many bytes larger; a negative `size` makes it smaller."""
        self.size += size
        self._budget.size += size
