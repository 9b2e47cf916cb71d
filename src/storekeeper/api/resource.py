"""THE CONTRACT: a request becomes a response, now or later. Imports `http` and the domain; knows no framework.

Where `docs/contract.md` has a sentence or a numbered decision, this module (with the rules in
`storekeeper.stores`) is the one place that carries it out.
"""

import json
from asyncio import Future, ensure_future
from collections.abc import AsyncIterator, Callable, Container
from functools import partial
from typing import Any, NoReturn, TypeVar

import msgspec

from storekeeper.api.conditions import Conditions, check_method_and_type, parse_key, read_conditions, read_tags
from storekeeper.api.errors import to_response
from storekeeper.api.plan import Plan, constant
from storekeeper.api.query import next_page, parse_list_query, parse_store_query
from storekeeper.api.routes import STORES, Route, Scope, id_in, match_route, parse_id, scope_of
from storekeeper.collection import Collection, Listing, Query, State
from storekeeper.commands import Create, Replace, matches, tag
from storekeeper.errors import InvalidInput, StorekeeperError, Unavailable
from storekeeper.http.request import field
from storekeeper.http.response import (
    INTERNAL_ERROR,
    JSON,
    NO_CONTENT,
    TEXT,
    Deferred,
    Fields,
    Headers,
    Response,
    StreamAborted,
    error_response,
)
from storekeeper.settings import Settings
from storekeeper.stores import Payload, Replay, Store, check_payload

T = TypeVar("T")

_REPLAYED = (*JSON, (b"idempotent-replayed", b"true"))

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Resource:
    """Carries out requests of the contract's routes on a collection, by the settings where the contract is open."""

    def __init__(self, collection: Collection, settings: Settings) -> None:
        self._collection = collection
        self._cacheable = collection.has_change_token
        self._generic = settings.error_detail == "generic"
        self._hide_missing = settings.missing_store == "500"
        self._reject_unknown = settings.unknown_keys == "reject"
        # Reads with an entity tag, of which the 200s are cached, whoever asks; and writes with a key.
        self._reads = {"stores": self._list, "store": self._get}
        self._writes = {"stores": self._create, "store": self._replace}
        self._created = partial(self._written, b"")
        self._state = State(0, 0, "")  # of the latest list that a client asked for with tags
        self._tag, self._unchanged = "", _unchanged("")

    def plan(self, method: str, target: bytes, headers: Fields) -> Plan | None:
        """Return what a request's head asks for, or None if the target is none of the contract's routes.

        `target` is the request target in origin form, percent-encoded; header names are in lower case. A HEAD is
        planned as its GET, whose content the adapter leaves out.
        """
        route, _ = match_route(target.partition(b"?")[0])
        if route is None or (route == "server" and method != "OPTIONS"):
            return None
        scope = scope_of(route, method)
        if method in ("GET", "HEAD"):
            return self._plan_read(route, scope, headers, cached=method == "GET" and self._cacheable)
        checked = check_method_and_type(route, method, headers)
        if isinstance(checked, Response):
            return constant(checked, scope)
        return self._plan_write(route, scope, checked)

    def respond(
        self, plan: Plan, target: bytes, body: bytes, by: int = 0, condition: Any = None
    ) -> Response | Deferred:
        """Return the response to a planned request; `by` is the number of the client's token, 0 for none.

        A `condition`, as `plan.parse` returns it, replaces the plan's. This raises no error: a bug in one response
        must not end the connection's others.
        """
        try:
            return plan.run(plan.condition if condition is None else condition, target, body, by)
        except Exception as error:  # noqa: BLE001 - every bug is logged and is a 500
            return self._error_response(error)

    def _plan_read(self, route: Route, scope: Scope | None, headers: Fields, *, cached: bool) -> Plan:
        if route == "test":
            return constant(Response(b"OK", TEXT), scope, cached)
        sent = field(headers, b"if-none-match")
        # A malformed field counts as absent, so that a poller goes on (decision 33).
        tags = None if sent is None else read_tags(sent)
        return Plan(self._reads[route], scope, cached and tags is None, condition=tags, parse=read_tags)

    def _plan_write(self, route: Route, scope: Scope | None, fields: Fields) -> Plan:
        """Return the plan of a write with these conditional fields."""
        write = self._writes[route]
        try:
            conditions, key = read_conditions(route, fields)
        except InvalidInput as error:
            return constant(self._error_response(error), scope)
        return Plan(partial(write, conditions), scope, False, condition=key, parse=parse_key)

    def _get(self, tags: Container[str] | None, target: bytes, _body: bytes, _by: int) -> Response | Deferred:
        id_text, at = id_in(target), parse_store_query(target.partition(b"?")[2]) if b"?" in target else None
        id = parse_id(id_text)
        if id is None and at is None:
            return self._missing(id_text)
        # No store has the id 0; but whether the moment is good comes before that (decision 31).
        store = self._collection.get(id or 0) if at is None else self._collection.get_at(id or 0, at)
        if type(store) is Store and tags is None:
            return _store_response(store)
        if isinstance(store, Future):
            return self._deferred(store, partial(self._found, id_text, tags))
        return self._found(id_text, tags, store)

    def _list(self, tags: Container[str] | None, target: bytes, _body: bytes, _by: int) -> Response | Deferred:
        query = target.partition(b"?")[2]
        wanted = parse_list_query(query)
        if tags is not None and wanted.at is None:
            # The tag of every list is that of the collection, so its numbers are enough to compare.
            state = self._collection.state()
            if isinstance(state, Future):
                return self._deferred(ensure_future(self._list_later(query, wanted, tags, state)), lambda done: done)
            if state is not self._state:
                self._state, self._tag = state, tag(state.version, state.epoch)
                self._unchanged = _unchanged(self._tag)
            if matches(tags, self._tag):
                return self._unchanged
        listing = self._collection.list(wanted)
        if isinstance(listing, Future):
            return self._deferred(listing, partial(_list_response, query, tags))
        return _list_response(query, tags, listing)

    async def _list_later(
        self, query: bytes, wanted: Query, tags: Container[str], pending: Future[State]
    ) -> Response:
        state = await pending
        if response := _not_modified(tags, tag(state.version, state.epoch)):
            return response
        listing = self._collection.list(wanted)
        return _list_response(query, tags, await listing if isinstance(listing, Future) else listing)

    def _create(self, conditions: Conditions, sent: str | None, _target: bytes, body: bytes, by: int) -> Deferred:
        payload = self._payload(body)
        key = None if sent is None else conditions.key(sent, "stores", None, payload, by)
        command = Create(payload, conditions.if_match, key, by)
        return self._deferred(self._collection.write(command), self._created)

    def _replace(
        self, conditions: Conditions, sent: str | None, target: bytes, body: bytes, by: int
    ) -> Response | Deferred:
        payload = self._payload(body)  # checked before the id (decision 3)
        id_text = id_in(target)
        id = parse_id(id_text)
        if id is None and sent is None:
            return self._missing(id_text)
        key = None if sent is None else conditions.key(sent, "store", id, payload, by)
        # No store has the id 0; but whether the key is good for this request comes before that (decision 31).
        command = Replace(id or 0, payload, conditions.if_match, conditions.if_none_match, key, by)
        return self._deferred(self._collection.write(command), partial(self._written, id_text))

    def _deferred(self, pending: Future[T], render: Callable[[T], Response]) -> Deferred:
        def response() -> Response:
            # Not raised here: this frame and the error would refer to each other, and keep all that the request took
            # until the garbage collector comes.
            error = pending.exception()
            try:
                return self._error_response(error) if error else render(pending.result())
            except Exception as bug:  # noqa: BLE001 - every bug is logged and is a 500
                return self._error_response(bug)

        return Deferred(pending, response)

    def _payload(self, body: bytes) -> Payload:
        if not body:
            return check_payload(None)  # a missing body is not an object (decision 11)
        try:
            try:
                value = _decode(body)
            except msgspec.ValidationError:
                value = _with_any_number(body)
        except (ValueError, RecursionError):
            # Not a violation of a field, so generic mode names it too (decision 12).
            raise _InvalidJson from None
        return check_payload(value, reject_unknown=self._reject_unknown)

    def _found(self, id_text: bytes, tags: Container[str] | None, store: Store | None) -> Response:
        if store is None:
            return self._missing(id_text)
        if tags is not None and (response := _not_modified(tags, tag(store.version, store.epoch))):
            return response
        return _store_response(store)

    def _written(self, id_text: bytes, store: Store | None) -> Response:
        if store is None:
            return self._missing(id_text)
        headers = _REPLAYED if type(store) is Replay else JSON
        return _store_response(store, headers, b"/api/stores/%d" % store.id)

    def _missing(self, id_text: bytes) -> Response:
        if self._hide_missing:
            return INTERNAL_ERROR
        return error_response(404, f"Store {id_text.decode(errors='replace')} not found")

    def _error_response(self, error: BaseException) -> Response:
        if isinstance(error, _InvalidJson):
            return error_response(400, "Invalid request payload JSON format")
        return to_response(error, generic=self._generic)


