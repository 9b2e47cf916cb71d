"""A second reading of the bytes on a connection, independent of the service's: the requests and the
responses.

It is lenient, so that it never finds fewer requests than the service may. It checks that each
response has its request, that each executed request is one that may be executed at all (decision
27), and that each response is well-formed and, if it is an error, the contract's. Raises
AssertionError if one of these is not true.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.harness.process import Response
from tests.harness.wire import CutShort, Wire, assert_error, replay

MAX_BODY_BYTES = 2**20
REFUSALS = frozenset((400, 408, 413, 414, 431, 501, 505))
"""The responses of the HTTP layer itself (decisions 15 and 27); the connection then closes."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_HOST = re.compile(rb"[A-Za-z0-9._~%-]+(:\d*)?|\[[0-9A-Fa-f:.]+\](:\d*)?")
_VERSION = re.compile(rb"HTTP/1\.\d")
_LENGTH = re.compile(rb"\d+")
_CHUNK = re.compile(rb"([0-9A-Fa-f]+)[^\r\n]*\r\n")


@dataclass(frozen=True)
class Asked:
    """A complete request; the names of `fields` are in lower case."""

    method: bytes
    target: bytes
    version: bytes
    fields: list[tuple[bytes, bytes]]
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        return [value for field, value in self.fields if field == name]

    @property
    def writes(self) -> bool:
        return self.method in (b"POST", b"PUT", b"PATCH")


def requests_in(sent: bytes) -> Iterator[Asked]:
    """Cut bytes into the complete requests that they contain, up to the point where the rest cannot
    be cut."""
    start = 0
    while True:
        while sent[start : start + 1] in (b"\r", b"\n"):
            start += 1
        end = sent.find(b"\r\n\r\n", start)
        if end < 0:
            return
        line, *lines = sent[start:end].split(b"\r\n")
        words = line.split()
        if len(words) != 3:
            return
        fields = [
            (name.lower(), value.strip(b" \t"))
            for name, _, value in (each.partition(b":") for each in lines)
        ]
        framed = _body(sent, end + 4, fields)
        if framed is None:
            return
        body, start = framed
        yield Asked(words[0], words[1], words[2], fields, body)


def _body(sent: bytes, start: int, fields: list[tuple[bytes, bytes]]) -> tuple[bytes, int] | None:
    """Return the body that begins at `start` and where it ends; None if it does not end."""
    if any(name == b"transfer-encoding" for name, _ in fields):
        return _chunks(sent, start)
    length = next((value for name, value in fields if name == b"content-length"), b"0")
    if not _LENGTH.fullmatch(length) or len(length) > 20 or len(length.lstrip(b"0")) > 10:
        return None
    end = start + int(length)
    return (sent[start:end], end) if end <= len(sent) else None


def _chunks(sent: bytes, start: int) -> tuple[bytes, int] | None:
    parts = []
    while (line := _CHUNK.match(sent, start)) and (size := int(line[1], 16)):
        parts.append(sent[line.end() : line.end() + size])
        start = line.end() + size + 2
        if start > len(sent):
            return None
    if line is None:
        return None
    # The line end of the last chunk may also be the first half of the empty line that ends the
    # trailers.
    end = sent.find(b"\r\n\r\n", line.end() - 2)
    return (b"".join(parts), end + 4) if end >= 0 else None


def exchanges(
    sent: bytes, received: bytes, *, cut_off: bool = False
) -> list[tuple[Asked | None, Response]]:
    """Pair each response with its request; the last may be the refusal of something that is not a
    request.

    Interim responses are left out. If the client cut the connection, the last response may be
    incomplete, and does not count.
    """
    wire = replay(received.replace(CONTINUE, b""))
    asked = requests_in(sent)
    found: list[tuple[Asked | None, Response]] = []
    while wire.more():
        request = next(asked, None)
        try:
            response = _response(wire, request, b"HEAD " in sent)
        except CutShort:
            if cut_off:
                break
            raise
        if not (
            response.status in REFUSALS
            and response.headers.get("connection") == "close"
            and not wire.more()
        ):
            assert request is not None, f"a response to nothing that was asked: {response}"
            check_carried_out(request)
        found.append((request, response))
    return found


def _response(wire: Wire, request: Asked | None, may_be_head: bool) -> Response:
    head = request is not None and request.method == b"HEAD"
    if not head and may_be_head and wire.has_one_head():
        response = wire.response(to="HEAD")
        assert response.status in REFUSALS or not int(response.headers.get("content-length", 0)), (
            response
        )
        return response
    response = wire.response(to="HEAD" if head else "GET")
    if head and wire.more() and not wire.more(b"HTTP/1.1 "):
        assert response.status in REFUSALS, f"a body follows a response to HEAD: {response}"
        response.body = wire.rest()
    assert response.status < 500 or response.status in (501, 505), f"a bug: {response}"
    if response.status >= 400 and (response.body or not head):
        _check_error(response)
    return response


def _check_error(response: Response) -> None:
    more = {key: value for key, value in json.loads(response.body).items() if key == "validation"}
    assert_error(response, response.status, **more)
    assert all(
        response.status == 400 and each.keys() == {"source", "keys"} for each in more.values()
    )


def check_carried_out(request: Asked) -> None:
    """Check that it is a request that decision 27 accepts."""
    assert _VERSION.fullmatch(request.version), f"version {request.version!r} was carried out"
    hosts = request.values(b"host")
    if request.version != b"HTTP/1.0":
        assert len(hosts) == 1, f"a request with {len(hosts)} Host fields was carried out"
        assert _HOST.fullmatch(hosts[0]), f"a request to Host {hosts[0]!r} was carried out"
    lengths, codings = request.values(b"content-length"), request.values(b"transfer-encoding")
    assert len(lengths) + len(codings) <= 1, "a request with two framings was carried out"
    assert all(coding.lower() == b"chunked" for coding in codings), f"{codings} was carried out"
    assert len(request.body) <= MAX_BODY_BYTES, "a body over the limit was carried out"
    assert len(request.fields) <= 100, f"{len(request.fields)} fields were carried out"
    assert len(request.target) <= 8 * 1024 + 300, "a target over the limit was carried out"
