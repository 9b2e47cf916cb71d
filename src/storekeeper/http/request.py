"""A request, and the checks of its head where RFC 9112 and the limits are stricter than llhttp.

Decisions 15, 16, 27 and 28.
"""

import re
from typing import Any, NamedTuple, Protocol

import httptools
import msgspec

from storekeeper.http.deadlines import REQUEST_TIMEOUT
from storekeeper.http.response import MAX_BODY_BYTES, Fields, Response, error_response, too_large

MAX_TARGET_BYTES = 8 * 1024
MAX_HEAD_BYTES = 16 * 1024
MAX_FIELDS = 100
"""Of a request: bytes of its target; bytes and number of the fields of its head (decision 27)."""

FIELD_BYTES = 150
"""Bytes that Python takes for a header field, in addition to its own."""

SMALL_BODY_BYTES = MAX_TARGET_BYTES
"""Bytes up to which a body is read before the gate decides about its request."""

_MAX_METHOD_BYTES = 52
"""Bytes of a method: no known one is longer."""

_MAX_LINE_BYTES = MAX_TARGET_BYTES + _MAX_METHOD_BYTES + len("  HTTP/1.1\r\n")

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LINE = re.compile(_TOKEN + rb" +[^\x00-\x20\x7f]+ +HTTP/1\.\d\r\n")
_OTHER_PROTOCOL = re.compile(rb" (?:RTSP|ICE)/")
"""The other protocols that the parser accepts. No target has a blank, so no HTTP request
contains this."""
_OTHER_VERSION = re.compile(_TOKEN + rb"(?: [^\x00-\x1f\x7f]*)? HTTP/[02-9]\.\d\r\n")
_LINE_START = re.compile(_TOKEN + rb"(?: [^\x00-\x1f\x7f]*)?\r?")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_TOKENS = re.compile(_TOKEN + rb"(?:[ \t]*,[ \t]*" + _TOKEN + rb")*")

KEY = rb'(?P<quote>"?)([!#-\[\]-~]{1,255})(?P=quote)'
"""An Idempotency-Key (decision 36)."""

_END = rb"[ \t]*(?=\r\n|\Z)"
_ID = re.compile(
    rb"\r\n(?:(?i:x-request-id):[ \t]*([A-Za-z0-9._-]{1,128})"
    rb"|(?i:traceparent):[ \t]*[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2})" + _END
)
_KEY = re.compile(rb"\r\n(?i:idempotency-key):[ \t]*" + KEY + _END)

_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})+(?::\d*)?|\[[0-9A-Fa-f:.]+\](?::\d*)?")
_ABSOLUTE = re.compile(rb"https?://[^/?#@]+(?=[/?#]|\Z)", re.IGNORECASE)

TOO_MANY_HEADERS = error_response(
    431, f"More than {MAX_HEAD_BYTES} bytes or {MAX_FIELDS} fields of headers"
)
"""The refusal of a head, or of what is after or between the chunks of a body."""

_NO_SUCH_METHOD = error_response(501, "HTTP has no such method")
_TARGET_TOO_LONG = error_response(
    414, f"The request target is longer than {MAX_TARGET_BYTES} bytes"
)
_UNSUPPORTED_VERSION = error_response(505, "This service speaks HTTP/1.1")


class BodyLimit(NamedTuple):
    """How long the body of a request may be, and how many seconds the whole request, and each
    pause, may take."""

    max_bytes: int = MAX_BODY_BYTES
    timeout: float = REQUEST_TIMEOUT
    pause_timeout: float = REQUEST_TIMEOUT


class Upload(Protocol):
    """Takes a body that is too large for memory while it arrives."""

    def append(self, data: bytes, /) -> Response | None:
        """Append bytes; return the refusal of the request if they cannot be kept."""

    def release(self) -> None:
        """Give up what was taken for it: the request is refused, or has its response."""


class Request(msgspec.Struct, eq=False, gc=False):
    """A complete request. `target` is in origin form (or `*`) once it was checked; header names
    are in lower case.

    `size` is how many bytes of memory the request takes, with its body.
    """

    method: str
    target: bytes
    headers: Fields
    version: str
    keep_alive: bool
    body: bytes = b""
    head: Any = None
    """The `plain.Head` of a plain request: what its fields say, which is remembered."""

    plan: Any = None
    """The `api.plan.RequestPlan` of its head, once there is one. A stream that lasts asks
    `plan.admit()` again."""

    size: int = 0
    token_number: int = 0
    """The number of the client's token, 0 for none."""

    root: bytes = b""
    """The path below which the application is mounted; it goes in front of paths in responses."""

    is_proxied: bool = False
    """Whether it came from a proxy that is trusted to name the user."""

    user: str | None = None
    """The user whom that proxy named."""

    id: bytes = b""
    """What the client calls the request, in `x-request-id` or `traceparent`; the response has it
    too."""

    key: str = ""
    """Its Idempotency-Key without quotes, if it is valid; a head with a second one is
    refused."""

    cache_key: bytes = b""
    """All bytes of the request, if its plan decides whether the response may be cached."""

    upload: Upload | None = None
    """What has the body instead, if it is large."""

    @property
    def route(self) -> str | None:
        """The name of its route; None for an unknown path, and while there is no plan."""
        return self.plan.route if self.plan else None


class Refusal(msgspec.Struct):
    """The last response of a connection, and what was read of the request that it refuses."""

    response: Response
    method: str
    """Empty if not even that was read."""

    headers: Fields
    id: bytes


def refuse(request: Request, response: Response) -> Refusal:
    """Return the refusal of a request whose head was read."""
    return Refusal(response, request.method, request.headers, request.id)


