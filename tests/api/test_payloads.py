"""Decisions 3 to 15: what a payload may be, and bodies made to break a JSON parser, on a
collection in memory.

That both databases keep any text as it is, `domain/test_collection_lists.py` shows.
"""

import json
from typing import Any

import pytest

from storekeeper.domain.stores import Payload
from storekeeper.http.response import Response
from tests.harness.cases import case
from tests.harness.in_memory import InMemory, ask
from tests.harness.json_corpus import DIGITS, NO_JSON, fill
from tests.harness.payloads import (
    ADDRESS_STRING,
    BROKEN,
    NAME_LONG,
    NAME_NULL_CHARACTER,
    NAME_REQUIRED,
    NAME_STRING,
    NOT_JSON,
    NOT_OBJECT,
    VIOLATIONS,
    encoded,
)
from tests.harness.stores import fields
from tests.harness.wire import PHRASES

WRITES = [("POST", "/api/stores"), ("PUT", "/api/stores/1"), ("PUT", "/api/stores/99")]


def assert_refused(body: object, message: str, **more: Any) -> None:
    """Every write refuses a body so, and changes nothing; a generic message takes the place of a
    detailed one."""
    assert isinstance(body, bytes)
    collection = InMemory(Payload("Unchanged", "Same address"))
    generic = "Invalid request payload input" if more else message
    for method, target in WRITES:
        assert_error(ask(collection, method, target, body), message, **more)
        assert_error(ask(collection, method, target, body, error_detail="generic"), generic)
    assert [(store.name, store.address) for store in collection.stores] == [
        ("Unchanged", "Same address")
    ]


def assert_error(response: Response, message: str, **more: Any) -> None:
    expected = {"statusCode": 400, "error": PHRASES[400], "message": message, **more}
    assert (response.status, json.loads(response.body)) == (400, expected)


def assert_invalid(body: object, message: str, keys: list[str]) -> None:
    assert_refused(body, message, validation={"source": "payload", "keys": keys})


def accepted(body: bytes) -> dict[str, Any]:
    """Create and update with a body that must be accepted; return the store without its id."""
    collection = InMemory(Payload("Another"))
    created = ask(collection, "POST", "/api/stores", body)
    assert ask(collection, "PUT", "/api/stores/1", body).status == created.status == 200
    for id in (1, 2):
        assert json.loads(ask(collection, "GET", f"/api/stores/{id}").body) == {
            **json.loads(created.body),
            "id": id,
        }
    store: dict[str, Any] = json.loads(created.body)
    return {key: value for key, value in store.items() if key != "id"}


def test_a_payload_that_breaks_a_rule_is_told_all_rules_that_it_breaks() -> None:
    for payload, message, keys in VIOLATIONS:
        with case(payload):
            assert_invalid(encoded(payload) or b"", message, keys)


NAMES = [
    " ",
    " " * 30,
    "\t\n\r",
    "🏪" * 30,  # decision 7: 30 code points, though 120 bytes and 60 UTF-16 units
    "e\u0301",  # no normalisation
    "\u200b\u202e\ufeff",
    "".join(map(chr, range(1, 31))),
    "\x1f\x7f\x80",
    "\U0010ffff\ufffe",
    '"\\/\b\f',
    "<script>",
    "__proto__",
]


def test_any_other_text_is_kept_code_point_by_code_point() -> None:
    for name in NAMES:
        with case(name):
            for ascii in (True, False):
                body = json.dumps({"name": name, "address": name * 3}, ensure_ascii=ascii).encode()
                assert accepted(body) == fields(name, name * 3)
    assert accepted(b'{"name":"A","address":""}') == fields("A", ""), (
        "decision 8: not the same as none"
    )


def test_what_no_parser_should_take_is_refused() -> None:
    """Decision 12: the generic mode says it too."""
    for body in (*NO_JSON.values(), *BROKEN):
        with case(body):
            assert_refused(body, NOT_JSON)


NUMBERS = [
    *(
        b"18446744073709551616",
        b"-18446744073709551617",
        b"9223372036854775808",
        b"-9223372036854775809",
    ),
    *(
        b"-0",
        b"-0.0",
        b"1e400",
        b"-1e400",
        b"1e-400",
        b"1E+999999999",
        b"0e999999999",
        b"1.00000000000000000000001",
    ),
    *(
        DIGITS,
        b"-" + DIGITS,
        b"0." + DIGITS,
        DIGITS + b"." + DIGITS,
        DIGITS + b"e" + DIGITS,
        b"1e-" + DIGITS,
    ),
    b"7" * 2**19,
]


