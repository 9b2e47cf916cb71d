"""The contract and its decisions as tables, on a collection in memory: where a rule's change is
seen first.

`test_decisions` and `test_payloads` have more of them; over sockets, the kit (`storeapi_check`)
shows the same.
"""

import json
import re
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest

from storekeeper.api.routing import Route
from storekeeper.domain.errors import Outcome, Unavailable
from storekeeper.domain.stores import Payload
from storekeeper.http.response import JSON, NO_CACHE, TEXT, Response, encode_rest, parse_fields
from tests.harness.in_memory import EPOCH, InMemory, Later, ask, ask_later
from tests.harness.payloads import NAME_STRING
from tests.harness.wire import PHRASES

BODY = b'{"name":"New","address":"1 Road"}'


PAYLOADS = (Payload("First", "1 High Street"), Payload("Zürich 🏪"), Payload("First", ""))


@pytest.fixture
def collection() -> Any:
    return InMemory(*PAYLOADS)


def assert_error(response: Response, status: int, message: str, **more: Any) -> None:
    expected = {"statusCode": status, "error": PHRASES[status], "message": message, **more}
    assert (response.status, json.loads(response.body)) == (status, expected)
    assert parse_fields(response.headers)[:2] == [
        (b"content-type", b"application/json; charset=utf-8"),
        (b"cache-control", b"no-cache"),
    ]


# Reading.


@pytest.mark.parametrize(
    ("target", "ids"),
    [
        ("/api/stores", [1, 2, 3]),
        ("/api/stores?", [1, 2, 3]),
        ("/api/stores?name", [1, 2, 3]),
        ("/api/stores?name=", [1, 2, 3]),
        ("/api/stores?other=1", [1, 2, 3]),
        ("/api/stores?name=First", [1, 3]),
        ("/api/stores?name=first", []),
        *(
            (f"/api/stores?name={name}", [])
            for name in ("First+", "+First", "Firs", "FIRST", "%25", "_", "*", "%00")
        ),
        ("/api/stores?name=Z%C3%BCrich+%F0%9F%8F%AA", [2]),
        ("/api/stores?name=Zu%CC%88rich+%F0%9F%8F%AA", []),
        ("/api/stores?name=%ff", []),
        ("/api/%73tores?n%61me=First", [1, 3]),
    ],
)
def test_a_list_has_the_stores_of_exactly_that_name(
    collection: InMemory, target: str, ids: list[int]
) -> None:
    """Decisions 18, 19 and 24."""
    response = ask(collection, "GET", target)
    assert (response.status, [store["id"] for store in json.loads(response.body)]) == (200, ids)
    assert response.headers.startswith(JSON)


def test_stores_are_compact_json_with_their_keys_in_order(collection: InMemory) -> None:
    assert (
        ask(collection, "GET", "/api/stores/2").body
        == '{"id":2,"name":"Zürich 🏪","address":null}'.encode()
    )


def test_a_name_may_be_given_once(collection: InMemory) -> None:
    """Decision 18."""
    response = ask(collection, "GET", "/api/stores?name=a&name=b")
    assert_error(response, 400, NAME_STRING, validation={"source": "query", "keys": ["name"]})


@pytest.mark.parametrize("id", ["1", "01", "%31", "0" * 40 + "1", "1?name=x"])
def test_digits_name_a_store(collection: InMemory, id: str) -> None:
    """Decision 2."""
    assert json.loads(ask(collection, "GET", f"/api/stores/{id}").body)["id"] == 1


NO_IDS = [
    *(
        "0",
        "00",
        "4",
        "abc",
        "1abc",
        "-1",
        "+1",
        "1.0",
        "1e0",
        "0x1",
        "1_0",
        "1,0",
        "NaN",
        "1;2",
        "9" * 19,
        "9" * 5000,
    ),
    *(
        "%D9%A1",
        "%EF%BC%91",
        "%C2%B2",
        "%2B1",
        "%201",
        "1%20",
        "1%00",
        "1%0A",
        "%FF",
        "%C0%B1",
        "%zz",
        "%",
        "1%2F2",
    ),
    *("%2F", "%2E%2E", "..", "stores", "1%2e0", "9223372036854775808", "18446744073709551617"),
]


