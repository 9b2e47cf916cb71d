"""What a client does, as steps without any I/O: `sync` and `aio` carry them out.

A function here is a generator. It yields a `Request`, and gets the `Reply`, or `Lost`; it yields a
`Pause`, and continues after it.
"""

import json
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode
from uuid import uuid4

from storekeeper.client.errors import (
    ClientError,
    Conflict,
    EpochEnded,
    KeyReused,
    NoAccess,
    NotFound,
    Refused,
    RowsRefused,
    Unavailable,
)
from storekeeper.client.model import ChangesPage, Listing, Store, changes_of, store_of

T = TypeVar("T")

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds before each further attempt; the last of them before all later ones."""

PAGE = 1000
"""Stores and changes of a page, the most that the service sends."""

STORES = "/api/stores"
CHANGES = "/api/changes"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send."""

    method: str
    target: str
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response; the names of its `fields` are in lower case."""

    status: int
    fields: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """There was no complete response; `reason` says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds."""

    seconds: float


Steps: TypeAlias = Generator[Request | Pause, Reply | Lost | None, T]


class Keep:
    """Stands for a field that a patch leaves as it is."""


KEEP = Keep()
"""The value of a field that `patch` leaves as it is."""


def send(request: Request, patience: float) -> Steps[Reply]:
    """Send a request, and again while no response says what became of it, for `patience` seconds.

    A write has a key, so that it is not done twice. Raises Refused, Unavailable.
    """
    until = time.monotonic() + patience
    attempt = 0
    while True:
        reply = yield request
        if isinstance(reply, Reply) and is_final(reply):
            if reply.status >= 400:
                raise refusal(reply)
            return reply
        if time.monotonic() >= until:
            reason = reply.reason if isinstance(reply, Lost) else _message(reply)
            raise Unavailable(reason, request.fields.get("idempotency-key"))
        yield Pause(PAUSES[min(attempt, len(PAUSES) - 1)])
        attempt += 1


def is_final(reply: Reply) -> bool:
    """Return whether a response says what happened; a page of a proxy does not."""
    if reply.status in (502, 503, 504):
        return False
    return reply.status >= 400 or reply.fields.get("content-type", "").startswith(
        "application/json"
    )


def refusal(reply: Reply) -> ClientError:
    """Return the error that a response stands for."""
    message, status = _message(reply), reply.status
    body = _decoded(reply)
    match status:
        case 401 | 403:
            return NoAccess(message, status)
        case 404:
            return NotFound(message, status)
        case 410:
            return EpochEnded(message, str(body.get("cursor", "")))
        case 412:
            return Conflict(message, tag_of(reply))
        case 422 if "problems" in body:
            return RowsRefused(message, body)
        case 422:
            return KeyReused(message, status)
    keys = body.get("validation", {}).get("keys", ())
    return Refused(message, status, keys)


def tag_of(reply: Reply) -> str:
    """Return the entity tag of a response as the service sent it: a proxy may have marked it."""
    tag = reply.fields.get("etag", "").removeprefix("W/")
    for mark in ("-gzip", "-br", "-zstd", "-deflate", ";gzip"):
        tag = tag.replace(f'{mark}"', '"')
    return tag


def cursor_of(tag: str) -> str:
    """Return the cursor of an entity tag."""
    return tag.strip('"')


def list_stores(name: str | None, at: str | None, patience: float) -> Steps[Listing]:
    """Read the whole list, or the stores of one name, page by page, as of one moment."""
    query: dict[str, str] = {"limit": str(PAGE)}
    cursor = at
    if name is not None:
        query["name"] = name
    elif cursor is None:
        now = yield from changes("now", 1, None, patience)
        cursor = now.next
    if cursor is not None:
        query["at"] = cursor
    stores: list[Store] = []
    target = f"{STORES}?{urlencode(query)}"
    while target:
        page = yield from send(Request("GET", target), patience)
        # Pages of one name are not as of one moment: continue from the first, which misses none.
        cursor = cursor or cursor_of(tag_of(page))
        stores += [store_of(store) for store in json.loads(page.body)]
        target = _next(page)
    return Listing(tuple(stores), cursor or "")


def search(words: str, limit: int, patience: float) -> Steps[list[Store]]:
    """Find the stores that have all these words."""
    query = urlencode({"q": words, "limit": limit})
    page = yield from send(Request("GET", f"{STORES}?{query}"), patience)
    return [store_of(store) for store in json.loads(page.body)]


def get(id: int, at: str | None, patience: float) -> Steps[Store]:
    """Read one store."""
    query = "" if at is None else f"?{urlencode({'at': at})}"
    reply = yield from send(Request("GET", f"{STORES}/{id}{query}"), patience)
    return store_of(json.loads(reply.body), tag_of(reply))


def create(
    name: str, address: str | None, tag: str | None, key: str | None, patience: float
) -> Steps[Store]:
    """Add a store, once."""
    content = _content(name, address)
    return (yield from _write("POST", STORES, content, tag, key, patience))


def replace(
    id: int, name: str, address: str | None, tag: str | None, key: str | None, patience: float
) -> Steps[Store]:
    """Replace both fields of a store."""
    content = _content(name, address)
    return (yield from _write("PUT", f"{STORES}/{id}", content, tag, key, patience))


def patch(
    id: int,
    name: str | Keep,
    address: str | Keep | None,
    tag: str | None,
    key: str | None,
    patience: float,
) -> Steps[Store]:
    """Change those fields of a store that are given."""
    sent = {"name": name, "address": address}
    content = {field: value for field, value in sent.items() if not isinstance(value, Keep)}
    return (yield from _write("PATCH", f"{STORES}/{id}", content, tag, key, patience))


def edit(id: int, change: Callable[[Store], Store], patience: float) -> Steps[Store]:
    """Apply a change to a store, and again whenever another client saved first."""
    while True:
        store = yield from get(id, None, patience)
        wanted = change(store)
        if (wanted.name, wanted.address) == (store.name, store.address):
            return store
        try:
            # Each attempt has its key, and is repeated with it before the store is read again.
            return (yield from replace(id, wanted.name, wanted.address, store.tag, None, patience))
        except Conflict:
            continue


def changes(
    after: str | None, limit: int, store: int | None, patience: float, *, latest: bool = False
) -> Steps[ChangesPage]:
    """Read a page of changes: of one store, or of all; the latest ones first if asked for."""
    query: dict[str, str] = {"limit": str(limit)}
    if after is not None:
        query["after"] = after
    if store is not None:
        query["store"] = str(store)
    if latest:
        query["order"] = "desc"
    page = yield from send(Request("GET", f"{CHANGES}?{urlencode(query)}"), patience)
    return changes_of(page.body)


def import_file(
    content: bytes, media_type: str, query: Mapping[str, str], key: str | None, patience: float
) -> Steps[dict[str, Any]]:
    """Import a spreadsheet, or say what would happen; return its report."""
    fields = {"content-type": media_type}
    if "dry-run" not in query:
        fields["idempotency-key"] = key or new_key()
    target = f"/api/imports?{urlencode(query, quote_via=quote)}"
    reply = yield from send(Request("POST", target, fields, content), patience)
    report: dict[str, Any] = json.loads(reply.body)
    return report


def new_key() -> str:
    """Return a key that no other request has."""
    return str(uuid4())


def _write(
    method: str,
    target: str,
    content: Mapping[str, object],
    tag: str | None,
    key: str | None,
    patience: float,
) -> Steps[Store]:
    fields = {"content-type": "application/json", "idempotency-key": key or new_key()}
    if tag:
        fields["if-match"] = tag
    body = json.dumps(content, ensure_ascii=False).encode()
    reply = yield from send(Request(method, target, fields, body), patience)
    return store_of(json.loads(reply.body), tag_of(reply))


def _content(name: str, address: str | None) -> dict[str, str]:
    return {"name": name} if address is None else {"name": name, "address": address}


def _next(page: Reply) -> str:
    """Return the target of the next page, "" if there is none."""
    link = page.fields.get("link", "")
    if 'rel="next"' not in link:
        return ""
    # A service below a prefix puts that in front; so does the client, for every request.
    return "/api/" + link.partition("<")[2].partition(">")[0].partition("/api/")[2]


def _decoded(reply: Reply) -> dict[str, Any]:
    try:
        body = json.loads(reply.body)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _message(reply: Reply | None) -> str:
    if reply is None:
        return ""
    return str(_decoded(reply).get("message") or f"the response has the status {reply.status}")
