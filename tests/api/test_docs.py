"""The page at /docs in a real browser: it shows the reference, tries requests out, and asks no other host."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from storekeeper.api.docs import encoded_document
from tests.harness.browser import page
from tests.harness.cases import thorough
from tests.harness.nginx import nginx
from tests.harness.process import Running, serving
from tests.harness.tokens import add_token


class Browser:
    """A service with example stores and a browser's page; `faults` is what went wrong on it, or left the machine."""

    def __init__(self, service: Running, opened: Page, faults: list[str]) -> None:
        self.service = service
        self.opened = opened
        self.faults = faults

    def show(self, width: int = 1280, url: str | None = None) -> None:
        """Load the page anew in a window of that width."""
        self.opened.set_viewport_size({"width": width, "height": 844})
        self.opened.goto(url or f"http://127.0.0.1:{self.service.port}/docs")
        self.opened.wait_for_selector("text=Add a store")

    def open(self, operation: str) -> Locator:
        """Unfold an operation."""
        block = self.opened.locator(f"#operations-{operation}")
        block.locator(".opblock-summary-control").first.click()
        block.locator(".responses-table").first.wait_for()
        return block

    def execute(self, block: Locator) -> str:
        """Press Execute; give the status that the page shows."""
        block.locator("button.execute").click()
        status = block.locator(".live-responses-table tr.response .response-col_status").first
        status.wait_for()
        return status.inner_text()

    def authorize(self, token: str) -> None:
        """Give the page a token, as its Authorize takes one."""
        self.opened.locator(".auth-wrapper button.authorize").first.click()
        self.opened.locator(".modal-ux input").fill(token)
        self.opened.locator(".modal-ux button.authorize").click()
        self.opened.locator(".modal-ux button.btn-done").click()

    def overhang(self) -> int:
        """Give by how many pixels the page is wider than the window."""
        return int(
            self.opened.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("page")
    with serving(folder, "--examples") as service, page() as (opened, faults):
        yield Browser(service, opened, faults)


def test_the_reference_shows_every_operation_and_tries_one_out_asking_no_other_host(browser: Browser) -> None:
    browser.show()
    count = sum(len(item) for item in json.loads(encoded_document())["paths"].values())
    assert browser.opened.locator(".opblock-tag-section .opblock").count() == count
    create = browser.open("stores-createStore")
    create.locator("button.try-out__btn").click()
    create.locator("textarea").fill('{"name": "From the page"}')
    assert "200" in browser.execute(create)
    assert browser.service.request("GET", "/api/stores/4").json["name"] == "From the page"
    assert browser.faults == []


def test_the_list_is_tried_out_at_a_moment_of_the_past_with_nothing_to_clear_first(browser: Browser) -> None:
    browser.show()
    read = browser.open("stores-listStores")
    read.locator("button.try-out__btn").click()
    read.get_by_placeholder("at", exact=True).fill("1")
    assert "200" in browser.execute(read)
    assert '"Main Street"' in read.locator(".live-responses-table").inner_text()
    assert browser.faults == []


def test_trying_out_a_long_list_does_not_freeze_the_page(browser: Browser) -> None:
    """It asks for a page, and shows a text of any length as one element: coloured, each word would be one."""
    browser.show()
    read = browser.open("stores-listStores")
    read.locator("button.try-out__btn").click()
    assert "200" in browser.execute(read)
    assert read.locator(".request-url").inner_text().endswith("/api/stores?limit=100")
    assert read.locator(".live-responses-table pre").first.locator("*").count() == 0


def test_the_page_offers_no_choice_among_one_server_and_between_none_and_empty(browser: Browser) -> None:
    browser.show()
    browser.open("stores-listStores").locator("button.try-out__btn").click()
    empty = browser.opened.get_by_text("Send empty value")
    assert empty.count() == 2
    for idle in (browser.opened.get_by_text("Servers", exact=True), empty.first, empty.last):
        assert not idle.is_visible()


def test_execute_sends_the_token_that_authorize_took(browser: Browser, tmp_path: Path) -> None:
    text = add_token(f"sqlite:///{tmp_path}/stores.db", "page", "write")
    with serving(tmp_path, "--auth=all") as service:
        browser.show(url=f"http://127.0.0.1:{service.port}/docs")
        create = browser.open("stores-createStore")
        create.locator("button.try-out__btn").click()
        create.locator("textarea").fill('{"name": "By token"}')
        assert "401" in browser.execute(create)
        browser.authorize(text)
        create.locator("button.btn-clear").click()
        assert "200" in browser.execute(create)
        read = service.request("GET", "/api/stores/1", headers={"authorization": f"Bearer {text}"})
        assert read.json["name"] == "By token"
    assert [fault for fault in browser.faults if "401" not in fault] == []
    browser.faults.clear()


def test_nothing_can_be_executed_before_one_asks_to(browser: Browser) -> None:
    browser.show()
    for operation in ("listStores", "createStore", "getStore", "replaceStore"):
        assert browser.open(f"stores-{operation}").locator("button.try-out__btn").is_visible()
    assert browser.opened.locator("button.execute, textarea").count() == 0


@pytest.mark.parametrize("width", [390, *thorough(1280)])
def test_a_person_can_enter_a_token_at_the_button_authorize(browser: Browser, width: int) -> None:
    browser.show(width)
    browser.opened.locator(".scheme-container button.authorize").click(timeout=5000)
    dialog = browser.opened.locator(".auth-container")
    dialog.locator("input").fill("skt_of_a_person")
    dialog.locator("button.authorize").click()
    assert browser.overhang() == 0
    dialog.locator("button.btn-done").click()
    read = browser.open("stores-getStore")
    read.locator("button.try-out__btn").click()
    assert "200" in browser.execute(read)
    assert "Bearer skt_of_a_person" in read.locator(".curl-command").inner_text()
    assert browser.faults == []


def test_the_page_fits_a_phone_with_operations_open_and_one_executed(browser: Browser) -> None:
    browser.show(width=390)
    for operation in ("listStores", "createStore", "getStore"):
        browser.open(f"stores-{operation}")
    replace = browser.open("stores-replaceStore")
    assert browser.overhang() == 0
    replace.locator("button.try-out__btn").click()
    assert "200" in browser.execute(replace)
    assert browser.overhang() == 0
    assert browser.faults == []


def test_the_page_works_below_a_proxys_path(browser: Browser, tmp_path: Path) -> None:
    with nginx(tmp_path, browser.service.port, "/stores-service/") as port:
        browser.show(url=f"http://127.0.0.1:{port}/stores-service/docs")
        read = browser.open("stores-getStore")
        read.locator("button.try-out__btn").click()
        assert "200" in browser.execute(read)
        url = f"http://127.0.0.1:{port}/stores-service/api/stores/2"
        assert url in read.locator(".request-url").inner_text()
        assert browser.faults == []


def test_the_page_may_load_and_run_only_what_is_its_own(service: Running) -> None:
    policy = service.request("GET", "/docs").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "connect-src 'self';" in policy


def test_a_file_that_is_not_part_of_the_page_is_not_found(service: Running) -> None:
    for name in ("nothing.js", "..%2F..%2Fcli.py", "%2e%2e%2fdocs.py", "docs.html"):
        response = service.request("GET", f"/docs/{name}")
        assert response.status == 404
        assert response.json == {"statusCode": 404, "error": "Not Found", "message": "Not Found"}
