"""A sheet whose stores others changed meanwhile: decided row by row, adopted, and undone."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.harness.console import Console, add, put, store_of, stores_of
from tests.harness.process import Running

Open = Callable[..., Console]


def choose(page: Console, content: str) -> None:
    """Choose a CSV file of this content."""
    page.open("?view=import")
    file = {"name": "stores.csv", "mimeType": "text/csv", "buffer": content.encode()}
    page.page.locator("#file").set_input_files(file)  # type: ignore[arg-type]  # its type is a TypedDict


def test_conflicts_are_decided_row_by_row_and_the_import_is_undone(
    shop: Running, open_console: Open
) -> None:
    ids = [add(shop, f"Decided {at}", f"{at} Quay Road") for at in range(4)]
    version = shop.request("HEAD", "/api/stores").headers["etag"].strip('"')
    rows = "".join(
        f"{id},Of the sheet {at},{at} Quay Road,{version}\n" for at, id in enumerate(ids)
    )
    for at, id in enumerate(ids):
        put(shop, id, f"Of the list {at}", f"{at} Quay Road")
    page = open_console(shop, refusals=True)
    choose(page, f"id,name,address,version\n{rows}")
    page.sees("4 rows differ from what others wrote meanwhile")
    expect(page.button("Nothing to import")).to_be_disabled()
    decided = [page.page.get_by_role("group", name=f"Name of row {at + 2}") for at in range(4)]
    decided[0].get_by_label("The list").check()
    decided[1].get_by_label("Your sheet").check()
    decided[2].get_by_role("textbox").fill("Of both")
    page.button("Import 3 rows").click()
    page.sees("0 stores created, 2 changed")
    page.sees("1 row was not imported.")
    names = ["Of the list 0", "Of the sheet 1", "Of both", "Of the list 3"]
    assert [store_of(shop, id)[0] for id in ids] == names
    put(shop, ids[2], "Changed since", "2 Quay Road")
    page.tab_to(page.button("Undo"))
    page.page.keyboard.press("Enter")
    page.sees("1 store became what it was")
    names = ["Of the list 0", "Of the list 1", "Changed since", "Of the list 3"]
    assert [store_of(shop, id)[0] for id in ids] == names
    page.button("Redo").click()
    page.sees("1 store became what it was")
    assert store_of(shop, ids[1])[0] == "Of the sheet 1"
    page.page.get_by_role("link", name="Changes", exact=False).first.click()
    undo = page.page.get_by_role("button", name="Undo: changed 2 stores")
    page.tab_to(undo)
    undo.dblclick()  # is one undo, as its result says
    page.sees("1 store became what it was. 1 store stays")
    assert [store_of(shop, id)[0] for id in ids] == names


def test_a_long_address_is_decided_whole(shop: Running, open_console: Open) -> None:
    """The preview has only its beginning."""
    listed, mine = "l" * 1500, "m" * 1500
    ids = [add(shop, f"Long {at}", "Before") for at in range(2)]
    version = shop.request("HEAD", "/api/stores").headers["etag"].strip('"')
    rows = "".join(f"{id},Long {at},{mine},{version}\n" for at, id in enumerate(ids))
    for at, id in enumerate(ids):
        put(shop, id, f"Long {at}", listed)
    page = open_console(shop, refusals=True)
    choose(page, f"id,name,address,version\n{rows}")
    page.page.get_by_role("group", name="Address of row 2").get_by_label("The list").check()
    page.button("Your sheet's for all").click()
    page.button("Import 2 rows").click()
    page.sees("0 stores created, 1 changed")
    assert [store_of(shop, id)[1] for id in ids] == [listed, mine]


def test_a_decision_on_a_store_that_changed_again_is_asked_again(
    shop: Running, open_console: Open
) -> None:
    id = add(shop, "Before", "1 Quay Road")
    version = shop.request("HEAD", "/api/stores").headers["etag"].strip('"')
    put(shop, id, "Others, once", "1 Quay Road")
    page = open_console(shop, refusals=True)
    choose(page, f"id,name,address,version\n{id},Of the sheet,1 Quay Road,{version}\n")
    page.button("Your sheet's for all").click()
    put(shop, id, "Others, twice", "1 Quay Road")
    page.button("Import 1 row").click()
    page.sees("The list has changed meanwhile")
    page.sees("Others, twice")
    expect(page.button("Nothing to import")).to_be_disabled()
    assert store_of(shop, id)[0] == "Others, twice"


def test_stores_that_are_there_get_their_numbers_by_one_tick(
    shop: Running, open_console: Open
) -> None:
    ids = [add(shop, f"Adopted {at}", f"{at} Quay Road") for at in range(2)]
    page = open_console(shop, refusals=True)
    choose(page, "Nr,Name,Address\n901,adopted 0,0 quay road\n902,Adopted 1,1 Quay Road\n")
    page.page.get_by_label("How we recognise a store").select_option("Nr")
    page.button("Create 2 stores").wait_for()
    page.page.get_by_label("have the same name and address (2 rows)").check()
    page.button("Change 2 stores").click()
    page.sees("0 stores created, 2 changed")
    assert [store_of(shop, id)[0] for id in ids] == ["Adopted 0", "Adopted 1"]
    assert [store["id"] for store in shop.request("GET", "/api/stores?q=902").json] == [ids[1]]
    assert len([store for store in stores_of(shop) if store["name"].startswith("Adopted")]) == 2
    choose(page, "Nr,Name,Address\n903,Not there yet,3 Quay Road\n")
    page.page.get_by_label("How we recognise a store").select_option("Nr")
    page.button("Create 1 store").wait_for()
    expect(page.page.get_by_label("Give these numbers")).to_have_count(0)
