"""The one table of all routes: paths, methods, who needs a token, limits of bodies."""

from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec

from storekeeper.http.request import BodyLimit

Scope = Literal["read", "write"]
"""The permission that a request needs; None stands for a request that needs none."""

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH")
"""All methods that a route has; OPTIONS goes with every path. `http.plain` reads no others."""

_READ = ("GET", "HEAD", "OPTIONS")


class Route(msgspec.Struct, frozen=True, eq=False):
    """A route. Braces at the end of a path stand for one segment, which is not empty."""

    name: str
    path: str
    methods: tuple[str, ...]
    """Empty: every method is planned by the route itself."""

    is_open: bool = False
    """Whether it needs no token, and ignores one (decision 44)."""

    body: BodyLimit = BodyLimit()

    def scope(self, method: str) -> Scope | None:
        """Return the permission that a request needs, whether the route has that method or not."""
        if self.is_open or method == "OPTIONS":
            return None
        return "read" if method in _READ else "write"


ROUTES = (
    Route("stores", "/api/stores", ("GET", "HEAD", "POST", "OPTIONS")),
    Route("store", "/api/stores/{id}", ("GET", "HEAD", "PUT", "PATCH", "OPTIONS")),
    Route("keys", "/api/keys", _READ),
    Route("export", "/api/export", _READ),
    Route("changes", "/api/changes", _READ),
    Route("stream", "/api/changes/stream", _READ),
    Route("imports", "/api/imports", ("POST", "OPTIONS"), body=BodyLimit(64 * 2**20, 120.0, 10.0)),
    Route("undo", "/api/imports/undo", ("POST", "OPTIONS")),
    Route("me", "/api/me", _READ),
    Route("test", "/test", _READ, is_open=True),
    Route("live", "/health/live", _READ, is_open=True),
    Route("ready", "/health/ready", _READ, is_open=True),
    Route("metrics", "/metrics", _READ),
    Route("openapi", "/openapi.json", _READ, is_open=True),
    Route("docs", "/docs", _READ, is_open=True),
    Route("docs file", "/docs/{name}", _READ, is_open=True),
    Route("console", "/console/", _READ, is_open=True),
    Route("console file", "/console/{name}", _READ, is_open=True),
    Route("bare console", "/console", _READ, is_open=True),
    Route("root", "/", (), is_open=True),
    Route("server", "*", (), is_open=True),
)
"""One method of a route writes, or PATCH too: the hash of a request with a key has the route, and
only for a PATCH the method."""

_MAX_DIGITS = 19
_BY_PATH = {route.path.encode(): route for route in ROUTES}
_BY_FOLDER = {
    path.rpartition(b"/")[0]: route for path, route in _BY_PATH.items() if path.endswith(b"}")
}


def match_route(path: bytes) -> Route | None:
    """Return the route of a path, or None. The path is split before it is percent-decoded."""
    folder, _, name = path.rpartition(b"/")
    route = (_BY_FOLDER.get(folder) if name else None) or _BY_PATH.get(path)
    if route is None and b"%" in path:
        folders = [unquote_to_bytes(segment) for segment in folder.split(b"/")]
        folder, name = b"/".join(folders), unquote_to_bytes(name)
        if any(b"/" in segment for segment in folders):
            return None
        path = b"" if b"/" in name else folder + b"/" + name
        route = (_BY_FOLDER.get(folder) if name else None) or _BY_PATH.get(path)
    return route


def last_segment(path: bytes) -> bytes:
    """Return the last segment of a path, percent-decoded: the braces of its route."""
    segment = path.rpartition(b"/")[2]
    if segment.isalnum():
        return segment
    return unquote_to_bytes(segment)


def parse_id(id_text: bytes) -> int:
    """Return the id in a text; 0, which no store has, if no store can have it (decision 2)."""
    if not id_text.isdigit():  # of bytes: only ASCII digits
        return 0
    if len(id_text) > _MAX_DIGITS and len(id_text := id_text.lstrip(b"0")) > _MAX_DIGITS:
        return 0
    return int(id_text or b"0")
