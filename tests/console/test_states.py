"""What the console does when something is in its way: no network, no service, no permission; and
what others do."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.harness.console import PHONE, Console, Guarded, add, put, store_of, stores_of
from tests.harness.process import Running, serving
from tests.harness.tokens import add_token

Open = Callable[..., Console]


def test_the_network_goes_away_while_one_types_and_all_goes_on_by_itself(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop, "?store=30", refusals=True)
    page.sees("Live")
    page.page.context.set_offline(True)
    page.name.fill("Typed offline")
    page.button("Save").click()
    page.sees("No connection to the list")
    expect(page.page.locator("#live")).to_have_text("Reconnecting")
    page.page.context.set_offline(False)
    page.saved()
    page.sees("Live")
    expect(page.page.get_by_text("No connection to the list")).to_have_count(0)
    assert store_of(shop, 30) == ("Typed offline", "30 Quay Road")


def test_what_others_change_appears_by_itself_with_a_mark(
    shop: Running, open_console: Open
) -> None:
    id = add(shop, "Marked one")
    page = open_console(shop, "?q=marked")
    page.row(id).wait_for()
    page.sees("Live")
    put(shop, id, "Marked uno")
    expect(page.row(id).get_by_text("changed")).to_be_visible()
    other = add(shop, "Marked two")
    expect(page.row(other).get_by_text("new")).to_be_visible()
    page.sees("2 stores found")
    page.page.get_by_role("link", name="Changes 2").click()
    page.sees("2 changes since you last looked.")
    page.page.get_by_role("link", name="Marked two").wait_for()
    put(shop, other, "Marked due")
    page.page.get_by_role("link", name="Marked due").wait_for()
    page.page.get_by_role("link", name="Changes").wait_for()


def test_ones_own_change_is_seen_although_the_feed_tells_of_it_first(
    shop: Running, open_console: Open
) -> None:
    def respond_late(route: Route) -> None:
        response = route.fetch()
        if route.request.method == "PUT":
            time.sleep(1)  # meanwhile the feed reports it
        route.fulfill(response=response)

    page = open_console(shop, "?store=32")
    page.sees("Live")
    page.page.route("**/api/stores/32", respond_late)
    page.name.fill("Slowly saved")
    page.button("Save").click()
    page.saved()
    expect(page.page.locator("#unseen")).to_be_empty()


def test_it_polls_where_streams_do_not_get_through(shop: Running, open_console: Open) -> None:
    page = open_console(shop, "?view=import")
    page.page.route(
        "**/api/changes*",
        lambda route: (
            route.fulfill(status=200, content_type="text/html", body="")
            if "event-stream" in route.request.headers["accept"]
            else route.fallback()
        ),
    )
    page.open()
    page.row(31).wait_for()
    put(shop, 31, "Polled")
    expect(page.row(31).get_by_text("Polled")).to_be_visible()


def test_a_service_that_asks_for_a_token_gets_one_and_sign_out_forgets_it(
    tmp_path: Path, open_console: Open
) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    reader, writer = add_token(url, "noor", "read"), add_token(url, "anna", "write")
    with serving(tmp_path, "--auth=all") as service:
        add(service, "One", authorization=f"Bearer {writer}")
        page = open_console(service, size=PHONE, refusals=True)
        give(page, "skt_too_short")
        page.sees("This is not a complete key")
        # The service is away for a moment when the page asks who the user is.
        page.page.route("**/api/me", lambda route: route.fulfill(status=503), times=1)
        page.open(f"#token={reader}")
        expect(page.page.locator("#me")).to_have_text("noor")
        page.row(1).get_by_role("link").press("F2")
        expect(page.page.locator("#notice")).to_contain_text("Your key may only read.")
        page.row(1).click()
        expect(page.page.locator(".may-not")).to_contain_text("Your key may only read.")
        expect(page.name).not_to_be_editable()
        expect(page.button("Save")).to_be_hidden()
        page.sees("Live")
        page.button("Give a key").click()
        give(page, writer)
        page.name.fill("Uno")
        page.button("Save").click()
        page.saved()
        page.page.locator(".history").get_by_text("anna").first.wait_for()
        page.page.reload()
        expect(page.name).to_have_value("Uno")
        page.button("Menu").click()
        page.button("Sign out").click()
        page.page.get_by_role("dialog").wait_for()
        assert (
            page.page.evaluate("Object.keys(localStorage).filter((key) => key.endsWith('token'))")
            == []
        )

        # On a shared computer the token ends with the tab.
        page.page.get_by_label("This is a shared computer").check()
        give(page, reader)
        for _ in range(2):
            page.row(1).wait_for()
            page.page.reload()
        other = page.page.context.new_page()
        other.goto(page.base)
        other.get_by_role("dialog").wait_for()


def give(page: Console, token: str) -> None:
    page.page.get_by_role("textbox", name="Key").fill(token)
    page.button("Use this key").click()


@pytest.mark.parametrize("button", ["Use this key", "Cancel"])
def test_a_dialog_is_gone_at_the_moment_at_which_it_closes(
    shop: Running, open_console: Open, button: str
) -> None:
    """Its event `close` may come a frame later: until then, its title would be a second one."""
    page = open_console(shop)
    page.button("Menu").click()
    page.button("Give a key").click()
    page.page.get_by_role("textbox", name="Key").fill("skt_" + "a" * 49)
    left = page.button(button).evaluate(
        "(button) => { button.click(); return document.querySelectorAll('dialog').length; }"
    )
    assert left == 0
    page.row(1).click()
    expect(page.name).to_be_focused()


def test_text_survives_a_token_that_expires(guarded: Guarded, open_console: Open) -> None:
    first, second = guarded.add_token("expires"), guarded.add_token("next")
    id = add(guarded.service, "One", authorization=f"Bearer {second}")
    page = open_console(guarded.service, f"?store={id}#token={first}", refusals=True)
    page.name.fill("Typed with the old token")
    guarded.revoke("expires", first)
    page.button("Save").click()
    page.sees("no longer works")
    page.page.reload()
    give(page, second)
    expect(page.name).to_have_value("Typed with the old token")
    page.saved()
    assert store_of(guarded.service, id)[0] == "Typed with the old token"


def test_a_first_list_below_its_titles_and_a_long_one_come_in_by_themselves(
    tmp_path: Path, open_console: Open
) -> None:
    rows = [
        "Unsere Liste\t\t\t",
        "Telefon-Nr.\tFilialnr.\tFiliale\tAnschrift",
        "0351\t007\tNord\tAm Tor 1",
        "0352\t008\t\tWeg 2",
    ]
    with serving(tmp_path) as service:
        page = open_console(service, "?view=import")
        page.page.get_by_label("Or paste rows").fill("\n".join(rows))
        page.button("Show what would happen").click()
        page.sees("The name is missing")
        page.button("Import the other 1").click()
        page.page.get_by_role("dialog").get_by_role("button", name="Create 1").click()
        page.sees("1 store created, 0 changed")
        found = service.request("GET", "/api/stores?q=007").json
        assert found == stores_of(service) == [{"id": 1, "name": "Nord", "address": "Am Tor 1"}]

        # Many are read again, and not added row by row.
        page.open()
        page.row(1).wait_for()
        page.sees("Live")
        many = "name\n" + "".join(f"Store {number}\n" for number in range(2, 1001))
        headers = {"content-type": "text/csv"}
        assert (
            service.request("POST", "/api/imports?add=true", many.encode(), headers).status == 200
        )
        page.sees("Show more")
        expect(page.page.locator(".stores tbody tr")).to_have_count(50)
        page.page.get_by_role("link", name="Changes 99+").click()
        page.sees("999 changes since you last looked.")
        page.open("?q=1000")
        assert (
            page.row(1000).locator(".num").evaluate("cell => cell.scrollWidth <= cell.clientWidth")
        )
