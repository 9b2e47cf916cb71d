"""PATCH of a store (decision 56): what is refused, what is kept, and what its key means."""

import json
from typing import Any

import pytest

from storekeeper.api.routes.stores import MAX_PATCH_BYTES
from storekeeper.domain.stores import Payload
from storekeeper.http.response import Response, framed_headers, parse_fields
from tests.harness.in_memory import EPOCH, InMemory, ask

PATH = "/api/stores/1"
TOO_LONG = '"name" length must be less than or equal to 30 characters long'

BODIES: list[tuple[bytes, Any]] = [
    # a body, and what becomes of a store "Old" at "1 Road", or the message and the keys
    (b"{}", ("Old", "1 Road")),
    (b'{"name":"New"}', ("New", "1 Road")),
    (b'{"name":" "}', (" ", "1 Road")),
    (b'{"address":"2 Road"}', ("Old", "2 Road")),
    (b'{"address":""}', ("Old", "")),
    (b'{"address":null}', ("Old", None)),
    (b'{"name":"New","address":null}', ("New", None)),
    (b'{"id":9,"shop":{"address":1}}', ("Old", "1 Road")),
    (b'{"name":1,"name":"New"}', ("New", "1 Road")),
    (b'{"name":null}', ('"name" is required', ["name"])),
    (b'{"name":""}', ('"name" is required', ["name"])),
    (b'{"name":7}', ('"name" must be a string', ["name"])),
    (b'{"name":"%b"}' % (b"x" * 31), (TOO_LONG, ["name"])),
    (b'{"address":{}}', ('"address" must be a string', ["address"])),
    (
        b'{"address":"\\u0000","name":null}',
        ('"name" is required. "address" must not contain null characters', ["name", "address"]),
    ),
    (b"[]", ('"value" must be of type object', [])),
    (b'"New"', ('"value" must be of type object', [])),
    (b"null", ('"value" must be of type object', [])),
    (b"", ('"value" must be of type object', [])),
    (b"{", ("Invalid request payload JSON format", None)),
]


@pytest.fixture
def collection() -> InMemory:
    return InMemory(Payload("Old", "1 Road"), Payload("Other"))


def fields_of(response: Response) -> dict[bytes, bytes]:
    return dict(parse_fields(framed_headers(response)))


@pytest.mark.parametrize(("body", "expected"), BODIES)
def test_a_patch_changes_what_it_has_or_is_refused_with_all_that_is_wrong(
    collection: InMemory, body: bytes, expected: tuple[Any, Any]
) -> None:
    before = collection.stores
    response = ask(collection, "PATCH", "/api/stores/01", body)
    sent = json.loads(response.body)
    if response.status == 200:
        name, address = expected
        assert sent == {"id": 1, "name": name, "address": address}
        assert (collection.stores[0].name, collection.stores[0].address) == expected
        version = 1 if expected == ("Old", "1 Road") else 3
        assert response.tag == b'"%d.%b"' % (version, EPOCH.encode())
        assert response.location == b"/api/stores/1"
        assert collection.stores[1:] == before[1:]
        return
    message, keys = expected
    assert (response.status, sent["message"]) == (400, message)
    assert sent.get("validation", {}).get("keys") == keys
    assert collection.stores == before


def test_other_keys_are_refused_where_unknown_keys_are(collection: InMemory) -> None:
    response = ask(collection, "PATCH", PATH, b'{"id":2,"name":"New"}', unknown_keys="reject")
    assert json.loads(response.body)["validation"]["keys"] == ["id"]
    assert ask(collection, "PATCH", PATH, b'{"id":2}', error_detail="generic").status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"application/merge-patch+json", 200),
        (b"Application/Merge-Patch+JSON; charset=utf-8", 200),
        (b"application/json", 200),
        (b"application/vnd.shop+json", 200),
        (b"application/json-patch+json", 415),
        (b"application/JSON-Patch+json;q=1", 415),
        (b"text/plain", 415),
        (b"application/merge-patch+json; charset=latin1", 415),
    ],
)
def test_a_patch_of_another_type_is_refused_and_told_which_are_good(
    collection: InMemory, sent: bytes, status: int
) -> None:
    response = ask(collection, "PATCH", PATH, b'{"name":"New"}', (b"content-type", sent))
    assert response.status == status
    accepted = fields_of(response).get(b"accept-patch")
    assert (accepted is not None) == (status == 415)
    assert collection.stores[0].name == ("New" if status == 200 else "Old")


