"""Decisions 1, 2 and 16 to 26: ids, routes, methods, queries, headers, over a socket and through both adapters.

Those on payloads are in test_payloads.py, those of the HTTP layer (27 to 29) in test_connection.py and
test_refusals.py, an unavailable database (30) in `sqlite/test_lock_timeout.py`.
"""

import json
from itertools import product
from urllib.parse import quote, unquote_to_bytes

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.cases import case
from tests.harness.client import assert_success, create, nothing_changes
from tests.harness.databases import EVERY_KIND
from tests.harness.process import Running, ask
from tests.harness.stores import shown
from tests.harness.wire import assert_error, assert_invalid, dial, exchange, request

pytestmark = EVERY_KIND

TEST = ("GET, HEAD, OPTIONS", "/test")
STORES = ("GET, HEAD, POST, OPTIONS", "/api/stores")
STORE = ("GET, HEAD, PUT, OPTIONS", "/api/stores/1")
LIVE = ("GET, HEAD, OPTIONS", "/health/live")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "QUERY", "LOCK")
NOT_ALLOWED = [
    (method, allow, path)
    for (allow, path), method in product((TEST, STORES, STORE, LIVE), METHODS)
    if method not in allow.split(", ")
]


# Decisions 1 and 2: ids.


NO_IDS = [
    *("0", "00", "999999999", "9223372036854775807", "9223372036854775808", "18446744073709551617", "9" * 5000),
    *("abc", "1abc", "abc1", "-1", "1.0", "1e0", "0x1", "1_0", "1,0", "null", "undefined", "NaN", "$1", "1;2"),
    *("%D9%A1", "%EF%BC%91", "%C2%B2", "%C2%B9", "%2B1", "+1", "%201", "1%20", "1%00", "%001", "1%0A", "1%09"),
    *("%FF", "%C0%B1", "%zz", "%", "%3", "1%2F2", "%2F", "%2E%2E", "..", ".", "1%3Fname=x", "stores", "1%2e0"),
]


def test_what_is_not_a_stores_number_names_no_store(service: Running) -> None:
    create(service, "There is one")
    for id in NO_IDS:
        with case(id):
            said = f"Store {unquote_to_bytes(id).decode(errors='replace')} not found"
            with nothing_changes(service):
                assert_error(service.request("GET", f"/api/stores/{id}"), 404, said)
                assert_error(service.request("PUT", f"/api/stores/{id}", {"name": "A"}), 404, said)
                head = service.request("HEAD", f"/api/stores/{id}")
            assert (head.status, head.body) == (404, b"")


FORMS = ["{}", "0{}", "{:05000}", "{}?name=x", "{}?"]


def test_any_number_of_zeros_before_and_a_query_behind_name_the_same_store(service: Running) -> None:
    for form in FORMS:
        with case(form):
            id = create(service, "Zeros", "Before")
            target = "/api/stores/" + form.format(id)
            expected = shown(id, "Zeros", "Before")
            assert service.request("GET", target).json == expected
            assert service.request("PUT", target, {"name": "Zeros", "address": "Before"}).json == expected


def test_an_escaped_digit_is_the_digit(service: Running) -> None:
    id = create(service, "Escaped")
    escaped = "".join(f"%{ord(digit):02x}" for digit in str(id))
    assert service.request("GET", f"/api/stores/{escaped}").json["id"] == id
    assert service.request("GET", f"/%61pi/%73tores/{id}").json["id"] == id


@settings(max_examples=60, deadline=None, derandomize=True)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_no_text_for_an_id_is_an_unexpected_failure(service: Running, text: str) -> None:
    if text in {".", ".."} or (text.isascii() and text.isdigit()):
        return
    response = service.request("GET", "/api/stores/" + quote(text, safe=""))
    assert_error(response, 404, f"Store {text} not found")


# Decision 16: methods.


def test_a_method_that_a_path_does_not_have_gets_those_that_it_has(service: Running) -> None:
    create(service, "Unchanged")
    for method, allow, path in NOT_ALLOWED:
        with case((method, path)):
            with nothing_changes(service):
                response = service.request(method, path, {"name": "A"})
                assert_error(response, 405, "Method Not Allowed")
            assert response.headers["allow"] == allow


OPTIONS = [TEST, STORES, STORE, LIVE, ("GET, HEAD, POST, PUT, OPTIONS", "*")]


def test_options_tells_the_methods(service: Running) -> None:
    for allow, path in OPTIONS:
        with case(path):
            response = service.request("OPTIONS", path)
            assert (response.status, response.body) == (204, b"")
            assert response.headers["allow"] == allow
            assert response.headers["cache-control"] == "no-cache"
            assert "content-length" not in response.headers
            assert "content-type" not in response.headers


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


# Decision 17: unknown paths.


