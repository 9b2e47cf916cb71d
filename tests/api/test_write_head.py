"""Conditional writes and Idempotency-Keys (decisions 31 to 36), on a collection in memory."""

import json
from typing import Any

import msgspec
import pytest

from storekeeper.domain.stores import Payload
from storekeeper.http.response import Response, encode_rest, framed_headers, parse_fields
from tests.harness.in_memory import EPOCH, InMemory, ask

BODY = b'{"name":"New","address":"1 Road"}'
MATCH, NONE_MATCH, KEY = b"if-match", b"if-none-match", b"idempotency-key"
POST, PUT = ("POST", "/api/stores"), ("PUT", "/api/stores/1")

Field = tuple[bytes, bytes]


def tag(version: int, epoch: str = EPOCH) -> bytes:
    return b'"%d.%b"' % (version, epoch.encode())


@pytest.fixture
def collection() -> InMemory:
    """Return three stores; the first was changed, so it is of version 4, as the list is."""
    collection = InMemory(Payload("First"), Payload("Second"), Payload("Third"))
    ask(collection, *PUT, b'{"name":"First","address":"a"}')
    return collection


def said(response: Response) -> tuple[int, dict[str, Any], dict[bytes, bytes]]:
    return response.status, json.loads(response.body), dict(parse_fields(framed_headers(response)))


def test_a_write_tells_the_tag_and_the_path_of_what_it_wrote(collection: InMemory) -> None:
    for request, path, version in ((POST, b"/api/stores/4", 5), (PUT, b"/api/stores/1", 6)):
        status, _, headers = said(ask(collection, *request, BODY))
        assert (status, headers[b"etag"], headers[b"content-location"]) == (200, tag(version), path)
        assert b"idempotent-replayed" not in headers
    # Nothing is changed, so nothing has another version (decision 35).
    assert ask(collection, "PUT", "/api/stores/01", BODY).tag == tag(6)
    assert ask(collection, "GET", "/api/stores").tag == tag(6)


@pytest.mark.parametrize(
    ("request_", "fields", "status"),
    [
        (PUT, [(MATCH, tag(4))], 200),
        (PUT, [(MATCH, b"W/" + tag(4)[:-1] + b'-br"')], 200),
        (PUT, [(MATCH, tag(1)), (MATCH, tag(4))], 200),
        (PUT, [(MATCH, b"*")], 200),
        (PUT, [(MATCH, tag(1))], 412),
        (PUT, [(MATCH, tag(4, "bcdefgha"))], 412),
        (PUT, [(MATCH, b"")], 412),
        (PUT, [(NONE_MATCH, tag(1))], 200),
        (PUT, [(NONE_MATCH, tag(4))], 412),
        (PUT, [(NONE_MATCH, b"W/" + tag(4))], 412),
        (PUT, [(NONE_MATCH, b"*")], 412),
        (PUT, [(MATCH, tag(4)), (NONE_MATCH, tag(4))], 412),
        (POST, [(MATCH, tag(4))], 200),
        (POST, [(MATCH, tag(3))], 412),
        (POST, [(MATCH, b"*")], 200),
        (POST, [(NONE_MATCH, b"*")], 200),
        (POST, [(NONE_MATCH, b"no tag")], 200),
    ],
)
def test_a_write_happens_only_if_its_condition_holds(
    collection: InMemory, request_: tuple[str, str], fields: list[Field], status: int
) -> None:
    before = collection.stores
    sent, body, headers = said(ask(collection, *request_, BODY, *fields))
    assert sent == status
    assert (collection.stores == before) == (status == 412)
    if status == 412:
        what = "Store 1" if request_ is PUT else "The list"
        why = "matches If-None-Match" if fields[-1][0] == NONE_MATCH else "has changed"
        message = f"{what} {why}: its version is 4 now"
        assert body == {"statusCode": 412, "error": "Precondition Failed", "message": message}
        assert headers[b"etag"] == tag(4)


def test_an_old_tag_is_refused_though_the_store_is_what_is_sent(collection: InMemory) -> None:
    """Else two clients that send the same with one tag would both win (decision 34)."""
    assert ask(collection, *PUT, BODY, (MATCH, tag(4))).tag == tag(5)
    before = collection.stores
    for old in (tag(4), tag(5, "bcdefgha"), b""):
        status, _, headers = said(ask(collection, *PUT, BODY, (MATCH, old)))
        assert (status, headers[b"etag"]) == (412, tag(5))
    assert ask(collection, *PUT, BODY, (MATCH, tag(5))).tag == tag(5)
    assert collection.stores == before


def test_a_lost_first_response_is_given_again_to_its_key(collection: InMemory) -> None:
    sent = [(MATCH, tag(4)), (KEY, b"attempt")]
    first, again = (ask(collection, *PUT, BODY, *sent) for _ in range(2))
    assert (again.status, again.tag, again.body) == (200, tag(5), first.body)
    assert b"idempotent-replayed: true" in again.headers


