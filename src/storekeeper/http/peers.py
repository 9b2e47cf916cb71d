"""Which connections come from a proxy that is trusted to name users (decision 58)."""

import socket
from asyncio import BaseTransport
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

UNIX = "unix"
"""Stands for every client of a Unix socket, which its owner and group can connect to."""


class TrustedPeers:
    """The addresses of proxies, or UNIX. Trust is the socket's peer, and nothing that it sends."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        names = frozenset(names)
        self._trusts_any = bool(names)
        self._trusts_unix = UNIX in names
        self._addresses = frozenset([parse_address(name) for name in names if name != UNIX])

    def has(self, transport: BaseTransport) -> bool:
        """Return whether the other end of a connection is one of them."""
        if not self._trusts_any:
            return False
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            return parse_address(peer[0]) in self._addresses
        its_socket = transport.get_extra_info("socket")
        is_unix = its_socket is not None and its_socket.family == socket.AF_UNIX
        return self._trusts_unix and is_unix


def parse_address(text: str) -> IPv4Address | IPv6Address:
    """Return an address, as IPv4 if it is one within IPv6. Raises ValueError."""
    address = ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


NO_PEERS = TrustedPeers()
"""No proxy is trusted."""
