"""Requests that are refused, and the very response to each, for the OpenAPI document. Imports `http` and `api`.

No message is copied: each request goes through the reader and the resource, as in a running service.
`tests/api/test_openapi.py` sends the same requests to one.
"""

from typing import Any, cast

import msgspec

from storekeeper.api.errors import to_response
from storekeeper.api.resource import Resource, Rules
from storekeeper.collection import Collection
from storekeeper.errors import DISK_STALLED, LOCKED, Outcome, Unavailable
from storekeeper.http.reader import RequestReader
from storekeeper.http.request import MAX_HEAD_BYTES, MAX_TARGET_BYTES, Request
from storekeeper.http.response import MAX_BODY_BYTES, Deferred, Response, internal_error, timed_out
from storekeeper.stores import MAX_NAME_LENGTH, Store

_HEAD = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


def _get(target: bytes, fields: bytes = b"") -> bytes:
    return b"GET %b%b%b\r\n" % (target, _HEAD, fields)


def _post(body: bytes, fields: bytes = b"Content-Type: application/json\r\n") -> bytes:
    return b"POST /api/stores%b%bContent-Length: %d\r\n\r\n%b" % (_HEAD, fields, len(body), body)


PAYLOAD = {
    "name is missing": _post(b'{"address":"20 Quay Road, Portsmouth"}'),
    "name is too long": _post(b'{"name":"%b"}' % (b"a" * (MAX_NAME_LENGTH + 1))),
    "address is null": _post(b'{"name":"Harbour","address":null}'),
    "both are wrong": _post(b'{"name":7,"address":null}'),
    "not JSON": _post(b"name=Harbour"),
    "no object": _post(b'["Harbour"]'),
}
QUERY = {"name is given twice": _get(b"/api/stores?name=Harbour&name=Airport")}
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


def bodies(requests: dict[str, bytes]) -> dict[str, Any]:
    """Return the decoded bodies of the responses to refused requests, by the requests' names."""
    return {name: _body(_refusal(request)) for name, request in requests.items()}


def of_any_request() -> dict[str, Any]:
    """Return the decoded bodies of the errors that any request can get, by their names."""
    others = {
        "408: too slow": timed_out(),
        "500: a bug": internal_error(),
        "503: nothing was changed": to_response(Unavailable(LOCKED)),
        "503: the write may have happened": to_response(Unavailable(DISK_STALLED, Outcome.UNKNOWN)),
    }
    return dict(sorted((bodies(HTTP) | {name: _body(response) for name, response in others.items()}).items()))


def _refusal(data: bytes) -> Response:
    """Return the response to the bytes of one request that is refused."""
    requests: list[Request] = []
    responses: list[Response | Deferred] = []
    RequestReader(
        lambda request, _size: requests.append(request),
        lambda response, _head_only: responses.append(response),
        lambda: 0.0,
    ).feed(data)
    resource = Resource(cast("Collection", _NoStores()), Rules())
    for request in requests:
        plan = resource.plan(request.method, request.target, request.headers)
        assert plan is not None
        responses.append(resource.respond(plan, request.body))
    [response] = responses
    assert isinstance(response, Response)
    return response


class _NoStores:
    """All that a refused request asks of a collection; it writes nothing."""

    write = None

    def get(self, _id: int) -> Store | None:
        return None


def _body(response: Response) -> Any:
    return msgspec.json.decode(response.body)
