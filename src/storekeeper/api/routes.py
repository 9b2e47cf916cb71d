"""The contract's routes: paths, methods, who needs a token, and the id in a path. Imports nothing of the project."""

from typing import Literal, NamedTuple
from urllib.parse import unquote_to_bytes

Route = Literal["test", "stores", "store", "server"]

Scope = Literal["read", "write"]
"""The permission that a request needs; None stands for a request that needs none."""

METHODS = ("GET", "HEAD", "POST", "PUT")
"""All methods of the contract; OPTIONS goes with every path. `http.plain` reads no others the short way."""


class Rule(NamedTuple):
    """The path and the methods of a route (decision 16); `is_open`: nobody needs a token for it (decision 44)."""

    path: str
    methods: tuple[str, ...]
    is_open: bool = False


ROUTES: dict[Route, Rule] = {
    "server": Rule("*", (*METHODS, "OPTIONS"), is_open=True),
    "test": Rule("/test", ("GET", "HEAD", "OPTIONS"), is_open=True),
    "stores": Rule("/api/stores", ("GET", "HEAD", "POST", "OPTIONS")),
    "store": Rule("/api/stores/{id}", ("GET", "HEAD", "PUT", "OPTIONS")),
}
"""All routes; `server` is the target `*`, which only OPTIONS has. One method of a route writes, at most: the number
of a request with an Idempotency-Key tells the route and not the method."""

STORES = b"/api/stores"
STORE = b"/api/stores/"
SHAPES = frozenset(
    f"{method} {rule.path.removesuffix('{id}')}".encode()
    for rule in (ROUTES["stores"], ROUTES["store"])
    for method in rule.methods
    if method in METHODS
)
"""The most frequent methods and paths, without the digits behind the last slash."""

_MAX_DIGITS = 19
_BY_PATH = {rule.path.encode(): route for route, rule in ROUTES.items()}


def scope_of(route: Route, method: str) -> Scope | None:
    """Return the permission that a request needs, whether its route has that method or not."""
    if ROUTES[route].is_open or method == "OPTIONS":
        return None
    return "read" if method in ("GET", "HEAD") else "write"


def match_route(path: bytes) -> tuple[Route | None, bytes]:
    """Return the route of a path, or None, and the text of its id. The path is split before it is percent-decoded."""
    if b"%" in path:
        segments = [unquote_to_bytes(segment) for segment in path.split(b"/")]
        if segments[:3] == [b"", b"api", b"stores"] and len(segments) == 4 and segments[3]:
            return "store", segments[3]
        path = b"/".join(segments) if not any(b"/" in segment for segment in segments) else b""
    if path.startswith(STORE):
        id_text = path[len(STORE) :]
        return ("store", id_text) if id_text and b"/" not in id_text else (None, b"")
    return _BY_PATH.get(path), b""


def id_in(target: bytes) -> bytes:
    """Return the text of the id in a target of the route `store`."""
    text = target[len(STORE) :]
    return text if text.isdigit() else match_route(target.partition(b"?")[0])[1]


def parse_id(id_text: bytes) -> int | None:
    """Return the id that a text stands for; None if it is no number, or one that no store can have (decision 2)."""
    if not id_text.isdigit():  # of bytes: ASCII digits alone
        return None
    if len(id_text) > _MAX_DIGITS and len(id_text := id_text.lstrip(b"0") or b"0") > _MAX_DIGITS:
        return None
    return int(id_text)
