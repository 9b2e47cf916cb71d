"""What the console does when something is in its way: no network, no service, no permission; and what others do."""

import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from storekeeper import databases
from tests.harness.console import PHONE, Console, add, put, stores_of
from tests.harness.process import serving
from tests.harness.tokens import add_token, now

Open = Callable[..., Console]


def test_the_network_goes_away_while_one_types_and_all_goes_on_by_itself(tmp_path: Path, open_console: Open) -> None:
    with serving(tmp_path) as service:
        add(service, "Before", "1 Quay Road")
        page = open_console(service, "?store=1", refusals=True)
        page.sees("Live")
        page.page.context.set_offline(True)
        page.name.fill("Typed offline")
        page.button("Save").click()
        page.sees("The service cannot be reached")
        assert page.page.locator("#live").inner_text() == "Reconnecting"
        page.page.context.set_offline(False)
        page.saved()
        page.sees("Live")
        expect(page.page.locator("#notice")).to_be_hidden()
        assert stores_of(service) == [{"id": 1, "name": "Typed offline", "address": "1 Quay Road"}]


def test_what_others_change_appears_by_itself_with_a_mark(tmp_path: Path, open_console: Open) -> None:
    with serving(tmp_path) as service:
        add(service, "One", "1 Quay Road")
        page = open_console(service)
        page.row(1).wait_for()
        page.sees("Live")
        put(service, 1, "Uno", "1 Quay Road")
        expect(page.row(1).get_by_text("changed")).to_be_visible()
        add(service, "Two")
        expect(page.row(2).get_by_text("new")).to_be_visible()
        page.sees("2 stores")
        page.page.get_by_role("link", name="Changes 2").click()
        page.sees("2 changes since you last looked.")
        page.page.get_by_role("link", name="Two").wait_for()
        put(service, 2, "Due")
        page.page.get_by_role("link", name="Due").wait_for()
        page.page.get_by_role("link", name="Changes", exact=True).wait_for()


def test_it_polls_where_streams_do_not_get_through(tmp_path: Path, open_console: Open) -> None:
    with serving(tmp_path) as service:
        add(service, "One")
        page = open_console(service, "?view=import")
        page.page.route(
            "**/api/changes*",
            lambda route: (
                route.fulfill(status=200, content_type="text/html", body="")
                if "event-stream" in route.request.headers["accept"]
                else route.fallback()
            ),
        )
        page.open()
        page.row(1).wait_for()
        put(service, 1, "Uno")
        expect(page.row(1).get_by_text("Uno")).to_be_visible(timeout=20_000)


def test_a_service_that_asks_for_a_token_gets_one_and_sign_out_forgets_it(tmp_path: Path, open_console: Open) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    reader, writer = add_token(url, "noor", "read"), add_token(url, "anna", "write")
    with serving(tmp_path, "--auth=all") as service:
        headers = {"authorization": f"Bearer {writer}"}
        add(service, "One", **headers)
        page = open_console(service, size=PHONE, refusals=True)
        give(page, "skt_too_short")
        page.sees("This is no whole token")
        give(page, reader)
        page.row(1).click()
        page.name.fill("Uno")
        page.button("Save").click()
        page.sees("Your token may only read")
        give(page, writer)
        page.saved()
        page.page.get_by_text("anna").first.wait_for()
        page.page.reload()
        expect(page.name).to_have_value("Uno")
        page.button("Menu").click()
        page.button("Sign out").click()
        page.page.get_by_role("dialog").wait_for()
        assert page.page.evaluate("Object.keys(localStorage).filter((key) => key.endsWith('token'))") == []


def give(page: Console, token: str) -> None:
    page.page.get_by_role("textbox", name="Token").fill(token)
    page.button("Use this token").click()


def test_on_a_shared_computer_the_token_ends_with_the_tab(tmp_path: Path, open_console: Open) -> None:
    token = add_token(f"sqlite:///{tmp_path}/stores.db", "anna", "write")
    with serving(tmp_path, "--auth=all") as service:
        page = open_console(service, refusals=True)
        page.page.get_by_label("This is a shared computer").check()
        give(page, token)
        page.sees("No stores yet")
        page.page.reload()
        page.sees("No stores yet")
        other = page.page.context.new_page()
        other.goto(page.base)
        other.get_by_role("dialog").wait_for()


def test_text_survives_a_token_that_expires(tmp_path: Path, open_console: Open) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    first, second = add_token(url, "anna", "write"), add_token(url, "anna-2", "write")
    with serving(tmp_path, "--auth=writes") as service:
        add(service, "One", authorization=f"Bearer {first}")
        page = open_console(service, f"?store=1#token={first}", refusals=True)
        page.name.fill("Typed with the old token")
        databases.revoke_token(url, "anna", now())
        time.sleep(1.2)  # by then, the service knows it
        page.button("Save").click()
        page.sees("is not good any more")
        page.page.reload()
        give(page, second)
        expect(page.name).to_have_value("Typed with the old token")
        page.saved()
        assert [store["name"] for store in stores_of(service)] == ["Typed with the old token"]


def test_a_long_import_is_read_anew_and_not_added_row_by_row(tmp_path: Path, open_console: Open) -> None:
    with serving(tmp_path) as service:
        add(service, "One")
        page = open_console(service)
        page.row(1).wait_for()
        page.sees("Live")
        rows = "name\n" + "".join(f"Store {number}\n" for number in range(2, 3001))
        headers = {"content-type": "text/csv"}
        assert service.request("POST", "/api/imports?add=true", rows.encode(), headers).status == 200
        page.sees("Show 50 more")
        expect(page.page.locator(".stores tbody tr")).to_have_count(50)
        page.page.get_by_role("link", name="Changes 99+").click()
        page.sees("2,999 changes since you last looked.")


def test_the_first_list_comes_below_its_titles_and_keeps_its_numbers(tmp_path: Path, open_console: Open) -> None:
    rows = [
        "Unsere Liste\t\t\t",
        "Telefon-Nr.\tFilialnr.\tFiliale\tAnschrift",
        "0351\t007\tNord\tAm Tor 1",
        "\t\tSüd\tWeg 2",
    ]
    with serving(tmp_path) as service:
        page = open_console(service, "?view=import")
        page.page.get_by_label("Or paste rows").fill("\n".join(rows))
        page.button("Show what would happen").click()
        page.sees("Filialnr. is required")
        page.button("Import the other 1").click()
        page.page.get_by_role("dialog").get_by_role("button", name="Create 1").click()
        page.sees("1 store created, 0 changed")
        found = service.request("GET", "/api/stores?q=007").json
        assert found == stores_of(service) == [{"id": 1, "name": "Nord", "address": "Am Tor 1"}]
