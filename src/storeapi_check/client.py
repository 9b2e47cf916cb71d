"""An HTTP/1.1 client: one exchange per connection, with a bound on every wait and every body."""

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

MAX_BODY_BYTES = 1 << 20
"""The longest body that is kept."""
MAX_LIST_BYTES = 1 << 28
"""The longest body that a sink takes."""
MAX_EXCERPT_BYTES = 600
"""How much of a body a report shows."""
PIECE_BYTES = 1 << 18
BYTES_PER_SECOND = 1 << 22
"""A body of this many bytes gets one more second, since a long list takes longer."""


@dataclass(slots=True)
class Exchange:
    """One request and, once it has arrived, its response.

    If there is a `sink`, it takes the body of a 200, and `content` stays empty.
    """

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
    excerpt: bytes = b""  # the beginning of the body, even if it went to the sink
    length: int = 0

    def header(self, name: str) -> str | None:
        """Return all values of a field, joined as in RFC 9110 section 5.3; None if there are
        none."""
        values = [value for key, value in self.headers if key.lower() == name]
        return ", ".join(values) if values else None


class CannotCheck(Exception):
    """The service cannot be checked: the message says why."""


class TooLarge(Exception):
    """The response is longer than this client reads."""


class Unreachable(CannotCheck):
    """There is no HTTP response: `reason` says why in plain words, `exchange` is what was sent."""

    def __init__(self, error: Exception, exchange: Exchange) -> None:
        self.reason = reason(error)
        self.exchange = exchange
        super().__init__(f"{self.reason} ({exchange.method} {exchange.target})")


class Stream(socket.SocketIO):
    """A stand-in for the socket that `http.client` reads; everything must arrive before one
    deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        super().__init__(connection, "r")
        self.connection = connection
        self.deadline = deadline

    def makefile(self, _: str) -> io.BufferedIOBase:
        """Return the reader of the one response."""
        return io.BufferedReader(self, PIECE_BYTES)

    # The stub takes any writable buffer; SocketIO is only read through a BufferedReader, which
    # passes a memoryview.
    def readinto(self, buffer: "memoryview") -> int | None:  # type: ignore[override]
        """Wait for more bytes; raise TimeoutError after the deadline."""
        self.connection.settimeout(remaining(self.deadline))
        return super().readinto(buffer)


class Client:
    """Sends requests, each within `timeout` seconds.

    The constructor raises ValueError unless `url` is `http(s)://host[:port][/prefix]`.
    """

    def __init__(self, url: str, timeout: float, token: str = "") -> None:
        require_address(url)
        parts = urlsplit(url)
        default_port = 443 if parts.scheme == "https" else 80
        self.secret = [f"Authorization: Bearer {token}"] if token else []
        self.host = parts.hostname or ""
        self.prefix = parts.path.rstrip("/")
        self.timeout = timeout
        self.address = self.host, parts.port or default_port
        self.authority = parts.netloc.lower().removesuffix(f":{default_port}").rstrip(":")
        self.tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self.tls = ssl.create_default_context()

    def send(self, exchange: Exchange, more: Mapping[str, str] = {}) -> None:
        """Send the request, with the non-empty fields of `more`; raise Unreachable unless a
        complete HTTP response arrives."""
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
        # We write the head, not http.client, so that a report shows the request as it was sent.
        try:
            with self.connect(deadline) as connection:
                head = "\r\n".join(exchange.head + self.secret + ["", ""]).encode("ascii")
                with suppress(ConnectionError):  # the service may have responded before it closed
                    connection.sendall(head + (exchange.body or b""))
                read(Stream(connection, deadline), exchange)
        except (OSError, UnicodeError, http.client.HTTPException, TooLarge) as error:
            raise Unreachable(error, exchange) from error

    def connect(self, deadline: float) -> socket.socket:
        """Connect, with TLS if the address is https; later connections use the address that the
        first one reached."""
        # Half of the time: if the first address of a host is silent, the second still has a chance.
        plain = socket.create_connection(self.address, remaining(deadline) / 2)
        self.address = plain.getpeername()[:2]
        plain.settimeout(remaining(deadline))
        return self.tls.wrap_socket(plain, server_hostname=self.host) if self.tls else plain


def require_address(url: str) -> None:
    """Raise ValueError unless it is `http(s)://host[:port][/prefix]`."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("the address must look like http://host:port")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("the address must have no user, query or fragment")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("the address must be plain ASCII without spaces")
    if parts.port == 0:
        raise ValueError("the address must have a port from 1 to 65535")


def read(stream: Stream, exchange: Exchange) -> None:
    """Read the response; put its body into the sink or the exchange, up to the limit."""
    # The response is closed before the stream; otherwise Python 3.13 complains on stderr that it
    # cannot flush it.
    with http.client.HTTPResponse(
        cast("socket.socket", stream), method=exchange.method
    ) as response:
        read_head(response, exchange)
        kept: list[bytes] = []
        sink, limit = kept.append, MAX_BODY_BYTES
        if exchange.sink and exchange.status == 200:
            sink, limit = exchange.sink, MAX_LIST_BYTES
        while piece := response.read1(PIECE_BYTES):
            exchange.length += len(piece)
            if exchange.length > limit:
                raise TooLarge(f"the response is longer than {limit >> 20} MiB")
            exchange.excerpt += piece[: MAX_EXCERPT_BYTES - len(exchange.excerpt)]
            stream.deadline += len(piece) / BYTES_PER_SECOND
            sink(piece)
        if response.length:
            raise http.client.IncompleteRead(b"")
        exchange.content = b"".join(kept)


def read_head(response: http.client.HTTPResponse, exchange: Exchange) -> None:
    """Read the head of the final response; skip interim ones (1xx) until the deadline."""
    response.begin()
    while response.status < 200:
        response.headers = None  # type: ignore[assignment]  # or `begin` would not read again
        response.begin()
    exchange.version = f"HTTP/{response.version / 10}"
    exchange.status, exchange.phrase = response.status, response.reason
    exchange.headers = [(name, value.strip(" \t")) for name, value in response.headers.items()]
    if response.headers.defects:
        raise http.client.HTTPException("it has a header field that is not valid")
    length = exchange.header("content-length")
    if length is not None and not (length.isascii() and length.isdigit()):
        raise http.client.HTTPException(f"Content-Length is {length!r}")


def remaining(deadline: float) -> float:
    """Return the seconds left; raise TimeoutError if there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def reason(error: Exception) -> str:
    """Return in plain words why there is no response."""
    match error:
        case TooLarge():
            return str(error)
        case TimeoutError():
            return "the response is not complete in time"
        case http.client.RemoteDisconnected():
            return "it closed the connection without a response"
        case http.client.IncompleteRead():
            return "it closed the connection within its response, or a chunk is not valid"
        case http.client.HTTPException():
            return f"the response is not HTTP/1: {str(error)[:60]!r}"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            problem = error.reason or "handshake failed"
            return f"no TLS there: {problem.replace('_', ' ').lower()}"
        case socket.gaierror() | UnicodeError():
            return "there is no host of that name"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).lower()
