"""Decisions 3 to 15: what a payload may be, over a socket and through both adapters."""

import json
from collections.abc import Iterator

import pytest

from tests.harness.cases import case
from tests.harness.client import accepted, both, nothing_changes
from tests.harness.payloads import BROKEN, NAME_REQUIRED, NOT_JSON, VIOLATIONS, encoded
from tests.harness.process import Running, serving
from tests.harness.stores import fields
from tests.harness.wire import assert_error, assert_invalid


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that rejects unknown keys."""
    with serving(tmp_path_factory.mktemp("strict"), "--unknown-keys=reject", "--examples") as running:
        yield running


@pytest.fixture(scope="module")
def generic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service in the generic mode that rejects unknown keys."""
    options = ("--error-detail=generic", "--unknown-keys=reject", "--examples")
    with serving(tmp_path_factory.mktemp("generic"), *options) as running:
        yield running


def test_a_bad_payload_is_refused_before_the_id_is_looked_at(service: Running) -> None:
    """Decision 3."""
    for id in ("987654321", "abc", "0"):
        assert_invalid(service.request("PUT", f"/api/stores/{id}", {"name": ""}), NAME_REQUIRED, ["name"])
        assert_error(service.request("PUT", f"/api/stores/{id}", b"{"), 400, NOT_JSON)


# Decision 4.


EXTRA: list[dict[str, object]] = [{"id": 9}, {"id": "x"}, {"Name": "B"}, {"__proto__": {}}, {"": None}, {"a\0b": 1}]


def test_unknown_keys_are_ignored_and_never_stored(service: Running) -> None:
    for extra in EXTRA:
        with case(extra):
            assert accepted(service, {"name": "A", **extra}) == fields("A")


NOT_ALLOWED = [
    ({"name": "A", "id": 9}, '"id" is not allowed', ["id"]),
    ({"name": "A", "Name": "B"}, '"Name" is not allowed', ["Name"]),
    ({"name": "A", "b": 1, "a": 2}, '"b" is not allowed. "a" is not allowed', ["b", "a"]),
    ({"id": 9}, '"name" is required. "id" is not allowed', ["name", "id"]),
    ({"name": "A", "ü 東": 9}, '"ü 東" is not allowed', ["ü 東"]),
]


def test_unknown_keys_are_refused_if_the_operator_says_so(strict: Running) -> None:
    for payload, message, keys in NOT_ALLOWED:
        with case(payload):
            for response in both(strict, payload):
                assert_invalid(response, message, keys)
            assert accepted(strict, {"name": "A", "address": "B"}) == fields("A", "B")


# Decisions 5 to 11: the rules of the fields.


def test_each_broken_rule_has_its_message(service: Running) -> None:
    for payload, message, keys in VIOLATIONS:
        with case(payload):
            for response in both(service, encoded(payload)):
                assert_invalid(response, message, keys)


def test_the_generic_mode_has_one_message_for_all_of_them(generic: Running) -> None:
    for payload in [payload for payload, _, _ in VIOLATIONS] + [{"name": "A", "id": 9}]:
        with case(payload):
            for response in both(generic, encoded(payload)):
                assert_error(response, 400, "Invalid request payload input")


NAMES = [
    " ",
    " " * 30,
    "\t\n\r",
    "🏪" * 30,  # decision 7: 30 code points, though 120 bytes and 60 UTF-16 units
    "e\u0301",  # no normalisation
    "\u200b\u202e\ufeff",
    "\x01\x7f\x80",
    "\U0010ffff\ufffe",
    '"\\/\b\f',
    "<script>",
    "__proto__",
]


def test_any_other_text_is_kept_code_point_by_code_point(service: Running) -> None:
    for name in NAMES:
        with case(name):
            assert accepted(service, {"name": name, "address": name * 3}) == fields(name, name * 3)
            escaped = json.dumps({"name": name}, ensure_ascii=True).encode()
            assert accepted(service, escaped) == fields(name)


def test_an_empty_address_is_not_the_same_as_none(service: Running) -> None:
    """Decision 8."""
    assert accepted(service, {"name": "A", "address": ""}) == fields("A", "")


# Decisions 12 and 13: JSON. The extremes of it are in test_json_corpus.py.


def test_what_is_not_json_in_utf8_is_refused_in_every_mode(service: Running, generic: Running) -> None:
    for body in BROKEN:
        with case(body):
            for response in (*both(service, body), *both(generic, body)):
                assert_error(response, 400, NOT_JSON)