@pytest.mark.parametrize(
    ("request_", "fields", "keys"),
    [
        (PUT, [(MATCH, b"4")], ["if-match"]),
        (PUT, [(MATCH, b"*"), (MATCH, tag(4))], ["if-match"]),
        (PUT, [(NONE_MATCH, b"4")], ["if-none-match"]),
        (POST, [(MATCH, b'"')], ["if-match"]),
        (POST, [(KEY, b"")], ["idempotency-key"]),
        (POST, [(KEY, b'"')], ["idempotency-key"]),
        (POST, [(KEY, b'""')], ["idempotency-key"]),
        (POST, [(KEY, b'"a')], ["idempotency-key"]),
        (POST, [(KEY, b'a"')], ["idempotency-key"]),
        (POST, [(KEY, b"a b")], ["idempotency-key"]),
        (POST, [(KEY, b"a\\b")], ["idempotency-key"]),
        (POST, [(KEY, b"\xe4")], ["idempotency-key"]),
        (POST, [(KEY, b"a" * 256)], ["idempotency-key"]),
        (POST, [(KEY, b"a"), (KEY, b"a")], ["idempotency-key"]),
        (
            PUT,
            [(KEY, b"a b"), (NONE_MATCH, b"a"), (MATCH, b"b")],
            ["if-match", "if-none-match", "idempotency-key"],
        ),
    ],
)
def test_a_malformed_condition_is_refused_with_all_that_is_wrong(
    collection: InMemory, request_: tuple[str, str], fields: list[Field], keys: list[str]
) -> None:
    """Before the payload is looked at, and again if the head is remembered (decision 31)."""
    before = collection.stores
    for body in (BODY, b"{"):
        status, error, _ = said(ask(collection, *request_, body, *fields))
        assert (status, error["validation"]) == (400, {"source": "headers", "keys": keys})
        assert all(f'"{key}" must ' in error["message"] for key in keys)
        _, error, _ = said(ask(collection, *request_, body, *fields, error_detail="generic"))
        assert error["message"] == "Invalid request headers input"
    assert collection.stores == before


@pytest.mark.parametrize("request_", [POST, PUT])
@pytest.mark.parametrize("key", [b"k", b"!#[]~,;=", b"a" * 255])
def test_a_repeated_request_with_its_key_is_given_its_first_response(
    collection: InMemory, request_: tuple[str, str], key: bytes
) -> None:
    """Decision 36: quoted or bare; also after others have written, and before any precondition."""
    fields = [] if request_ is POST else [(MATCH, tag(4))]
    first = ask(collection, *request_, BODY, (KEY, key), *fields)
    ask(collection, "PUT", "/api/stores/1", b'{"name":"Later"}')
    before = collection.stores
    again = ask(
        collection, *request_, b' {"address":"1 Road", "name":"New"}', (KEY, b'"%b"' % key), *fields
    )
    assert (again.status, again.body, again.tag, again.location) == (
        200,
        first.body,
        first.tag,
        first.location,
    )
    assert dict(parse_fields(again.headers))[b"idempotent-replayed"] == b"true"
    assert collection.stores == before


@pytest.mark.parametrize(
    ("method", "target", "body", "fields"),
    [
        (*POST, BODY, [(MATCH, b"*")]),
        (*POST, b'{"name":"New"}', []),
        (*POST, b'{"name":"New","address":""}', []),
        (*PUT, BODY, []),
        ("PUT", "/api/stores/none", BODY, []),
        ("PUT", "/api/stores/99", BODY, [(MATCH, b'"1"')]),
    ],
)
def test_a_key_is_good_for_one_request(
    collection: InMemory, method: str, target: str, body: bytes, fields: list[Field]
) -> None:
    """It comes before 404 and 412 (decision 31)."""
    ask(collection, *POST, BODY, (KEY, b"k"))
    before = collection.stores
    status, error, _ = said(ask(collection, method, target, body, (KEY, b"k"), *fields))
    assert (status, error["error"]) == (422, "Unprocessable Content")
    assert collection.stores == before


@pytest.mark.parametrize("name", Payload.__struct_fields__)
@pytest.mark.parametrize("request_", [POST, PUT])
def test_a_key_is_good_for_one_value_of_each_field(
    collection: InMemory, request_: tuple[str, str], name: str
) -> None:
    sent = msgspec.json.decode(BODY)
    other = msgspec.json.encode(sent | {name: sent[name][::-1]})  # as long
    ask(collection, *request_, BODY, (KEY, b"k"))
    assert ask(collection, *request_, other, (KEY, b"k")).status == 422
    assert (
        dict(parse_fields(ask(collection, *request_, BODY, (KEY, b"k")).headers))[
            b"idempotent-replayed"
        ]
        == b"true"
    )


def test_the_same_request_is_the_same_set_of_tags_and_the_same_number(collection: InMemory) -> None:
    def asked(id: str, tags: bytes) -> Response:
        return ask(collection, "PUT", f"/api/stores/{id}", BODY, (KEY, b"k"), (MATCH, tags))

    assert asked("1", tag(4) + b", " + tag(9)).status == 200
    assert (
        dict(parse_fields(asked("01", tag(9) + b",W/" + tag(4)).headers))[b"idempotent-replayed"]
        == b"true"
    )
    assert asked("1", tag(4)).status == 422


def test_only_a_success_is_remembered(collection: InMemory) -> None:
    assert ask(collection, "PUT", "/api/stores/4", BODY, (KEY, b"k")).status == 404
    assert ask(collection, *PUT, BODY, (KEY, b"k"), (MATCH, tag(1))).status == 412
    assert ask(collection, *POST, b"{}", (KEY, b"k")).status == 400
    first = ask(collection, *POST, BODY, (KEY, b"k"))
    assert (first.status, b"idempotent-replayed" in dict(parse_fields(first.headers))) == (
        200,
        False,
    )


@pytest.mark.parametrize(
    ("method", "target"), [POST, PUT, ("GET", "/api/stores/1"), ("GET", "/api/stores")]
)
def test_a_server_of_its_own_and_another_one_send_the_same_fields(
    collection: InMemory, method: str, target: str
) -> None:
    response = ask(collection, method, target, BODY)
    fields = b"".join(b"%b: %b\r\n" % field for field in parse_fields(framed_headers(response)))
    sent = encode_rest(response, b"", head_only=False, close=False, chunked=True)
    assert sent == fields + b"\r\n" + response.body
