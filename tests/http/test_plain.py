"""The short way beside the careful way: what it accepts, that one accepts too, and means the same by it.

That both ways give the same responses, `test_adapters.py` and `fuzz_http.py` show: the ASGI adapter goes the careful
way alone.
"""

import re
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

import httptools
import pytest
from msgspec.structs import replace

from storekeeper.api import conditions, origins
from storekeeper.api.gate import Gate
from storekeeper.api.origins import WebPages
from storekeeper.api.plan import Plan
from storekeeper.api.resource import Resource
from storekeeper.api.routes import SHAPES
from storekeeper.api.token_table import TokenTable
from storekeeper.http import plain
from storekeeper.http.plain import DECIDING_FIELDS, PlainReader
from storekeeper.http.reader import Phase, RequestReader
from storekeeper.http.request import Request, size_of
from storekeeper.http.response import Response
from storekeeper.settings import Settings
from tests import ROOT
from tests.campaigns.fuzz_http import requests_to_damage
from tests.campaigns.mutations import Cases
from tests.campaigns.strangers import ORDINARY, SEED, clients, mixed, unfinished
from tests.harness.in_memory import InMemory
from tests.harness.json_corpus import NO_JSON
from tests.harness.wire import HOST, create, request

NOT_PLAIN = [
    *(
        request("GET", "/test", None, field)
        for field in ("proxy-connection: close", "Connection: close", "Upgrade: h2c", "Expect: 100-continue")
    ),
    *(request("GET", "/test") * 2, request("GET", "/test")[:-1], request("GET", "/test") + b"x", create("A")[:-1]),
    *(request("GET", "http://a/test"), request("DELETE", "/test"), request("GET", "/" + "t" * 8192)),
    request("GET", "/test", None, *["a:b"] * 100),
]
resource = Resource(InMemory(), Settings())  # type: ignore[arg-type]  # plans ask no collection


LOOKED_FOR = re.compile(r'(?:field\([\w.]+, |name == )b"([a-z-]+)"')


@pytest.fixture(autouse=True)
def learning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "LEARN_EVERY", 1)


tokens = TokenTable(None)  # type: ignore[arg-type]  # nor a source of tokens
gate = Gate(resource, WebPages(["http://a"], ["a"]), "all", tokens)
open_gate = Gate(resource, WebPages(["http://a"], ["a"]), "open", tokens)


def corpus(damaged: int) -> Iterator[bytes]:
    """Yield refusals, JSON, common requests; and so many of them damaged."""
    yield from requests_to_damage()
    for body in NO_JSON.values():
        yield request("POST", "/api/stores", body)
    cases = Cases([*requests_to_damage(), *ORDINARY * 50], SEED)
    for number in range(damaged):
        yield cases[number].sent


def carefully(data: bytes) -> list[Request | Response]:
    """Return what the careful way makes of `data`."""
    found: list[Request | Response] = []
    reader = RequestReader(found.append, lambda refusal, *_: found.append(refusal), lambda: 0.0)
    reader.feed(data)
    assert reader.phase in (Phase.IDLE, Phase.DISCARDING), "something is left over"
    return found


class Told:
    """What llhttp tells of the fields of one request."""

    def __init__(self, data: bytes) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        httptools.HttpRequestParser(self).feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value.rstrip()))


def meaning(plan: Plan | None, apart: object = None) -> object:
    """Return what can be compared of a plan, and of the condition that was read apart, if one was."""
    if plan is None:
        return None
    assert apart is None or plan.condition is None
    run = plan.run if isinstance(plan.run, partial) else partial(plan.run)
    arguments = [(a.status, a.headers, a.body) if isinstance(a, Response) else a for a in run.args]
    claim = isinstance(plan.claim, partial) and (plan.claim.func, plan.claim.args)
    condition = plan.condition if apart is None else apart
    return run.func, arguments, plan.scope, plan.cached and apart is None, plan.fields, claim, condition


def deciding(read: Request, plan: Plan | None) -> list[tuple[bytes, bytes]]:
    """Return the deciding fields without the condition; only the order of those of one name means anything."""
    names = {*DECIDING_FIELDS}
    if read.condition is not None or (plan is not None and plan.condition is not None):
        names = names - {b"if-none-match" if read.method in ("GET", "HEAD") else b"idempotency-key"}
    return sorted([field for field in read.headers if field[0] in names], key=itemgetter(0))


