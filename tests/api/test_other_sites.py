"""Pages of other sites in a real browser: what it lets them read and write."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.harness.browser import page
from tests.harness.process import Running, serving

REBOUND = "rebound.example"
FETCH = """async ([url, options]) => {
    try {
        const response = await fetch(url, options);
        return [response.status, response.headers.get("content-type"), (await response.text()).length > 0];
    } catch (error) { return String(error) }
}"""
SEE = """async ([url, options]) => {
    try {
        const response = await fetch(url, { cache: "no-store", ...options });
        const body = await response.text();
        return [response.status, body.length > 0, ...["etag", "retry-after"].map(name => response.headers.get(name))];
    } catch (error) { return String(error) }
}"""
FAILED = "TypeError: Failed to fetch"
JSON = "application/json; charset=utf-8"


class Blank(BaseHTTPRequestHandler):
    """Another site, whose pages are empty."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def sites() -> Iterator[list[str]]:
    """The origins of two other sites."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Blank) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield [f"http://127.0.0.1:{server.server_address[1]}" for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def service(sites: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with example stores that names the first of the sites."""
    with serving(tmp_path_factory.mktemp("service"), "--examples", f"--cors-origin={sites[0]}") as running:
        yield running


@pytest.fixture(scope="module")
def away(sites: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service whose database is nowhere; it names the first of the sites."""
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    folder = tmp_path_factory.mktemp("away")
    with serving(folder, f"--cors-origin={sites[0]}", "--auth=open", database=nowhere) as running:
        yield running


@pytest.fixture(scope="module")
def opened() -> Iterator[Page]:
    """A browser's page; it believes that the rebound name leads to this machine."""
    with page(f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1") as (opened, _):
        yield opened


def fetched(opened: Page, service: Running, target: str, method: str = "GET", **options: Any) -> Any:
    return opened.evaluate(FETCH, [f"http://127.0.0.1:{service.port}{target}", {"method": method, **options}])


def put(name: str) -> dict[str, Any]:
    body = f'{{"name":"{name}"}}'
    return {"method": "PUT", "body": body, "headers": {"content-type": "application/json", "if-match": "*"}}


def test_a_page_of_a_named_origin_reads_every_response_and_writes(
    opened: Page, service: Running, sites: list[str]
) -> None:
    opened.goto(sites[0])
    for target, status in (("/api/stores", 200), ("/api/stores/1", 200), ("/api/stores/99", 404), ("/nowhere", 404)):
        for _ in range(2):
            assert fetched(opened, service, target) == [status, JSON, True]
    assert fetched(opened, service, "/api/stores?name=a&name=b") == [400, JSON, True]
    assert fetched(opened, service, "/api/stores/1", **put("By the shop")) == [200, JSON, True]
    assert service.request("GET", "/api/stores/1").json["name"] == "By the shop"
    assert fetched(opened, service, "/api/stores/1", **put("")) == [400, JSON, True]
    long: dict[str, Any] = {
        "method": "POST",
        "body": " " * 1_100_000,
        "headers": {"content-type": "application/json"},
    }
    assert fetched(opened, service, "/api/stores", **long) == [413, JSON, True]


@pytest.mark.parametrize("site", [0, 1], ids=["named", "not named"])
def test_only_a_page_of_a_named_origin_sees_status_and_fields_of_200_304_404_412_and_503(
    opened: Page, service: Running, away: Running, sites: list[str], site: int
) -> None:
    opened.goto(sites[site])
    tag = service.request("GET", "/api/stores/2").headers["etag"]
    stale: dict[str, Any] = put("Too late")
    stale["headers"]["if-match"] = '"1.other"'
    retry_after = away.request("GET", "/api/stores").headers["retry-after"]
    for asked, target, options, seen in (
        (service, "/api/stores/2", {}, [200, True, tag, None]),
        (service, "/api/stores/2", {"headers": {"if-none-match": tag}}, [304, False, tag, None]),
        (service, "/api/stores/99", {}, [404, True, None, None]),
        (service, "/api/stores/2", stale, [412, True, tag, None]),
        (away, "/api/stores", {}, [503, True, None, retry_after]),
        (away, "/api/stores/1", put("Nowhere"), [503, True, None, retry_after]),
    ):
        for _ in range(2):
            response = opened.evaluate(SEE, [f"http://127.0.0.1:{asked.port}{target}", options])
            assert response == (FAILED if site else seen)


def test_a_page_of_another_origin_reads_nothing_and_writes_nothing(
    opened: Page, service: Running, sites: list[str]
) -> None:
    before = service.request("GET", "/api/stores").body
    opened.goto(sites[1])
    for target in ("/api/stores", "/api/stores/1", "/api/stores/99", "/nowhere", "/openapi.json"):
        assert fetched(opened, service, target) == FAILED
    assert fetched(opened, service, "/api/stores/1", **put("Evil")) == FAILED
    # What the browser sends without asking first, and whose response the page cannot read.
    simple: dict[str, Any]
    for simple in ({"mode": "no-cors"}, {"mode": "no-cors", "headers": {"content-type": "text/plain"}}):
        fetched(opened, service, "/api/stores", method="POST", body='{"name":"Evil"}', **simple)
    assert service.request("GET", "/api/stores").body == before


def test_a_rebound_page_reads_nothing_and_writes_nothing(opened: Page, service: Running) -> None:
    before = service.request("GET", "/api/stores").body
    response = opened.goto(f"http://{REBOUND}:{service.port}/api/stores")
    assert response is not None
    assert response.status == 403
    sent = response.request.all_headers()
    assert "origin" not in sent
    assert "sec-fetch-site" not in sent
    own = f"http://{REBOUND}:{service.port}"
    for target in ("/api/stores", "/api/stores/1", "/openapi.json"):
        assert opened.evaluate(FETCH, [own + target, {}]) == [403, JSON, True]
    assert opened.evaluate(FETCH, [own + "/api/stores/1", put("Evil")]) == [403, JSON, True]
    assert service.request("GET", "/api/stores").body == before
