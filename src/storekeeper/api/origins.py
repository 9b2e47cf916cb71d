"""Requests from web pages: which are refused, and which pages may read the response (decision
43).

Everything here is a pure function of a request's head and the settings.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address

from storekeeper.api.routing import METHODS
from storekeeper.http.request import field
from storekeeper.http.response import NO_CACHE, Fields, Response, error_response

_PAGE_FIELDS = frozenset((b"origin", b"referer", b"sec-fetch-site", b"accept-language"))
"""Fields that browsers add; a page cannot leave all of them out."""

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_EXPOSED = (
    b"access-control-expose-headers:"
    b" etag, link, total-count, retry-after, content-location, idempotent-replayed,"
    b" www-authenticate\r\n"
)
_VARY = b"vary: origin\r\n"
_PREFLIGHT = (
    b"access-control-allow-methods: %b\r\n"
    b"access-control-allow-headers:"
    b" authorization, content-type, if-match, if-none-match, idempotency-key, last-event-id\r\n"
    b"access-control-max-age: 600\r\n" % ", ".join(METHODS).encode()
)
_HOST = re.compile(rb"(\[[^\]]*\]|[^:]*)(?::\d*)?")


class WebPages:
    """What the pages of the named `origins` may do, and what all other web pages may do.

    `hosts` are the names of this service; None means any name. DNS rebinding makes another site's
    name lead here, and its pages send that name as Host.
    """

    def __init__(self, origins: Iterable[str] = (), hosts: Iterable[str] | None = None) -> None:
        self._named = frozenset(origin.encode() for origin in origins)
        self._hosts: frozenset[bytes] | None = None
        if hosts is not None:
            self._hosts = frozenset(name.lower().encode() for name in hosts) | {b"localhost"}

    def fields(self, headers: Fields) -> bytes:
        """Return the CORS fields of the response to a request with these headers."""
        if not self._named:
            return b""
        origin = field(headers, b"origin")
        if origin is None or origin not in self._named:
            return _VARY
        return b"access-control-allow-origin: %b\r\n" % origin + _EXPOSED + _VARY

    def respond(self, method: str, headers: Fields) -> Response | None:
        """Return the refusal of a page's request, or the response to a preflight; None if the
        request may continue.

        Refuse a Host that is neither localhost, an address, nor one of the names, and an unsafe
        method, unless the page is ours or of a named origin.
        """
        if _PAGE_FIELDS.isdisjoint([name for name, _ in headers]):
            return None
        if not self._is_known(field(headers, b"host") or b""):
            return error_response(
                403, "Host is not a name of this service; add it with --allowed-host"
            )
        if method in _SAFE_METHODS:
            asked = field(headers, b"access-control-request-method")
            is_preflight = method == "OPTIONS" and asked is not None
            if is_preflight and field(headers, b"origin") in self._named:
                return Response(b"", NO_CACHE + _PREFLIGHT, 204)
            return None
        if self._is_welcome(headers):
            return None
        return error_response(
            403, "A page of another site cannot write here: --cors-origin names those that can"
        )

    def _is_welcome(self, headers: Fields) -> bool:
        origin = field(headers, b"origin")
        if origin in self._named:
            return True
        if site := field(headers, b"sec-fetch-site"):
            return site in (b"same-origin", b"none")
        host = field(headers, b"host")
        if origin is None:
            return True
        if host is None:
            return False
        # Compare the scheme too: the opaque origin `null` has no host, and must not equal an empty
        # Host.
        origins = (b"http://" + host.lower(), b"https://" + host.lower())
        return origin.lower() in origins

    def _is_known(self, host: bytes) -> bool:
        if self._hosts is None:
            return True
        found = _HOST.fullmatch(host)
        name = found[1].lower().rstrip(b".") if found else b""
        if name in self._hosts:
            return True
        try:
            ip_address(name.decode().removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True
