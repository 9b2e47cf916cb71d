"""Decisions 3 to 15: what a payload may be, over a socket."""

import json

import pytest

from tests.harness.cases import case
from tests.harness.client import accepted, nothing_changes
from tests.harness.process import Running
from tests.harness.stores import fields
from tests.harness.wire import assert_error

# Decisions 5 to 11: the rules of the fields.


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


SPELLINGS = [
    b' \t\r\n{ "name" : "A" } \t\r\n',
    b'{"n\\u0061me":"\\u0041"}',
    b'{"name":"A","other":' + b"[" * 500 + b"]" * 500 + b"}",
]


def test_every_way_to_write_the_same_json_is_accepted(service: Running) -> None:
    for body in SPELLINGS:
        with case(body):
            assert accepted(service, body) == fields("A")


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
