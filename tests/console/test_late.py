"""Responses that come after newer ones, and keys that belong to an input method."""

from collections.abc import Callable

from playwright.sync_api import Page, Route, expect

from tests.harness.client import until
from tests.harness.console import Console, add, put, store_of
from tests.harness.process import Running

Open = Callable[..., Console]
LOADED = "performance.getEntriesByType('resource').some(({ name }) => name.includes('preview.js'))"


def hold(page: Page, pattern: str) -> list[Route]:
    """Hold back every request that matches, until a test continues it."""
    held: list[Route] = []

    def note(route: Route) -> None:
        held.append(route)

    page.route(pattern, note)
    return held


def wait_for(page: Console, held: list[Route], count: int) -> None:
    """Wait until that many requests are held back."""

    def pumped() -> bool:
        page.page.wait_for_timeout(20)
        return len(held) >= count

    until(pumped)


def test_a_view_that_comes_late_does_not_replace_the_one_that_was_chosen_since(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop, "?view=changes")
    held = hold(page.page, "**/importing.js")
    page.open()
    page.sees("Live")
    page.page.get_by_role("link", name="Import", exact=True).click()
    page.page.get_by_role("link", name="Changes").click()
    page.sees("Recent changes")
    wait_for(page, held, 1)
    for route in held:
        route.continue_()
    until(lambda: page.page.evaluate(LOADED))
    page.page.wait_for_timeout(200)
    expect(page.page.locator("#recent-title")).to_be_visible()
    page.page.get_by_role("link", name="List", exact=True).click()
    held = hold(page.page, "**/api/changes?order=desc*")
    page.page.get_by_role("link", name="Changes").click()
    page.page.get_by_role("link", name="List", exact=True).click()
    page.page.get_by_role("link", name="Import", exact=True).click()
    page.sees("You see what would happen")
    wait_for(page, held, 1)
    for route in held:
        route.continue_()
    page.page.wait_for_timeout(200)
    page.sees("You see what would happen")


def test_offline_no_rows_of_an_earlier_search_stand_below_another_word(
    shop: Running, open_console: Open
) -> None:
    add(shop, "Yorkish")
    add(shop, "Leedsish")
    page = open_console(shop, "?q=yorkish", refusals=True)
    page.sees("Yorkish")
    page.page.context.set_offline(True)
    page.page.get_by_placeholder("Search name or address").fill("leedsish")
    page.sees("Searching for “leedsish”")
    expect(page.page.locator(".stores tbody tr")).to_have_count(0)
    page.page.context.set_offline(False)
    page.sees("1 store found")
    expect(page.page.locator(".stores tbody td.name a")).to_have_text(["Leedsish"])


def test_a_history_that_comes_late_does_not_replace_a_newer_one(
    shop: Running, open_console: Open
) -> None:
    id = add(shop, "First")
    page = open_console(shop, f"?store={id}")
    page.page.locator(".history li").wait_for()
    held = hold(page.page, f"**/api/changes?store={id}*")
    put(shop, id, "Second")
    expect(page.name).to_have_value("Second")
    put(shop, id, "Third")
    expect(page.name).to_have_value("Third")
    wait_for(page, held, 2)
    old = held[0].fetch()
    for route in held[1:]:
        route.continue_()
    expect(page.page.locator(".history li")).to_have_count(3)
    held[0].fulfill(response=old, json={**old.json(), "changes": old.json()["changes"][1:]})
    page.page.wait_for_timeout(200)
    expect(page.page.locator(".history li")).to_have_count(3)


def compose(page: Console, key: str) -> None:
    """Press a key as Safari reports one that ends a composition: code 229, not composing."""
    session = page.page.context.new_cdp_session(page.page)
    for kind in ("rawKeyDown", "keyUp"):
        session.send(
            "Input.dispatchKeyEvent",
            {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": 229},
        )
    session.detach()


def test_keys_of_an_input_method_save_close_and_move_nothing(
    shop: Running, open_console: Open
) -> None:
    id = add(shop, "東京", "港区")
    page = open_console(shop, f"?store={id}")
    page.where.fill("みなと")
    compose(page, "Enter")
    compose(page, "Escape")
    page.name.focus()
    compose(page, "Enter")
    search = page.page.get_by_placeholder("Search name or address")
    search.fill("東京")
    page.row(id).locator("mark").first.wait_for()
    search.focus()
    compose(page, "ArrowDown")
    expect(search).to_be_focused()
    compose(page, "/")
    expect(page.where).to_have_value("みなと")
    page.sees("unsaved")
    assert store_of(shop, id) == ("東京", "港区")
    page.page.keyboard.press("ArrowDown")
    expect(page.row(id).get_by_role("link")).to_be_focused()
    page.button("Discard").click()