def size_of(target: bytes, fields: Fields) -> int:
    """Return roughly how many bytes Python takes for a request with this target and these fields
    and no body."""
    return 400 + len(target) + sum([FIELD_BYTES + len(name) + len(value) for name, value in fields])


def cut_ids(lines: bytes) -> tuple[bytes, bytes]:
    """Return lines of fields, each after a line end, without the valid ids; and the first of
    these, or b""."""
    rest, *found = _ID.split(lines)
    if not found:
        return rest, b""
    return rest + b"".join(found[2::3]), found[0] or found[1]


def cut_keys(lines: bytes) -> tuple[bytes, list[bytes]]:
    """Return lines of fields without the valid Idempotency-Keys; and these, without quotes."""
    parts = _KEY.split(lines)
    return b"".join(parts[::3]), parts[2::3]


def identify(request: Request) -> None:
    """Set the id of a request from its fields, and its Idempotency-Key if it may write."""
    rest, request.id = cut_ids(_lines_of(request.headers))
    if request.method.startswith("P"):
        _, keys = cut_keys(rest)
        request.key = keys[0].decode() if keys else ""


def id_of(fields: Fields) -> bytes:
    """Return what a client calls a request with these fields, b"" if nothing."""
    return cut_ids(_lines_of(fields))[1]


def _lines_of(fields: Fields) -> bytes:
    return b"".join([b"\r\n%b:%b" % field for field in fields])


def field(headers: Fields, name: bytes) -> bytes | None:
    """Return the value of a field, None if it is absent; the values of several lines are joined
    with commas."""
    values = [value for written, value in headers if written == name]
    return b", ".join(values) if values else None


def check(request: Request) -> Response | None:
    """Return the refusal of a complete head, or None if it is valid. An absolute-form target
    becomes origin-form."""
    return _check_version(request) or _check_fields(request) or _check_target(request)


def check_line(line: bytes) -> Response | None:
    """Return the refusal of a request line, whole or not, if it is too long or of another
    protocol; otherwise None."""
    start = line[:_MAX_LINE_BYTES]  # so that the result does not depend on how much has arrived
    if _OTHER_PROTOCOL.search(start):
        return error_response(400, "Not valid HTTP/1.1: another protocol")
    if len(line) > len(start) and may_be_line(start):
        if len(start.partition(b" ")[0]) > _MAX_METHOD_BYTES:
            return _NO_SUCH_METHOD
        return _TARGET_TOO_LONG
    if _OTHER_VERSION.fullmatch(line):
        return _UNSUPPORTED_VERSION
    return None


def may_be_line(line: bytes) -> bool:
    """Return whether a request line may begin so."""
    return _LINE_START.fullmatch(line) is not None


def escape(line: bytes) -> bytes:
    """Escape the bytes of a request line that browsers' targets have and the parser does not
    take (decision 48)."""
    if line.isascii():
        return line
    return _NOT_ASCII.sub(lambda found: b"%%%02X" % found[0][0], line)


def is_host(value: bytes) -> bool:
    """Return whether a Host field is valid: a name or an address, and perhaps a port."""
    return _HOST.fullmatch(value) is not None


def exceeds(length: bytes, limit: int) -> bool:
    """Return whether a Content-Length, which has only digits, is over the limit of a body."""
    # `int` refuses thousands of digits, even of zeros.
    return len(length) > 20 or int(length) > limit


def malformed(error: httptools.HttpParserError, line: bytes) -> Response:
    """Return the refusal of the line in which the parser stopped with an error."""
    reason = str(error)
    if reason == "Content-Length overflow":
        return too_large()
    # The parser knows the methods of RTSP, and reports one in a line of HTTP as another error.
    unknown = isinstance(error, httptools.HttpParserInvalidMethodError) or reason.startswith(
        "Invalid method"
    )
    if unknown and _LINE.fullmatch(line):
        return _NO_SUCH_METHOD
    return error_response(400, f"Not valid HTTP/1.1: {error}")


def _check_version(request: Request) -> Response | None:
    if request.version == "0.9":
        return error_response(400, "Not valid HTTP/1.1: no version")
    return None if request.version in ("1.1", "1.0") else _UNSUPPORTED_VERSION


def _check_fields(request: Request) -> Response | None:
    hosts = []
    for name, value in request.headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding" and (refusal := _check_coding(request, value)):
            return refusal
    if request.version == "1.1" and not (len(hosts) == 1 and is_host(hosts[0])):
        return error_response(400, "The request needs one valid Host header")
    return None


def _check_coding(request: Request, value: bytes) -> Response | None:
    codings = [coding.strip() for coding in value.lower().split(b",")]
    if codings == [b"chunked"] and request.version == "1.1":
        return None
    if request.version == "1.1" and b"chunked" not in codings[:-1] and _TOKENS.fullmatch(value):
        return error_response(501, "The only Transfer-Encoding is chunked")
    return error_response(400, "The only Transfer-Encoding is chunked, once, and of HTTP/1.1")


def _check_target(request: Request) -> Response | None:
    if len(request.target) > MAX_TARGET_BYTES:
        return _TARGET_TOO_LONG
    if request.method == "CONNECT":
        return error_response(400, "CONNECT is not served")
    if request.target[:1] != b"/" and (absolute := _ABSOLUTE.match(request.target)):
        request.target = request.target[absolute.end() :]
        if request.target[:1] != b"/":
            request.target = b"/" + request.target
    if request.target[:1] == b"/" and b"#" not in request.target:
        return None
    if request.target == b"*" and request.method == "OPTIONS":
        return None
    return error_response(400, "The request target is not valid")
