"""Bodies made to break a JSON parser, to POST and PUT : refused and nothing changed, or kept.

What each rule of a payload says is in test_payloads.py, with the plainer of such bodies; here are the
extremes of decisions 10 to 13 and 15.
"""

import json

from tests.harness.cases import case
from tests.harness.client import accepted, both
from tests.harness.databases import EVERY_KIND
from tests.harness.json_corpus import DIGITS, NO_JSON, fill
from tests.harness.payloads import (
    ADDRESS_STRING,
    NAME_LONG,
    NAME_NULL_CHARACTER,
    NAME_REQUIRED,
    NAME_STRING,
    NOT_JSON,
    NOT_OBJECT,
)
from tests.harness.process import Running
from tests.harness.stores import fields
from tests.harness.wire import assert_error, assert_invalid


def test_what_no_parser_should_take_is_refused(service: Running) -> None:
    for name, body in NO_JSON.items():
        with case(name):
            for response in both(service, body):
                assert_error(response, 400, NOT_JSON)


NUMBERS = [
    *(b"18446744073709551616", b"-18446744073709551617", b"9223372036854775808", b"-9223372036854775809"),
    *(
        b"-0",
        b"-0.0",
        b"1e400",
        b"-1e400",
        b"1e-400",
        b"1E+999999999",
        b"0e999999999",
        b"1.0000000000000000000000001",
    ),
    *(DIGITS, b"-" + DIGITS, b"0." + DIGITS, DIGITS + b"." + DIGITS, DIGITS + b"e" + DIGITS, b"1e-" + DIGITS),
]


def test_a_number_of_any_size_is_a_number(service: Running) -> None:
    """No name, no address and no object; in a key that is ignored, nothing at all."""
    for number in NUMBERS:
        with case(number):
            for response in both(service, b'{"name":%b}' % number):
                assert_invalid(response, NAME_STRING, ["name"])
            for response in both(service, b'{"name":"A","address":%b}' % number):
                assert_invalid(response, ADDRESS_STRING, ["address"])
            for response in both(service, number):
                assert_invalid(response, NOT_OBJECT, [])
            many = b'{"name":"A","%b":%b,"other":[%b,{"more":%b}]}' % (number, number, number, number)
            assert accepted(service, many) == fields("A")


def test_a_number_may_be_as_long_as_a_body(service: Running) -> None:
    assert accepted(service, fill(b'{"name":"A","other":%b}', b"7")) == fields("A")
    for response in both(service, fill(b'{"name":%b}', b"7")):
        assert_invalid(response, NAME_STRING, ["name"])


NO_PAYLOADS = [
    (b'""', NOT_OBJECT, []),
    (b"[[]]", NOT_OBJECT, []),
    (b"-0", NOT_OBJECT, []),
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


def test_json_that_is_no_payload_breaks_its_rule(service: Running) -> None:
    for body, message, keys in NO_PAYLOADS:
        with case(body):
            for response in both(service, body):
                assert_invalid(response, message, keys)


IGNORED = [
    b'{"name":5,"n\\u0061me":"A"}',
    b'{"name":"B","name":"C","name":"A"}',
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


def test_what_is_not_looked_at_does_no_harm(service: Running) -> None:
    """Decisions 4 and 13, up to a mebibyte of it."""
    for body in IGNORED:
        with case(body):
            assert accepted(service, body) == fields("A")


@EVERY_KIND
def test_every_control_character_can_be_escaped(service: Running) -> None:
    text = "".join(map(chr, range(1, 31)))
    assert len(text) == 30
    body = b'{"name":"%b","address":"\\u001f"}' % b"".join(b"\\u%04x" % code for code in range(1, 31))
    assert accepted(service, body) == fields(text, "\x1f")


SPELLINGS = [b"x", b"\\u0041", b"\\\\", "\u00fc".encode(), "\U0001f3ea".encode(), b"\\ud83c\\udfea"]


def test_an_address_may_fill_the_body_in_any_spelling(service: Running) -> None:
    for unit in SPELLINGS:
        with case(unit):
            body = fill(b'{"name":"A","address":"%b"}', unit)
            assert accepted(service, body) == json.loads(body)