def compare(data: Iterable[bytes], gate: Gate = gate) -> int:
    """Compare what both ways make of each; return how many the short way accepts.

    Each comes when its head is unknown, when its fields were seen before, and when all may be remembered.
    """
    reader, accepted = PlainReader(gate.plan, SHAPES), 0
    for each in chain.from_iterable(zip(given := list(data), given, given, strict=True)):
        short = reader.requests.get(each) or reader.read(each)
        if short is None:
            continue
        accepted += 1
        [careful] = carefully(each)
        assert isinstance(careful, Request), each
        for name in ("method", "target", "version", "keep_alive", "body"):
            assert getattr(short, name) == getattr(careful, name), each
        assert careful.headers == Told(each).fields, each
        plan = gate.plan(careful.method, careful.target, careful.headers)
        assert deciding(short, short.plan) == deciding(careful, plan), each
        assert meaning(short.plan, short.condition) == meaning(plan), each
    return accepted


class Client:
    """A connection as the fast lane reads it: the short way where it may, else the careful way."""

    def __init__(self, plain: PlainReader | None) -> None:
        self.short = 0
        self.read: list[object] = []
        self._plain = plain
        self._careful = RequestReader(lambda read: self.read.append(self._meaning(read)), self._refuse, lambda: 0.0)

    def receive(self, data: bytes) -> None:
        if self._plain is not None and self._careful.phase is Phase.IDLE:
            request = self._plain.requests.get(data) or self._plain.read(data)
            if request is not None:
                self.short += 1
                self.read.append(self._meaning(request))
                return
        self._careful.feed(data)

    def _meaning(self, read: Request) -> object:
        plan = read.plan or open_gate.plan(read.method, read.target, read.headers)
        planned = meaning(plan, read.condition)
        return read.method, read.target, read.version, read.keep_alive, read.body, deciding(read, plan), planned

    def _refuse(self, refusal: Response, request: Request) -> None:
        self.read.append((refusal.status, refusal.body, request.method, request.target))


def compare_clients(sent: Iterable[list[bytes]]) -> int:
    """Compare what is read of each client's bytes, among those of all others, and by itself; return as `compare`."""
    plain, accepted = PlainReader(open_gate.plan, SHAPES), 0
    for reads in sent:
        client, alone = Client(plain), Client(None)
        for data in reads:
            client.receive(data)
        alone.receive(b"".join(reads))
        assert client.read == alone.read, reads
        accepted += client.short
    return accepted


@pytest.mark.parametrize("damaged", [4000, pytest.param(200_000, marks=pytest.mark.thorough)])
def test_what_the_short_way_accepts_means_the_same_on_the_careful_way(damaged: int) -> None:
    assert compare(corpus(damaged)) > damaged // 4


@pytest.mark.parametrize("count", [4000, pytest.param(200_000, marks=pytest.mark.thorough)])
def test_what_is_remembered_of_other_requests_is_never_taken_for_this_one(count: int) -> None:
    assert compare(mixed(count)) > count // 4


@pytest.mark.parametrize("count", [5000, pytest.param(300_000, marks=pytest.mark.thorough)])
def test_what_a_client_sends_means_the_same_whoever_else_sends_what(count: int) -> None:
    assert compare_clients(clients(count)) > count // 4


def test_what_one_client_left_unfinished_does_not_swallow_the_next_ones_head() -> None:
    reader = PlainReader(gate.plan, SHAPES)
    hostile = request("GET", "/test", None, "Transfer-Encoding : chunked", "X\0: y")
    for behind in (unfinished(hostile), b"GET /test HTTP/1.1\r\nX: "):
        assert reader.read(request("GET", "/test") + behind) is None
        assert reader.read(hostile) is None


def test_a_new_value_of_a_field_that_decides_nothing_makes_no_new_head() -> None:
    planned = []
    reader = PlainReader(lambda *head: planned.append(head) or "a plan", SHAPES)  # type: ignore[func-returns-value]
    for number in range(10):
        read = reader.read(request("GET", f"/api/stores/{number}", None, f"X-Request-Id: {number}", "If-Match: 1"))
        assert read is not None
        assert (read.method, read.target) == ("GET", b"/api/stores/%d" % number)
    assert len(planned) == 2, "its fields are remembered at their second sighting"
    assert not reader.requests, "no request came again"
    read = reader.read(request("GET", "/api/stores/1", None, "X-Request-Id: 1", "If-Match: 2"))
    assert read is not None
    assert read.headers[-1] == (b"if-match", b"2")
    assert len(planned) == 3