class _InvalidJson(StorekeeperError):
    """The body is not JSON text in UTF-8."""


def _not_modified(tags: Container[str], current: str) -> Response | None:
    return _unchanged(current) if matches(tags, current) else None


def _unchanged(current: str) -> Response:
    return Response(b"", NO_CONTENT, 304, tag=current.encode())


def _with_any_number(body: bytes) -> object:
    """Decode JSON with a number that msgspec cannot represent; raises ValueError or RecursionError.

    The number is in a field that is ignored, or the field is refused because it is no string.
    """
    # The standard library can; but it accepts lone surrogates, so encode the value again.
    value = json.loads(body.decode(), parse_int=lambda _: 0, parse_float=lambda _: 0, parse_constant=_no_constant)
    _encode(value)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _store_response(store: Store, headers: Headers = JSON, location: bytes = b"") -> Response:
    body = b'{"id":%d,"name":%b,"address":%b}' % (store.id, _encode(store.name), _encode(store.address))
    # The tag as `commands.tag` has it, without a call.
    return Response(body, headers, 200, None, f'"{store.version}.{store.epoch}"'.encode(), location)


def _list_response(query: bytes, tags: Container[str] | None, listing: Listing) -> Response:
    current = tag(listing.version, listing.epoch)
    if tags is not None and (response := _not_modified(tags, current)):
        return response
    headers = JSON
    if listing.last is not None:
        headers += ((b"link", b'<%b?%b>; rel="next"' % (STORES, next_page(query, listing.last))),)
    if listing.total is not None:
        headers += ((b"total-count", b"%d" % listing.total),)
    if listing.rest is None:
        return Response(b"[%b]" % listing.first, headers, tag=current.encode())
    return Response(b"", headers, 200, _stream(listing.first, listing.rest), current.encode())


async def _stream(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b"[" + first
    try:
        async for part in rest:
            yield part
    except Unavailable as error:  # the database went away in the middle of a list
        raise StreamAborted from error
    yield b"]"