def test_a_number_of_any_size_is_a_number() -> None:
    """No name, no address and no object; in a key that is ignored, nothing at all."""
    for number in NUMBERS:
        with case(number):
            assert_invalid(b'{"name":%b}' % number, NAME_STRING, ["name"])
            assert_invalid(b'{"name":"A","address":%b}' % number, ADDRESS_STRING, ["address"])
            assert_invalid(number, NOT_OBJECT, [])
            assert accepted(
                b'{"name":"A","1":1,"other":[%b,{"more":%b}]}' % (number, number)
            ) == fields("A")


NO_PAYLOADS = [
    (b'""', NOT_OBJECT, []),
    (b"[[]]", NOT_OBJECT, []),
    (b"{}", NAME_REQUIRED, ["name"]),
    (b'{"":"A"}', NAME_REQUIRED, ["name"]),
    (b'{"name ":"A"}', NAME_REQUIRED, ["name"]),
    (b'{"__proto__":{"name":"A"}}', NAME_REQUIRED, ["name"]),
    (b'{"name":{"__proto__":"A"}}', NAME_STRING, ["name"]),
    (b'{"name":{"toString":"A"}}', NAME_STRING, ["name"]),
    (b'{"name":"A","n\\u0061me":5}', NAME_STRING, ["name"]),
    (b'{"name":"A","address":"B","address":null}', ADDRESS_STRING, ["address"]),
    (b'{"name":"A","name":"\\u0000"}', NAME_NULL_CHARACTER, ["name"]),
    (fill(b'{"name":"%b"}', b"x"), NAME_LONG, ["name"]),
    (fill(b'{"name":"%b"}', b"\\u0041"), NAME_LONG, ["name"]),
    (fill(b'"%b"', b"x"), NOT_OBJECT, []),
    (fill(b"[%b0]", b"0,"), NOT_OBJECT, []),
]


def test_json_that_is_no_payload_breaks_its_rule() -> None:
    for body, message, keys in NO_PAYLOADS:
        with case(body):
            assert_invalid(body, message, keys)


SAME = [
    b' \t\r\n{ "name" : "A" } \t\r\n',
    b'{"n\\u0061me":"\\u0041"}',
    b'{"name":"A","other":' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"name":5,"n\\u0061me":"A"}',
    b'{"name":"B","name":"C","name":"A"}',
    b'{"name":"A","id":9,"Name":"B"}',
    b'{"name":"A","__proto__":{"name":"B"},"constructor":{"prototype":1},"toString":null}',
    b'{"name":"A","other":{"name":"B","address":5}}',
    b'{"name":"A","a":1,"a":1e400,"a":"last"}',
    b'{"name":"A","":"","\\u0000":"\\u0000"}',
    fill(b'{"name":"A","%b":1}', b"k"),
    fill(b'{"name":"A","other":"%b"}', b"\\u0041"),
    fill(b'{"name":"A","other":[%b0]}', b"0,"),
    fill(b'{"name":"A","other":[%b{}]}', b"{},"),
    fill(b'{"name":"A",%b"z":0}', b'"a":1,'),
    fill(b'%b{"name":"A"}', b"\n"),
    fill(b'{"name":"A"}%b', b" "),
]


def test_other_ways_to_write_it_and_what_is_not_looked_at_do_no_harm() -> None:
    """Decisions 4 and 13, up to a mebibyte of it."""
    for body in SAME:
        with case(body):
            assert accepted(body) == fields("A")


@pytest.mark.parametrize(
    "unit", [b"x", b"\\u0041", b"\\\\", b"\xc3\xbc", b"\xf0\x9f\x8f\xaa", b"\\ud83c\\udfea"]
)
def test_an_address_may_fill_the_body_in_any_spelling(unit: bytes) -> None:
    body = fill(b'{"name":"A","address":"%b"}', unit)
    assert accepted(body) == json.loads(body)


NOT_ALLOWED = [
    ({"name": "A", "id": 9}, '"id" is not allowed', ["id"]),
    ({"name": "A", "Name": "B"}, '"Name" is not allowed', ["Name"]),
    ({"name": "A", "b": 1, "a": 2}, '"b" is not allowed. "a" is not allowed', ["b", "a"]),
    ({"id": 9}, '"name" is required. "id" is not allowed', ["name", "id"]),
    ({"name": "A", "ü 東": 9}, '"ü 東" is not allowed', ["ü 東"]),
]


def test_unknown_keys_are_refused_if_the_operator_says_so() -> None:
    """Decision 4."""
    for body, message, keys in NOT_ALLOWED:
        response = ask(
            InMemory(), "POST", "/api/stores", json.dumps(body).encode(), unknown_keys="reject"
        )
        assert_error(response, message, validation={"source": "payload", "keys": keys})
