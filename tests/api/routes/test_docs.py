"""The page at /docs in a real browser: it shows the reference, tries requests out, and asks no
other host."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from storekeeper.api.routes.docs import encoded_document
from tests.harness.browser import page
from tests.harness.databases import make
from tests.harness.nginx import nginx
from tests.harness.process import Running, serving
from tests.harness.tokens import add_token


class Browser:
    """A service with example stores, a token that writes need, and a page; `faults` is what went
    wrong on it."""

    def __init__(self, service: Running, token: str, opened: Page, faults: list[str]) -> None:
        self.service = service
        self.token = token
        self.opened = opened
        self.faults = faults

    def show(self, width: int = 1280, base: str = "") -> None:
        """Load the page again in a window of that width."""
        self.opened.set_viewport_size({"width": width, "height": 844})
        self.opened.goto(f"{base or f'http://127.0.0.1:{self.service.port}'}/docs")
        self.opened.wait_for_selector("text=Add a store")

    def open(self, operation: str, *, try_out: bool = True) -> Locator:
        """Unfold an operation."""
        block = self.opened.locator(f"#operations-stores-{operation}")
        block.locator(".opblock-summary-control").first.click()
        block.locator(".responses-table").first.wait_for()
        if try_out:
            block.locator("button.try-out__btn").click()
        return block

    def execute(self, block: Locator) -> str:
        """Press Execute; give the status that the page shows."""
        block.locator("button.execute").click()
        status = block.locator(".live-responses-table tr.response .response-col_status").first
        status.wait_for()
        return status.inner_text()

    def overhang(self) -> int:
        """Give by how many pixels the page is wider than the window."""
        return int(
            self.opened.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("page")
    make(f"sqlite:///{folder}/stores.db", examples=True)
    token = add_token(f"sqlite:///{folder}/stores.db", "page", "write")
    with serving(folder, "--auth=writes") as service, page() as (opened, faults):
        yield Browser(service, token, opened, faults)


def test_the_reference_shows_every_operation_and_tries_one_out_asking_no_other_host(
    browser: Browser,
) -> None:
    """On a phone too; nothing can be executed before one asks to; and a person can enter a token
    first."""
    browser.show(width=390)
    count = sum(len(item) for item in json.loads(encoded_document())["paths"].values())
    assert browser.opened.locator(".opblock-tag-section .opblock").count() == count
    for operation in ("listStores", "getStore", "replaceStore"):
        assert browser.open(operation, try_out=False).locator("button.try-out__btn").is_visible()
    assert browser.opened.locator("button.execute, textarea").count() == 0
    create = browser.open("createStore")
    assert browser.overhang() == 0
    browser.opened.locator(".scheme-container button.authorize").click(timeout=5000)
    dialog = browser.opened.locator(".auth-container")
    dialog.locator("input").fill(browser.token)
    dialog.locator("button.authorize").click()
    assert browser.overhang() == 0
    dialog.locator("button.btn-done").click()
    create.locator("textarea").fill('{"name": "From the page"}')
    assert "200" in browser.execute(create), "without its token it is 401"
    assert f"Bearer {browser.token}" in create.locator(".curl-command").inner_text()
    assert browser.service.request("GET", "/api/stores/4").json["name"] == "From the page"
    assert browser.overhang() == 0
    assert browser.faults == []


def test_the_list_is_tried_out_in_pages_and_at_a_moment_of_the_past_with_nothing_to_clear_first(
    browser: Browser,
) -> None:
    """A text of any length is one element: if each coloured word were one, a long list would
    freeze the page."""
    browser.show()
    read = browser.open("listStores")
    empty = browser.opened.get_by_text("Send empty value")
    assert empty.count() == 4
    for idle in (browser.opened.get_by_text("Servers", exact=True), empty.first, empty.last):
        assert not idle.is_visible(), "a choice among one server, or between none and empty"
    assert "200" in browser.execute(read)
    assert read.locator(".request-url").inner_text().endswith("/api/stores?limit=100")
    assert read.locator(".live-responses-table pre").first.locator("*").count() == 0
    read.locator("button.btn-clear").click()
    read.get_by_placeholder("at", exact=True).fill("1")
    assert "200" in browser.execute(read)
    shown = read.locator(".live-responses-table").inner_text()
    assert '"Main Street"' in shown
    assert '"id":2' not in shown.replace(" ", "")
    assert browser.faults == []


def test_the_page_works_below_a_proxys_path(browser: Browser, tmp_path: Path) -> None:
    with nginx(tmp_path, browser.service.port, "/stores-service/") as port:
        base = f"http://127.0.0.1:{port}/stores-service"
        browser.show(base=base)
        read = browser.open("getStore")
        assert "200" in browser.execute(read)
        assert f"{base}/api/stores/2" in read.locator(".request-url").inner_text()
        assert browser.faults == []


def test_the_page_may_load_and_run_only_what_is_its_own(browser: Browser) -> None:
    policy = browser.service.request("GET", "/docs").headers["content-security-policy"]
    for part in ("default-src 'none'", "script-src 'self';", "connect-src 'self';"):
        assert part in policy
    for name in ("nothing.js", "..%2F..%2Fcli.py", "%2e%2e%2fdocs.py", "docs.html"):
        response = browser.service.request("GET", f"/docs/{name}")
        assert response.json == {"statusCode": 404, "error": "Not Found", "message": "Not Found"}
