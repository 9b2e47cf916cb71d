"""The contract: a request becomes a response, now or later.

Where `docs/contract.md` has a sentence or a numbered decision, this module (with the rules in
`storekeeper.domain.stores`) is the one place that carries it out.
"""

import json
from asyncio import Future, ensure_future
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial

import msgspec
from msgspec.structs import astuple

from storekeeper.api.errors import InvalidJson
from storekeeper.api.plan import Planner, RequestPlan, constant
from storekeeper.api.preconditions import (
    REPLAYED,
    Preconditions,
    check_type,
    not_modified,
    read_if_none_match,
    read_preconditions,
)
from storekeeper.api.query import next_page, parse_list_query, parse_store_query
from storekeeper.api.routing import last_segment, parse_id
from storekeeper.domain.commands import Create, Patch, Replace, Tags, tag
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.queries import Moment, Query, State
from storekeeper.domain.stores import (
    MAX_CONTENT_BYTES,
    Payload,
    Replay,
    Store,
    check_patch,
    check_payload,
)
from storekeeper.http.request import Request
from storekeeper.http.response import (
    INTERNAL_ERROR,
    JSON,
    TEXT,
    Deferred,
    Fields,
    Response,
    StreamAborted,
    error_response,
    too_large,
)
from storekeeper.settings import Settings
from storekeeper.storage.collection import Collection, Listing

_TEST = Response(b"OK", TEXT, cacheable=True)

MAX_PATCH_BYTES = MAX_CONTENT_BYTES - 1024
"""Bytes of the body of a PATCH: with the name that a store keeps, its content still fits into a
PUT."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _Body(msgspec.Struct, gc=False):
    """A store in a response, in the contract's order."""

    id: int
    name: str
    address: str | None


class Resource:
    """Carries out requests of the contract's routes on a collection, by the settings where the
    contract is open."""

    def __init__(self, collection: Collection, settings: Settings) -> None:
        self._collection = collection
        self._hide_missing = settings.missing_store == "500"
        self._reject_unknown = settings.unknown_keys == "reject"
        self._root = settings.root_path.encode()
        self.planners: Mapping[str, Planner] = {
            "test": lambda *_: constant(_TEST),
            "stores": self._plan_stores,
            "store": self._plan_store,
        }

    def _plan_stores(self, method: str, headers: Fields) -> RequestPlan:
        if method == "POST":
            return _plan_write(self._create, headers, is_create=True)
        return RequestPlan(partial(self._list, read_if_none_match(headers)))

    def _plan_store(self, method: str, headers: Fields) -> RequestPlan:
        if method == "PUT":
            return _plan_write(self._replace, headers, is_create=False)
        if method == "PATCH":
            return _plan_write(self._patch, headers, is_create=False, is_patch=True)
        return RequestPlan(partial(self._get, read_if_none_match(headers)))

    def _get(self, if_none_match: Tags | None, request: Request) -> Response | Deferred:
        path, _, query = request.target.partition(b"?")
        id_text = last_segment(path)
        id, at = parse_id(id_text), parse_store_query(query) if query else None
        store = self._collection.get(id) if at is None else self._collection.get_at(id, at)
        if isinstance(store, Future):
            return Deferred(store, partial(self._found, id_text, if_none_match, at))
        return self._found(id_text, if_none_match, at, store)

    def _list(self, if_none_match: Tags | None, request: Request) -> Response | Deferred:
        wanted = parse_list_query(request.target.partition(b"?")[2])
        if if_none_match is not None and wanted.at is None:
            # The tag of every list is that of the collection, so its numbers are enough to compare.
            state = self._collection.state()
            if isinstance(state, Future):
                return Deferred(
                    ensure_future(self._list_later(request, wanted, if_none_match, state))
                )
            if unchanged := not_modified(if_none_match, tag(state.version, state.epoch)):
                return unchanged
        listed = self._collection.list(wanted)
        if isinstance(listed, Future):
            return Deferred(listed, partial(self._listed, request, wanted.at, if_none_match))
        return self._listed(request, wanted.at, if_none_match, listed)

    async def _list_later(
        self, request: Request, wanted: Query, if_none_match: Tags, pending: Future[State]
    ) -> Response:
        state = await pending
        if unchanged := not_modified(if_none_match, tag(state.version, state.epoch)):
            return unchanged
        listed = self._collection.list(wanted)
        listing = await listed if isinstance(listed, Future) else listed
        return self._listed(request, wanted.at, if_none_match, listing)

    def _create(self, preconditions: Preconditions, request: Request) -> Deferred:
        payload = self._payload(request.body)
        key = preconditions.key(
            request.key, request.token_number, ("stores", None, *astuple(payload))
        )
        command = Create(payload, preconditions.if_match, key, request.token_number, request.user)
        return Deferred(
            self._collection.write(command), partial(self._written, b"", self._path(request))
        )

    def _replace(self, preconditions: Preconditions, request: Request) -> Deferred:
        payload = self._payload(request.body)  # checked before the id (decision 3)
        id_text = last_segment(request.target.partition(b"?")[0])
        id = parse_id(id_text)
        key = preconditions.key(request.key, request.token_number, ("store", id, *astuple(payload)))
        command = Replace(
            id,
            payload,
            preconditions.if_match,
            preconditions.if_none_match,
            key,
            request.token_number,
            request.user,
        )
        return Deferred(
            self._collection.write(command), partial(self._written, id_text, self._path(request))
        )

    def _patch(self, preconditions: Preconditions, request: Request) -> Response | Deferred:
        if len(request.body) > MAX_PATCH_BYTES:
            return too_large(MAX_PATCH_BYTES)
        patch = check_patch(_value(request.body), reject_unknown=self._reject_unknown)
        id_text = last_segment(request.target.partition(b"?")[0])
        id = parse_id(id_text)
        # What was sent, and that it was a PATCH: an absent field is not null (decision 56).
        content = ("store", id, "PATCH", patch)
        key = preconditions.key(request.key, request.token_number, content)
        command = Patch(
            id,
            patch,
            preconditions.if_match,
            preconditions.if_none_match,
            key,
            request.token_number,
            request.user,
        )
        return Deferred(
            self._collection.write(command), partial(self._written, id_text, self._path(request))
        )

    def _payload(self, body: bytes) -> Payload:
        return check_payload(_value(body), reject_unknown=self._reject_unknown)

    def _found(
        self, id_text: bytes, if_none_match: Tags | None, at: Moment | None, store: Store | None
    ) -> Response:
        if store is None:
            return self._missing(id_text)
        current = tag(store.version, store.epoch)
        if if_none_match is not None and (unchanged := not_modified(if_none_match, current)):
            return unchanged
        response = _store_response(store, current)
        response.cacheable = at is None or _is_lasting(at)
        return response

    def _written(self, id_text: bytes, path: bytes, store: Store | None) -> Response:
        if store is None:
            return self._missing(id_text)
        headers = REPLAYED if type(store) is Replay else JSON
        return _store_response(
            store, tag(store.version, store.epoch), headers, b"%b/%d" % (path, store.id)
        )

    def _listed(
        self, request: Request, at: Moment | None, if_none_match: Tags | None, listing: Listing
    ) -> Response:
        current = tag(listing.version, listing.epoch)
        if if_none_match is not None and (unchanged := not_modified(if_none_match, current)):
            return unchanged
        headers = JSON
        last = listing.last if listing.place is None else listing.place
        if last is not None:
            following = next_page(request.target.partition(b"?")[2], last)
            headers += b'link: <%b?%b>; rel="next"\r\n' % (self._path(request), following)
        if listing.total is not None:
            headers += b"total-count: %d\r\n" % listing.total
        etag = current.encode()
        if listing.rest is not None:
            stream = _stream(listing.first, listing.rest)
            return Response(b"", headers, stream=stream, tag=etag)
        cacheable = at is None or _is_lasting(at)
        return Response(b"[%b]" % listing.first, headers, tag=etag, cacheable=cacheable)

    def _path(self, request: Request) -> bytes:
        """Return the path of the list as clients see it."""
        return (request.root or self._root) + b"/api/stores"

    def _missing(self, id_text: bytes) -> Response:
        if self._hide_missing:
            return INTERNAL_ERROR
        return error_response(404, f"Store {id_text.decode(errors='replace')} not found")


