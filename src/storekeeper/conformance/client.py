"""One HTTP/1.1 exchange per connection, every byte seen and every wait bounded; the standard library only."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

SMALL, LARGE = 1 << 20, 1 << 28
"""The longest body read, in bytes: of any answer, and of one that is read as it arrives (a list)."""
EXCERPT = 2048
LINE, HEAD = 8192, 65536
PIECE = 1 << 18
RATE = 1 << 22
"""What a body must bring, in bytes, to be given one more second: a big list may take its time."""


class Unreachable(Exception):
    """No answer that is HTTP: the reason is the message. `exchange` is what was sent, once something was."""

    exchange: "Exchange | None" = None


class TimedOut(Unreachable):
    """The answer was not whole in time."""


class TooLarge(Unreachable):
    """The answer is longer than this client reads."""


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


@dataclass(slots=True)
class Exchange:
    """One request and its answer. `content` is empty when a sink took the body; `excerpt` never is."""

    method: str
    target: str
    sent: list[tuple[str, str]]
    body: bytes | None
    status: int = 0
    phrase: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    content: bytes = b""
    excerpt: bytes = b""
    length: int = 0

    def header(self, name: str) -> str | None:
        """All values of a field as one, as RFC 9110 section 5.3 joins them; None without any."""
        values = [value for key, value in self.headers if key.lower() == name]
        return ", ".join(values) if values else None


class Wire:
    """The bytes of one connection, read until a deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self.connection = connection
        self.deadline = deadline
        self.buffer = bytearray()

    def send(self, data: bytes) -> None:
        """Send everything. A refusal halfway is no error yet: the answer may say why."""
        self.connection.settimeout(remaining(self.deadline))
        try:
            self.connection.sendall(data)
        except TimeoutError:
            raise TimedOut("it does not take the request") from None
        except OSError:
            return

    def more(self) -> bytes:
        """Whatever comes next; nothing at the end of the connection."""
        self.connection.settimeout(remaining(self.deadline))
        try:
            return self.connection.recv(PIECE)
        except TimeoutError:
            raise TimedOut("the answer is not whole in time") from None
        except OSError as error:
            raise Unreachable(f"the connection broke: {reason(error)}") from None

    def line(self) -> bytes:
        """The next line without its end."""
        while (end := self.buffer.find(b"\n")) < 0 and len(self.buffer) <= LINE:
            self.fill()
        if not 0 <= end <= LINE:
            raise Unreachable("the answer is not HTTP: a line has no end")
        line = bytes(self.buffer[:end]).removesuffix(b"\r")
        del self.buffer[: end + 1]
        return line

    def fill(self) -> None:
        """Wait for more; the end of the connection is an error here."""
        piece = self.more()
        if not piece:
            started = "in the middle of its answer" if self.buffer else "without an answer"
            raise Unreachable(f"it closed the connection {started}")
        self.buffer += piece

    def exactly(self, count: int) -> Iterator[bytes]:
        """The next `count` bytes, in pieces."""
        while count:
            if not self.buffer:
                self.fill()
            piece = bytes(self.buffer[:count])
            del self.buffer[: len(piece)]
            count -= len(piece)
            yield piece

    def rest(self) -> Iterator[bytes]:
        """Everything up to the end of the connection, in pieces."""
        piece = bytes(self.buffer)
        self.buffer.clear()
        while piece or (piece := self.more()):
            yield piece
            piece = b""


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


def read_head(wire: Wire, exchange: Exchange) -> None:
    """Read status line and fields; interim answers (1xx) are passed over."""
    for _ in range(10):
        version, exchange.status, exchange.phrase = status_line(wire.line())
        exchange.headers = list(fields(wire))
        if not 100 <= exchange.status < 200:
            return
    raise Unreachable(f"the answer is not HTTP: interim answers without end ({version} {exchange.status})")


def status_line(line: bytes) -> tuple[str, int, str]:
    """Version, status and phrase of a status line (RFC 9112 section 4)."""
    version, _, rest = line.decode("latin-1").partition(" ")
    status, _, phrase = rest.partition(" ")
    if not version.startswith("HTTP/1.") or not (status.isdigit() and len(status) == 3):
        shown = line[:40].decode("ascii", "backslashreplace")
        raise Unreachable(f"the answer is not HTTP/1: it begins with {shown!r}")
    return version, int(status), phrase


def fields(wire: Wire) -> Iterator[tuple[str, str]]:
    """Header or trailer fields up to the empty line."""
    size = 0
    while line := wire.line():
        size += len(line)
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or size > HEAD:
            raise Unreachable("the answer is not HTTP: a header field that is none, or too many")
        yield name, value.strip(" \t")


def keep_body(wire: Wire, exchange: Exchange, sink: Callable[[bytes], None] | None) -> None:
    """Read the body to its end, into `sink` or into the exchange, and no further than the limit."""
    limit = LARGE if sink else SMALL
    kept: list[bytes] = []
    take = sink or kept.append
    start = wire.deadline
    for piece in body_pieces(wire, exchange):
        exchange.length += len(piece)
        if exchange.length > limit:
            raise TooLarge(f"the answer is longer than {limit >> 20} MiB")
        if len(exchange.excerpt) < EXCERPT:
            exchange.excerpt += piece[: EXCERPT - len(exchange.excerpt)]
        wire.deadline = start + exchange.length / RATE
        take(piece)
    exchange.content = b"".join(kept)


def body_pieces(wire: Wire, exchange: Exchange) -> Iterator[bytes]:
    """The body, as its framing delimits it (RFC 9112 section 6.3)."""
    length = exchange.header("content-length")
    if exchange.method == "HEAD" or exchange.status in {204, 304}:
        return iter(())
    if (exchange.header("transfer-encoding") or "").lower() == "chunked":
        return chunks(wire)
    if length is None:
        return wire.rest()
    if not (length.isascii() and length.isdigit() and len(length) < 16):
        raise Unreachable(f"the answer is not HTTP: Content-Length is {length!r}")
    return wire.exactly(int(length))


def chunks(wire: Wire) -> Iterator[bytes]:
    """A chunked body (RFC 9112 section 7.1)."""
    while size := chunk_size(wire.line()):
        yield from wire.exactly(size)
        if wire.line():
            raise Unreachable("the answer is not HTTP: a chunk is longer than it says")
    for _ in fields(wire):
        continue


def chunk_size(line: bytes) -> int:
    """The size that a chunk's first line gives."""
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
        raise Unreachable("the answer is not HTTP: a chunk has no size")
    return int(digits, 16)


def remaining(deadline: float) -> float:
    """Seconds left; TimedOut when none are."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimedOut("the answer is not whole in time")
    return left


def reason(error: Exception) -> str:
    """What went wrong, in a few words of the operating system or of TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS there: {(error.reason or 'handshake failed').replace('_', ' ').lower()}"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).lower()
