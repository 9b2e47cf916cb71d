"""Requests that are refused, and the very response to each, for the OpenAPI document. Imports `http` and `api`.

No message is copied: each request goes through the reader and the resource, as in a running service.
`tests/api/test_openapi.py` sends the same requests to one.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

import msgspec
from msgspec.structs import astuple

from storekeeper.api.errors import to_response
from storekeeper.api.origins import Hosts, Origins
from storekeeper.api.resource import Resource, Rules
from storekeeper.api.token_table import EXPIRED, insufficient_scope, needed, not_good
from storekeeper.collection import Collection, Listing, Moment, Query, check_moment
from storekeeper.commands import Command, Present, Remembered, apply, keys
from storekeeper.errors import DISK_STALLED, LOCKED, Outcome, Unavailable
from storekeeper.http.reader import RequestReader
from storekeeper.http.request import MAX_HEAD_BYTES, MAX_TARGET_BYTES, Request
from storekeeper.http.response import MAX_BODY_BYTES, Deferred, Response, internal_error, timed_out
from storekeeper.stores import EXAMPLES, MAX_NAME_LENGTH, Store

Refused = Mapping[str, bytes | Response | None]
"""Requests that are refused, or their refusals, by names for people."""

_HEAD = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"

_VERSION, _EPOCH = 7, "k3w2m7qa"
_OTHER = b"a2b3c4d5"
"""An epoch that no collection is likely to have."""

_JSON = b"Content-Type: application/json\r\n"
_CREATE = b'{"name":"Harbour"}'


def _get(target: bytes, fields: bytes = b"") -> bytes:
    return b"GET %b%b%b\r\n" % (target, _HEAD, fields)


def _post(body: bytes, fields: bytes = _JSON) -> bytes:
    return _write(b"POST /api/stores", body, fields)


def _write(line: bytes, body: bytes, fields: bytes) -> bytes:
    return b"%b%b%bContent-Length: %d\r\n\r\n%b" % (line, _HEAD, fields, len(body), body)


PAYLOAD = {
    "name is missing": _post(b'{"address":"20 Quay Road, Portsmouth"}'),
    "name is too long": _post(b'{"name":"%b"}' % (b"a" * (MAX_NAME_LENGTH + 1))),
    "address is null": _post(b'{"name":"Harbour","address":null}'),
    "both are wrong": _post(b'{"name":7,"address":null}'),
    "not JSON": _post(b"name=Harbour"),
    "no object": _post(b'["Harbour"]'),
}
CONDITIONS = {
    "If-Match has no quotes": _post(_CREATE, _JSON + b"If-Match: 1\r\n"),
    "Idempotency-Key has a blank": _post(_CREATE, _JSON + b"Idempotency-Key: a b\r\n"),
}
QUERY = {
    "name is given twice": _get(b"/api/stores?name=Harbour&name=Airport"),
    "limit and after are wrong": _get(b"/api/stores?limit=0&after=x"),
    "at is no moment": _get(b"/api/stores/1?at=yesterday"),
}
GONE = {"a moment of another epoch": _get(b"/api/stores?at=1.%b" % _OTHER)}
CHANGED = {
    "the store has changed": _write(b"PUT /api/stores/1", _CREATE, _JSON + b'If-Match: "1.%b"\r\n' % _OTHER),
    "the list has changed": _post(_CREATE, _JSON + b'If-Match: "1.%b"\r\n' % _OTHER),
}
REUSED = {"the key was sent with another request": _post(_CREATE, _JSON + b"Idempotency-Key: order-17\r\n")}
MISSING = {"no store has that id": _get(b"/api/stores/99")}
MEDIA_TYPE = {
    "no JSON": _post(b"name=Harbour", b"Content-Type: application/x-www-form-urlencoded\r\n"),
    "compressed": _post(b"{}", b"Content-Type: application/json\r\nContent-Encoding: gzip\r\n"),
}
HTTP = {
    "400: no valid Host": b"GET /test HTTP/1.1\r\nConnection: close\r\n\r\n",
    "413: body too large": b"POST /api/stores%bContent-Length: %d\r\n\r\n" % (_HEAD, MAX_BODY_BYTES + 1),
    "414: target too long": _get(b"/" + b"a" * MAX_TARGET_BYTES),
    "431: headers too large": _get(b"/test", b"X: %b\r\n" % (b"a" * MAX_HEAD_BYTES)),
    "501: unknown method": b"FETCH /test%b" % _HEAD + b"\r\n",
    "505: another HTTP": b"GET /test HTTP/2.0\r\nHost: localhost\r\n\r\n",
}
"""What the HTTP layer refuses, whatever the route."""


UNAUTHORIZED = {"no token": needed("write"), "the token has expired": not_good(EXPIRED)}
FORBIDDEN = {
    "the token permits reading": insufficient_scope(),
    "a page of another site": Origins().refuse("POST", [(b"sec-fetch-site", b"cross-site")]),
    "a page with a name that is not known": Hosts().refuse(
        [(b"origin", b"http://rebound.example"), (b"host", b"rebound.example")]
    ),
}
FAULTS = {
    "408: too slow": timed_out(),
    "500: a bug": internal_error(),
    "503: nothing was changed": to_response(Unavailable(LOCKED)),
    "503: the write may have happened": to_response(Unavailable(DISK_STALLED, Outcome.UNKNOWN)),
}
ANY_REQUEST: Refused = dict(sorted((*HTTP.items(), *FAULTS.items())))


def bodies(refused: Refused) -> dict[str, Any]:
    """Return the decoded bodies of the responses to refused requests, and of refusals, by their names."""
    found = {}
    for name, one in refused.items():
        response = _refusal(one) if isinstance(one, bytes) else one
        assert response is not None
        found[name] = msgspec.json.decode(response.body)
    return found


def _refusal(data: bytes) -> Response:
    """Return the response to the bytes of one request that is refused."""
    requests: list[Request] = []
    refusals: list[Response] = []
    RequestReader(
        lambda request, _size: requests.append(request),
        lambda response, _head_only, _fields: refusals.append(response),
        lambda: 0.0,
    ).feed(data)
    if refusals:
        return refusals[0]
    [request] = requests
    resource = Resource(cast("Collection", _ThreeStores()), Rules())
    plan = resource.plan(request.method, request.target, request.headers)
    assert plan is not None
    response = resource.respond(plan, request.body)
    return response.response() if isinstance(response, Deferred) else response


class _ThreeStores:
    """All that a refused request asks of a collection: three stores that have changed, and keys of other requests."""

    def get(self, _id: int) -> Store | None:
        return None

    def list(self, query: Query) -> Listing:
        check_moment(cast("Moment", query.at), _VERSION, _EPOCH, 0)
        raise AssertionError

    def write(self, command: Command) -> Future[Store | None]:
        store = Store(*[3, *astuple(EXAMPLES[2]), 3, _EPOCH])
        remembered = {key.key: Remembered(0, store, 0) for key in keys([command])}
        present = Present(3, _VERSION, 0, _EPOCH, {1: _VERSION}, (), remembered)
        [result] = apply([command], present, 0).results
        assert isinstance(result, Exception)
        refused: Future[Store | None] = Future()
        refused.set_exception(result)
        return refused
