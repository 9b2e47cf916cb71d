"""Decisions 1, 2, 16 to 24 and 50: ids, methods, queries, headers and bytes, and the root.

Those on payloads are in test_payloads.py, tables of the rest in test_resource.py; those of the
HTTP layer (27 to 29) in test_connection.py and test_refusals.py, an unavailable database (30) in
`sqlite/test_lock_timeout.py`.
"""

import json
from pathlib import Path
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from storekeeper.domain.stores import Payload
from tests.harness.cases import case
from tests.harness.in_memory import InMemory, ask
from tests.harness.in_process import Inside, inside, settled, some_stores, until
from tests.harness.process import Response
from tests.harness.stores import shown
from tests.harness.wire import request, responses


async def exchange(service: Inside, data: bytes) -> bytes:
    """Send bytes; return all that comes."""
    connection, line = service.connect()
    connection.data_received(data)
    await settled(connection)
    await until(lambda: line.sent)
    return line.sent


async def get(service: Inside, target: str, method: str = "GET") -> Response:
    [response] = responses(await exchange(service, request(method, target)), method)
    return response


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_no_text_for_an_id_is_an_unexpected_failure(text: str) -> None:
    if text in {".", ".."} or (text.isascii() and text.isdigit()):
        return
    response = ask(InMemory(Payload("One")), "GET", "/api/stores/" + quote(text, safe=""))
    assert (response.status, json.loads(response.body)["message"]) == (
        404,
        f"Store {text} not found",
    )


HEADED = [
    *(
        "/test",
        "/api/stores",
        "/api/stores?name=Store%200",
        "/api/stores?name=a&name=b",
        "/api/stores/1",
    ),
    *(
        "/api/stores/none",
        "/nowhere",
        "/health/live",
        "/health/ready",
        "/openapi.json",
        "/api/changes?limit=2",
    ),
]


async def test_head_has_the_headers_of_get_and_no_body(tmp_path: Path) -> None:
    some_stores(tmp_path, 2)
    async with inside(tmp_path) as service:
        for target in HEADED:
            with case(target):
                got, head = await get(service, target), await get(service, target, "HEAD")
                assert head == Response(got.status, got.headers, b"")
                assert await get(service, target) == got


async def test_the_liveness_and_readiness_of_the_service_can_be_asked(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        assert (await get(service, "/health/live")).json == {"status": "live"}
        assert (await get(service, "/health/ready")).json == {"status": "ready", "writes": "ok"}


# As HAProxy sends them with and without arguments of `option httpchk`, as balancers of clouds do,
# and by mistake.
HEALTH_CHECKS = {
    b"GET /health/ready HTTP/1.0\r\n\r\n": 200,
    b"GET /health/ready HTTP/1.1\r\nHost: 10.0.0.7:8080\r\nConnection: close\r\n\r\n": 200,
    b"HEAD /health/ready HTTP/1.0\r\n\r\n": 200,
    b"OPTIONS * HTTP/1.0\r\n\r\n": 204,
    b"OPTIONS / HTTP/1.0\r\n\r\n": 404,
    b"GET / HTTP/1.0\r\n\r\n": 404,
    b"GET /health/ready HTTP/1.1\r\n\r\n": 400,
    b"PROXY TCP4 10.0.0.1 10.0.0.7 50000 8080\r\nGET /health/ready HTTP/1.0\r\n\r\n": 400,
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12) + b"GET /health/ready HTTP/1.0\r\n\r\n": 400,
}


async def test_a_health_check_of_a_load_balancer_gets_a_status_in_each_form(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        for sent, status in HEALTH_CHECKS.items():
            with case(sent):
                assert (await exchange(service, sent)).startswith(b"HTTP/1.1 %d " % status)


QUERIES = [
    ("name=a+b", "a b"),
    ("name=a%20b", "a b"),
    ("name=a%2Bb", "a+b"),
    ("n%61me=%61+%62", "a b"),
    ("name=a%26b%3Dc", "a&b=c"),
    ("name=a=b", "a=b"),
    ("name=a;b", "a;b"),
    ("name=a?b/c", "a?b/c"),
    ("name=%25", "%"),
    ("name=%zz", "%zz"),
    ("name=100%", "100%"),
    ("name=%C3%BC", "ü"),
    ("name=u%CC%88", "u\u0308"),
    ("name=%F0%9F%8F%AA", "🏪"),
    ("name=+", " "),
    ("name=%09", "\t"),
    ("&name=a&", "a"),
]


def test_the_query_is_decoded_as_a_form() -> None:
    names = sorted({name for _, name in QUERIES} | {"A", "a  b", "U\u0308", "other"})
    collection = InMemory(*map(Payload, names))
    for query, name in QUERIES:
        with case(query):
            found = json.loads(ask(collection, "GET", f"/api/stores?{query}").body)
            assert [store["name"] for store in found] == [name]


async def test_no_response_tells_more_than_it_has_to(tmp_path: Path) -> None:
    """The two headers of the contract, tags and totals, the date and the framing; not the
    server's name."""
    some_stores(tmp_path, 1)
    plain = {"date", "content-type", "cache-control", "content-length"}
    more = {"/api/stores": {"etag", "total-count"}, "/api/stores/1": {"etag"}}
    async with inside(tmp_path) as service:
        for target in (
            "/test",
            "/api/stores",
            "/api/stores/1",
            "/api/stores/none",
            "/nowhere",
            "/health/live",
        ):
            assert (await get(service, target)).headers.keys() == plain | more.get(target, set())
        assert (await get(service, "/test", "DELETE")).headers.keys() == plain | {"allow"}


def test_keys_stores_and_bytes_are_in_one_order_and_one_form() -> None:
    names = ["b", "a", 'ü "東" 🏪', "a"]
    collection = InMemory(*(Payload(name, name) for name in names))
    ask(collection, "PUT", "/api/stores/1", b'{"address": "c/d\\u007f", "name": "z"}')
    stores = [shown(id, name, name) for id, name in enumerate(names, start=1)]
    stores[0] |= {"name": "z", "address": "c/d\x7f"}

    def compact(value: object) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    assert ask(collection, "GET", "/api/stores").body == compact(stores)
    assert ask(collection, "GET", "/api/stores?name=a").body == compact([stores[1], stores[3]])
    for store in stores:
        target = f"/api/stores/{store['id']}"
        assert ask(collection, "GET", target).body == compact(store)
        sent = {name: value for name, value in store.items() if value is not None}
        assert ask(collection, "PUT", target, json.dumps(sent).encode()).body == compact(store)
    assert ask(collection, "GET", "/api/stores/%C3%BC").body == (
        '{"statusCode":404,"error":"Not Found","message":"Store ü not found"}'.encode()
    )
    assert ask(collection, "POST", "/api/stores", b"{}").body == (
        b'{"statusCode":400,"error":"Bad Request","message":"\\"name\\" is required",'
        b'"validation":{"source":"payload","keys":["name"]}}'
    )


def test_the_root_leads_people_to_the_page_and_is_nothing_to_programs() -> None:
    for accept in (b"text/html", b"text/html,application/xhtml+xml,*/*;q=0.8", b"TEXT/HTML"):
        for method in ("GET", "HEAD"):
            response = ask(InMemory(), method, "/", b"", (b"accept", accept))
            assert (response.status, response.body) == (302, b"")
            assert {b"location: console/", b"cache-control: no-cache"} <= set(
                response.headers.splitlines()
            )
    for fields in ([], [(b"accept", b"*/*")], [(b"accept", b"application/json")]):
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(InMemory(), method, "/", b"", *fields).status == 404
