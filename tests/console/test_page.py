"""The console as a page: what it loads, what may run on it, what it looks like to people who do
not see or point."""

from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import expect

from tests.harness.client import until
from tests.harness.console import (
    DESKTOP,
    HOSTILE,
    OTHER_HOST,
    PHONE,
    Console,
    add,
    keep_undo,
    put,
    store_of,
    stores_of,
)
from tests.harness.nginx import nginx
from tests.harness.process import Running

Open = Callable[..., Console]

MORE = [
    pytest.param(*each, marks=pytest.mark.thorough)
    for each in ((DESKTOP, "dark"), (PHONE, "light"))
]


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark"), *MORE], ids=str)
def test_every_view_is_without_a_serious_finding_and_fits(
    shop: Running, open_console: Open, size: tuple[int, int], scheme: str
) -> None:
    page = open_console(shop, "?q=alert(1)", size=size, scheme=scheme, refusals=True)
    page.row(1).wait_for()
    examine(page)
    page.open("?store=2")
    page.sees("Restore this version")
    page.name.fill("W" * 31)
    examine(page)
    page.name.fill("Mine")
    put(shop, 2, f"Theirs {size[0]} {scheme}", "elsewhere")
    page.sees("changed this store while you were editing")
    page.button("Save").click()
    page.page.get_by_role("dialog").wait_for()
    examine(page)
    page.button("Keep editing").click()
    page.button("Discard").click()
    page.open("?view=changes")
    page.sees("Recent changes")
    examine(page)
    page.open("?view=import")
    examine(page)
    page.button("Menu").click()
    page.button("Help").click()
    expect(page.page.get_by_role("dialog").locator("h2").first).to_have_text("Import")
    examine(page)
    page.page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.button("Menu").click()
    page.button("Give a key").click()
    examine(page)


def test_what_is_edited_ticked_decided_or_undone_is_seen_by_all_and_fits(
    shop: Running, open_console: Open
) -> None:
    id = add(shop, "Before", "1 Mole Street")
    version = shop.request("HEAD", "/api/stores").headers["etag"].strip('"')
    put(shop, id, "Of the list", "1 Mole Street")
    page = open_console(shop)
    keep_undo(page)
    page.open("?q=mole+street&sort=-name&since=2020-01-01")
    page.page.emulate_media(reduced_motion="reduce")  # so that no colour is on its way
    page.row(id).locator(".tick").press("Space")
    page.sees("1 ticked")
    examine_in_all_ways(page)
    page.row(id).get_by_role("link").press("F2")
    name = page.page.get_by_label(f"Name of store {id}")
    name.fill("W" * 31)
    name.press("Enter")
    page.sees("1 character too many.")
    expect(name).to_have_attribute("aria-invalid", "true")
    expect(name).to_be_focused()
    examine_in_all_ways(page)
    name.fill("Of the list, too")
    name.press("Enter")
    page.button("Undo").wait_for()
    examine_in_all_ways(page)
    page.open("?view=import")
    sheet = f"id,name,address,version\n{id},Of the sheet,1 Mole Street,{version}\n,{'W' * 31},\n"
    page.page.locator("#file").set_input_files(
        {"name": "stores.csv", "mimeType": "text/csv", "buffer": sheet.encode()}
    )
    page.page.get_by_role("group", name="Name of row 2").get_by_label("Your sheet").check()
    page.sees("31 characters, at most 30")
    examine_in_all_ways(page)


def examine_in_all_ways(page: Console) -> None:
    """Examine a state in light and dark, on a desktop and a phone; it fits with 200 % too, and what
    is chosen is seen with forced colours."""
    examine(page)
    page.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page.page.emulate_media(color_scheme="dark")
    examine(page)
    page.page.set_viewport_size({"width": 640, "height": 400})
    assert page.overhang() <= 0
    page.page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
    page.page.emulate_media(color_scheme="light", forced_colors="active")
    for chosen in page.page.locator(".since.on input, nav [aria-current]").all():
        assert chosen.evaluate("(node) => getComputedStyle(node).outlineStyle") == "solid"
    assert page.overhang() <= 0
    page.page.emulate_media(forced_colors="none")


