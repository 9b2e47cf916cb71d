"""Pages of other sites in a real browser: what it lets them read and write."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.harness.browser import WHOLE, page
from tests.harness.process import Running, serving

REBOUND = "rebound.example"
FETCH = """async ([url, options]) => {
    try {
        const response = await fetch(url, { cache: "no-store", ...options });
        const body = await response.text();
        const headers = ["etag", "retry-after"].map(name => response.headers.get(name));
        return [response.status, body.length > 0, ...headers];
    } catch (error) { return String(error) }
}"""
FAILED = "TypeError: Failed to fetch"


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
    with serving(
        tmp_path_factory.mktemp("service"), "--examples", f"--cors-origin={sites[0]}"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def away(sites: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service whose database is nowhere; it names the first of the sites."""
    nowhere = "postgresql://stranger@127.0.0.1:1/none"
    folder = tmp_path_factory.mktemp("away")
    with serving(
        folder, f"--cors-origin={sites[0]}", "--auth=open", database=nowhere, create=False
    ) as running:
        yield running


@pytest.fixture(scope="module")
def opened() -> Iterator[Page]:
    """A page as people have it, with all fields of its requests; it believes that the rebound
    name leads here."""
    with page(f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1", programs=WHOLE) as (opened, _):
        yield opened


def fetched(opened: Page, service: Running, target: str, **options: Any) -> Any:
    """Return the status, whether there is a body, and two fields, as a page sees them; or the
    error that it sees."""
    return opened.evaluate(FETCH, [f"http://127.0.0.1:{service.port}{target}", options])


def written(method: str, body: str, **fields: str) -> dict[str, Any]:
    return {
        "method": method,
        "body": body,
        "headers": {"content-type": "application/json", **fields},
    }


def put(name: str, tag: str = "*") -> dict[str, Any]:
    return written("PUT", f'{{"name":"{name}"}}', **{"if-match": tag})


@pytest.mark.parametrize("site", [0, 1], ids=["named", "not named"])
def test_only_a_page_of_a_named_origin_sees_responses_and_writes(
    opened: Page, service: Running, away: Running, sites: list[str], site: int
) -> None:
    opened.goto(sites[site])
    before = service.request("GET", "/api/stores/1").json["name"]
    tag = service.request("GET", "/api/stores/2").headers["etag"]
    whole = service.request("GET", "/api/stores").headers["etag"]
    retry_after = away.request("GET", "/api/stores").headers["retry-after"]
    for asked, target, options, seen in (
        (service, "/api/stores", {}, [200, True, whole, None]),
        (service, "/api/stores/2", {}, [200, True, tag, None]),
        (service, "/api/stores/2", {"headers": {"if-none-match": tag}}, [304, False, tag, None]),
        (service, "/api/stores/99", {}, [404, True, None, None]),
        (service, "/nowhere", {}, [404, True, None, None]),
        (service, "/api/stores?name=a&name=b", {}, [400, True, None, None]),
        (service, "/api/stores/1", put(""), [400, True, None, None]),
        (service, "/api/stores/2", put("Too late", '"1.other"'), [412, True, tag, None]),
        (service, "/api/stores", written("POST", " " * 1_100_000), [413, True, None, None]),
        (away, "/api/stores", {}, [503, True, None, retry_after]),
        (away, "/api/stores/1", put("Nowhere"), [503, True, None, retry_after]),
    ):
        for _ in range(2):
            assert fetched(opened, asked, target, **options) == (FAILED if site else seen)
    done = fetched(opened, service, "/api/stores/1", **put("By the shop"))
    assert done == FAILED if site else done[0] == 200
    assert service.request("GET", "/api/stores/1").json["name"] == (
        before if site else "By the shop"
    )


def test_what_a_page_of_another_origin_sends_without_asking_writes_nothing(
    opened: Page, service: Running, sites: list[str]
) -> None:
    before = service.request("GET", "/api/stores").body
    opened.goto(sites[1])
    assert fetched(opened, service, "/openapi.json") == FAILED
    # What the browser sends without asking first, and whose response the page cannot read.
    for headers in ({}, {"content-type": "text/plain"}):
        evil = {"method": "POST", "body": '{"name":"Evil"}', "mode": "no-cors", "headers": headers}
        fetched(opened, service, "/api/stores", **evil)
    assert service.request("GET", "/api/stores").body == before


def test_a_rebound_page_reads_nothing_and_writes_nothing(opened: Page, service: Running) -> None:
    before = service.request("GET", "/api/stores").body
    response = opened.goto(f"http://{REBOUND}:{service.port}/api/stores")
    assert response is not None
    assert response.status == 403
    sent = response.request.all_headers()
    assert "origin" not in sent
    assert "sec-fetch-site" not in sent
    for target, options in (
        ("/api/stores", {}),
        ("/openapi.json", {}),
        ("/api/stores/1", put("Evil")),
    ):
        sent_there = [f"http://{REBOUND}:{service.port}{target}", options]
        assert opened.evaluate(FETCH, sent_there) == [403, True, None, None]
    assert service.request("GET", "/api/stores").body == before