def test_a_patch_of_no_store_is_404_and_its_body_is_checked_first(collection: InMemory) -> None:
    assert ask(collection, "PATCH", "/api/stores/9", b'{"name":"New"}').status == 404
    assert ask(collection, "PATCH", "/api/stores/x", b"{}").status == 404
    assert ask(collection, "PATCH", "/api/stores/9", b'{"name":null}').status == 400
    assert ask(collection, "PATCH", "/api/stores", b"{}").status == 405


def test_what_a_patch_keeps_and_sends_is_never_more_than_a_put_may_send(
    collection: InMemory,
) -> None:
    ask(collection, "PATCH", PATH, json.dumps({"name": "\N{SHOPPING TROLLEY}" * 30}).encode())
    address = "x" * (MAX_PATCH_BYTES - len('{"address":""}'))
    body = json.dumps({"address": address}, separators=(",", ":")).encode()
    assert ask(collection, "PATCH", PATH, body + b" ").status == 413
    response = ask(collection, "PATCH", PATH, body)
    assert response.status == 200
    assert ask(collection, "PUT", PATH, response.body).status == 200


def test_a_key_is_of_one_patch_and_gives_what_the_store_became(collection: InMemory) -> None:
    """An absent field is not null, and a PUT of the same content is another request."""
    key = (b"idempotency-key", b"k")
    first = ask(collection, "PATCH", PATH, b'{"address":"2 Road"}', key)
    ask(collection, "PUT", PATH, b'{"name":"Later"}')
    before = collection.stores
    again = ask(collection, "PATCH", "/api/stores/01", b'{"id":1, "address":"2 Road"}', key)
    assert (again.status, again.body, again.tag) == (200, first.body, first.tag)
    assert json.loads(again.body) == {"id": 1, "name": "Old", "address": "2 Road"}
    assert fields_of(again)[b"idempotent-replayed"] == b"true"
    for method, path, body in (
        ("PATCH", PATH, b'{"address":null}'),
        ("PATCH", PATH, b"{}"),
        ("PATCH", PATH, b'{"address":"2 Road","name":"Old"}'),
        ("PATCH", "/api/stores/2", b'{"address":"2 Road"}'),
        ("PUT", PATH, b'{"name":"Old","address":"2 Road"}'),
        ("POST", "/api/stores", b'{"name":"Old","address":"2 Road"}'),
    ):
        assert ask(collection, method, path, body, key).status == 422
    assert collection.stores == before


def test_a_patch_needs_the_tag_that_it_names(collection: InMemory) -> None:
    old, current = (b'"%d.%b"' % (version, EPOCH.encode()) for version in (2, 1))
    assert ask(collection, "PATCH", PATH, b"{}", (b"if-match", old)).status == 412
    assert ask(collection, "PATCH", PATH, b"{}", (b"if-none-match", b"*")).status == 412
    changed = ask(collection, "PATCH", PATH, b'{"name":"New"}', (b"if-match", current))
    assert (changed.status, changed.tag) == (200, b'"3.%b"' % EPOCH.encode())
    repeated = ask(collection, "PATCH", PATH, b'{"name":"New"}', (b"if-match", current))
    assert (repeated.status, repeated.tag) == (412, changed.tag)


def test_the_methods_of_a_store_name_it(collection: InMemory) -> None:
    for method, status in (("OPTIONS", 204), ("DELETE", 405)):
        response = ask(collection, method, PATH)
        allow = fields_of(response)[b"allow"]
        assert (response.status, allow) == (status, b"GET, HEAD, PUT, PATCH, OPTIONS")