@pytest.mark.parametrize("id", NO_IDS)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_what_is_no_stores_number_names_none(collection: InMemory, method: str, id: str) -> None:
    """Decisions 1 and 2."""
    text = unquote_to_bytes(id).decode(errors="replace")
    assert_error(ask(collection, method, f"/api/stores/{id}", BODY), 404, f"Store {text} not found")
    hidden = ask(collection, method, f"/api/stores/{id}", BODY, missing_store="500")
    assert_error(hidden, 500, "An internal server error occurred")


def test_the_liveness_route_is_two_characters_of_text(collection: InMemory) -> None:
    """Decision 20."""
    response = ask(collection, "GET", "/test")
    assert (response.status, response.body) == (200, b"OK")
    assert response.headers == TEXT


# Tags of what is read (decisions 32 and 33). The collection of three is at version 3; store 2 is of
# version 2.


def tag_of(response: Response) -> str:
    """Return the tag that the encoder writes."""
    sent = encode_rest(response, b"", head_only=True, close=False, chunked=True)
    [tag] = re.findall(rb"\r\netag: ([^\r]*)\r\n", b"\r\n" + sent)
    return str(tag.decode())


@pytest.mark.parametrize("asked", [ask, ask_later])
@pytest.mark.parametrize(
    ("target", "version"),
    [
        ("/api/stores/2", 2),
        ("/api/stores/2?at=3", 2),
        ("/api/stores", 3),
        ("/api/stores?name=Z%C3%BCrich+%F0%9F%8F%AA", 3),
        ("/api/stores?name=none", 3),
        ("/api/stores?name=%ff", 3),
        ("/api/stores?limit=1", 3),
        ("/api/stores?after=2", 3),
        ("/api/stores?at=2", 2),
        ("/api/stores?at=0", 0),
    ],
)
def test_what_has_the_current_tag_already_is_not_sent_again(
    asked: Any, target: str, version: int
) -> None:
    collection = (InMemory if asked is ask else Later)(*PAYLOADS)
    current, others = (
        f'"{version}.{EPOCH}"',
        (f'"4.{EPOCH}"', f'"{version}.bcdefgha"', "nonsense", '"2"'),
    )
    full = asked(collection, "GET", target)
    assert (full.status, tag_of(full)) == (200, current)
    for method in ("GET", "HEAD"):
        for sent in (current, f"W/{current}", f'"a,b", {current[:-1]}-gzip"', "*"):
            response = asked(collection, method, target, b"", (b"if-none-match", sent.encode()))
            assert (response.status, response.body, response.stream) == (304, b"", None)
            assert (tag_of(response), response.headers) == (current, NO_CACHE)
        for sent in others:
            assert asked(collection, method, target, b"", (b"if-none-match", sent.encode())) == full
        two = [(b"if-none-match", others[0].encode()), (b"if-none-match", current.encode())]
        assert asked(collection, method, target, b"", *two).status == 304


def test_a_poll_of_an_unchanged_list_reads_no_list(collection: InMemory) -> None:
    ask(
        collection,
        "GET",
        "/api/stores?name=First&limit=2",
        b"",
        (b"if-none-match", b'"3.abcdefgh"'),
    )
    assert collection.calls == ["state"]


def test_what_is_not_there_has_no_tag_that_could_match(collection: InMemory) -> None:
    for target in ("/api/stores/4", "/api/stores/none", "/api/stores/3?at=2"):
        response = ask(collection, "GET", target, b"", (b"if-none-match", b"*"))
        assert (response.status, response.tag) == (404, b"")


def test_other_conditions_of_a_get_are_ignored(collection: InMemory) -> None:
    fields = {
        "if-match": '"9.zzzzzzzz',
        "if-modified-since": "Sun, 22 Nov 2026 06:00:00 GMT",
        "range": "bytes=0-1",
    }
    headers = [(name.encode(), value.encode()) for name, value in fields.items()]
    for target in ("/api/stores", "/api/stores/1"):
        assert ask(collection, "GET", target, b"", *headers) == ask(collection, "GET", target)


def test_no_name_equals_bytes_that_are_not_utf_8() -> None:
    """Decision 19."""
    collection = InMemory(Payload("\ufffd"), Payload("?"))
    assert ask(collection, "GET", "/api/stores?name=%ff").body == b"[]"


# Routes and methods.


NO_PATHS = [
    "/",
    "/no",
    "/api",
    "/api/stores/",
    "/api/stores/1/",
    "/api%2Fstores",
    "/Test",
    "/stores",
    "/api/store",
    "/API/stores",
]


