"""THE CONTRACT: a request becomes a response, now or later. Imports `http` and the domain; knows no framework.

Where `docs/contract.md` has a sentence or a numbered decision, this module (with the rules in
`storekeeper.stores`) is the one place that carries it out.
"""

import json
import re
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NoReturn, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from storekeeper.api.errors import not_allowed, not_found, to_response
from storekeeper.api.gate import Scope
from storekeeper.collection import Collection, Listing, Pending, Query
from storekeeper.commands import Create, Replace
from storekeeper.errors import InvalidInput, StorekeeperError, Unavailable, Violation
from storekeeper.http.response import (
    JSON,
    TEXT,
    Deferred,
    Response,
    StreamAborted,
    error_response,
    internal_error,
)
from storekeeper.stores import Payload, Store, check_payload

T = TypeVar("T")

Route = Literal["test", "stores", "store", "server"]

ALLOWED: dict[Route, tuple[str, ...]] = {
    "server": ("GET", "HEAD", "POST", "PUT", "OPTIONS"),
    "test": ("GET", "HEAD", "OPTIONS"),
    "stores": ("GET", "HEAD", "POST", "OPTIONS"),
    "store": ("GET", "HEAD", "PUT", "OPTIONS"),
}
"""The methods of each route (decision 16); `server` is the target `*`, which only OPTIONS has."""

_STORES = b"/api/stores"
_STORE = b"/api/stores/"
_MAX_DIGITS = 19
_JSON_TYPE = re.compile(rb"application/(?:json|[!#$&^_.+a-z0-9-]+\+json)")
_UTF8 = (b"utf-8", b"utf8")

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Plan(msgspec.Struct, frozen=True):
    """What a request's head asks for.

    A pure function of the head, so that it may be cached with it: the client's identity, the time and the state of
    the database have no influence on it.
    """

    run: Callable[[bytes], Response | Deferred]
    """Carry out the request, given its complete body; raises StorekeeperError."""

    scope: Scope | None
    """The permission that the gate has to grant; None: no permission is needed."""

    cache_key: bytes | None
    """The key under which a 200 may be cached; None: never."""


@dataclass(frozen=True)
class Rules:
    """The choices of the operator where the contract leaves them open."""

    error_detail: Literal["detailed", "generic"] = "detailed"
    missing_store: Literal[404, 500] = 404
    unknown_keys: Literal["ignore", "reject"] = "ignore"


