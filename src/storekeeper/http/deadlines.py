"""The timeouts of one connection, enforced by sweeps. Imports nothing of the project but `delivery`.

A sweep looks at every connection twice a second, so that no request needs a timer.
"""

import asyncio

from storekeeper.http.delivery import delivery

REQUEST_TIMEOUT = 10.0
"""Seconds from a request's first byte to its last, and from a connection to its first byte (decision 27)."""

IDLE_TIMEOUT = 65.0
"""Seconds that a connection is kept for a next request: more than the 60 s of common load balancers, which
otherwise send a request into a connection that closes."""

STALL_TIMEOUT = 10.0
"""Seconds that a client's kernel may acknowledge nothing of a response that waits for it."""

DISCARD_TIMEOUT = 2.0
"""Seconds that a refused client's remaining bytes are read and dropped (decision 15)."""

DRAIN_TIMEOUT = 0.1
"""Seconds that a stopping service gives an idle connection for what is already on its way."""


class Deadlines:
    """When a connection became idle, and when its client last read something; on the loop's clock, in seconds."""

    __slots__ = ("_acked", "_idle_since", "_progress_since", "_served")

    def __init__(self, now: float) -> None:
        self._idle_since = now
        self._served = 0
        self._acked = 0
        self._progress_since = now

    def observe(self, now: float, served: int) -> None:
        """Note at a sweep how many responses were sent; after a new one, idleness begins again."""
        if served != self._served:
            self._served = served
            self._idle_since = now

    def idle_since(self, now: float, served: int) -> float:
        """Return since when the connection is idle: one that was served since the latest sweep, since now."""
        return self._idle_since if served == self._served else now

    def idle_for_too_long(self, now: float) -> bool:
        """Tell whether an idle connection has to be closed."""
        return now - self._idle_since > (IDLE_TIMEOUT if self._served else REQUEST_TIMEOUT)

    def stalled(self, transport: asyncio.Transport, now: float) -> bool:
        """Tell whether the client has read nothing for too long of what waits for it."""
        unsent = transport.get_write_buffer_size()
        if not unsent:
            self._acked = 0
            return False
        known = delivery(transport)
        acked = unsent if known is None else known.acked
        if acked != self._acked:
            self._acked = acked
            self._progress_since = now
        return now - self._progress_since > STALL_TIMEOUT
