"""What a request's head may be, where RFC 9112 and the limits are stricter than llhttp. Imports httptools and `api`.

Decisions 15, 16, 27 and 28.
"""

import re

import httptools

from storekeeper.api.exchange import Request
from storekeeper.api.reply import BODY_LIMIT, Reply, error_reply, too_large

TARGET_LIMIT = 8 * 1024
HEAD_LIMIT = 16 * 1024
FIELD_LIMIT = 100

FRAMING = (b"content-length", b"transfer-encoding")

_UNSPOKEN = re.compile(rb" HTTP/(?!1\.[01]|0\.9|2\.0)(\d)")
"""The first version that llhttp stops at. `check` sees the others."""

_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})+(?::\d*)?|\[[0-9A-Fa-f:.]+\](?::\d*)?")
_ABSOLUTE = re.compile(rb"https?://[^/?#]+", re.IGNORECASE)


def check(request: Request) -> Reply | None:
    """Give the refusal of a whole head, None if it is good. A target in absolute form becomes its origin form."""
    return _check_version(request) or _check_fields(request) or _check_target(request)


def check_size(request: Request) -> Reply | None:
    """Give the refusal of a head that is too large; only one that came in as many bytes need be asked."""
    size = sum(len(name) + len(value) + 4 for name, value in request.headers)
    return _too_many_headers() if size > HEAD_LIMIT else None


def check_unfinished(target: bytes, size: int, fields: int) -> Reply | None:
    """Return the refusal of a head that is not whole yet: of `size` bytes, with its target and fields so far."""
    if len(target) > TARGET_LIMIT:
        return _too_long()
    if fields > FIELD_LIMIT:
        return _too_many_headers()
    if size > TARGET_LIMIT + HEAD_LIMIT:
        return _too_many_headers() if fields or target else _too_long()
    return None


def waits_for_continue(request: Request) -> bool:
    """Tell whether the client sends the body only after a 100 (RFC 9110, section 10.1.1)."""
    for name, value in request.headers:
        if name == b"expect":
            return value.lower() == b"100-continue" and request.version == "1.1"
    return False


def names_method(method: bytes, data: bytes, error: httptools.HttpParserError | None) -> bool:
    """Tell whether a request line has this method and its blank, and no target yet.

    The parser found the method last, in this request or the one before. It stopped at the end of `data`, or with an
    error.
    """
    if error is not None:
        return isinstance(error, httptools.HttpParserInvalidURLError)
    return data.endswith(b" ") and data.rstrip(b" ").endswith(method)


def malformed(error: httptools.HttpParserError, data: bytes) -> Reply:
    """Give the refusal of what the parser stopped at, in `data`."""
    reason = str(error)
    if reason == "Content-Length overflow":
        return too_large()
    other = reason == "Invalid HTTP version" and (found := _UNSPOKEN.search(data)) and found[1] != b"1"
    if other or reason == "Pause on PRI/Upgrade":  # the latter is HTTP/2's preface
        return _unspoken()
    return _bad(f"Not valid HTTP/1.1: {error}")


def _check_version(request: Request) -> Reply | None:
    if request.version == "0.9":
        return _bad("Not valid HTTP/1.1: no version")
    return None if request.version in ("1.1", "1.0") else _unspoken()


def _check_fields(request: Request) -> Reply | None:
    if len(request.headers) > FIELD_LIMIT:
        return _too_many_headers()
    hosts = []
    for name, value in request.headers:
        if name == b"host":
            hosts.append(value)
        elif name in FRAMING and (refusal := _check_framing(request, name, value)):
            return refusal
    if request.version == "1.1" and not (len(hosts) == 1 and _HOST.fullmatch(hosts[0])):
        return _bad("The request needs one valid Host header")
    return None


def _check_framing(request: Request, name: bytes, value: bytes) -> Reply | None:
    if name == b"content-length":
        # llhttp holds that it is digits, once, and without a Transfer-Encoding.
        return too_large() if len(value.lstrip(b"0")) > 10 or int(value) > BODY_LIMIT else None
    if request.version == "1.0" or value.lower() != b"chunked":
        return _bad("The only Transfer-Encoding is chunked, and of HTTP/1.1")
    return None


def _check_target(request: Request) -> Reply | None:
    if len(request.target) > TARGET_LIMIT:
        return _too_long()
    if request.method == "CONNECT":
        return _bad("CONNECT is not served")
    if request.target[:1] != b"/" and (absolute := _ABSOLUTE.match(request.target)):
        request.target = request.target[absolute.end() :]
        if request.target[:1] != b"/":
            request.target = b"/" + request.target
    if request.target[:1] == b"/" and b"#" not in request.target:
        return None
    if request.target == b"*" and request.method == "OPTIONS":
        return None
    return _bad("The request target is not valid")


def _too_many_headers() -> Reply:
    return error_reply(431, f"More than {HEAD_LIMIT} bytes or {FIELD_LIMIT} fields of headers")


def _too_long() -> Reply:
    return error_reply(414, f"The request target is longer than {TARGET_LIMIT} bytes")


def _unspoken() -> Reply:
    return error_reply(505, "This service speaks HTTP/1.1")


def _bad(message: str) -> Reply:
    return error_reply(400, message)