def test_other_paths_are_no_routes(collection: InMemory) -> None:
    """Decision 17."""
    for path in NO_PATHS:
        for method in ("GET", "POST"):
            assert_error(ask(collection, method, path, BODY), 404, "Not Found")


def test_a_route_needs_a_token_unless_it_says_otherwise() -> None:
    """A new route is never open by oversight."""
    route = Route("added", "/added", ("GET", "PUT"))
    scopes = [route.scope(method) for method in ("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS")]
    assert scopes == ["read", "read", "write", "write", "write", None]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/test", "GET, HEAD, OPTIONS"),
        ("/api/stores", "GET, HEAD, POST, OPTIONS"),
        ("/api/stores/1", "GET, HEAD, PUT, PATCH, OPTIONS"),
        ("/api/stores/none", "GET, HEAD, PUT, PATCH, OPTIONS"),
        *(
            (path, "GET, HEAD, OPTIONS")
            for path in ("/health/live", "/openapi.json", "/docs", "/docs/docs.css")
        ),
    ],
)
@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "OPTIONS"]
)
def test_a_method_that_a_path_lacks_is_told_those_that_it_has(
    collection: InMemory, method: str, path: str, allowed: str
) -> None:
    """Decision 16; it is refused before its body is looked at (decision 31)."""
    response = ask(collection, method, path, b"{", (b"content-type", b"text/plain"))
    if method == "OPTIONS":
        assert (response.status, response.body, dict(parse_fields(response.headers))[b"allow"]) == (
            204,
            b"",
            allowed.encode(),
        )
    elif method not in allowed:
        assert_error(response, 405, "Method Not Allowed")
        assert dict(parse_fields(response.headers))[b"allow"] == allowed.encode()
    else:
        assert response.status in (200, 404, 415)


# Writing.


def test_a_create_has_the_next_id_and_a_replace_replaces_all(collection: InMemory) -> None:
    assert (
        ask(collection, "POST", "/api/stores", BODY).body
        == b'{"id":4,"name":"New","address":"1 Road"}'
    )
    replaced = ask(collection, "PUT", "/api/stores/4", b'{"name":"Newer"}')
    assert (
        replaced.body
        == ask(collection, "GET", "/api/stores/4").body
        == b'{"id":4,"name":"Newer","address":null}'
    )


WRITES = [("POST", "/api/stores"), ("PUT", "/api/stores/1"), ("PUT", "/api/stores/99")]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 200),
        ({"content-type": "application/json"}, 200),
        ({"content-type": "Application/JSON ; charset=UTF-8"}, 200),
        ({"content-type": "application/merge-patch+json"}, 200),
        ({"content-type": "application/json", "content-encoding": "identity"}, 200),
        ({"content-type": "application/json", "origin": "http://a"}, 200),
        ({"origin": "http://a"}, 415),
        ({"content-type": "application/json; charset=latin-1"}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": ""}, 415),
        ({"content-encoding": "gzip"}, 415),
    ],
)
def test_a_body_has_to_be_json_as_it_is(
    collection: InMemory, fields: dict[str, str], status: int
) -> None:
    """Decision 14; a refusal of the type comes before one of the payload (decision 31)."""
    headers = [(name.encode(), value.encode()) for name, value in fields.items()]
    assert ask(collection, "POST", "/api/stores", BODY, *headers).status == status
    assert ask(collection, "POST", "/api/stores", b"{", *headers).status == (
        400 if status == 200 else 415
    )


# A database that cannot respond.


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize(
    ("method", "target"), [("GET", "/api/stores"), ("GET", "/api/stores/1"), *WRITES]
)
def test_a_database_that_is_away_is_a_503_with_its_outcome(
    collection: InMemory, method: str, target: str, outcome: Outcome
) -> None:
    """Decision 30."""
    collection.fails = Unavailable("The database is locked", outcome)
    response = ask(collection, method, target, BODY if method != "GET" else b"")
    said = "unknown" if outcome is Outcome.UNKNOWN else "none"
    assert_error(response, 503, "The database is locked", outcome=said)
    assert dict(parse_fields(response.headers))[b"retry-after"] == b"1"


def test_a_request_for_which_there_is_not_enough_memory_may_have_been_carried_out(
    collection: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is not a bug."""

    def fails(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("storekeeper.api.routes.stores._decode", fails)
    response = ask(collection, "POST", "/api/stores", BODY)
    assert_error(response, 503, "There is not enough memory", outcome="unknown")
    assert dict(parse_fields(response.headers))[b"retry-after"] == b"1"
