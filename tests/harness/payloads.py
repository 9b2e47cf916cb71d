"""Payloads that break a rule, each with its message, and bodies that are not JSON (decisions 3 to
15)."""

import json

NOT_OBJECT = '"value" must be of type object'
NOT_JSON = "Invalid request payload JSON format"
NAME_STRING = '"name" must be a string'
NAME_REQUIRED = '"name" is required'
NAME_LONG = '"name" length must be less than or equal to 30 characters long'
NAME_NULL_CHARACTER = '"name" must not contain null characters'
ADDRESS_STRING = '"address" must be a string'
ADDRESS_NULL_CHARACTER = '"address" must not contain null characters'

NOT_NAMES: list[object] = [None, 0, 1.5, True, False, {}, [], ["A"], 10**400]
NOT_ADDRESSES: list[object] = [None, 0, True, {}, ["B"], 1e400]

VIOLATIONS: list[tuple[object, str, list[str]]] = [
    *[({"name": value}, NAME_STRING, ["name"]) for value in NOT_NAMES],
    ({"address": "B"}, NAME_REQUIRED, ["name"]),
    ({"NAME": "A"}, NAME_REQUIRED, ["name"]),
    ({"name": "x" * 31}, NAME_LONG, ["name"]),
    ({"name": "x" * 100_000}, NAME_LONG, ["name"]),
    ({"name": "🏪" * 31}, NAME_LONG, ["name"]),
    ({"name": " " * 31}, NAME_LONG, ["name"]),
    *[({"name": "A", "address": value}, ADDRESS_STRING, ["address"]) for value in NOT_ADDRESSES],
    ({"address": 5}, f"{NAME_REQUIRED}. {ADDRESS_STRING}", ["name", "address"]),
    ({"address": 5, "name": 5}, f"{NAME_STRING}. {ADDRESS_STRING}", ["name", "address"]),
    ({"name": "x" * 31, "address": None}, f"{NAME_LONG}. {ADDRESS_STRING}", ["name", "address"]),
    ({"name": "A\0"}, NAME_NULL_CHARACTER, ["name"]),
    ({"name": "\0"}, NAME_NULL_CHARACTER, ["name"]),
    ({"name": "A", "address": "B\0C"}, ADDRESS_NULL_CHARACTER, ["address"]),
    (
        {"name": "\0", "address": "\0"},
        f"{NAME_NULL_CHARACTER}. {ADDRESS_NULL_CHARACTER}",
        ["name", "address"],
    ),
    ([], NOT_OBJECT, []),
    ([{"name": "A"}], NOT_OBJECT, []),
    ("name", NOT_OBJECT, []),
    (0, NOT_OBJECT, []),
    (b"null", NOT_OBJECT, []),
    (b"true", NOT_OBJECT, []),
    (b"", NOT_OBJECT, []),
    (None, NOT_OBJECT, []),
]


def encoded(payload: object) -> object:
    """Return a payload as the bytes that the rule is about; Python writes 1e400 as Infinity, which
    is not JSON."""
    text = (
        json.dumps(payload).replace("Infinity", "1e400")
        if isinstance(payload, dict | list | str | int)
        else ""
    )
    return text.encode() if text else payload


BROKEN = [
    b" ",
    b"\x00",
    b"{",
    b'{"name":"A"',
    b"{'name':'A'}",
    b"{name:'A'}",
    b'{"name":"A",}',
    b'{"name":"A"} x',
    b'{"name":"A"}{"name":"B"}',
    b'{"name":"A"}\0',
    b'{"name":"A" /* note */}',
    b'{"name":"A\n"}',
    b'{"name":"\\x41"}',
    b'{"name":"\\ud800"}',
    b'{"name":"\\udc00\\ud800"}',
    b'{"name":"A","address":"\\udfff"}',
    b'{"name":"A","other":"\\ud800"}',
    b'{"\\ud800":1,"name":"A"}',
    b'{"name":"\xff"}',
    b'{"name":"\xc0\xaf"}',
    b'{"name":"\xed\xa0\x80"}',
    b'{"name":"\xf4\x90\x80\x80"}',
    b'{"name":"A","other":"\xff"}',
    b'\xef\xbb\xbf{"name":"A"}',
    '{"name":"A"}'.encode("utf-16"),
    '{"name":"A"}'.encode("utf-16-le"),
    '{"name":"A"}'.encode("utf-32"),
    b'{"name":"A","other":NaN}',
    b'{"name":"A","other":-Infinity}',
    b'{"name":NaN}',
    b'{"name":"A","other":01}',
    b'{"name":"A","other":+1}',
    b'{"name":"A","other":.5}',
    b'{"name":"A","other":0x1}',
    b'{"name":"A","other":1e400,"more":NaN}',
    b'{"name":"A","other":1e400,"more":"\\ud800"}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"name":"A","other":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b"name=A",
    b"<name>A</name>",
]