class Resource:
    """Carries out requests of the contract's routes on a collection, by the given rules."""

    def __init__(self, collection: Collection, rules: Rules) -> None:
        self._collection = collection
        self._generic = rules.error_detail == "generic"
        self._hide_missing = rules.missing_store == 500
        self._reject_unknown = rules.unknown_keys == "reject"
        self._created = partial(self._found, b"")

    def plan(self, method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Plan | None:
        """Return what a request's head asks for, or None if the target is none of the contract's routes.

        `target` is the request target in origin form, percent-encoded; header names are in lower case. A HEAD is
        planned as its GET, whose content the adapter leaves out.
        """
        route: Route | None = "store"
        query, id_text = b"", target[len(_STORE) :]
        if not (id_text.isdigit() and target.startswith(_STORE)):  # the most frequent targets need no more
            path, _, query = target.partition(b"?")
            route, id_text = _match_route(path)
        if route is None:
            return None
        if method in ("GET", "HEAD"):
            return self._plan_read(route, id_text, query, target if method == "GET" else None)
        if refusal := _check_method_and_type(route, method, headers):
            return Plan(partial(_constant, refusal), None, None)
        return Plan(self._create if route == "stores" else partial(self._replace, id_text), "write", None)

    def respond(self, plan: Plan, body: bytes) -> Response | Deferred:
        """Return the response to a planned request with this complete body."""
        try:
            return plan.run(body)
        except StorekeeperError as error:
            return self._fail(error)

    def _plan_read(self, route: Route, id_text: bytes, query: bytes, cache_key: bytes | None) -> Plan:
        if route == "store":
            return Plan(partial(self._get, id_text), "read", cache_key)
        if route == "stores":
            return Plan(partial(self._list, query), "read", cache_key)
        return Plan(partial(_constant, Response(b"OK", TEXT) if route == "test" else not_found()), None, cache_key)

    def _get(self, id_text: bytes, _body: bytes) -> Response | Deferred:
        id = _parse_id(id_text)
        if id is None:
            return self._missing(id_text)
        store = self._collection.get(id)
        if isinstance(store, Future):
            return self._deferred(store, partial(self._found, id_text))
        return self._found(id_text, store)

    def _list(self, query: bytes, _body: bytes) -> Response | Deferred:
        try:
            name = _parse_name(query)
        except UnicodeDecodeError:
            return Response(b"[]")  # no name equals bytes that are not UTF-8 (decision 19)
        listing = self._collection.list(Query(name))
        if isinstance(listing, Future):
            return self._deferred(listing, _list_response)
        return _list_response(listing)

    def _create(self, body: bytes) -> Deferred:
        return self._deferred(self._collection.write(Create(self._payload(body))), self._created)

    def _replace(self, id_text: bytes, body: bytes) -> Response | Deferred:
        payload = self._payload(body)  # checked before the id (decision 3)
        id = _parse_id(id_text)
        if id is None:
            return self._missing(id_text)
        return self._deferred(self._collection.write(Replace(id, payload)), partial(self._found, id_text))

    def _deferred(self, pending: Pending[T], render: Callable[[T], Response]) -> Deferred:
        def response() -> Response:
            try:
                return render(pending.result())
            except StorekeeperError as error:
                return self._fail(error)

        return Deferred(pending, response)

    def _payload(self, body: bytes) -> Payload:
        if not body:
            return check_payload(None)  # a missing body is not an object (decision 11)
        try:
            value = _parse_json(body)
        except (ValueError, RecursionError):
            # Not a violation of a field, so generic mode names it too (decision 12).
            raise _InvalidJson from None
        return check_payload(value, reject_unknown=self._reject_unknown)

    def _found(self, id_text: bytes, store: Store | None) -> Response:
        return self._missing(id_text) if store is None else _store_response(store)

    def _missing(self, id_text: bytes) -> Response:
        if self._hide_missing:
            return internal_error()
        return error_response(404, f"Store {id_text.decode(errors='replace')} not found")

    def _fail(self, error: StorekeeperError) -> Response:
        if isinstance(error, _InvalidJson):
            return error_response(400, "Invalid request payload JSON format")
        return to_response(error, generic=self._generic)


class _InvalidJson(StorekeeperError):
    """The body is not JSON text in UTF-8."""


def _constant(response: Response, _body: bytes) -> Response:
    return response


def _match_route(path: bytes) -> tuple[Route | None, bytes]:
    """Return the route of a path, or None, and the text of its id. The path is split before it is percent-decoded."""
    if b"%" in path:
        segments = [unquote_to_bytes(segment) for segment in path.split(b"/")]
        if segments[:3] == [b"", b"api", b"stores"] and len(segments) == 4 and segments[3]:
            return "store", segments[3]
        path = b"/".join(segments) if not any(b"/" in segment for segment in segments) else b""
    if path.startswith(_STORE):
        id_text = path[len(_STORE) :]
        return ("store", id_text) if id_text and b"/" not in id_text else (None, b"")
    if path == _STORES:
        return "stores", b""
    if path == b"/test":
        return "test", b""
    return ("server", b"") if path == b"*" else (None, b"")


def _parse_id(id_text: bytes) -> int | None:
    """Return the id that a text stands for; None if it is no number, or one that no store can have (decision 2)."""
    if not id_text.isdigit():  # of bytes: ASCII digits alone
        return None
    if len(id_text) > _MAX_DIGITS:
        id_text = id_text.lstrip(b"0") or b"0"
    return int(id_text) if len(id_text) <= _MAX_DIGITS else None


def _parse_name(query: bytes) -> str | None:
    """Return the name to filter by; None: all stores. Raises InvalidInput, UnicodeDecodeError (decisions 18, 19)."""
    if not query:
        return None
    names = []
    for field in query.split(b"&"):
        key, _, value = field.partition(b"=")
        if key == b"name" or unquote_to_bytes(key) == b"name":
            names.append(unquote_to_bytes(value.replace(b"+", b" ")))
    if len(names) > 1:
        raise InvalidInput("query", [Violation("name", '"name" must be a string')])
    return names[0].decode() or None if names else None


def _check_method_and_type(route: Route, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Response | None:
    allowed = ALLOWED[route]
    if method not in allowed or method == "OPTIONS":
        return not_allowed(method, allowed)
    has_type = has_origin = False
    for name, value in headers:
        if name == b"content-type":
            has_type = True
            if value != b"application/json" and not _is_json(value):
                return error_response(415, "Send the body as application/json")
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            return error_response(415, "Send the body without a Content-Encoding")
        elif name == b"origin":
            has_origin = True
    # A page of another site may send a body without a type, for which browsers make no preflight (decision 14).
    return error_response(415, "Send the body as application/json") if has_origin and not has_type else None


def _is_json(content_type: bytes) -> bool:
    """Tell whether a Content-Type is JSON in UTF-8 (decision 14, so that forms of other sites cannot write)."""
    kind, *parameters = content_type.lower().split(b";")
    for parameter in parameters:
        key, _, value = parameter.partition(b"=")
        if key.strip() == b"charset" and value.strip().strip(b'"') not in _UTF8:
            return False
    return _JSON_TYPE.fullmatch(kind.strip()) is not None


def _parse_json(body: bytes) -> object:
    """Decode JSON strictly; raises ValueError or RecursionError."""
    try:
        return _decode(body)
    except msgspec.ValidationError:
        # Valid JSON with a number that msgspec cannot represent, in a field that is ignored or is refused for
        # being a number. The standard library can; but it accepts lone surrogates, so encode the value again.
        value = json.loads(body.decode(), parse_int=lambda _: 0, parse_float=lambda _: 0, parse_constant=_no_constant)
        _encode(value)
        return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _store_response(store: Store) -> Response:
    return Response(b'{"id":%d,"name":%b,"address":%b}' % (store.id, _encode(store.name), _encode(store.address)))


def _list_response(listing: Listing) -> Response:
    if listing.rest is None:
        return Response(b"[%b]" % listing.first)
    return Response(b"", JSON, 200, _stream(listing.first, listing.rest))


async def _stream(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b"[" + first
    try:
        async for part in rest:
            yield part
    except Unavailable as error:  # the database went away in the middle of a list
        raise StreamAborted from error
    yield b"]"