SPELLINGS = [
    b' \t\r\n{ "name" : "A" } \t\r\n',
    b'{"n\\u0061me":"\\u0041"}',
    b'{"name":"A","other":' + b"[" * 500 + b"]" * 500 + b"}",
]


def test_every_way_to_write_the_same_json_is_accepted(service: Running) -> None:
    for body in SPELLINGS:
        with case(body):
            assert accepted(service, body) == fields("A")


def test_the_last_of_equal_keys_counts(service: Running) -> None:
    """Decision 13."""
    assert accepted(service, b'{"name":5,"address":5,"name":"A","address":"B"}') == fields("A", "B")
    for response in both(service, b'{"name":"A","name":""}'):
        assert_invalid(response, NAME_REQUIRED, ["name"])


# Decision 14: the media type.


TAKEN = [
    "application/json",
    "APPLICATION/JSON",
    "application/json; charset=utf-8",
    "application/json;charset=UTF-8",
    'application/json ; charset="utf-8"; version=1',
    "application/json; charset=utf8",
    "application/vnd.api+json",
    "application/problem+json; profile=x",
]


def test_json_of_any_kind_and_with_any_parameters_is_taken(service: Running) -> None:
    for kind in TAKEN:
        with case(kind):
            assert accepted(service, {"name": "A"}, {"content-type": kind}) == fields("A")


OTHER_KINDS = [
    *[
        {"content-type": kind}
        for kind in (
            "text/plain",
            "text/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=b",
            "application/jsonp",
            "application/+json",
            "application/xml",
            "application",
            "json",
            "text/plain, application/json",
            "application/json, text/plain",
            "application/json; charset=latin-1",
            "application/json; charset=utf-16",
            "application/json; charset=utf-8; charset=utf-16",
        )
    ],
    *[{"content-encoding": coding} for coding in ("gzip", "br", "deflate", "identity, gzip", "GZIP")],
]


def test_any_other_kind_of_body_is_refused(service: Running) -> None:
    for headers in OTHER_KINDS:
        with case(headers):
            how = "without a Content-Encoding" if "content-encoding" in headers else "as application/json"
            for response in both(service, {"name": "A"}, headers):
                assert_error(response, 415, f"Send the body {how}")


def test_a_body_without_a_media_type_or_coding_is_json(service: Running) -> None:
    body = b'{"name":"A"}'
    with_neither = b"POST /api/stores HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n" % len(body)
    for more in (b"", b"Content-Encoding: identity\r\n", b"Content-Encoding: Identity \r\n"):
        response = service.raw(with_neither + more + b"\r\n" + body)
        assert response.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_page_has_to_name_the_media_type(service: Running) -> None:
    """Without one, a browser would send a body and not ask first. Pages of other sites may not write at all."""
    body = b'{"name":"A"}'
    head = b"%b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: %b\r\nContent-Length: %d\r\n%b\r\n%b"
    typed = b"Content-Type: application/json\r\n"
    for origin, untyped, with_type in ((b"http://localhost", 415, 200), (b"http://b", 403, 403), (b"null", 403, 403)):
        for line in (b"POST /api/stores", b"PUT /api/stores/1"):
            with nothing_changes(service):
                refused = service.raw(head % (line, origin, len(body), b"", body))
                assert refused.startswith(b"HTTP/1.1 %d " % untyped)
        response = service.raw(head % (b"POST /api/stores", origin, len(body), typed, body))
        assert response.startswith(b"HTTP/1.1 %d " % with_type)
    assert service.request("GET", "/api/stores", headers={"origin": "null"}).status == 200


# Decision 15: the size. What the client sees of the refusal is in test_connection.py.


@pytest.mark.parametrize("headers", [{}, {"transfer-encoding": "chunked"}])
def test_a_body_may_have_a_mebibyte_and_not_a_byte_more(service: Running, headers: dict[str, str]) -> None:
    frame = b'{"name":"A","address":"%b"}'
    fill = b"x" * (2**20 - len(frame) + 2)
    assert accepted(service, _framed(frame % fill, headers), headers)["address"] == fill.decode()
    with nothing_changes(service):
        response = service.request("POST", "/api/stores", _framed(frame % (fill + b"x"), headers), headers)
        assert_error(response, 413, "Payload content length greater than maximum allowed: 1048576")


def _framed(body: bytes, headers: dict[str, str]) -> bytes:
    if not headers:
        return body
    parts = [body[start : start + 50_000] for start in range(0, len(body), 50_000)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
