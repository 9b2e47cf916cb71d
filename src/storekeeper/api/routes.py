"""The contract's routes: their paths, their methods, and the id in a path. Imports nothing of the project."""

from typing import Literal
from urllib.parse import unquote_to_bytes

Route = Literal["test", "stores", "store", "server"]

METHODS = ("GET", "HEAD", "POST", "PUT")
"""All methods of the contract; OPTIONS goes with every path. `http.plain` reads no others the short way."""

ALLOWED: dict[Route, tuple[str, ...]] = {
    "server": (*METHODS, "OPTIONS"),
    "test": ("GET", "HEAD", "OPTIONS"),
    "stores": ("GET", "HEAD", "POST", "OPTIONS"),
    "store": ("GET", "HEAD", "PUT", "OPTIONS"),
}
"""The methods of each route (decision 16); `server` is the target `*`, which only OPTIONS has. One method of a route
writes, at most: the hash of a request with an Idempotency-Key has the route and not the method."""

STORES = b"/api/stores"
STORE = b"/api/stores/"
SHAPES = frozenset(
    f"{method} /api/stores{end}".encode()
    for end, methods in (("", ALLOWED["stores"]), ("/", ALLOWED["store"]))
    for method in methods
    if method in METHODS
)
"""The most frequent methods and paths, without the digits behind the last slash."""

_MAX_DIGITS = 19


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
    if path == STORES:
        return "stores", b""
    if path == b"/test":
        return "test", b""
    return ("server", b"") if path == b"*" else (None, b"")


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