def test_it_accepts_ordinary_requests_and_nothing_that_needs_care() -> None:
    reader = PlainReader(gate.plan, SHAPES)
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


def forgets_proxies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain, "_CONNECTION", {b"connection"})


def forgets_the_deciding_fields(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain, "_FIELD", re.compile(rb"\n[Hh]ost:[^\r]*\r"))


def takes_any_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain, "_LINE", re.compile(rb"(([A-Z]+) [^ ]*) HTTP/1\.\d"))


@pytest.mark.parametrize(
    "break_it", [trusts_llhttp_alone, forgets_llhttp, forgets_a_field, forgets_the_deciding_fields, takes_any_line]
)
def test_a_short_way_that_accepts_too_much_is_found(
    break_it: Callable[[pytest.MonkeyPatch], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        compare(chain(mixed(2000), corpus(4000)))


@pytest.mark.parametrize("break_it", [forgets_llhttp, forgets_a_field, forgets_proxies, takes_any_line])
def test_a_client_that_changes_what_another_ones_bytes_mean_is_found(
    break_it: Callable[[pytest.MonkeyPatch], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        compare_clients(clients(5000))


def with_each_byte() -> list[bytes]:
    """Return requests with each byte at each end and amid the value of a field that is read apart."""
    written = [request("GET", "/api/stores/1", None, f"If-None-Match: {tag}") for tag in ('@"1.a"', '"1@a"', "*@")]
    written += [create("A", f"Idempotency-Key: {key}") for key in ("@a", "a@b", '"a"@')]
    written += [request("GET", "/test", None, f"X: {value}", "TE: a") for value in ("@", "a@b")]
    written += [create("A", f"X: {value}", f"Idempotency-Key: {value}") for value in ("@a", "a@b")]
    return [data.replace(b"@", bytes([byte])) for data in written for byte in range(256)]


def test_no_byte_gets_by_llhttp_in_a_field_that_is_read_apart() -> None:
    assert compare(with_each_byte(), open_gate) > 500


def test_the_short_way_has_every_field_that_anybody_looks_for() -> None:
    """It hides all others: whoever looks for another one has to add it."""
    found = {name for path in (ROOT / "src").rglob("*.py") for name in LOOKED_FOR.findall(path.read_text())}
    assert {"authorization", "host", "if-none-match", "sec-fetch-site"} <= found
    sets = conditions._DECIDING | origins._PAGE_FIELDS
    assert {name.encode() for name in found} | sets <= set(DECIDING_FIELDS)


def takes_any_byte(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain, "_WITHOUT_CONTROLS", bytes(range(256)))


def looks_at_no_value(patch: pytest.MonkeyPatch) -> None:
    def close(layout: Any, text: bytes) -> tuple[bytes, bytes] | None:
        lines = text.split(b"\r")
        apart = lines[layout.apart] if layout.name else b""
        return (b"\r".join(layout.names), apart) if len(lines) == len(layout.lines) else None

    patch.setattr(plain._Layout, "close", close)


def holds_for_all_methods(patch: pytest.MonkeyPatch) -> None:
    learned = plain._learned
    patch.setattr(plain, "_learned", lambda *given: replace(learned(*given), methods=b"GHP"))


def opens_deciding_fields(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain, "DECIDING_FIELDS", ())


def with_each_method() -> list[bytes]:
    """Return requests with the same fields by methods that read another one apart."""
    fields = ("If-None-Match", "Idempotency-Key", "if-none-match", "IDEMPOTENCY-KEY")
    return [
        request(*line, None, f'{name}: "{number}.aaaaaaaa"', f"X: {number if differs else 0}")
        for name in fields
        for differs in (False, True)
        for line in (("GET", "/api/stores/1"), ("PUT", "/api/stores/1"), ("HEAD", "/api/stores"))
        for number in range(6)
    ]


def test_deciding_fields_that_are_written_in_two_ways_are_no_values_that_decide_nothing() -> None:
    given = [
        f"GET /test HTTP/1.1\r\nHost:{host}\r\nX: {host}\r\n\r\n".encode() for host in ("a", " a", "a\t", "", " a b")
    ]
    assert compare(given * 4) == 3 * 3 * 4


def test_a_field_that_is_read_apart_for_one_method_is_not_for_another() -> None:
    assert compare(with_each_method(), open_gate) == len(with_each_method()) * 3


@pytest.mark.parametrize(
    "break_it", [takes_any_byte, looks_at_no_value, holds_for_all_methods, opens_deciding_fields]
)
def test_a_layout_that_is_taken_for_other_fields_is_found(
    break_it: Callable[[pytest.MonkeyPatch], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        compare([*with_each_byte(), *with_each_method()], open_gate)


@pytest.mark.parametrize("every", [1, 8])
def test_heads_that_differ_in_values_that_decide_nothing_ask_no_parser(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "LEARN_EVERY", every)
    reader = PlainReader(open_gate.plan, SHAPES)
    for number in range(4 * every):
        assert reader.read(request("GET", "/api/stores/1", None, f"X: {number}", "TE: a", f"Y: {number}"))
    monkeypatch.setattr(reader, "_is_valid", lambda _: pytest.fail("the layout is enough"))
    for number in range(4 * every, 8 * every):
        assert reader.read(request("GET", f"/api/stores/{number}", None, f"X: {number}", "TE: a", f"Y: {number}"))


def asks_of(reader: PlainReader, patch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list that gets each head for which the reader asks the parser."""
    asked: list[bytes] = []
    is_valid = reader._is_valid

    def asks(head: bytes) -> bool:
        asked.append(head)
        return is_valid(head)

    patch.setattr(reader, "_is_valid", asks)
    return asked


@pytest.mark.parametrize("what", ["lengths", "tokens"])
def test_fields_that_decide_and_differ_in_other_values_each_time_ask_hardly_any_parser(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = PlainReader(open_gate.plan, SHAPES)

    def sent(number: int) -> bytes:
        if what == "lengths":
            return create("x" * (1 + number % 20), f"X: {number}")
        return request("GET", "/api/stores/1", None, f"X: {number}", f"Authorization: Bearer {number % 20}")

    for number in range(60):
        assert reader.read(sent(number))
    asked = asks_of(reader, monkeypatch)
    for number in range(60, 260):
        found = reader.read(sent(number))
        assert found
        assert found.body == sent(number).partition(b"\r\n\r\n")[2]
        assert what == "lengths" or (b"authorization", b"Bearer %d" % (number % 20)) in found.headers
    assert len(asked) < 40, "of two texts with one hash in the filter, none may be admitted"


@pytest.mark.parametrize("every", [1, 8])
@pytest.mark.parametrize(
    ("line", "name"), [("GET /api/stores", "If-None-Match"), ("POST /api/stores", "Idempotency-Key")]
)
def test_a_line_end_in_a_field_that_is_read_apart_allows_none_in_another_field(
    line: str, name: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "LEARN_EVERY", every)

    def sent(other: str, apart: str) -> bytes:
        return f"{line} HTTP/1.1\r\nHost: a\r\nX: {other}\r\n{name}: {apart}\r\n\r\n".encode()

    taught = [sent(str(number), apart) for number in range(20) for apart in ("a\nb", "*")]
    assert compare([*taught, *(sent("1\nContent-Length: 5", apart) for apart in ("*", "a", "a\nb"))], open_gate)


@pytest.mark.parametrize("field", ["X: 1", "If-None-Match: *"])
def test_fields_that_came_once_are_not_remembered(field: str) -> None:
    reader = PlainReader(open_gate.plan, SHAPES)
    for times in range(2):
        assert not reader._fields.young
        assert reader.read(request("GET", "/api/stores", None, field)), times
    assert reader._fields.young


def test_of_two_fields_that_are_read_apart_nothing_is_learned() -> None:
    two = [create("A", "idempotency-key: x", "Idempotency-Key: y"), create("A", "Idempotency-Key: y")]
    assert compare([*two, *two], open_gate) == 2 * 3


def test_two_kinds_of_heads_that_take_turns_are_both_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "LEARN_EVERY", 8)
    reader = PlainReader(open_gate.plan, SHAPES)
    asked = asks_of(reader, monkeypatch)
    for number in range(200):
        for fields in (("Accept: a",), ("Accept: b", "User-Agent: c")):
            assert reader.read(request("GET", "/api/stores/1", None, f"X-Request-Id: {number}", *fields))
    assert len(asked) < 60


@pytest.mark.parametrize("others", [0, 3])
def test_a_request_that_comes_again_is_remembered_though_its_head_fits_a_layout(others: int) -> None:
    reader = PlainReader(open_gate.plan, SHAPES)
    for number in range(others):
        assert reader.read(request("GET", "/api/stores/1", None, f"User-Agent: {number}"))
    again = request("GET", "/api/stores/1", None, "User-Agent: a")
    for _ in range(5):
        assert reader.read(again)
    assert again in reader.requests


@pytest.mark.parametrize("name", ["parse_key", "read_tags"])
def test_a_plan_that_takes_any_value_of_such_a_field_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"storekeeper.api.resource.{name}", lambda value: value)
    with pytest.raises((AssertionError, ValueError)):
        compare(with_each_byte(), open_gate)


def test_remembered_fields_count_with_their_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields of 1 KiB may have hundreds of entity tags, each of them a string in a set of each plan."""
    monkeypatch.setattr(plain, "MAX_FIELDS_BYTES", 2**18)
    monkeypatch.setattr(plain, "MAX_CACHED_BYTES", 0)
    tags = ",".join(f'"{chr(letter)}{digit}"' for letter in range(0x61, 0x7B) for digit in range(6))
    for written in ("X: 1", f"If-Match: {tags}"):
        reader = PlainReader(open_gate.plan, SHAPES)
        tracemalloc.start()
        for number in range(120):
            for shape in (*SHAPES, *SHAPES):
                method, path = shape.decode().split()
                target = f"{path}1" if path.endswith("/") else path
                read = reader.read(request(method, target, None, f"Accept: {number}", written))
                assert read is not None
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 2**12 < held < 2**18, written


@pytest.mark.parametrize("target", ["/api/stores/%31?{}", "/api/stores/{}"])
def test_remembered_requests_count_with_their_plans(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan may be one request's own, or outlive the fields that it was remembered with."""
    monkeypatch.setattr(plain, "MAX_FIELDS_BYTES", 2**17)
    monkeypatch.setattr(plain, "MAX_CACHED_BYTES", 2**18)
    tags = ",".join(f'"{chr(letter)}{digit}"' for letter in range(0x61, 0x7B) for digit in range(5))
    reader = PlainReader(open_gate.plan, SHAPES)
    tracemalloc.start()
    for number in range(120):
        data = request("PUT", target.format(number), None, f"Accept: {number}", f"If-Match: {tags}")
        assert all(reader.read(data) for _ in range(5))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reader.requests, "some are remembered"
    assert held < 2**17 + 2**18


@pytest.mark.parametrize("field", ['If-None-Match: "1.aaaaaaaa"', "If-Match: 1"])
def test_a_request_takes_as_many_bytes_whether_a_field_is_read_apart_or_not(field: str) -> None:
    read = PlainReader(open_gate.plan, SHAPES).read(request("GET", "/api/stores/1", None, field))
    assert read is not None
    name, _, value = field.encode().partition(b": ")
    assert read.size == size_of(read.target, [(b"host", HOST.split()[1]), (name, value)])


def test_what_is_wrong_with_a_field_that_is_read_apart_is_told_with_what_is_wrong_with_the_others() -> None:
    data = create("A", "Idempotency-Key: a b", "If-Match: 1")
    assert PlainReader(open_gate.plan, SHAPES).read(data) is None, "the careful way tells it"
    [read] = carefully(data)
    assert isinstance(read, Request)
    plan = open_gate.plan(read.method, read.target, read.headers)
    assert plan is not None
    response = resource.respond(plan, read.target, read.body)
    assert isinstance(response, Response)
    assert b'["if-match","idempotency-key"]' in response.body


def test_a_field_that_decides_nothing_is_not_in_the_request() -> None:
    read = PlainReader(gate.plan, SHAPES).read(request("GET", "/test", None, "X-Forwarded-For: a", "User-Agent: b"))
    assert read is not None
    assert read.headers == [(b"host", HOST.split()[1])]