def _plan_write(
    write: Callable[..., Response | Deferred],
    headers: Fields,
    *,
    is_create: bool,
    is_patch: bool = False,
) -> RequestPlan:
    if refusal := check_type(headers, is_patch=is_patch):
        return constant(refusal)
    return RequestPlan(partial(write, read_preconditions(headers, is_create=is_create)))


def _value(body: bytes) -> object:
    """Decode a body; raises InvalidJson. A missing one is not an object (decision 11)."""
    if not body:
        return None
    try:
        try:
            return _decode(body)
        except msgspec.ValidationError:
            return _with_any_number(body)
    except (ValueError, RecursionError):
        raise InvalidJson from None


def _with_any_number(body: bytes) -> object:
    """Decode JSON with a number that msgspec cannot represent; raises ValueError or RecursionError.

    The number is in a field that is ignored, or that is refused because it is not a string.
    """
    # The standard library can. But it accepts NaN, which is not an `int`, and lone surrogates: so
    # encode the value again.
    value = json.loads(
        body.decode(), parse_int=lambda _: 0, parse_float=lambda _: 0, parse_constant=int
    )
    _encode(value)
    return value


def _is_lasting(at: Moment) -> bool:
    """Return whether a read gives the same while the database is the same: which moment a time
    is, the clock says."""
    return at.time is None


def _store_response(
    store: Store, current: str, headers: bytes = JSON, location: bytes = b""
) -> Response:
    body = _encode(_Body(store.id, store.name, store.address))
    return Response(body, headers, tag=current.encode(), location=location)


async def _stream(first: bytes, rest: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    yield b"[" + first
    try:
        async for part in rest:
            yield part
    except Unavailable as error:  # the database went away in the middle of a list
        raise StreamAborted from error
    yield b"]"
