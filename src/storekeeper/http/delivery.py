"""How much a client's kernel has acknowledged, if our kernel reports it. Imports nothing of the project.

A transport tells only what our kernel has taken. That may be megabytes, and our kernel takes more only when a third
of its buffer is free again: a client that reads steadily, but slowly, would seem to read nothing for minutes.
"""

import asyncio
import socket
import struct
import sys
from typing import NamedTuple

MAX_UNSENT_IN_KERNEL = 128 * 1024
"""Unsent bytes that the kernel takes for one connection: more would only cost memory."""

_FIELDS = struct.Struct("@24xI92xQ16xI")
"""Of Linux's `struct tcp_info`: tcpi_unacked, tcpi_bytes_acked (since 4.1), tcpi_notsent_bytes (since 4.6)."""


class Delivery(NamedTuple):
    """How many bytes the client has acknowledged, which only grows, and whether these are all that was sent."""

    acked: int
    complete: bool


def delivery(transport: asyncio.BaseTransport) -> Delivery | None:
    """Return what the client's kernel has acknowledged; None if our kernel does not report it."""
    if sys.platform != "linux":
        return None
    try:
        info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size)
    except (OSError, AttributeError, ValueError):  # no TCP, or closed: uvloop's closed socket has the number -1
        return None
    if len(info) < _FIELDS.size:  # an older kernel
        return None
    unacked, acked, unsent = _FIELDS.unpack(info)
    return Delivery(acked, complete=not (unacked or unsent))


def bound_unsent(listener: socket.socket) -> None:
    """Bound the unsent bytes in the kernel of each connection that a listener accepts."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None:
        listener.setsockopt(socket.IPPROTO_TCP, option, MAX_UNSENT_IN_KERNEL)
