"""The two adapters give the same bytes: one corpus goes through the fast lane and through the ASGI application."""

import json
import re
import shutil
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storekeeper.stores import Payload
from tests.harness.cases import case
from tests.harness.client import fill
from tests.harness.corpus import CONDITIONS, CORPUS, MANY, METHODS, TARGETS
from tests.harness.process import Running, read_all, serving
from tests.harness.refused_requests import REFUSED
from tests.harness.sized_requests import OVER
from tests.harness.wire import CLOSE, HOST, request

Pair = tuple[Running, Running]

DATE = re.compile(rb"\r\ndate: [^\r]+")
LAST = b"GET /test HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n"


STORES = [
    Payload("First", "1 High Street"),
    Payload("a ü"),
    *[Payload("Many", str(number)) for number in range(MANY)],
]


OPTIONS = [(), ("--error-detail=generic", "--missing-store=500", "--unknown-keys=reject")]


@pytest.fixture(scope="module", params=OPTIONS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two services on equal data, the first with the fast lane."""
    folders = [tmp_path_factory.mktemp("adapter") for _ in range(2)]
    fill(folders[0], STORES)
    shutil.copytree(folders[0], folders[1], dirs_exist_ok=True)  # so that both have one epoch
    with (
        serving(folders[0], "--fast-lane", *request.param) as fast,
        serving(folders[1], "--no-fast-lane", *request.param) as asgi,
    ):
        yield fast, asgi


def answered(service: Running, data: bytes) -> bytes:
    """Return all that comes back, without the dates."""
    with service.socket() as client:
        client.sendall(data)
        received = read_all(client)
    dates = len(DATE.findall(received))
    assert dates == len(re.findall(rb"HTTP/1\.1 [2-5]\d\d [A-Z]", received)), "every response has a date"
    return DATE.sub(b"", received)


def assert_same(pair: Pair, data: bytes) -> None:
    fast, asgi = (answered(service, data) for service in pair)
    assert fast == asgi
    assert fast.startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize(
    ("pair", "times"),
    [(OPTIONS[0], 2), (OPTIONS[1], 1), pytest.param(OPTIONS[1], 2, marks=pytest.mark.thorough)],
    indirect=["pair"],
)
def test_each_request_of_the_corpus_has_the_same_response(pair: Pair, times: int, part: int) -> None:
    """The second time the fast lane may know the head and keep the response."""
    for name, data in CORPUS[part::4]:
        with case(name):
            for _ in range(times):
                assert_same(pair, data + LAST)


def test_the_whole_corpus_on_one_connection_has_the_same_responses(pair: Pair) -> None:
    refused = {data for _, data in REFUSED.values()} | {data for _, _, data in OVER}
    kept = [data for name, data in CORPUS if data not in refused and "garbage" not in name and name != "too large"]
    kept = [data for data in kept if b" * HTTP/1.1" not in data or data.startswith(b"OPTIONS")]
    assert len(kept) > 400
    for data in (b"".join(kept), b"".join(reversed(kept))):
        assert_same(pair, data + LAST)


def test_both_hold_the_same_stores_afterwards(pair: Pair) -> None:
    fast, asgi = (service.request("GET", "/api/stores").body for service in pair)
    assert fast == asgi
    assert len(json.loads(fast)) > MANY


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=35)
values = st.one_of(texts, st.none(), st.integers(), st.booleans(), st.floats(), st.lists(texts, max_size=2))
payloads = st.one_of(
    st.fixed_dictionaries({}, optional={"name": values, "address": values, "id": values}),
    st.fixed_dictionaries({"name": texts}, optional={"address": texts}),
    values,
)
bodies = st.one_of(payloads.map(lambda payload: json.dumps(payload).encode()), st.binary(max_size=60))
targets = st.one_of(
    st.sampled_from([target for target in TARGETS if target != "*"]),
    st.integers(0, 3000).map("/api/stores/{}".format),
    texts.map(lambda text: "/api/stores/" + quote(text, safe="")),
    texts.map(lambda text: "/api/stores?name=" + quote(text, safe="")),
    texts.map(lambda text: "/" + quote(text)),
)
fields = st.sampled_from(
    [
        *(
            (),
            (),
            ("Connection: keep-alive",),
            ("X-Any: thing",),
            ("Content-Encoding: gzip",),
            ("Connection: close",),
        ),
        *((field,) for field in CONDITIONS),
    ]
)
requests = st.builds(
    lambda method, target, body, more: request(method, target, body, *more),
    st.sampled_from(METHODS),
    targets,
    st.one_of(st.none(), bodies),
    fields,
)


sequences = st.lists(requests, min_size=1, max_size=8).map(b"".join)
garbage = st.one_of(st.binary(max_size=80), st.tuples(requests, st.binary(min_size=1, max_size=30)).map(b"".join))


@pytest.mark.parametrize("count", [50, pytest.param(150, marks=pytest.mark.thorough)])
def test_random_requests_have_the_same_responses(pair: Pair, count: int) -> None:
    @settings(max_examples=count)
    @given(data=sequences)
    def compare(data: bytes) -> None:
        assert_same(pair, data + LAST)

    compare()


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.thorough)])
def test_random_bytes_have_the_same_responses(pair: Pair, count: int) -> None:
    @settings(max_examples=count)
    @given(data=garbage)
    def compare(data: bytes) -> None:
        # What is left unfinished is finished by the request behind it, one way or another.
        assert_same(pair, data + b"\r\n\r\n" + b"0\r\n\r\n" + LAST * 3)

    compare()
