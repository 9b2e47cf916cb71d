"""A request, and the checks of its head where RFC 9112 and the limits are stricter than llhttp. Imports httptools.

Decisions 15, 16, 27 and 28.
"""

import re
from typing import Any

import httptools

from storekeeper.http.response import MAX_BODY_BYTES, Response, error_response, too_large

MAX_TARGET_BYTES = 8 * 1024
MAX_HEAD_BYTES = 16 * 1024
MAX_FIELDS = 100

FIELD_BYTES = 150
"""Bytes that Python takes for a header field, in addition to its own."""

FRAMING = (b"content-length", b"transfer-encoding")

_UNSUPPORTED_VERSION = re.compile(rb" HTTP/(?!1\.[01]|0\.9|2\.0)(\d)")
"""A version at which llhttp stops. `check` refuses the others."""

_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})+(?::\d*)?|\[[0-9A-Fa-f:.]+\](?::\d*)?")
_ABSOLUTE = re.compile(rb"https?://[^/?#]+", re.IGNORECASE)


class Request:
    """A complete request. `target` is in origin form (or `*`) once it was checked; header names are in lower case.

    `size` is what Python takes for it without its body, in bytes, roughly. `plan` is what the application planned
    for its head, once it has; `charged` is what it costs in the receive budget while it waits, in bytes.
    """

    __slots__ = ("_size", "body", "charged", "headers", "keep_alive", "method", "plan", "target", "version")

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        version: str,
        *,
        keep_alive: bool,
        body: bytes = b"",
        plan: Any = None,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.version = version
        self.keep_alive = keep_alive
        self.body = body
        self.plan = plan
        self.charged = 0
        self._size = 0

    @property
    def size(self) -> int:
        """Return roughly how many bytes Python takes for the request without its body."""
        if not self._size:
            fields = sum([FIELD_BYTES + len(name) + len(value) for name, value in self.headers])
            self._size = 400 + len(self.target) + fields
        return self._size

    def with_body(self, body: bytes) -> "Request":
        """Return the same request with another body."""
        other = Request(
            self.method,
            self.target,
            self.headers,
            self.version,
            keep_alive=self.keep_alive,
            body=body,
            plan=self.plan,
        )
        other._size = self._size
        return other


def check(request: Request) -> Response | None:
    """Return the refusal of a complete head, or None if it is valid. An absolute-form target becomes origin-form."""
    return _check_version(request) or _check_fields(request) or _check_target(request)


def check_size(request: Request) -> Response | None:
    """Return the refusal of a head that is too large, or None. One that came in fewer bytes needs no check."""
    size = sum(len(name) + len(value) + 4 for name, value in request.headers)
    return _too_many_headers() if size > MAX_HEAD_BYTES else None


def check_unfinished(target: bytes, size: int, fields: int) -> Response | None:
    """Return the refusal of an incomplete head, or None: `size` bytes, its target and number of fields so far."""
    if len(target) > MAX_TARGET_BYTES:
        return _target_too_long()
    if fields > MAX_FIELDS:
        return _too_many_headers()
    if size > MAX_TARGET_BYTES + MAX_HEAD_BYTES:
        return _too_many_headers() if fields or target else _target_too_long()
    return None


def is_host(value: bytes) -> bool:
    """Tell whether a Host field is valid: a name or an address, and perhaps a port."""
    return _HOST.fullmatch(value) is not None


def expects_continue(request: Request) -> bool:
    """Tell whether the client sends the body only after a 100 (RFC 9110, section 10.1.1)."""
    for name, value in request.headers:
        if name == b"expect":
            return value.lower() == b"100-continue" and request.version == "1.1"
    return False


def names_method(method: bytes, data: bytes, error: httptools.HttpParserError | None) -> bool:
    """Tell whether a request line consists of this method and a blank, and has no target yet.

    The parser found the method last, in this request or in the previous one. It stopped at the end of `data`, or with
    an error.
    """
    if error is not None:
        return isinstance(error, httptools.HttpParserInvalidURLError)
    return data.endswith(b" ") and data.rstrip(b" ").endswith(method)


def malformed(error: httptools.HttpParserError, data: bytes) -> Response:
    """Return the refusal of `data`, in which the parser stopped with an error."""
    reason = str(error)
    if reason == "Content-Length overflow":
        return too_large()
    other = reason == "Invalid HTTP version" and (found := _UNSUPPORTED_VERSION.search(data)) and found[1] != b"1"
    if other or reason == "Pause on PRI/Upgrade":  # the latter is HTTP/2's preface
        return _unsupported_version()
    return _bad_request(f"Not valid HTTP/1.1: {error}")


def _check_version(request: Request) -> Response | None:
    if request.version == "0.9":
        return _bad_request("Not valid HTTP/1.1: no version")
    return None if request.version in ("1.1", "1.0") else _unsupported_version()


def _check_fields(request: Request) -> Response | None:
    if len(request.headers) > MAX_FIELDS:
        return _too_many_headers()
    hosts = []
    for name, value in request.headers:
        if name == b"host":
            hosts.append(value)
        elif name in FRAMING and (refusal := _check_framing(request, name, value)):
            return refusal
    if request.version == "1.1" and not (len(hosts) == 1 and is_host(hosts[0])):
        return _bad_request("The request needs one valid Host header")
    return None


def _check_framing(request: Request, name: bytes, value: bytes) -> Response | None:
    if name == b"content-length":
        # llhttp ensures that it is digits, that there is one, and that there is no Transfer-Encoding.
        return too_large() if len(value.lstrip(b"0")) > 10 or int(value) > MAX_BODY_BYTES else None
    if request.version == "1.0" or value.lower() != b"chunked":
        return _bad_request("The only Transfer-Encoding is chunked, and of HTTP/1.1")
    return None


def _check_target(request: Request) -> Response | None:
    if len(request.target) > MAX_TARGET_BYTES:
        return _target_too_long()
    if request.method == "CONNECT":
        return _bad_request("CONNECT is not served")
    if request.target[:1] != b"/" and (absolute := _ABSOLUTE.match(request.target)):
        request.target = request.target[absolute.end() :]
        if request.target[:1] != b"/":
            request.target = b"/" + request.target
    if request.target[:1] == b"/" and b"#" not in request.target:
        return None
    if request.target == b"*" and request.method == "OPTIONS":
        return None
    return _bad_request("The request target is not valid")


def _too_many_headers() -> Response:
    return error_response(431, f"More than {MAX_HEAD_BYTES} bytes or {MAX_FIELDS} fields of headers")


def _target_too_long() -> Response:
    return error_response(414, f"The request target is longer than {MAX_TARGET_BYTES} bytes")


def _unsupported_version() -> Response:
    return error_response(505, "This service speaks HTTP/1.1")


def _bad_request(message: str) -> Response:
    return error_response(400, message)
