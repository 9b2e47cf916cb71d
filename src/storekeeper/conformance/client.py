"""One HTTP/1.1 exchange per connection, every byte seen and every wait bounded; `wire` only."""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from storekeeper.conformance.wire import (
    Exchange,
    TimedOut,
    Unreachable,
    Wire,
    keep_body,
    read_head,
    reason,
    remaining,
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the service is: `http(s)://host[:port][/prefix]`, taken apart."""

    secure: bool
    host: str
    port: int
    prefix: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Take `url` apart; ValueError says what is wrong with it."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("the address must look like http://host:port")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError("the address must have no user, query or fragment")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("the address must be plain ASCII without spaces")
        secure = parts.scheme == "https"
        return cls(secure, parts.hostname, parts.port or (443 if secure else 80), parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """The value of the Host field (RFC 9110 section 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


class Client:
    """Sends requests to one address; `timeout` is in seconds and covers an exchange from name to last byte."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address
        self.timeout = timeout
        self.places: list[tuple[int, tuple[str, int]]] = []
        self.tls: ssl.SSLContext | None = ssl.create_default_context() if address.secure else None

    def exchange(
        self,
        method: str,
        path: str,
        *,
        headers: list[tuple[str, str]] | None = None,
        body: bytes | None = None,
        sink: Callable[[bytes], None] | None = None,
    ) -> Exchange:
        """One request on a connection of its own, so that nothing is ever sent twice.

        With a `sink` a body of status 200 goes there piece by piece and is not kept. Unreachable when no whole
        HTTP answer came.
        """
        fields = [("Host", self.address.authority), ("User-Agent", "storekeeper-check"), ("Accept", "*/*")]
        fields += [("Connection", "close"), *(headers or [])]
        if body is not None:
            fields.append(("Content-Length", str(len(body))))
        done = Exchange(method, self.address.prefix + path, fields, body)
        try:
            self.perform(done, sink)
        except Unreachable as error:
            error.exchange = done
            raise
        return done

    def perform(self, exchange: Exchange, sink: Callable[[bytes], None] | None) -> None:
        """Send the request and fill in the answer."""
        deadline = time.monotonic() + self.timeout
        with self.connect(deadline) as connection:
            wire = Wire(connection, deadline)
            wire.send(request_bytes(exchange))
            read_head(wire, exchange)
            keep_body(wire, exchange, sink if exchange.status == 200 else None)

    def connect(self, deadline: float) -> socket.socket:
        """A new connection to the first of the host's addresses that takes it."""
        if not self.places:
            self.places = lookup(self.address, remaining(deadline))
        failure: Unreachable = Unreachable("it has no address")
        for index, (family, place) in enumerate(self.places):
            try:
                return self.open(family, place, remaining(deadline) / (len(self.places) - index))
            except TimeoutError:
                failure = TimedOut("it does not answer")
            except OSError as error:
                failure = Unreachable(reason(error))
        raise failure

    def open(self, family: int, place: tuple[str, int], seconds: float) -> socket.socket:
        """Connect, with TLS where the address says https."""
        end = time.monotonic() + seconds
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.settimeout(seconds)
            plain.connect(place)
            plain.settimeout(max(end - time.monotonic(), 0.01))
            return self.tls.wrap_socket(plain, server_hostname=self.address.host) if self.tls else plain
        except BaseException:
            plain.close()
            raise


def lookup(address: Address, seconds: float) -> list[tuple[int, tuple[str, int]]]:
    """Where the host is. A resolver knows no deadline, so it runs in a thread that nobody waits for longer."""
    found: list[tuple[int, tuple[str, int]]] = []
    failed: list[str] = []

    def ask() -> None:
        try:
            for family, *_, place in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
                found.append((family, (str(place[0]), int(place[1]))))
        except (OSError, UnicodeError) as error:
            failed.append(f"unknown host {address.host}: {reason(error)}")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed or not found:
        raise Unreachable(failed[0] if failed else f"the name {address.host} is not resolved in time")
    return found


def request_bytes(exchange: Exchange) -> bytes:
    """The request as it goes out."""
    lines = [f"{exchange.method} {exchange.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in exchange.sent]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (exchange.body or b"")