UNKNOWN_PATHS = [
    *("/api/stores/", "/api/stores/?name=x", "/test/", "/tests", "/TEST", "/nowhere", "/api/", "//"),
    *("/api/stores/1/", "/api/stores/1/2", "/api/stores//1", "//api/stores", "/api//stores", "/./test"),
    *("/api/../test", "/api/%2e%2e/test", "/api%2Fstores", "/api/stores%2F1", "/test%00", "/test%20", "/%ff"),
    *("/api/stores;x=1", "/api\\stores", "/test#", "/api/stores%23", "/health", "/health/", "/health/live/"),
]


def test_an_unknown_path_is_not_found(service: Running) -> None:
    create(service, "Unchanged")
    for target in UNKNOWN_PATHS:
        with case(target):
            if "#" in target:  # decision 27: no target has a fragment
                assert_error(exchange(service, request("GET", target)), 400)
                continue
            with nothing_changes(service):
                assert_error(service.request("GET", target), 404, "Not Found")
                assert_error(service.request("POST", target, {"name": "A"}), 404, "Not Found")
                assert_error(service.request("PUT", target, {"name": "A"}), 404, "Not Found")
                assert_error(service.request("DELETE", target), 404, "Not Found")


# Decisions 18 and 19: the query.


def test_a_name_given_twice_is_refused(service: Running) -> None:
    for query in ("name=a&name=b", "name=a&name=a", "name&name=a", "name=&name=", "x=1&name=a&y=2&n%61me=b"):
        response = service.request("GET", f"/api/stores?{query}")
        assert_invalid(response, '"name" must be a string', ["name"], source="query")


UNKNOWN = ["id=1", "Name=x", "names=x", "name%00=x", "x[name]=y", "&&&", "=x", "a&b", "%ff=x"]


def test_unknown_query_parameters_are_ignored(service: Running) -> None:
    for query in UNKNOWN:
        with case(query):
            id = create(service, "Query")
            assert service.request("GET", f"/api/stores?{query}").body == service.request("GET", "/api/stores").body
            found = service.request("GET", f"/api/stores?{query}&name=Query").json
            assert found[-1]["id"] == id
            assert {store["name"] for store in found} == {"Query"}


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


NO_TEXT = ["%ff", "%C3", "%ED%A0%80", "%C0%AF", "a%80", "%F4%90%80%80"]


def test_bytes_that_are_no_text_equal_no_name(service: Running) -> None:
    for value in NO_TEXT:
        with case(value):
            create(service, "\ufffd")
            response = service.request("GET", f"/api/stores?name={value}")
            assert_success(response)
            assert response.body == b"[]"


def test_names_are_compared_code_point_by_code_point(fresh: Running) -> None:
    alike = [
        "\xfc",
        "u\u0308",
        "\xdc",
        "\ufb01",
        "fi",
        "\u017f",
        "s",
        "S",
        "\u212a",
        "k",
        "K",
        "I",
        "\u0131",
        "ss",
        "ß",
    ]
    ids = {name: create(fresh, name) for name in alike}
    for name, id in ids.items():
        assert [store["id"] for store in fresh.request("GET", f"/api/stores?name={quote(name)}").json] == [id]


# Decisions 20 to 24: headers and bytes.


def test_the_liveness_route_has_its_own_media_type(service: Running) -> None:
    response = service.request("GET", "/test")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["content-length"] == "2"


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


# Decisions 25 and 26.


NEVER_DELETED = ["/api/stores/1", "/api/stores", "/api/stores/none"]


def test_a_store_is_never_deleted(service: Running) -> None:
    for target in NEVER_DELETED:
        with case(target):
            create(service, "For ever")
            with nothing_changes(service):
                assert_error(service.request("DELETE", target), 405)


def test_nobody_is_asked_who_he_is(service: Running) -> None:
    for authorization in ("Basic Og==", "Bearer x", ""):
        response = service.request("POST", "/api/stores", {"name": "Open"}, {"authorization": authorization})
        assert_success(response)


# Decision 50: the root.


PEOPLE = ["text/html", "text/html,application/xhtml+xml,*/*;q=0.8", "TEXT/HTML"]


def test_the_root_leads_people_to_the_page(service: Running) -> None:
    for accept in PEOPLE:
        with case(accept):
            for method in ("GET", "HEAD"):
                response = service.request(method, "/", headers={"accept": accept})
                assert (response.status, response.headers["location"], response.body) == (302, "docs", b"")
                assert response.headers["cache-control"] == "no-cache"


PROGRAMS = [{}, {"accept": "*/*"}, {"accept": "application/json"}]


ROOT_METHODS = ["GET", "POST", "PUT", "DELETE", "OPTIONS"]


def test_the_root_is_nothing_to_programs(service: Running) -> None:
    for headers in PROGRAMS:
        for method in ROOT_METHODS:
            with case((headers, method)):
                assert_error(service.request(method, "/", headers=headers), 404, "Not Found")