def examine(page: Console) -> None:
    options = {"resultTypes": ["violations"], "preload": False}
    found = Axe().run(page.page, options=options).response["violations"]
    serious = [
        (each["id"], each["nodes"][0]["html"])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert page.overhang() <= 0


def test_it_fits_the_smallest_phone_and_200_percent(shop: Running, open_console: Open) -> None:
    page = open_console(shop)
    for address in ("", "?store=4", "?store=new", "?view=changes", "?view=import"):
        page.open(address)
        for width, height in ((320, 640), (640, 400)):
            page.page.set_viewport_size({"width": width, "height": height})
            page.page.wait_for_timeout(50)
            assert page.overhang() <= 0, address


def test_hostile_names_are_text(shop: Running, open_console: Open) -> None:
    page = open_console(shop)
    page.row(6).wait_for()
    assert page.names()[2 : len(HOSTILE)] == HOSTILE[2:]
    assert page.page.locator("tbody img, tbody script").count() == 0
    page.open("?store=1")
    page.page.locator(".history ins").first.wait_for()
    assert page.page.locator(".history img, .history script, .history b b").count() == 0


def test_the_first_load_is_small_and_the_page_asks_no_other_host(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop, "?store=1")
    page.page.wait_for_load_state()
    loaded = page.page.evaluate(
        "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
        ".filter((each) => each.name.includes('/console/')).map((each) => each.decodedBodySize)"
    )
    assert len(loaded) <= 34
    assert sum(loaded) <= 200 * 1024


def test_a_script_that_is_injected_does_not_run(shop: Running, open_console: Open) -> None:
    page = open_console(shop)
    ran = page.page.evaluate(
        """() => {
          const script = document.createElement("script");
          try { script.textContent = "window.ran = true"; } catch { return "refused"; }
          document.body.append(script);
          return window.ran ?? "refused";
        }"""
    )
    assert ran == "refused"
    assert (
        page.page.evaluate(
            "try { document.body.innerHTML = '<b>x</b>' } catch (error) { error.name }"
        )
        == "TypeError"
    )
    assert page.faults
    page.faults.clear()


def test_files_of_the_console_need_no_token_and_carry_the_policy(shop: Running) -> None:
    for path in ("/console/", "/console/main.js", "/console/console.css", "/console/icon.svg"):
        response = shop.request("GET", path)
        assert response.status == 200
        assert "require-trusted-types-for 'script'" in response.headers["content-security-policy"]
        assert (
            shop.request("GET", path, headers={"if-none-match": response.headers["etag"]}).status
            == 304
        )
    assert shop.request("GET", "/console").headers["location"] == "console/"
    assert shop.request("GET", "/console/nothing.js").status == 404


def test_everything_is_done_without_a_mouse(shop: Running, open_console: Open) -> None:
    page = open_console(shop)
    keys = page.page.keyboard
    page.row(3).wait_for()
    keys.press("/")
    expect(page.page.get_by_role("searchbox")).to_be_focused()
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    keys.press("Enter")
    expect(page.name).to_be_focused()
    keys.press("End")
    keys.type("!")
    keys.press("Control+Enter")
    expect(page.page.locator(".id").first).to_have_text("id 4")
    expect(page.name).to_have_value(HOSTILE[3])
    expect(page.name).to_be_focused()
    keys.press("Escape")
    expect(page.row(4).get_by_role("link")).to_be_focused()
    assert store_of(shop, 3)[0].endswith("!")
    put(shop, 3, HOSTILE[2])


def test_the_list_is_edited_filtered_exported_and_undone_without_a_mouse(
    shop: Running, open_console: Open
) -> None:
    ids = [add(shop, f"Kiosk {number}", f"{number} Pier") for number in range(2)]
    page = open_console(shop)
    keep_undo(page)
    page.open("?q=kiosk+pier")
    keys, first = page.page.keyboard, page.row(ids[0]).get_by_role("link")
    page.tab_to(first)
    keys.press("Space")
    page.tab_to(page.button("CSV of the ticked stores"), "Shift+Tab")
    with page.page.expect_download():
        keys.press("Enter")
    page.tab_to(first)
    keys.press("F2")
    keys.press("End")
    keys.type("!")
    keys.press("Enter")
    until(lambda: store_of(shop, ids[0])[0] == "Kiosk 0!")
    page.tab_to(page.button("Undo"))
    keys.press("Enter")
    until(lambda: store_of(shop, ids[0])[0] == "Kiosk 0")
    page.tab_to(page.button("No address"), "Shift+Tab")
    keys.press("Space")
    page.tab_to(page.button("Show all stores"))
    put(shop, ids[1], "Kiosk 2", "1 Pier")
    page.tab_to(page.page.get_by_role("link", name="Changes 1"), "Shift+Tab")
    keys.press("Enter")
    entry = page.page.locator(".entry").filter(has_text="Kiosk 2")
    page.tab_to(entry.get_by_role("button", name="Undo"))
    keys.press("Enter")
    until(lambda: store_of(shop, ids[1])[0] == "Kiosk 1")
    page.tab_to(page.button("Menu"), "Shift+Tab")
    keys.press("Enter")
    page.tab_to(page.button("Help"))
    keys.press("Enter")
    expect(page.page.get_by_role("dialog").locator("h2").first).to_have_text("Changes")
    keys.press("Escape")
    expect(page.page.get_by_role("dialog")).to_have_count(0)


def test_the_key_for_the_search_can_be_switched_off(shop: Running, open_console: Open) -> None:
    page = open_console(shop)
    page.button("Menu").click()
    page.page.get_by_label("The key / goes to the search").uncheck()
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("/")
    expect(page.page.get_by_role("searchbox")).not_to_be_focused()


def test_it_works_below_a_proxys_path(shop: Running, open_console: Open, tmp_path: Path) -> None:
    with nginx(tmp_path, shop.port, "/stores-service/") as port:
        base = f"http://127.0.0.1:{port}/stores-service/console/"
        page = open_console(shop, "?store=4", base=base)
        expect(page.name).to_have_value(HOSTILE[3])
        page.sees("Live")


def test_it_works_over_plain_http_at_a_name_that_is_not_loopback(
    shop: Running, open_console: Open
) -> None:
    """There browsers have no crypto.randomUUID and no Web Locks."""
    base = f"http://{OTHER_HOST}:{shop.port}/console/"
    page = open_console(shop, "?store=new", base=base)
    assert page.page.evaluate("typeof crypto.randomUUID + isSecureContext") == "undefinedfalse"
    page.name.fill("Plain")
    page.name.press("Enter")
    expect(page.page.locator("h1")).to_have_text("Plain")
    page.sees("Live")
    assert [store["name"] for store in stores_of(shop)].count("Plain") == 1
