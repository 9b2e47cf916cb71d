"""One HTTP/1.1 exchange on each connection, every wait and every body bounded; the standard
library only."""

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

MAX_BODY_BYTES, MAX_LIST_BYTES = (
    1 << 20,
    1 << 28,
)  # of a body that is read; of one that a sink takes
MAX_EXCERPT_BYTES = 600  # of a body in a report
PIECE_BYTES = 1 << 18
BYTES_PER_SECOND = (
    1 << 22
)  # how many bytes of a body give it one more second: a long list may take its time


@dataclass(slots=True)
class Exchange:
    """One request, and its response once it came. A `sink` takes the body of a 200 and leaves
    `content` empty."""

    method: str
    target: str
    body: bytes | None = None
    sink: Callable[[bytes], None] | None = None
    head: list[str] = field(default_factory=list)  # the lines of the request before its body
    version: str = "HTTP/1.1"  # of the response
    status: int = 0
    phrase: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    content: bytes = b""
    excerpt: bytes = b""  # its beginning, also of what went to the sink
    length: int = 0

    def header(self, name: str) -> str | None:
        """Return all values of a field as one, as RFC 9110 section 5.3 joins them; None without
        any."""
        values = [value for key, value in self.headers if key.lower() == name]
        return ", ".join(values) if values else None


class CannotCheck(Exception):
    """The service cannot be checked: the message says why."""


class TooLarge(Exception):
    """The response is longer than this client reads."""


class Unreachable(CannotCheck):
    """No response that is HTTP, for a reason in plain words; `exchange` is what was sent."""

    def __init__(self, error: Exception, exchange: Exchange) -> None:
        self.reason = next(text(error) for kind, text in REASONS if isinstance(error, kind))
        self.exchange = exchange
        super().__init__(f"{self.reason} ({exchange.method} {exchange.target})")


