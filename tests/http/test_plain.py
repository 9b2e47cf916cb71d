"""The short way beside the careful way: what it accepts, that one accepts too, and means the same by it.

That both ways give the same responses, `test_adapters.py` and `fuzz_http.py` show: the ASGI adapter goes the careful
way alone.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import pytest

from storekeeper.api.plan import Plan
from storekeeper.api.resource import Resource, Rules
from storekeeper.http import plain
from storekeeper.http.plain import DECIDING_FIELDS, PlainReader
from storekeeper.http.reader import Phase, RequestReader
from storekeeper.http.request import Request
from storekeeper.http.response import Response
from tests.campaigns.fuzz_http import requests_to_damage
from tests.campaigns.mutations import Cases
from tests.harness.json_corpus import NO_JSON
from tests.harness.wire import HOST, create, request

SEED = 20261122
TRACED = ("X-Request-Id: 7b06d1fd", "Cookie: a=b; c=d", "Accept: */*", "Connection: Keep-Alive", "TE: trailers")
ORDINARY = [
    *(request(method, "/api/stores/1?x=%20", None, *TRACED) for method in ("GET", "HEAD")),
    *(create("A", *TRACED), request("PUT", "/api/stores/1", b"{}", *TRACED), request("POST", "/api/stores", b"")),
    b"GET /api/stores?name=A+B HTTP/1.1\r\nX:\r\nhOST: \t[::1]:80 \t\r\nAuthorization: Bearer \xff\r\n\r\n",
]
NOT_PLAIN = [
    *(
        request("GET", "/test", None, field)
        for field in ("Connection: close", "Upgrade: h2c", "Expect: 100-continue")
    ),
    *(request("GET", "/test") * 2, request("GET", "/test")[:-1], request("GET", "/test") + b"x", create("A")[:-1]),
    *(request("GET", "http://a/test"), request("DELETE", "/test"), request("GET", "/" + "t" * 8192)),
    request("GET", "/test", None, *["a:b"] * 100),
]
LINES = [
    "GET /api/stores/1",
    "GET /api/stores/01",
    "HEAD /api/stores/1",
    "GET /api/stores?name=a",
    "GET /none",
    "PUT /test",
]
SOME_FIELDS = [
    *(
        "Host: a",
        "host: b:80",
        "Host: a b",
        "X-Request-Id: 1",
        "X-Request-Id: 2",
        "Cookie: a=\xff",
        "X:",
        "Accept : a",
    ),
    *(
        "Content-Length: 0",
        "Content-Length: 1",
        "Origin: http://a",
        "Content-Type: text/plain",
        "content-type: a/json",
    ),
    *("Connection: keep-alive", "connection: close", "Authorization: a", "If-Match: 1", "If-Match: 2", " folded: a"),
]
resource = Resource(None, Rules())  # type: ignore[arg-type]  # plans ask no collection


def corpus(damaged: int) -> Iterator[bytes]:
    """Yield refusals, JSON, common requests; and so many of them damaged."""
    yield from requests_to_damage()
    for body in NO_JSON.values():
        yield request("POST", "/api/stores", body)
    cases = Cases([*requests_to_damage(), *ORDINARY * 50], SEED)
    for number in range(damaged):
        yield cases[number].sent


def mixed(count: int) -> Iterator[bytes]:
    """Yield requests of a few lines, fields and bodies, some of them none; their parts come again and again."""
    chance = random.Random(SEED)
    for _ in range(count):
        fields = [*SOME_FIELDS[: chance.random() < 0.9], *chance.sample(SOME_FIELDS, chance.randrange(4))]
        chance.shuffle(fields)
        head = [chance.choice(LINES) + " HTTP/1.1", *fields, "", chance.choice(["", "", "", "{"])]
        before = chance.choice(
            ["", "", "\r\n", f"{LINES[0]} HTTP/1.1\r\n", f"{LINES[0]} HTTP/1.1\r\n\r\n"]
        )  # what is none
        yield (before + "\r\n".join(head)).encode("latin-1")


def carefully(data: bytes) -> list[Request | Response]:
    """Return what the careful way makes of `data`."""
    found: list[Request | Response] = []
    reader = RequestReader(lambda read, _: found.append(read), lambda refusal, *_: found.append(refusal), lambda: 0.0)
    reader.feed(data)
    assert reader.phase in (Phase.IDLE, Phase.DISCARDING), "something is left over"
    return found


def meaning(plan: Plan | None) -> object:
    """Return what can be compared of a plan."""
    if plan is None:
        return None
    run = plan.run if isinstance(plan.run, partial) else partial(plan.run)
    arguments = [(a.status, a.headers, a.body) if isinstance(a, Response) else a for a in run.args]
    return run.func, arguments, plan.scope, plan.cache_key


def compare(data: Iterable[bytes]) -> int:
    """Compare what both ways make of each; return how many the short way accepts.

    Each comes when its head is unknown, when its fields were seen before, and when all may be remembered.
    """
    reader, accepted = PlainReader(resource.plan), 0
    for each in chain.from_iterable(zip(given := list(data), given, given, strict=True)):
        short = reader.requests.get(each) or reader.read(each)
        if short is None:
            continue
        accepted += 1
        [careful] = carefully(each)
        assert isinstance(careful, Request), each
        for name in ("method", "target", "version", "keep_alive", "body"):
            assert getattr(short, name) == getattr(careful, name), each
        assert short.headers == [field for field in careful.headers if field[0] in DECIDING_FIELDS], each
        assert meaning(short.plan) == meaning(resource.plan(careful.method, careful.target, careful.headers)), each
    return accepted


@pytest.mark.parametrize("damaged", [4000, pytest.param(200_000, marks=pytest.mark.thorough)])
def test_what_the_short_way_accepts_means_the_same_on_the_careful_way(damaged: int) -> None:
    assert compare(corpus(damaged)) > 3 * damaged // 8


@pytest.mark.parametrize("count", [4000, pytest.param(200_000, marks=pytest.mark.thorough)])
def test_what_is_remembered_of_other_requests_is_never_taken_for_this_one(count: int) -> None:
    assert compare(mixed(count)) > count // 4


def test_a_new_value_of_a_field_that_decides_nothing_makes_no_new_head() -> None:
    planned = []
    reader = PlainReader(lambda *head: planned.append(head) or "a plan")  # type: ignore[func-returns-value]
    for number in range(10):
        assert reader.read(request("GET", "/test", None, f"X-Request-Id: {number}", "If-Match: 1"))
    assert len(planned) == len(reader) + 1 == 2, "it is remembered at its second sighting"
    read = reader.read(request("GET", "/test", None, "X-Request-Id: 1", "If-Match: 2"))
    assert read is not None
    assert read.headers[-1] == (b"if-match", b"2")
    assert len(planned) == 3


def test_it_accepts_ordinary_requests_and_nothing_that_needs_care() -> None:
    reader = PlainReader(resource.plan)
    for data in ORDINARY * 2:
        assert reader.read(data) is not None, data
    for data in NOT_PLAIN:
        assert reader.read(data) is None, data
        assert reader.read(ORDINARY[0]) is not None, "after what it did not accept it reads on"


def trusts_llhttp_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain, "is_host", lambda _: True)


def forgets_llhttp(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlainReader, "_is_valid", lambda _self, _data: True)


def forgets_a_field(patch: pytest.MonkeyPatch) -> None:
    pattern = plain._FIELD.pattern.replace(plain._any_case(b"content-type") + b"|", b"")
    assert pattern != plain._FIELD.pattern
    patch.setattr(plain, "_FIELD", re.compile(pattern))


def forgets_the_deciding_fields(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain, "_FIELD", re.compile(rb"\n[Hh]ost:[^\r]*"))


def takes_any_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain, "_LINE", re.compile(rb"([A-Z]+) ([^ ]*) HTTP/1\.\d"))


@pytest.mark.parametrize(
    "break_it", [trusts_llhttp_alone, forgets_llhttp, forgets_a_field, forgets_the_deciding_fields, takes_any_line]
)
def test_a_short_way_that_accepts_too_much_is_found(
    break_it: Callable[[pytest.MonkeyPatch], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        compare(chain(mixed(2000), corpus(4000)))


def test_a_field_that_decides_nothing_is_not_in_the_request() -> None:
    read = PlainReader(resource.plan).read(request("GET", "/test", None, "X-Forwarded-For: a", "User-Agent: b"))
    assert read is not None
    assert read.headers == [(b"host", HOST.split()[1])]
