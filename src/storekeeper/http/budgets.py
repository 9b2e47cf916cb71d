"""The send budget and the receive budget: the memory that all connections of a process may take. Imports events.

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
"""Bytes of requests that are incomplete, waiting or without a response, of all connections together."""

SMALL_BYTES = 4096
"""Bytes up to which a connection may use the reserve: more than a request with a usual store takes."""

RESERVED_BYTES = 64 * 2**20
"""Bytes of the reserve, beyond MAX_RECEIVED_BYTES: large requests cannot keep small ones out."""

OVERHEAD = 512
"""Bytes that Python, uvloop and libuv take for an unsent response, in addition to its own."""

LOG_INTERVAL = 60.0
"""Seconds after which the log repeats that the send budget was used up."""


class Sender(Protocol):
    """What the send budget needs of a connection."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop


class SendBudget:
    """The connections with unsent bytes, oldest first; `size` is what these take in memory, in bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._leases: dict[Sender, int] = {}
        self._reserved: set[Sender] = set()
        self._shared: dict[Sender, bytes] = {}
        self._share_counts: Counter[int] = Counter()
        self._logged = -LOG_INTERVAL

    def reserve(self, connection: Sender) -> bool:
        """Reserve HIGH_WATER bytes for a new connection; False if its transport has to say that any byte waits."""
        if len(self._reserved) >= MAX_RESERVATIONS:
            return False
        self._reserved.add(connection)
        return True

    def forget(self, connection: Sender) -> None:
        """Release all that a connection held, and its reservation."""
        self._reserved.discard(connection)
        self.release(connection)

    def lease(self, connection: Sender, size: int, shared: bytes | None = None) -> None:
        """Count a response that waits: its whole size, because its bytes are kept until the last is sent.

        A `shared` part of it, a cached response, is charged once for all connections. If the budget is used up, the
        connections that have had unsent bytes for longest are aborted.
        """
        if connection not in self._leases:
            size += OVERHEAD
        if shared is not None and connection not in self._shared:
            size -= len(shared)
            # While a connection refers to the response, no other object has its id.
            self._shared[connection] = shared
            if not self._share_counts[id(shared)]:
                self.size += len(shared)
            self._share_counts[id(shared)] += 1
        self.size += size
        self._leases[connection] = self._leases.get(connection, 0) + size
        while self.size > MAX_UNSENT_BYTES and len(self._leases) > 1:
            self._drop(next(iter(self._leases)), connection.loop.time())

    def release(self, connection: Sender) -> None:
        """Release the charge of a connection: its bytes were sent, or the client is gone."""
        self.size -= self._leases.pop(connection, 0)
        shared = self._shared.pop(connection, None)
        if shared is not None:
            self._share_counts[id(shared)] -= 1
            if not self._share_counts[id(shared)]:
                del self._share_counts[id(shared)]
                self.size -= len(shared)

    def _drop(self, connection: Sender, now: float) -> None:
        self.release(connection)
        connection.transport.abort()
        if now - self._logged > LOG_INTERVAL:
            self._logged = now
            emit(Event.SLOW_READERS, readers=len(self._leases), bytes=self.size)


class ReceiveBudget:
    """Counts the bytes of requests that are incomplete, waiting or without a response, in `size`."""

    def __init__(self) -> None:
        self.size = 0

    def allows(self, size: int) -> bool:
        """Tell whether one connection may take so many bytes, which may be counted already."""
        return self.size <= MAX_RECEIVED_BYTES or (
            size <= SMALL_BYTES and self.size <= MAX_RECEIVED_BYTES + RESERVED_BYTES
        )


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

    def fits(self) -> bool:
        """Tell whether the connection may take so many bytes."""
        return self._budget.allows(self.size)
