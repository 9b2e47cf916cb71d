"""The bytes of one HTTP/1.1 answer, read until a deadline and no further than a limit; the standard library only."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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
