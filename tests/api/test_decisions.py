"""Decisions 1, 2 and 16 to 26: ids, routes, methods, queries, headers, over a socket.

Those on payloads are in test_payloads.py, those of the HTTP layer (27 to 29) in test_connection.py and
test_refusals.py, an unavailable database (30) in `sqlite/test_lock_timeout.py`.
"""

import json
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.cases import case
from tests.harness.client import assert_success, create
from tests.harness.databases import EVERY_KIND
from tests.harness.process import Running, ask
from tests.harness.stores import shown
from tests.harness.wire import assert_error, dial

pytestmark = EVERY_KIND


# Decisions 1 and 2: ids.


@settings(max_examples=60, deadline=None, derandomize=True)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_no_text_for_an_id_is_an_unexpected_failure(service: Running, text: str) -> None:
    if text in {".", ".."} or (text.isascii() and text.isdigit()):
        return
    response = service.request("GET", "/api/stores/" + quote(text, safe=""))
    assert_error(response, 404, f"Store {text} not found")


# Decision 16: methods.


HEADED = [
    *("/test", "/api/stores", "/api/stores?name=Headed", "/api/stores?name=a&name=b", "/api/stores/{}"),
    *("/api/stores/none", "/nowhere", "/health/live", "/health/ready", "/openapi.json"),
]


def test_head_has_the_headers_of_get_and_no_body(service: Running) -> None:
    for path in HEADED:
        with case(path):
            target = path.format(create(service, "Headed"))
            connection = service.connection()
            try:
                got = ask(connection, "GET", target)
                head = ask(connection, "HEAD", target)
                again = ask(connection, "GET", target)
            finally:
                connection.close()
            dates = [response.headers.pop("date") for response in (got, head, again)]
            assert all(dates)
            assert (head.status, head.headers, head.body) == (got.status, got.headers, b"")
            assert again == got


def test_the_liveness_and_readiness_of_the_service_can_be_asked(service: Running) -> None:
    for target, expected in (
        ("/health/live", {"status": "live"}),
        ("/health/ready", {"status": "ready", "writes": "ok"}),
    ):
        response = service.request("GET", target)
        assert_success(response)
        assert response.json == expected


# As HAProxy sends them with and without arguments of `option httpchk`, as balancers of clouds do, and by mistake.
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


def test_a_health_check_of_a_load_balancer_gets_a_status_in_each_form(service: Running) -> None:
    for sent, status in HEALTH_CHECKS.items():
        with case(sent), dial(service) as wire:
            wire.send(sent)
            assert wire.response(to=sent.split()[0].decode("latin-1")).status == status


# Decisions 18 and 19: the query.


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


def test_the_query_is_decoded_as_a_form(service: Running) -> None:
    for query, name in QUERIES:
        with case(query):
            id = create(service, name)
            for other in ("A", "a  b", "U\u0308", "other"):
                create(service, other)
            found = service.request("GET", f"/api/stores?{query}").json
            assert found[-1]["id"] == id
            assert {store["name"] for store in found} == {name}


# Decisions 20 to 24: headers and bytes.


def test_no_response_tells_more_than_it_has_to(service: Running) -> None:
    """The two headers of the contract, tags and totals, the date and the framing; not the server's name."""
    create(service, "Headers")
    plain = {"date", "content-type", "cache-control", "content-length"}
    more = {"/api/stores": {"etag", "total-count"}, "/api/stores/1": {"etag"}}
    for target in ("/test", "/api/stores", "/api/stores/1", "/api/stores/none", "/nowhere", "/health/live"):
        assert service.request("GET", target).headers.keys() == plain | more.get(target, set())
    assert service.request("DELETE", "/test").headers.keys() == plain | {"allow"}


def test_keys_stores_and_bytes_are_in_one_order_and_one_form(fresh: Running) -> None:
    names = ["b", "a", 'ü "東" 🏪', "a"]
    for name in names:
        create(fresh, name, name)
    fresh.request("PUT", "/api/stores/1", {"address": "c/d\x7f", "name": "z"})
    stores = [shown(id, name, name) for id, name in enumerate(names, start=1)]
    stores[0] |= {"name": "z", "address": "c/d\x7f"}

    def compact(value: object) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    assert fresh.request("GET", "/api/stores").body == compact(stores)
    assert fresh.request("GET", "/api/stores?name=a").body == compact([stores[1], stores[3]])
    for store in stores:
        assert fresh.request("GET", f"/api/stores/{store['id']}").body == compact(store)
        sent = {name: value for name, value in store.items() if value is not None}
        assert fresh.request("PUT", f"/api/stores/{store['id']}", sent).body == compact(store)


def test_an_error_is_compact_json_in_its_order_of_keys(service: Running) -> None:
    assert service.request("GET", "/api/stores/%C3%BC").body == (
        '{"statusCode":404,"error":"Not Found","message":"Store ü not found"}'.encode()
    )
    assert service.request("POST", "/api/stores", {}).body == (
        b'{"statusCode":400,"error":"Bad Request","message":"\\"name\\" is required",'
        b'"validation":{"source":"payload","keys":["name"]}}'
    )


# Decision 50: the root.


PEOPLE = ["text/html", "text/html,application/xhtml+xml,*/*;q=0.8", "TEXT/HTML"]


def test_the_root_leads_people_to_the_page(service: Running) -> None:
    for accept in PEOPLE:
        with case(accept):
            for method in ("GET", "HEAD"):
                response = service.request(method, "/", headers={"accept": accept})
                assert (response.status, response.headers["location"], response.body) == (302, "console/", b"")
                assert response.headers["cache-control"] == "no-cache"


PROGRAMS = [{}, {"accept": "*/*"}, {"accept": "application/json"}]


ROOT_METHODS = ["GET", "POST", "PUT", "DELETE", "OPTIONS"]


def test_the_root_is_nothing_to_programs(service: Running) -> None:
    for headers in PROGRAMS:
        for method in ROOT_METHODS:
            with case((headers, method)):
                assert_error(service.request(method, "/", headers=headers), 404, "Not Found")
