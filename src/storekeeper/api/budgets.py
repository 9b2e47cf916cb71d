"""What the connections of a process may hold in memory together: a send and a receive budget. Imports events.

A client that does not read is dropped after a while; many could hold all memory until then. Nothing here is done for
a response that the kernel takes at once.
"""

from collections import Counter
from typing import TYPE_CHECKING

from storekeeper.events import Event, emit

if TYPE_CHECKING:
    from storekeeper.api.connection import Connection

MAX_UNSENT = 128 * 2**20
"""Bytes of responses that wait for all clients together."""

LEASE_SIZE = 512
"""What Python, uvloop and libuv take for a response that waits, beside its bytes."""

MAX_RECEIVED = 64 * 2**20
"""Bytes of requests that are not whole, wait, or are being answered, of all connections together."""

SMALL = 4096
"""What a connection may have of the reserve: more than any store takes, however it is written."""

RESERVE = 64 * 2**20
"""Bytes on top of that for connections that hold little: large requests cannot keep small ones out."""

REMIND = 60.0
"""Seconds after which the log says again that there were more."""


class SendBudget:
    """The connections whose kernel has not taken all, who began first first; `size` is what they hold in bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._leases: dict[Connection, int] = {}
        self._shared: dict[Connection, bytes] = {}
        self._readers_of: Counter[int] = Counter()
        self._said = -REMIND

    def lease(self, connection: "Connection", size: int, shared: bytes | None = None) -> None:
        """Count a response that waits: its whole size, because its bytes are kept until the last is sent.

        If it is `shared`, a cached response, it counts once for all connections. If all together is too much, those
        lose their connections who have been reading for longest.
        """
        if connection not in self._leases:
            size += LEASE_SIZE
        if shared is not None and connection not in self._shared:
            size -= len(shared)
            self._share(connection, shared)
        self.size += size
        self._leases[connection] = self._leases.get(connection, 0) + size
        while self.size > MAX_UNSENT and len(self._leases) > 1:
            self._give_up(next(iter(self._leases)), connection.loop.time())

    def release(self, connection: "Connection") -> None:
        """Count no longer what was sent, or whose client is gone."""
        self.size -= self._leases.pop(connection, 0)
        shared = self._shared.pop(connection, None)
        if shared is not None:
            self._readers_of[id(shared)] -= 1
            if not self._readers_of[id(shared)]:
                del self._readers_of[id(shared)]
                self.size -= len(shared)

    def _share(self, connection: "Connection", shared: bytes) -> None:
        # As long as it waits for somebody, no other object has its id.
        self._shared[connection] = shared
        if not self._readers_of[id(shared)]:
            self.size += len(shared)
        self._readers_of[id(shared)] += 1

    def _give_up(self, connection: "Connection", now: float) -> None:
        self.release(connection)
        connection.transport.abort()
        if now - self._said > REMIND:
            self._said = now
            emit(Event.UNREAD, readers=len(self._leases), bytes=self.size)


class ReceiveBudget:
    """What Python takes for the requests of all connections, from the first byte of each that has to stay."""

    def __init__(self) -> None:
        self.size = 0

    def allows(self, size: int) -> bool:
        """Tell whether a connection may hold so much, counted already or about to be."""
        return self.size <= MAX_RECEIVED or (size <= SMALL and self.size <= MAX_RECEIVED + RESERVE)
