"""A store in the console: found, corrected, added; by several people at once, and over lost
responses."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.harness.cases import thorough
from tests.harness.console import (
    DESKTOP,
    PHONE,
    Console,
    Guarded,
    add,
    lose_response,
    put,
    store_of,
    stores_of,
)
from tests.harness.process import Running, free_port, serving

Open = Callable[..., Console]


def test_a_person_finds_a_store_and_goes_on_down_the_list(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop)
    page.sees(f"{len(stores_of(shop))} stores")
    assert len(page.names()) == 50
    page.row(50).scroll_into_view_if_needed()
    page.row(100).wait_for()
    page.row(7).click()
    expect(page.name).to_have_value("Store 7")
    page.name.fill("Lucky Seven")
    page.sees("11 of 30")
    page.button("Save and next").click()
    expect(page.name).to_have_value("Store 8")
    assert page.address == "?store=8"
    assert page.row(7).inner_text().split() == ["7", "Lucky", "Seven", "7", "Quay", "Road"]
    page.page.go_back()
    page.page.reload()
    page.row(100).wait_for()
    assert len(page.names()) == len(stores_of(shop))


def test_what_breaks_a_rule_is_said_beside_its_field_and_not_sent(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop, "?store=9")
    page.name.fill("🏪" * 31)
    page.sees("1 character too many.")
    page.name.press("Enter")
    expect(page.name).to_be_focused()
    page.name.fill("🏪" * 30)
    page.sees("30 of 30")
    page.name.fill("")
    page.sees("A store needs a name.")
    page.name.fill("Blank ")
    page.sees("There is a blank at the end.")
    page.name.fill("Store 10")
    page.page.get_by_role("link", name="id 10").wait_for()
    page.button("Discard").click()
    expect(page.name).to_have_value("Store 9")
    page.where.fill("First floor")
    page.where.press("Shift+Enter")
    page.where.press_sequentially("9 Quay Road")
    page.where.press("Enter")
    page.saved()
    assert store_of(shop, 9) == ("Store 9", "First floor\n9 Quay Road")


@pytest.mark.parametrize("size", [PHONE, *thorough(DESKTOP)], ids=str)
def test_two_people_edit_one_store_and_nothing_is_lost(
    shop: Running, open_console: Open, size: tuple[int, int]
) -> None:
    put(shop, 20, "Old Harbour", "4 Custom House Ln")
    anna = open_console(shop, "?store=20", size=size, refusals=True)
    erik = open_console(shop, "?store=20", size=size)
    anna.name.fill("Old Harbour Coffee")
    anna.where.fill("4 Custom House Lane")
    erik.name.fill("Old Harbour Whitby")
    erik.button("Save").click()
    erik.saved()
    anna.sees("changed this store while you were editing")
    expect(anna.name).to_have_value("Old Harbour Coffee")
    anna.button("Save").click()
    dialog = anna.page.get_by_role("dialog")
    assert anna.overhang() == 0
    dialog.get_by_role("button", name="Save").click()
    anna.sees("Choose one.")
    dialog.get_by_label("Yours").check()
    dialog.get_by_role("button", name="Save").click()
    anna.saved()
    assert store_of(shop, 20) == ("Old Harbour Coffee", "4 Custom House Lane")
    expect(erik.name).to_have_value("Old Harbour Coffee")
    expect(erik.page.locator(".status")).to_have_text("")


def test_typed_text_survives_a_reload_and_leaves_with_discard(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop, "?store=22")
    page.name.fill("Not saved yet")
    page.page.reload()
    expect(page.name).to_have_value("Not saved yet")
    page.sees("unsaved")
    page.page.keyboard.press("Escape")
    expect(page.row(22).get_by_text("unsaved")).to_be_visible()
    page.row(22).click()
    page.button("Discard").click()
    expect(page.name).to_have_value("Store 22")
    expect(page.row(22).get_by_text("unsaved")).to_have_count(0)


def test_a_service_that_is_killed_between_click_and_response_has_the_store_once(
    tmp_path: Path, open_console: Open
) -> None:
    port = f"--port={free_port()}"  # which no other process gets meanwhile
    with serving(tmp_path, port) as service:
        page = open_console(service, "?store=new", refusals=True)
        page.sees("No stores yet")
        keys = lose_response(page.page, "/api/stores", lambda: service.stop(signal.SIGKILL))
        page.name.fill("Pier Kiosk")
        page.button("Create store").click()
        page.sees("No connection to the list")
    with serving(tmp_path, port) as again:
        expect(page.page.locator("h1")).to_have_text("Pier Kiosk")
        assert page.address == "?store=1"
        assert [store["name"] for store in stores_of(again)] == ["Pier Kiosk"]
        assert len(set(keys)) == 1 < len(keys)


def test_a_create_that_was_under_way_at_a_reload_goes_on_by_itself(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop, "?store=new", refusals=True)
    lose_response(page.page, "/api/stores", page.page.reload)
    page.name.fill("Under way")
    page.name.press("Enter")
    expect(page.page.locator("h1")).to_have_text("Under way")
    assert [store["name"] for store in stores_of(shop)].count("Under way") == 1


def test_a_save_that_was_under_way_at_a_reload_overwrites_nobody(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop, "?store=23", refusals=True)
    keys: list[str] = []

    def lose(route: Route) -> None:
        """Lose the first save before it arrives; another user saves, and the page is loaded
        again."""
        if (key := route.request.headers.get("idempotency-key")) and not keys:
            keys.append(key)
            put(shop, 23, "Theirs", "23 Quay Road")
            page.page.reload()
            route.abort()
        else:
            route.fallback()

    page.page.route("**/api/stores/23", lose)
    page.name.fill("Mine")
    page.button("Save").click()
    page.sees("Choose what the store should be")
    page.page.get_by_role("dialog").get_by_label("Theirs").check()
    page.page.get_by_role("dialog").get_by_role("button", name="Save").click()
    page.sees("Nothing to save")
    assert store_of(shop, 23) == ("Theirs", "23 Quay Road")


def test_a_token_that_is_revoked_in_the_middle_leads_to_another_and_no_second_store(
    guarded: Guarded, open_console: Open
) -> None:
    first, second = guarded.add_token("revoked"), guarded.add_token("erik")
    page = open_console(guarded.service, f"?store=new#token={first}", refusals=True)
    assert "token" not in page.page.url
    lose_response(page.page, "/api/stores", lambda: guarded.revoke("revoked", first))
    page.name.fill("Pier Kiosk")
    page.button("Create store").click()
    page.page.get_by_role("textbox", name="Key").fill(second)
    page.button("Use this key").click()
    page.sees("Was this store created?")
    page.button(f"Yes, open store {len(stores_of(guarded.service))}").click()
    expect(page.page.locator("h1")).to_have_text("Pier Kiosk")
    assert [store["name"] for store in stores_of(guarded.service)].count("Pier Kiosk") == 1


def test_a_save_whose_key_counts_no_longer_is_known_by_what_the_store_is(
    guarded: Guarded, open_console: Open
) -> None:
    """The second response is 412: another token has other keys, and the tag is old by then."""
    first, second = guarded.add_token("saves"), guarded.add_token("saves-again")
    bearer = {"authorization": f"Bearer {second}"}
    id = add(guarded.service, "Before", **bearer)
    page = open_console(guarded.service, f"?store={id}#token={first}", refusals=True)
    keys = lose_response(page.page, f"/api/stores/{id}", lambda: guarded.revoke("saves", first))
    page.name.fill("After")
    page.button("Save").click()
    page.page.get_by_role("textbox", name="Key").fill(second)
    page.button("Use this key").click()
    page.saved()
    assert len(set(keys)) > 1
    expect(page.page.get_by_role("dialog")).to_have_count(0)
    history = guarded.service.request("GET", f"/api/changes?store={id}", headers=bearer).json
    assert [change["store"]["name"] for change in history["changes"]] == ["Before", "After"]


def test_two_people_who_change_one_field_each_are_asked_nothing_and_lose_nothing(
    shop: Running, open_console: Open
) -> None:
    """Also if the response to the first save is lost: then its key is sent again."""
    page = open_console(shop, "?store=25", refusals=True)
    for number, lost in ((1, False), (2, True)):
        page.name.fill(f"Mine {number}")
        put(shop, 25, store_of(shop, 25)[0], f"Theirs {number}")
        page.sees("Someone changed this store while you were editing")
        if lost:
            keys = lose_response(page.page, "/api/stores/25")
        page.button("Save").click()
        page.saved()
        expect(page.page.get_by_role("dialog")).to_have_count(0)
        expect(page.where).to_have_value(f"Theirs {number}")
        assert store_of(shop, 25) == (f"Mine {number}", f"Theirs {number}")
    assert len(keys) >= 2
