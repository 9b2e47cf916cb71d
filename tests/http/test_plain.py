"""Plain requests, compared with the careful reader: what the head cache accepts, that one accepts
too, and means the same."""

import re
import tracemalloc
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

import pytest

from storekeeper.api import origins
from storekeeper.api import plan as plans
from storekeeper.api import preconditions as conditions
from storekeeper.api.application import Application
from storekeeper.api.plan import RequestPlan
from storekeeper.http import plain
from storekeeper.http.plain import DECIDING_FIELDS, PlainReader
from storekeeper.http.reader import Phase, RequestReader
from storekeeper.http.request import Request, cut_keys, size_of
from storekeeper.http.response import Response
from tests import ROOT
from tests.campaigns.fuzz_http import requests_to_damage
from tests.campaigns.mutations import Cases
from tests.harness.cases import thorough
from tests.harness.in_memory import an_application
from tests.harness.json_corpus import NO_JSON
from tests.harness.reading import requests
from tests.harness.wire import HOST, create, request

SEED = 20261122
TRACED = (
    "X-Request-Id: 7b06d1fd",
    "Cookie: a=b; c=d",
    "Accept: */*",
    "Connection: Keep-Alive",
    "TE: trailers",
)
ORDINARY = [
    *(request(method, "/api/stores/1?x=%20", None, *TRACED) for method in ("GET", "HEAD")),
    *(
        create("A", *TRACED),
        request("PUT", "/api/stores/1", b"{}", *TRACED),
        request("POST", "/api/stores", b""),
    ),
    *(create("A", f"Idempotency-Key:{key}", *TRACED) for key in ("k", ' "k" ', ' "k', " a b")),
    *(
        method + create("A", "Idempotency-Key: same").removeprefix(b"POST")
        for method in (b"GET", b"POST", b"GET")
    ),
    (
        b"GET /api/stores?name=A+B HTTP/1.1\r\nX:\r\nhOST: \t[::1]:80 \t\r\nAuthorization: Bearer"
        b" \xff\r\n\r\n"
    ),
]
NOT_PLAIN = [
    *(
        request("GET", "/test", None, *fields)
        for fields in (
            *(
                ["proxy-connection: close"],
                ["Connection: close"],
                ["Upgrade: h2c"],
                ["Expect: 100-continue"],
            ),
            *([f"{name}:b"] * 100 for name in ("a", "accept", "x-request-id", "Idempotency-Key")),
            ["Host: a"],
        )
    ),
    *(
        request("GET", "/test") * 2,
        request("GET", "/test")[:-1],
        request("GET", "/test") + b"x",
        create("A")[:-1],
    ),
    *(
        request("GET", "http://a/test"),
        request("DELETE", "/test"),
        request("GET", "/" + "t" * 8192),
    ),
    create("A", "Idempotency-Key: a", "Idempotency-Key: b"),
    request("POST", "/test", None, *["Content-Length: 0"] * 2),
]

closed = an_application(tokens=True, cors_origin=("http://a",), allowed_host=("a",), auth="all")
opened = an_application(cors_origin=("http://a",), allowed_host=("a",))

LOOKED_FOR = re.compile(r'(?:field\([\w.]+, |name == )b"([a-z-]+)"')


def corpus(damaged: int) -> Iterator[bytes]:
    """Yield refusals, JSON, common requests; and damaged ones."""
    yield from requests_to_damage()
    for body in NO_JSON.values():
        yield request("POST", "/api/stores", body)
    cases = Cases([*requests_to_damage(), *ORDINARY * 50], SEED)
    for number in range(damaged):
        yield cases[number].sent


def with_each_byte() -> Iterator[bytes]:
    """Yield requests with each byte at each end and within a value, a name, a target, and between
    fields."""
    written = [
        request("GET", "/api/stores/1", None, f"If-None-Match: {tag}")
        for tag in ('@"1.a"', '"1@a"', "*@")
    ]
    written += [create("A", f"Idempotency-Key: {key}") for key in ("@a", "a@b", '"a"@')]
    written += [
        request("GET", "/test", None, f"X: {value}", "TE: a") for value in ("@", "a@b", "a@\nb")
    ]
    written += [
        request("GET", "/test", None, *fields)
        for fields in (("X@Y: a",), ("@X: a",), ("A: b@", "C: d"))
    ]
    written += [
        request("GET", "/a@b"),
        request("GET", "/a?b@"),
        request("GET", "/test", None, "Accept: a@", "B: c"),
    ]
    for data in written:
        for byte in range(256):
            yield data.replace(b"@", bytes([byte]))


def carefully(data: bytes) -> list[Request | Response]:
    """Return what the careful reader makes of `data`."""
    found: list[Request | Response] = []
    reader = RequestReader(lambda refusal: found.append(refusal.response), lambda: 0.0)
    found += requests(reader, data)
    assert reader.phase in (Phase.IDLE, Phase.DISCARDING), "something is left over"
    return found


def meaning(plan: Any) -> object:
    """Return what can be compared of a plan."""
    run = plan.run if isinstance(plan.run, partial) else partial(plan.run)
    claim = isinstance(plan.claim, partial) and (plan.claim.func, _comparable(plan.claim.args))
    constant = _comparable(
        [cell.cell_contents for cell in getattr(run.func, "__closure__", None) or ()]
    )
    names = run.func.__qualname__, _comparable([a for a in run.args if not isinstance(a, list)])
    return names, constant, claim, plan.route, plan.scope, plan.cacheable, plan.fields


def _comparable(values: Iterable[Any]) -> list[object]:
    return [(v.status, v.headers, v.body) if isinstance(v, Response) else v for v in values]


