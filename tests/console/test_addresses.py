"""What addresses bring into the console, and what others have kept in the browser: tokens, views,
ids."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.harness.client import until
from tests.harness.console import Console, Guarded, add, put, store_of
from tests.harness.process import Running

Open = Callable[..., Console]
TOKEN = f"Object.entries(localStorage).filter(([key]) => key.endsWith('{'token'}'))[0]?.[1]"
UNKNOWN = "skt_" + "a" * 49


def follow_link(page: Console, token: str) -> None:
    """Follow a link to the console on a page of another site."""
    page.page.goto("about:blank")
    page.page.set_content(f'<a href="{page.base}#token={token}">Win a prize</a>')
    page.page.get_by_text("Win a prize").click()
    page.page.wait_for_selector("#main > *")


def kept(page: Console) -> str:
    found: str = json.loads(page.page.evaluate(TOKEN))
    assert "token" not in page.page.url
    return found


def saves(page: Console, guarded: Guarded, id: int, name: str) -> None:
    page.row(id).click()
    page.name.fill(name)
    page.button("Save").click()
    page.saved()
    assert store_of(guarded.service, id)[0] == name


def test_a_link_replaces_a_token_that_works_only_if_the_person_says_so(
    guarded: Guarded, open_console: Open
) -> None:
    mine, other = guarded.add_token("mine"), guarded.add_token("of another user")
    id = add(guarded.service, "One", authorization=f"Bearer {mine}")
    page = open_console(guarded.service, f"#token={mine}")
    for answer in ("Keep my key", "Escape"):
        follow_link(page, other)
        page.sees("Use the key of this link?")
        assert kept(page) == mine
        if answer == "Escape":
            page.page.keyboard.press("Escape")
        else:
            page.button(answer).click()
        expect(page.page.get_by_role("dialog")).to_have_count(0)
        assert kept(page) == mine
        saves(page, guarded, id, answer)
    page.page.evaluate("(token) => { location.hash = `token=${token}`; }", other)
    page.button("Use the key of the link").click()
    expect(page.page.get_by_role("dialog")).to_have_count(0)
    assert kept(page) == other
    saves(page, guarded, id, "Theirs")


def test_a_link_replaces_a_token_that_is_no_longer_good_unasked(
    guarded: Guarded, open_console: Open
) -> None:
    mine, other = guarded.add_token("that ends"), guarded.add_token("that follows")
    id = add(guarded.service, "One", authorization=f"Bearer {mine}")
    page = open_console(guarded.service, f"#token={mine}", refusals=True)
    guarded.revoke("that ends", mine)
    follow_link(page, other)
    saves(page, guarded, id, "Unasked")
    assert kept(page) == other
    expect(page.page.get_by_role("dialog")).to_have_count(0)


def test_a_link_whose_token_does_not_work_changes_nothing(
    guarded: Guarded, open_console: Open
) -> None:
    mine = guarded.add_token("that stays")
    id = add(guarded.service, "One", authorization=f"Bearer {mine}")
    page = open_console(guarded.service, f"#token={mine}", refusals=True)
    for token, said in ((UNKNOWN, "The key of this link does not work"), ("x", "not a complete")):
        follow_link(page, token)
        page.sees(said)
        assert kept(page) == mine
    saves(page, guarded, id, "As before")


def test_a_token_of_a_link_waits_until_the_service_can_tell_whether_it_works(
    guarded: Guarded, open_console: Open
) -> None:
    mine, other = guarded.add_token("patient"), guarded.add_token("uncertain")
    page = open_console(guarded.service, f"#token={mine}", refusals=True)
    away: list[str] = []

    def refuse(route: Route) -> None:
        away.append(route.request.url)
        if len(away) < 3:
            route.abort()
        else:
            route.fallback()

    page.page.route("**/api/stores?limit=1", refuse)
    follow_link(page, other)
    page.sees("Use the key of this link?")
    assert len(away) == 4
    assert kept(page) == mine


def test_a_refusal_of_an_earlier_token_asks_for_none(guarded: Guarded, open_console: Open) -> None:
    """It was on its way when the next one came."""
    mine, other = guarded.add_token("earlier"), guarded.add_token("later")
    id = add(guarded.service, "One", authorization=f"Bearer {mine}")
    page = open_console(guarded.service, f"#token={mine}", refusals=True)
    seen: list[str] = []

    def hold(route: Route) -> None:
        seen.append(route.request.headers["authorization"])
        if len(seen) > 1:
            route.fallback()
            return
        guarded.revoke("earlier", mine)
        refused = route.fetch()
        page.page.evaluate("(token) => { location.hash = `token=${token}`; }", other)
        until(lambda: kept(page) == other)
        route.fulfill(response=refused)

    page.page.route(f"**/api/stores/{id}", hold)
    page.row(id).click()
    expect(page.name).to_have_value("One")
    assert seen == [f"Bearer {mine}", f"Bearer {other}"]
    expect(page.page.get_by_role("dialog")).to_have_count(0)


NAMES = ["constructor", "__proto__", "toString", "hasOwnProperty", "nothing", ""]


@pytest.mark.parametrize("place", ["view", "store", "q"])
def test_any_word_in_the_address_is_no_more_than_a_word(
    shop: Running, open_console: Open, place: str
) -> None:
    page = open_console(shop, refusals=True)
    for name in NAMES:
        page.open(f"?{place}={name}")
        if place == "store" and name:
            page.sees(f"There is no store {name}")
        elif place == "q" and name:
            page.sees(f"No store found for “{name}”")
        else:
            page.row(1).wait_for()


def test_an_id_with_zeros_in_front_is_that_store(shop: Running, open_console: Open) -> None:
    page = open_console(shop, "?store=0024")
    expect(page.name).to_have_value("Store 24")
    page.sees("Live")
    put(shop, 24, "Changed by others")
    expect(page.name).to_have_value("Changed by others")
    page.name.fill("Typed")
    page.open("?store=24")
    expect(page.name).to_have_value("Typed")
    page.button("Discard").click()


CONTENT = {"name": "Typed", "address": None}
FOREIGN: list[Any] = [
    *(5, "x", True, [], {}, {"name": 1}, {"payload": None}, {"payload": {"name": "x"}}),
    {**CONTENT, "at": "yesterday"},
    {**CONTENT, "at": "2026-11-26T00:00:00Z", "base": 5},
    {**CONTENT, "address": {}, "at": "2026-11-26T00:00:00Z"},
    {"payload": {"name": {}}, "key": "k", "mark": "", "at": 5},
    {"payload": CONTENT, "key": 5, "mark": "", "at": 5},
]


def keep(page: Page, text: str) -> None:
    """Put a text into the browser under each name that the console uses, of this tab and of one
    that is gone."""
    page.evaluate(
        """(text) => {
          const prefix = "storekeeper /console/ ";
          const ofTab = ["draft:25", "draft:new", "draft:", "pending:25", "pending:new",
            "pending:constructor", "pending:../imports"];
          const tab = sessionStorage.getItem(`${prefix}tab`);
          const names = ["token", "seen", "shortcut", "shared",
            ...ofTab.flatMap((name) => [name, `${name}@gone`, `${name}@${tab}`])];
          for (const area of [localStorage, sessionStorage]) {
            for (const name of names) area.setItem(prefix + name, text);
          }
        }""",
        text,
    )


def test_what_another_version_or_program_has_kept_in_the_browser_does_no_harm(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop)
    for text in ("{", *map(json.dumps, FOREIGN)):
        keep(page.page, text)
        page.open("?store=25")
        expect(page.name).to_have_value("Store 25")
        page.page.get_by_role("link", name="New store").press("Enter")
        expect(page.page.locator("h1")).to_have_text("New store")
        expect(page.name).to_have_value("")
        page.page.get_by_role("link", name="Changes", exact=False).first.press("Enter")
        page.sees("Recent changes")
    page.open("?store=25")
    page.name.fill("Store 25!")
    page.button("Save").click()
    page.saved()
    put(shop, 25, "Store 25", "25 Quay Road")


def test_a_page_whose_browser_keeps_nothing_goes_by_what_was_typed_last(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop, "?store=26")
    page.name.fill("Kept")
    page.page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full'); }; }")
    page.name.fill("Typed last")
    page.row(27).click()
    expect(page.name).to_have_value("Store 27")
    page.row(26).click()
    expect(page.name).to_have_value("Typed last")
    page.button("Discard").click()


def test_signing_out_in_one_tab_signs_the_others_out_and_another_console_does_not(
    guarded: Guarded, open_console: Open
) -> None:
    mine = guarded.add_token("of two tabs")
    id = add(guarded.service, "One", authorization=f"Bearer {mine}")
    first = open_console(guarded.service, f"?store={id}#token={mine}", refusals=True)
    second = first.page.context.new_page()
    second.goto(f"{first.base}?store={id}")
    second.evaluate("localStorage.setItem('storekeeper /other/ token', '\"x\"')")
    second.evaluate("localStorage.removeItem('storekeeper /other/ token')")
    saves(first, guarded, id, "Still signed in")
    second.get_by_role("button", name="Menu").click()
    with first.page.expect_navigation():
        second.get_by_role("button", name="Sign out").click()
    expect(first.name).to_have_value("Still signed in")
    first.sees("To change stores, you need a key.")
    expect(first.name).not_to_be_editable()
    first.button("Give a key").click()
    first.sees("This list asks for a key")
