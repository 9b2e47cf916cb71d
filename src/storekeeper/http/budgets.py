"""The send budget and the receive budget: the memory that all connections of a process may take. Imports events.

Both count from the first byte. Neither counts a response that the kernel takes at once, nor a request that arrives
in one piece and gets its response at once.
"""

import asyncio
from collections import Counter
from typing import Protocol

from storekeeper.events import Event, emit

MAX_UNSENT_BYTES = 128 * 2**20
"""Unsent bytes of responses, of all connections together."""

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
        self._shared: dict[Sender, bytes] = {}
        self._share_counts: Counter[int] = Counter()
        self._logged = -LOG_INTERVAL

    def lease(self, connection: Sender, size: int, shared: bytes | None = None) -> None:
        """Charge a connection for an unsent response: its full size, because its bytes stay until the last is sent.

        A `shared` part of it, a cached response, is charged once for all connections. If the budget is used up, the
        connections that have had unsent bytes for longest are aborted.
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

    def release(self, connection: Sender) -> None:
        """Release the charge of a connection: its bytes were sent, or the client is gone."""
        self.size -= self._leases.pop(connection, 0)
        shared = self._shared.pop(connection, None)
        if shared is not None:
            self._share_counts[id(shared)] -= 1
            if not self._share_counts[id(shared)]:
                del self._share_counts[id(shared)]
                self.size -= len(shared)

    def _share(self, connection: Sender, shared: bytes) -> None:
        # While a connection refers to the response, no other object has its id.
        self._shared[connection] = shared
        if not self._share_counts[id(shared)]:
            self.size += len(shared)
        self._share_counts[id(shared)] += 1

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

    def lease(self) -> "Lease":
        """Return the lease of one connection, with no bytes."""
        return Lease(self)


class Lease:
    """One connection's part of the receive budget."""

    __slots__ = ("_budget", "size")

    def __init__(self, budget: ReceiveBudget) -> None:
        self._budget = budget
        self.size = 0

    def resize(self, size: int) -> bool:
        """Set the lease to so many bytes; tell whether the budget allows that, as it always allows to shrink."""
        grows = size > self.size
        self._budget.size += size - self.size
        self.size = size
        return not grows or self._budget.allows(size)
