"""HTTP/1.1 on the wire: requests written by hand, responses cut out of the bytes, the shape of an
error."""

import json
import socket
from collections.abc import Iterable
from typing import Any, Self, cast

from tests.harness.process import TIMEOUT, Response, Running

HOST = b"Host: stores.example\r\n"
CLOSE = b"Connection: close\r\n"

SLOW = "/health/ready"
"""A route that both adapters serve with a task: what follows it on the connection must wait."""

PAYLOAD = b'{"name":"Chunked","address":"1 High Street"}'

PHRASES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    410: "Gone",
    412: "Precondition Failed",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    501: "Not Implemented",
    505: "HTTP Version Not Supported",
}
"""RFC 9110 and RFC 6585, written out: Python's own table differs between versions."""


def assert_error(response: Response, status: int, message: str | None = None, **more: Any) -> None:
    """Check that it is the contract's error with that status, that message if given, and only
    `more` in addition.

    Every error that a test expects is checked here. A 405 must have `Allow`, a 503 `Retry-After`.
    """
    assert response.status == status, response
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert int(response.headers["content-length"]) == len(response.body)
    assert ("allow" in response.headers) == (status == 405)
    assert ("retry-after" in response.headers) == (status == 503)
    said = json.loads(response.body)
    expected = {"statusCode": status, "error": PHRASES[status], "message": said["message"], **more}
    assert said == expected
    assert isinstance(said["message"], str)
    assert said["message"]
    assert message in (None, said["message"])


def assert_invalid(
    response: Response, message: str, keys: Iterable[str], source: str = "payload"
) -> None:
    """Check that it is the contract's 400 in its detailed form."""
    assert_error(response, 400, message, validation={"source": source, "keys": list(keys)})


def request(
    method: str, target: str, body: bytes | None = None, *fields: str, host: bytes = HOST
) -> bytes:
    """Return the bytes of a request; a body brings its Content-Length, and a JSON Content-Type."""
    lines = [
        f"{method} {target} HTTP/1.1\r\n".encode(),
        host,
        *(field.encode() + b"\r\n" for field in fields),
    ]
    if body is not None:
        lines.append(b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body))
    return b"".join([*lines, b"\r\n", body or b""])


def create(name: str, *fields: str) -> bytes:
    """Return the bytes of a request that creates a store."""
    return request("POST", "/api/stores", json.dumps({"name": name}).encode(), *fields)


def chunked(
    *chunks: bytes, method: str = "POST", target: str = "/api/stores", fields: bytes = b""
) -> bytes:
    """Return the bytes of a request with a chunked body."""
    head = (
        f"{method} {target} HTTP/1.1\r\n".encode()
        + HOST
        + fields
        + b"Transfer-Encoding: chunked\r\n\r\n"
    )
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


class CutShort(AssertionError):
    """The connection ended before the end of a response."""


class Wire:
    """One connection whose every byte is seen: responses are read one after another."""

    def __init__(self, client: socket.socket, unread: bytes = b"") -> None:
        self.client = client
        self._unread = unread

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def send(self, data: bytes) -> None:
        self.client.sendall(data)

    def response(self, *, to: str = "GET") -> Response:
        """Read one response, `to` a method; fail unless it is complete when the connection ends."""
        head = self._until(b"\r\n\r\n").decode("latin-1")
        first, *fields = head.split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = {
            name.lower(): value for name, value in (field.split(": ", 1) for field in fields)
        }
        assert len(headers) == len(fields), f"a field is repeated: {head}"
        return Response(int(status), headers, self._body(int(status), headers, to))

    def _body(self, status: int, headers: dict[str, str], method: str) -> bytes:
        if method == "HEAD" or status in (100, 204, 304):
            return b""
        if headers.get("transfer-encoding") == "chunked":
            assert "content-length" not in headers
            return b"".join(iter(self._chunk, b""))
        if "content-length" in headers:
            return self._take(int(headers["content-length"]))
        assert headers.get("connection") == "close"
        return self.rest()

    def _chunk(self) -> bytes:
        data = self._take(int(self._until(b"\r\n"), 16))
        assert self._take(2) == b"\r\n"
        return data

    def rest(self) -> bytes:
        """Read everything until the service closes the connection."""
        while self._receive():
            pass
        data, self._unread = self._unread, b""
        return data

    def assert_closed(self) -> None:
        """Check that nothing more comes, and that the service closes."""
        assert self.rest() == b""

    def more(self, begin: bytes = b"") -> bool:
        """Return whether a response has arrived that begins like this; only the first part of the
        unread bytes counts."""
        return bool(self._unread or self._receive()) and self._unread.startswith(begin)

    def has_one_head(self) -> bool:
        """Return whether the unread bytes are the head of a response without content."""
        return self._unread.find(b"\r\n\r\n") == len(self._unread) - 4

    def _receive(self) -> bool:
        data = self.client.recv(1 << 20)
        self._unread += data
        return bool(data)

    def _until(self, end: bytes) -> bytes:
        while end not in self._unread:
            if not self._receive():
                raise CutShort(
                    f"the connection ended in the middle of a response: {self._unread!r}"
                )
        found, _, self._unread = self._unread.partition(end)
        return found

    def _take(self, size: int) -> bytes:
        parts = [self._unread]
        while (have := sum(map(len, parts))) < size:
            parts.append(self.client.recv(size - have))
            if not parts[-1]:
                raise CutShort("the connection ended in the middle of a body")
        data = b"".join(parts)
        self._unread = data[size:]
        return data[:size]


class Nobody:
    """The other side of a connection that is over."""

    def recv(self, _size: int) -> bytes:
        return b""


def replay(received: bytes) -> Wire:
    """Return everything that came on a connection, as a file to read from."""
    return Wire(cast("socket.socket", Nobody()), received)


def responses(received: bytes, *methods: str) -> list[Response]:
    """Cut bytes into the responses to requests with these methods; there must be nothing else."""
    wire = replay(received)
    found = [wire.response(to=method) for method in methods]
    wire.assert_closed()
    return found


def dial(service: Running, timeout: float = TIMEOUT) -> Wire:
    """Open a connection whose every byte is seen."""
    return Wire(service.socket(timeout))


def exchange(service: Running, data: bytes, *, to: str = "GET") -> Response:
    """Send bytes on a new connection, get one response, and check that the service closes it."""
    with dial(service) as wire:
        wire.send(data)
        response = wire.response(to=to)
        wire.assert_closed()
    return response


def slow_reader(service: Running) -> Wire:
    """Open a connection that holds little unread data."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(TIMEOUT)
    client.connect(("127.0.0.1", service.port))
    return Wire(client)
