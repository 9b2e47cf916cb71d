"""A proxy between the console and the service that responds in its place: a login page, refusals,
outages in HTML."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.harness.console import Console, Guarded, add, store_of
from tests.harness.nginx import nginx
from tests.harness.process import Running

Open = Callable[..., Console]

SETTINGS = """
        default_type text/html;
        client_max_body_size 100k;
        limit_req_status 429;
        location /api/ {
            if ($cookie_meddle = "login") { return 200 "<h1>Log in</h1>"; }
            if ($cookie_meddle = "elsewhere") { return 302 /login; }
            if ($cookie_meddle = "401") { return 401; }
            if ($cookie_meddle = "403") { return 403; }
            if ($cookie_meddle = "404") { return 404; }
            if ($cookie_meddle = "429") { return 429; }
            if ($cookie_meddle = "500") { return 500; }
            proxy_pass http://127.0.0.1:%d;
        }
"""
SIGN_IN = "The proxy asks you to sign in: reload"


class Meddling:
    """A proxy of a service, and pages of its console."""

    def __init__(self, port: int, service: Running, open_console: Open) -> None:
        self._port, self.service, self._open = port, service, open_console

    def open(self, address: str = "") -> Console:
        base = f"http://127.0.0.1:{self._port}/console/"
        return self._open(self.service, address, base=base, refusals=True)


@pytest.fixture(scope="module")
def proxy(shop: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("proxy")
    with nginx(folder, shop.port, settings=SETTINGS % shop.port) as port:
        yield port


@pytest.fixture
def meddling(proxy: int, shop: Running, open_console: Open) -> Meddling:
    return Meddling(proxy, shop, open_console)


def meddle(page: Console, kind: str) -> None:
    """Have the proxy respond in the service's place from now on; with "" no longer."""
    page.page.context.clear_cookies()
    if kind:
        page.page.context.add_cookies(
            [{"name": "meddle", "value": kind, "domain": "127.0.0.1", "path": "/"}]
        )


def test_a_login_page_in_the_place_of_a_response_is_said_and_loses_nothing(
    meddling: Meddling,
) -> None:
    id = add(meddling.service, "Signed in")
    page = meddling.open(f"?store={id}")
    for kind in ("login", "elsewhere", "401"):
        page.sees("Live")
        before = store_of(meddling.service, id)
        meddle(page, kind)
        page.name.fill(f"Typed, {kind}")
        page.button("Save").click()
        page.sees("No response yet")
        with page.page.expect_event("load"):
            page.button("Reload").click()
        page.sees(SIGN_IN)
        assert store_of(meddling.service, id) == before
        meddle(page, "")
        expect(page.name).to_have_value(f"Typed, {kind}")
        page.saved()
        assert store_of(meddling.service, id)[0] == f"Typed, {kind}"


def test_an_outage_that_a_proxy_reports_is_one_and_ends_by_itself(meddling: Meddling) -> None:
    id = add(meddling.service, "Before the outage")
    page = meddling.open(f"?store={id}")
    for kind in ("404", "429", "500"):
        meddle(page, kind)
        page.name.fill(f"Typed, {kind}")
        page.button("Save").click()
        page.sees(f"with status {kind}")
        meddle(page, "")
        page.saved()
        expect(page.page.get_by_text(f"with status {kind}")).to_have_count(0)
        assert store_of(meddling.service, id)[0] == f"Typed, {kind}"


def test_what_a_proxy_refuses_for_good_is_said_in_words(meddling: Meddling) -> None:
    id = add(meddling.service, "Refused")
    page = meddling.open(f"?store={id}")
    page.where.fill("x" * 200_000)
    page.button("Save").click()
    page.sees("lets nothing through that is this large")
    page.where.fill("Short")
    meddle(page, "403")
    page.button("Save").click()
    page.sees("A proxy on the way to the list refuses this, with status 403")
    expect(page.page.get_by_role("dialog")).to_have_count(0)
    meddle(page, "")
    page.button("Save").click()
    page.saved()
    assert "undefined" not in page.page.locator("body").inner_text()


def test_a_list_an_export_and_an_import_know_a_login_page(meddling: Meddling) -> None:
    page = meddling.open()
    page.row(1).wait_for()
    meddle(page, "login")
    page.page.get_by_placeholder("Search name or address").fill("harbour 1")
    page.sees("Searching for “harbour 1”")
    page.sees(SIGN_IN)
    expect(page.page.locator(".stores tbody tr")).to_have_count(0)
    downloads: list[object] = []

    def note(download: object) -> None:
        downloads.append(download)

    page.page.on("download", note)
    page.button("CSV").click()
    page.sees(SIGN_IN)
    page.page.get_by_role("link", name="Import", exact=True).click()
    page.page.get_by_label("Or paste rows").fill("name\nA\n")
    page.button("Show what would happen").click()
    page.sees(SIGN_IN)
    meddle(page, "")
    page.sees("Nothing is written yet")
    assert downloads == []
    meddle(page, "login")
    page.open("?view=changes")
    page.sees(SIGN_IN)
    meddle(page, "")
    page.sees("Nothing has changed since you last looked.")


def test_history_and_changes_name_the_user_and_the_key_and_the_filter_finds_both(
    guarded: Guarded, open_console: Open
) -> None:
    token = guarded.add_token("till 3")
    id = add(guarded.service, "Corner", authorization=f"Bearer {token}")
    page = open_console(guarded.service, f"?store={id}#token={token}")
    page.page.set_extra_http_headers({"X-Forwarded-User": "zoe@shop.example"})
    page.name.fill("The corner")
    page.button("Save").click()
    page.saved()
    who = "zoe@shop.example (till 3)"
    expect(page.page.locator(".history li .by b")).to_have_text([who, "till 3"])
    page.page.get_by_role("link", name="Changes").click()
    entries = page.page.locator(".recent .entry")
    for typed, found in (("zoe@shop", [who]), ("till 3", [who, "till 3"]), ("nobody", [])):
        page.page.get_by_role("searchbox", name="Show only changes").fill(typed)
        expect(entries.locator("b")).to_have_text(found)
