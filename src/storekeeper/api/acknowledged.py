"""What a client's kernel has acknowledged, as far as ours says so. Imports nothing of the project.

A transport tells only what our kernel has taken. That may be megabytes, and it takes more only when a third of them
is free again: a client that reads steadily, but slowly, would seem to read nothing for minutes.
"""

import asyncio
import socket
import struct
import sys
from typing import NamedTuple

UNSENT_IN_KERNEL = 128 * 1024
"""Bytes that the kernel takes beyond what it could send: more would only be memory."""

_FIELDS = struct.Struct("@24xI92xQ16xI")
"""Of Linux's `struct tcp_info`: tcpi_unacked, tcpi_bytes_acked (since 4.1), tcpi_notsent_bytes (since 4.6)."""


class Delivery(NamedTuple):
    """How far the client has what was sent to it; `acked` only grows."""

    acked: int
    whole: bool


def delivery(transport: asyncio.BaseTransport) -> Delivery | None:
    """Return what the client's kernel acknowledged; None where ours does not say."""
    if sys.platform != "linux":
        return None
    try:
        told = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size)
    except (OSError, AttributeError):  # no TCP, or closed
        return None
    if len(told) < _FIELDS.size:  # an older kernel
        return None
    unacked, acked, unsent = _FIELDS.unpack(told)
    return Delivery(acked, whole=not (unacked or unsent))


def bound_unsent(listener: socket.socket) -> None:
    """Bound what the kernel holds of responses that it cannot send, for each connection of a listener."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None:
        listener.setsockopt(socket.IPPROTO_TCP, option, UNSENT_IN_KERNEL)
