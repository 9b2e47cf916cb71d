"""Responses: their parts, the error body, and the one encoder of their heads.

The error body is the contract's, because every refusal of the HTTP layer has it too (decision 22).
"""

from asyncio import Future
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

Fields = Sequence[tuple[bytes, bytes]]
"""Header fields of a request: names in lower case."""

NO_CACHE = b"cache-control: no-cache\r\n"
JSON = b"content-type: application/json; charset=utf-8\r\n" + NO_CACHE
TEXT = b"content-type: text/plain; charset=utf-8\r\n" + NO_CACHE
"""Header fields of a response are lines as they are sent: names in lower case, a line end after
each."""

MAX_BODY_BYTES = 2**20
"""Bytes of a request's body (decision 15)."""

_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {
    # RFC 9110 renamed them; Python did so only in 3.13 (decision 21).
    413: "Content Too Large",
    414: "URI Too Long",
    422: "Unprocessable Content",
}


def phrase(status: int) -> str:
    """Return the reason phrase that RFC 9110 has for a status (decision 21)."""
    return _PHRASES.get(status, "Unknown")


class Response(msgspec.Struct):
    """A complete response, or with `stream` one whose body comes in parts and has no known
    length."""

    body: bytes
    headers: bytes = JSON
    status: int = 200
    stream: AsyncGenerator[bytes, None] | None = None
    stop: Callable[[], None] | None = None
    """Called when the service drains, and in any case when the exchange ends. A `stream` that
    waits ends then."""

    tag: bytes = b""
    """The entity tag with its quotes (RFC 9110, section 8.8.3); empty: there is none."""

    location: bytes = b""
    """The path of what the body is a representation of, if that is not the request's target
    (section 8.7)."""

    cacheable: bool = False
    """Whether the same bytes of a request get this response again while the database is the
    same."""


class StreamAborted(Exception):
    """A stream cannot be completed, for a reason that is not a bug; the code that raises this has
    logged it if need be."""


class Deferred(msgspec.Struct):
    """A response that comes later: `render` makes it of the result of `future`, if that has no
    error instead."""

    future: Future[Any]
    render: Callable[[Any], Response] = lambda response: response


# Errors.


class Validation(msgspec.Struct, frozen=True):
    """Which part of a request failed, and the names of the offending fields."""

    source: str
    keys: list[str]


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every error, as the contract has it; `cursor` is there for decision 40.

    `outcome` is "none" or "unknown": whether a refused request may have changed something
    (decision 30).
    """

    statusCode: int  # noqa: N815 - the contract's spelling
    error: str
    message: str
    validation: Validation | UnsetType = UNSET
    outcome: str | UnsetType = UNSET
    cursor: str | UnsetType = UNSET


def error_response(
    status: int,
    message: str,
    *,
    headers: bytes = b"",
    validation: Validation | UnsetType = UNSET,
    outcome: str | UnsetType = UNSET,
    cursor: str | UnsetType = UNSET,
) -> Response:
    """Return an error with the contract's body and headers."""
    body = msgspec.json.encode(
        ErrorBody(status, phrase(status), message, validation, outcome, cursor)
    )
    return Response(body, JSON + headers, status)


INTERNAL_ERROR = error_response(500, "An internal server error occurred")
"""The response to a bug, without details."""


def too_large(limit: int = MAX_BODY_BYTES) -> Response:
    """Return the response to a body over the limit (decision 15)."""
    return error_response(413, f"Payload content length greater than maximum allowed: {limit}")


def unavailable(message: str, outcome: str = "none") -> Response:
    """Return the response to a request that may succeed later (decision 30)."""
    return error_response(503, message, headers=b"retry-after: 1\r\n", outcome=outcome)


# The encoder. A head is a start (the status line and the fields of every response, renewed each
# second) and a rest.

_WITHOUT_CONTENT = (204, 304)
"""Statuses without content, and without a Content-Length (RFC 9110, section 6.4.1)."""

LAST_CHUNK = b"0\r\n\r\n"


def framed_headers(response: Response) -> bytes:
    """Return a response's fields with its Content-Length, which a stream has not."""
    fields = response.headers
    if response.tag:
        fields += b"etag: %b\r\n" % response.tag
    if response.location:
        fields += b"content-location: %b\r\n" % response.location
    if response.stream is None and response.status not in _WITHOUT_CONTENT:
        fields += b"content-length: %d\r\n" % len(response.body)
    return fields


_starts: dict[int, tuple[object, bytes]] = {}
"""The start of a response by its status, and the common fields that it was encoded from."""


def encode_start(status: int, common: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode the status line and the fields that every response has. A renewed `common` is
    always a new object."""
    start = _starts.get(status)
    if start is None or start[0] is not common:
        line = b"HTTP/1.1 %d %b\r\n" % (status, phrase(status).encode())
        start = _starts[status] = (
            common,
            line + b"".join([b"%b: %b\r\n" % field for field in common]),
        )
    return start[1]


def encode_rest(
    response: Response, fields: bytes, *, head_only: bool, close: bool, chunked: bool
) -> bytes:
    """Encode all that follows the start, but for a stream's body. `fields` are more fields,
    encoded."""
    rest = fields + framed_headers(response)
    if response.stream is not None and chunked:
        rest += b"transfer-encoding: chunked\r\n"
    rest += b"connection: close\r\n\r\n" if close else b"\r\n"
    return rest if head_only or not response.body else rest + response.body


def id_field(id: bytes) -> bytes:
    """Return the field with what the client called its request."""
    return b"x-request-id: %b\r\n" % id


def parse_fields(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Return the names and values of encoded fields."""
    return [
        (name, value)
        for name, _, value in (line.partition(b": ") for line in lines.split(b"\r\n")[:-1])
    ]


def encode_chunk(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Encode a chunk of a body whose length is not known."""
    return b"%x\r\n" % len(data), data, b"\r\n"
