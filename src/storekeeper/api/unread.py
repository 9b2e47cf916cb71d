"""What clients have not read yet, over all connections: how much that may be, and who is given up. Imports events.

A client that does not read is dropped after a while; many could hold all memory until then. Nothing here is done for
an answer that the client takes at once.
"""

from collections import Counter
from typing import TYPE_CHECKING

from storekeeper.events import Event, emit

if TYPE_CHECKING:
    from storekeeper.api.connection import Connection

MOST_UNREAD = 128 * 2**20
"""Bytes that wait for all clients together."""

REMIND = 60.0
"""Seconds after which the log says again that there were more."""


class Unread:
    """The connections with much that is not read, who began first first; `size` is what that takes in bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._readers: dict[Connection, tuple[int, bytes | None]] = {}
        self._shared: Counter[int] = Counter()
        self._said = -REMIND

    def begin(self, reader: "Connection", size: int, shared: bytes | None) -> None:
        """Note that so much waits for a client. If it is `shared`, an answer that is kept, it takes its room once.

        If all together is too much, those who have been reading for longest lose their connections.
        """
        self.end(reader)
        if shared is not None:
            # As long as it waits for somebody, no other object has its id.
            size = 0 if self._shared[id(shared)] else len(shared)
            self._shared[id(shared)] += 1
        self.size += size
        self._readers[reader] = (size, shared)
        while self.size > MOST_UNREAD and len(self._readers) > 1:
            self._give_up(next(iter(self._readers)), reader.loop.time())

    def end(self, reader: "Connection") -> None:
        """Note that it was read, or that the client is gone."""
        size, shared = self._readers.pop(reader, (0, None))
        if shared is not None:
            self._shared[id(shared)] -= 1
            size = 0
            if not self._shared[id(shared)]:
                del self._shared[id(shared)]
                size = len(shared)
        self.size -= size

    def _give_up(self, reader: "Connection", now: float) -> None:
        self.end(reader)
        reader.transport.abort()
        if now - self._said > REMIND:
            self._said = now
            emit(Event.UNREAD, readers=len(self._readers), bytes=self.size)