class Stream(socket.SocketIO):
    """What `http.client` takes for a socket: all that is read from it has to come before one
    deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        super().__init__(connection, "r")
        self.connection, self.deadline = connection, deadline

    def makefile(self, _: str) -> io.BufferedIOBase:
        """Return the reader of the one response that comes."""
        return io.BufferedReader(self, PIECE_BYTES)

    def readinto(self, buffer: "memoryview") -> int | None:  # type: ignore[override]  # BufferedReader passes no other
        """Wait for more bytes; raise TimeoutError after the deadline."""
        self.connection.settimeout(remaining(self.deadline))
        return super().readinto(buffer)


class Client:
    """Sends requests, each within `timeout` seconds. ValueError unless `url` is
    `http(s)://host[:port][/prefix]`."""

    def __init__(self, url: str, timeout: float, token: str = "") -> None:
        self.secret = [f"Authorization: Bearer {token}"] if token else []
        parts = urlsplit(url)
        for wrong, reason in (
            (
                parts.scheme not in {"http", "https"} or not parts.hostname,
                "look like http://host:port",
            ),
            (
                parts.query or parts.fragment or parts.username is not None,
                "have no user, query or fragment",
            ),
            (
                not url.isascii() or not url.isprintable() or " " in url,
                "be plain ASCII without spaces",
            ),
            (parts.port == 0, "have a port from 1 to 65535"),
        ):
            if wrong:
                raise ValueError(f"the address must {reason}")
        usual = 443 if parts.scheme == "https" else 80
        self.host, self.prefix, self.timeout = parts.hostname or "", parts.path.rstrip("/"), timeout
        self.address = self.host, parts.port or usual
        self.authority = parts.netloc.lower().removesuffix(f":{usual}").rstrip(":")
        self.tls: ssl.SSLContext | None = ssl.create_default_context() if usual == 443 else None

    def send(self, exchange: Exchange, more: Mapping[str, str] = {}) -> None:
        """Send the request, with the non-empty fields of `more`; raise Unreachable without a
        whole HTTP response."""
        fields = {
            "Host": self.authority,
            "User-Agent": "storekeeper-check",
            "Accept": "*/*",
            "Connection": "close",
        }
        if exchange.body is not None:
            fields |= {
                "Content-Type": "application/json",
                "Content-Length": str(len(exchange.body)),
            }
        sent = [f"{name}: {value}" for name, value in (fields | dict(more)).items() if value]
        exchange.target = self.prefix + exchange.target
        exchange.head = [f"{exchange.method} {exchange.target} HTTP/1.1", *sent]
        deadline = time.monotonic() + self.timeout
        # Written here and not by http.client, so that a report shows the request as it went out.
        try:
            with self.connect(deadline) as connection:
                head = "\r\n".join([*exchange.head, *self.secret, "", ""]).encode("ascii")
                with suppress(ConnectionError):  # it may have said why before it closed
                    connection.sendall(head + (exchange.body or b""))
                read(Stream(connection, deadline), exchange)
        except (OSError, UnicodeError, http.client.HTTPException, TooLarge) as error:
            raise Unreachable(error, exchange) from error

    def connect(self, deadline: float) -> socket.socket:
        """Connect, with TLS where the address says https; later connections go where the first
        found it."""
        # Half of the time: when the first of a host's addresses is silent, its second still has a
        # chance.
        plain = socket.create_connection(self.address, remaining(deadline) / 2)
        self.address = plain.getpeername()[:2]
        plain.settimeout(remaining(deadline))
        return self.tls.wrap_socket(plain, server_hostname=self.host) if self.tls else plain


def read(stream: Stream, exchange: Exchange) -> None:
    """Read the response, its body into the sink or into the exchange and no further than the
    limit."""
    # Closed before the stream is: else Python 3.13 says on stderr that it cannot flush it.
    with http.client.HTTPResponse(
        cast("socket.socket", stream), method=exchange.method
    ) as response:
        final(response, exchange)
        sink, kept = exchange.sink if exchange.status == 200 else None, list[bytes]()
        limit = MAX_LIST_BYTES if sink else MAX_BODY_BYTES
        while piece := response.read1(PIECE_BYTES):
            exchange.length += len(piece)
            if exchange.length > limit:
                raise TooLarge(f"the response is longer than {limit >> 20} MiB")
            exchange.excerpt += piece[: MAX_EXCERPT_BYTES - len(exchange.excerpt)]
            stream.deadline += len(piece) / BYTES_PER_SECOND
            (sink or kept.append)(piece)
        if response.length:
            raise http.client.IncompleteRead(b"")
        exchange.content = b"".join(kept)


def final(response: http.client.HTTPResponse, exchange: Exchange) -> None:
    """Read the head of the response that counts; interim ones (1xx) are passed over until the
    deadline."""
    response.begin()
    while response.status < 200:
        response.headers = None  # type: ignore[assignment]  # it begins anew only without
        response.begin()
    exchange.version = f"HTTP/{response.version / 10}"
    exchange.status, exchange.phrase = response.status, response.reason
    exchange.headers = [(name, value.strip(" \t")) for name, value in response.headers.items()]
    if response.headers.defects:
        raise http.client.HTTPException("it has a header field that is none")
    length = exchange.header("content-length")
    if length is not None and not (length.isascii() and length.isdigit()):
        raise http.client.HTTPException(f"Content-Length is {length!r}")


def remaining(deadline: float) -> float:
    """Return the seconds left; raise TimeoutError when none are."""
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left


REASONS: tuple[
    tuple[type[Exception], Callable[[Any], str]], ...
] = (  # the first class counts that the error has
    (TooLarge, str),
    (TimeoutError, lambda _: "the response is not whole in time"),
    (http.client.RemoteDisconnected, lambda _: "it closed the connection without a response"),
    (
        http.client.IncompleteRead,
        lambda _: "it closed the connection amid its response, or a chunk is none",
    ),
    (http.client.HTTPException, lambda error: f"the response is not HTTP/1: {str(error)[:60]!r}"),
    (
        ssl.SSLCertVerificationError,
        lambda error: f"its certificate is not trusted: {error.verify_message}",
    ),
    (
        ssl.SSLError,
        lambda error: (
            f"no TLS there: {(error.reason or 'handshake failed').replace('_', ' ').lower()}"
        ),
    ),
    *(
        (kind, lambda _: "there is no host of that name")
        for kind in (socket.gaierror, UnicodeError)
    ),
    (
        Exception,
        lambda error: (
            getattr(error, "strerror", None) or str(error) or type(error).__name__
        ).lower(),
    ),
)