def deciding(read: Request) -> list[tuple[bytes, bytes]]:
    """Return the deciding fields but a valid key; only the order of those of one name means
    anything."""
    fields = [field for field in read.headers if not cut_keys(b"\r\n%b:%b" % field)[1]]
    return sorted([field for field in fields if field[0] in DECIDING_FIELDS], key=itemgetter(0))


def compare(data: Iterable[bytes], application: Application = closed) -> int:
    """Compare what both make of each request, known and unknown; return how many of them are
    plain."""
    reader, accepted = PlainReader(), 0
    for each in chain.from_iterable((each, each) for each in data):
        short = reader.read(each)
        if short is None:
            continue
        accepted += 1
        [careful] = carefully(each)
        assert isinstance(careful, Request), each
        for name in ("method", "target", "version", "keep_alive", "body", "id", "key"):
            assert getattr(short, name) == getattr(careful, name), each
        assert deciding(short) == deciding(careful), each
        planned = application._plan(careful)
        assert meaning(application._plan(short)) == meaning(planned), each
    return accepted


@pytest.mark.parametrize("count", [3000, *thorough(200_000)])
def test_a_plain_request_means_the_same_to_the_careful_reader(count: int) -> None:
    """Whatever other requests came before."""
    assert compare(corpus(count)) > count // 4


def test_no_byte_gets_by_that_the_careful_reader_refuses() -> None:
    assert compare(with_each_byte(), opened) > 3000


def test_ordinary_requests_are_plain_and_nothing_that_needs_care_is() -> None:
    reader = PlainReader()
    for data in ORDINARY * 2:
        assert reader.read(data) is not None, data
    for data in NOT_PLAIN:
        assert reader.read(data) is None, data
        assert reader.read(ORDINARY[0]) is not None, "after what it did not accept it reads on"


def test_a_field_that_decides_nothing_is_no_part_of_the_request_and_needs_no_new_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[object] = []
    application = an_application()
    plan = application.plan

    def plan_and_count(*head: Any) -> RequestPlan:
        planned.append(head)
        return plan(*head)

    monkeypatch.setattr(application, "plan", plan_and_count)
    reader = PlainReader()
    for number in range(10):
        for data in (
            create("A", f"X-Id: {number}"),
            request("GET", f"/api/stores/{number}", None, f"X-Id: {number}"),
        ):
            read = reader.read(data)
            assert read is not None
            assert (b"host", HOST.split()[1]) in read.headers
            assert b"x-id" not in dict(read.headers)
            application.respond(read)
    assert len(planned) == 2
    for number in range(10):
        read = reader.read(request("GET", "/test", None, f"Accept: {number}"))
        assert read is not None
        application.respond(read)
    assert len(planned) == 12


def test_every_field_that_anybody_looks_for_decides() -> None:
    """A plain request hides all others: code that looks for another field must add it."""
    found = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in LOOKED_FOR.findall(path.read_text())
    }
    assert {"authorization", "host", "if-none-match", "origin"} <= found
    assert {name.encode() for name in found} | origins._PAGE_FIELDS <= {
        *DECIDING_FIELDS,
        b"content-length",
    }
    assert b"content-type" in DECIDING_FIELDS
    assert conditions.check_type([(b"content-type", b"text/plain")])


def test_a_plain_request_takes_as_many_bytes_as_it_does_to_the_careful_reader() -> None:
    data = create("A", "If-None-Match: *")
    read = PlainReader().read(data)
    [careful] = carefully(data)
    assert isinstance(careful, Request)
    assert read is not None
    assert read.size == careful.size == size_of(careful.target, careful.headers) + len(careful.body)


@pytest.mark.parametrize(
    "field", ["X: {}", "Accept: {}", "If-None-Match: {}", "Idempotency-Key: {}", "If-Match: {}"]
)
def test_remembered_heads_are_bounded_with_their_plans(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields of 1 KiB may have hundreds of entity tags, each of them a string in a set of each
    plan."""
    for module in (plain, plans):
        monkeypatch.setattr(module, "MAX_CACHED_BYTES", 2**17)
    application = an_application()
    tags = ",".join(f'"{chr(letter)}{digit}"' for letter in range(0x61, 0x7B) for digit in range(5))
    reader = PlainReader()
    tracemalloc.start()
    for number in range(300):
        fields = field.format(f'"{number}",{tags}')
        for method, path in (
            ("GET", "/api/stores"),
            ("PUT", "/api/stores/1"),
            ("POST", "/api/stores"),
            ("GET", "/"),
        ):
            read = reader.read(request(method, path, None, fields))
            assert read is not None or "Key" in field
            if read is not None:
                application._plan(read)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2**18


FIELDS = plain._FIELDS.pattern
NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
BROKEN: dict[str, tuple[str, object]] = {
    "takes any host": ("is_host", lambda _: True),
    "forgets a field": ("_DECIDING", plain._DECIDING - {b"content-type"}),
    "forgets proxies": ("_CONNECTION", {b"connection"}),
    "takes any line": ("_LINE", re.compile(rb"([A-Z]+) (([^ ?]*)[^ ]*) HTTP/1\.\d")),
    "takes any byte": ("_FIELDS", re.compile(FIELDS.replace(rb"\x00-\x08\x0a-\x1f\x7f", rb"\r\n"))),
    "takes any name": ("_FIELDS", re.compile(FIELDS.replace(NAME, rb"[^:\r\n]++"))),
    "takes two lengths": ("_ONCE", ()),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_head_cache_that_accepts_too_much_is_found(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, *BROKEN[broken])
    with pytest.raises((AssertionError, ValueError)):
        compare(chain(NOT_PLAIN, corpus(4000), with_each_byte()), opened)
