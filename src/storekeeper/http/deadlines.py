"""The timeouts of one connection, and how much its client has read.

A sweep checks every connection twice a second, so that no request needs a timer.
"""

import asyncio
import socket
import struct

REQUEST_TIMEOUT = 10.0
"""Seconds from a request's first byte to its last, and from a connection to its first byte
(decision 27)."""

IDLE_TIMEOUT = 65.0
"""Seconds that an idle connection stays open for a next request: more than the 60 s of common
load balancers, which would otherwise send a request while the connection closes."""

STALL_TIMEOUT = 10.0
"""Seconds for which a client's kernel may acknowledge nothing while bytes of a response wait for
it."""

DISCARD_TIMEOUT = 2.0
"""Seconds for which the bytes that follow a refused request are read and dropped (decision 15)."""

DRAIN_TIMEOUT = 0.1
"""Seconds that a stopping service keeps an idle connection open for a request that is already on
its way."""


_TCP_INFO = struct.Struct("@24xI92xQ16xI")
"""Of Linux's `struct tcp_info`: tcpi_unacked, tcpi_bytes_acked (since 4.1), tcpi_notsent_bytes
(since 4.6)."""


_NOTHING_WAITS = -1
"""Not 0, which would be a client that has not acknowledged its first bytes yet."""


def acknowledged(transport: asyncio.BaseTransport) -> tuple[int, bool] | None:
    """Return how many bytes the client's kernel has acknowledged so far, and whether that is all
    of them.

    None if our kernel does not report it. What our kernel takes does not count: it takes
    megabytes at once, so a slow reader would seem to read nothing for minutes.
    """
    try:
        info = transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size
        )
        unacked, acked, unsent = _TCP_INFO.unpack(info)
    except (OSError, AttributeError, ValueError, struct.error):
        # No TCP, no Linux, an older kernel; or closed: uvloop's closed socket has the number -1.
        return None
    return acked, not (unacked or unsent)


class Deadlines:
    """When a connection became idle, its client last read something, and it was refused, by the
    loop's clock."""

    __slots__ = ("_acked", "_idle_since", "_progress_since", "_responses_sent", "refused_at")

    def __init__(self, now: float) -> None:
        self._idle_since = now
        self._responses_sent = 0
        self._acked = _NOTHING_WAITS
        self._progress_since = now
        self.refused_at: float | None = None

    def idle_since(self, now: float, responses_sent: int) -> float:
        """Return since when the connection has been idle: `now` if it has sent a response since
        the last call."""
        if responses_sent != self._responses_sent:
            self._responses_sent = responses_sent
            self._idle_since = now
        return self._idle_since

    def idle_for_too_long(self, now: float, responses_sent: int) -> bool:
        """Return whether an idle connection must be closed."""
        timeout = REQUEST_TIMEOUT
        if responses_sent:
            timeout = IDLE_TIMEOUT
        return now - self.idle_since(now, responses_sent) > timeout

    def is_over(self, transport: asyncio.Transport, now: float) -> bool:
        """Return whether to abort: the client reads no unsent byte for STALL_TIMEOUT, or has
        read its refusal.

        An earlier reset would also drop what our kernel has not yet sent of the refusal.
        """
        unsent = transport.get_write_buffer_size()
        discarded = self.refused_at is not None and now - self.refused_at > DISCARD_TIMEOUT
        if not unsent and not discarded:
            self._acked = _NOTHING_WAITS
            return False
        acked, complete = acknowledged(transport) or (unsent, True)
        if discarded and complete:
            return True
        if acked != self._acked:
            self._acked = acked
            self._progress_since = now
        return now - self._progress_since > STALL_TIMEOUT
