"""The tasks of docs/console.md, each in the steps of the page."""

import csv
import io
import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests import ROOT
from tests.harness.client import until
from tests.harness.console import HARBOUR, PHONE, Console, add, put, store_of, stores_of
from tests.harness.process import Running

Open = Callable[..., Console]

PAGE = (ROOT / "docs/console.md").read_text()
WORDS = (ROOT / "src/storekeeper/console/words.js").read_text()
NO_TASKS = ["For those who run it"]
NO_WORDS = {"CSV", "Excel", "Store Number"}
TASKS: list[str] = []


def task(heading: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark the test of a task."""
    TASKS.append(heading)
    return lambda test: test


def test_every_task_of_the_page_has_its_test_and_names_what_there_is() -> None:
    assert [
        heading
        for heading in re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
        if heading not in NO_TASKS
    ] == TASKS
    named = {re.sub(r"\d+", "", words) for words in re.findall(r"\*\*(.+?)\*\*", PAGE)} - NO_WORDS
    known = (
        re.sub(r"\$\{.*?\}", "", WORDS) + "Download the  rows with their reasons Import the other "
    )
    assert {words for words in named if words not in known} == set()


@task("Correct stores")
def test_correct(shop: Running, open_console: Open) -> None:
    page = open_console(shop)
    page.page.get_by_placeholder("Search name or address").fill("HARBOUR 3")
    page.row(HARBOUR + 3).locator("mark").first.wait_for()
    page.sees("2 stores found")
    page.row(HARBOUR + 3).click()
    page.where.fill("3 Mole Street")
    page.where.press("Enter")
    page.saved()
    assert store_of(shop, HARBOUR + 3) == ("Harbour 3", "3 Mole Street")
    assert page.address == f"?q=HARBOUR+3&store={HARBOUR + 3}"
    page.name.fill("Harbour 3, North")
    page.button("Save and next").click()
    expect(page.name).to_have_value("Harbour 13")
    page.name.press("Control+Enter")
    page.sees("This was the last store of the list.")
    assert store_of(shop, HARBOUR + 3)[0] == "Harbour 3, North"


@task("Sort the list, and show a part of it")
def test_sort(shop: Running, open_console: Open) -> None:
    first, second = (add(shop, name, "9 Twin Road") for name in ("aaa twin", "AAA  Twin"))
    bare = add(shop, "Nowhere")
    page = open_console(shop, size=PHONE)
    page.page.get_by_label("Sort", exact=True).select_option("By name")
    expect(page.page.locator(".stores tbody tr").first).to_contain_text("$")
    page.button("Possible duplicates").press("Enter")
    page.page.get_by_label("Changed since").fill("2020-01-01")
    expect(page.page.locator(".stores tbody tr")).to_have_count(2)
    expect(page.row(first)).to_contain_text("aaa twin")
    expect(page.row(second)).to_contain_text("AAA")
    page.button("Possible duplicates").press("Enter")
    page.button("No address").press("Enter")
    expect(page.row(first)).to_have_count(0)
    page.page.get_by_label("Sort", exact=True).select_option("By latest change")
    page.row(bare).locator(".name a").press("Enter")
    expect(page.name).to_have_value("Nowhere")


@task("Correct several stores, one after another")
def test_rows(shop: Running, open_console: Open) -> None:
    page = open_console(shop, "?q=harbour+1")
    first, second = HARBOUR + 11, HARBOUR + 12
    page.sees("Live")
    page.row(first).get_by_role("link").focus()
    keys = page.page.keyboard
    keys.press("F2")
    cell = page.page.get_by_label(f"Name of store {first}")
    expect(cell).to_be_focused()
    height = page.row(first).bounding_box()
    cell.fill("Harbour 11, East")
    keys.press("Tab")
    page.page.get_by_label(f"Address of store {first}").fill("11 Mole Street")
    put(shop, first, "Harbour 11", "11 Quay Road")
    keys.press("Tab")
    expect(page.page.get_by_label(f"Name of store {second}")).to_be_focused()
    until(lambda: store_of(shop, first) == ("Harbour 11, East", "11 Mole Street"))
    assert height is not None
    assert height["height"] <= 40
    page.page.get_by_label(f"Name of store {second}").fill("Not this one")
    keys.press("Escape")
    expect(page.row(second).get_by_role("link")).to_be_focused()
    expect(page.row(second).get_by_text("unsaved")).to_have_count(0)
    keys.press("F2")
    page.page.get_by_label(f"Name of store {second}").fill("")
    keys.press("Enter")
    expect(page.page.get_by_label(f"Name of store {second}")).to_be_focused()
    page.page.get_by_label(f"Name of store {second}").fill("Harbour 12, East")
    keys.press("Enter")
    until(lambda: store_of(shop, second)[0] == "Harbour 12, East")
    page.button("Undo").click()
    until(lambda: store_of(shop, second)[0] == "Harbour 12")
    expect(page.row(second).get_by_role("link")).to_have_text("Harbour 12")


@task("Add a store")
def test_add(shop: Running, open_console: Open) -> None:
    page = open_console(shop, size=PHONE)
    page.page.get_by_role("link", name="New store").click()
    page.name.fill("Harbour 5")
    page.sees("Another store has this name")
    page.name.fill("Pier Kiosk")
    page.button("Create and add another").click()
    page.sees("was created")
    page.name.fill("Pier Café")
    page.button("Create store").click()
    expect(page.page.locator("h1")).to_have_text("Pier Café")
    assert [store["name"] for store in stores_of(shop)[-2:]] == ["Pier Kiosk", "Pier Café"]


@task("See what a store was, and bring it back")
def test_restore(shop: Running, open_console: Open) -> None:
    put(shop, HARBOUR + 6, "Wrong name")
    page = open_console(shop, f"?store={HARBOUR + 6}", size=PHONE)
    page.button("Restore this version").click()
    expect(page.name).to_have_value("Harbour 6")
    page.button("Save").click()
    page.saved()
    assert store_of(shop, HARBOUR + 6) == ("Harbour 6", "6 Quay Road")
    expect(page.page.locator(".history li")).to_have_count(3)


@task("See what others did")
def test_changes(shop: Running, open_console: Open) -> None:
    page = open_console(shop, "?view=changes")
    page.sees("Nothing has changed since you last looked.")
    page.open()
    page.sees("Live")
    put(shop, HARBOUR + 7, "Seven")
    page.page.get_by_role("link", name="Changes 1").click()
    page.sees("1 change since you last looked.")
    page.sees("You have seen what follows")
    page.page.get_by_placeholder("Person or store").fill("store 37")
    expect(page.page.locator(".entry a")).to_have_text(["Store 37"])  # long before the others
    page.page.get_by_placeholder("Person or store").fill("")
    page.page.get_by_role("link", name="Seven").first.click()
    expect(page.name).to_have_value("Seven")


@task("Undo")
def test_undo(shop: Running, open_console: Open) -> None:
    id = HARBOUR + 10
    page = open_console(shop, f"?store={id}")
    page.name.fill("Saved by mistake")
    page.button("Save").click()
    page.sees(f"Store {id} was saved.")
    page.button("Undo").click()
    expect(page.name).to_have_value("Harbour 10")
    page.sees("Saved")
    assert store_of(shop, id) == ("Harbour 10", "10 Quay Road")
    put(shop, id, "Changed by others", "10 Quay Road")
    put(shop, id, "Changed by others", "11 Quay Road")
    page.page.get_by_role("link", name=re.compile("Changes")).click()
    page.page.get_by_label("Show only changes of a person or a store").fill(f"{id} others")
    page.sees("of the")
    entries = page.page.locator(".entry")
    entries.nth(1).get_by_role("button", name="Undo").click()
    until(lambda: store_of(shop, id) == ("Harbour 10", "11 Quay Road"))
    entries.filter(has_text="Changed by others").last.get_by_role("button", name="Undo").click()
    page.sees("has been changed since, so there is nothing to undo")
    assert store_of(shop, id) == ("Harbour 10", "11 Quay Road")


@task("Save when another person saved first")
def test_conflict(shop: Running, open_console: Open) -> None:
    page = open_console(shop, f"?store={HARBOUR + 8}", size=PHONE, refusals=True)
    page.name.fill("Mine")
    put(shop, HARBOUR + 8, "Theirs", "8 Mole Street")
    page.sees("Someone changed this store while you were editing")
    page.button("Save").click()
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_label("Something else").last.fill("Ours")
    dialog.get_by_role("button", name="Save").click()
    page.saved()
    assert store_of(shop, HARBOUR + 8) == ("Ours", "8 Mole Street")


@task("Import a spreadsheet")
def test_import(shop: Running, open_console: Open) -> None:
    rows = [["Store Number", "Store Name", "Street", "Postcode", "City", "Phone"]]
    rows += [
        [f"S-{number}", f"Branch {number}", f"{number} High Street", "YO1", "York", "1"]
        for number in range(12)
    ]
    rows += [
        ["S-90", "A name of more than 30 characters", "", "", "", ""],
        ["S-91", "", "", "", "", ""],
    ]
    page = open_console(shop, size=PHONE)
    page.sees("Live")
    page.open("?view=import")
    choose(page, rows)
    page.sees("Not used: Phone")
    page.sees("Nothing is written yet")
    chips = page.page.locator(".chips li")
    expect(chips).to_have_text(
        [re.compile(t) for t in ("Street", ",", "Postcode", "space", "City")]
    )
    page.button("A blank; change to a comma and a blank").press("Enter")
    comma = page.button("A comma and a blank; change to a blank").nth(1)
    expect(comma).to_be_focused()
    comma.press("Enter")
    expect(page.button("A blank; change to a comma and a blank")).to_be_focused()
    page.button("City, 3 of 3").press("ArrowLeft")
    page.button("Postcode, 3 of 3").wait_for()
    page.button("Postcode, 3 of 3").press("ArrowLeft")
    page.button("City, 3 of 3").wait_for()
    expect(page.page.locator(".rows tbody tr").first).to_contain_text("33 characters, at most 30")
    assert page.overhang() <= 0
    page.page.get_by_role("button", name="2 not valid").click()
    expect(page.page.locator(".rows tbody tr")).to_have_count(2)
    with page.page.expect_download() as saved:
        page.button("Download the 2 rows with their reasons").click()
    with saved.value.path().open(encoding="utf-8-sig", newline="") as file:
        rejected = list(csv.reader(file))
    assert [row[0] for row in rejected] == ["Store Number", "S-90", "S-91"]
    assert rejected[1][-1] == "33 characters, at most 30"
    page.button("Without City").click()
    page.sees("Not used, although it looks like a part of an address: City")
    page.page.locator("#add-column").select_option("City")
    expect(page.page.get_by_text("looks like a part of an address")).to_have_count(0)
    page.button("Import the other 12").click()
    page.page.get_by_role("dialog").get_by_role("button", name="Create 12").click()
    page.sees("12 stores created, 0 changed")
    assert store_of(shop, stores_of(shop)[-1]["id"]) == ("Branch 11", "11 High Street, YO1, York")
    put(shop, HARBOUR + 9, "Nine")
    page.page.get_by_role("link", name="Changes 1", exact=True).wait_for()  # one's own are not new


@task("Edit the list in a spreadsheet")
def test_round_trip(shop: Running, open_console: Open) -> None:
    page = open_console(shop, "?q=harbour+1")
    page.sees("stores found")
    with page.page.expect_download() as saved:
        page.button("CSV").click()
    assert re.fullmatch(r"stores-\d{4}-\d\d-\d\d-harbour-1\.csv", saved.value.suggested_filename)
    text = saved.value.path().read_text(encoding="utf-8")
    assert text.startswith("\ufeff")  # so that Excel knows the encoding
    rows = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))
    header, edited, other = rows[0], rows[1], rows[2]
    edited[header.index("name")], other[header.index("name")] = (
        "From the sheet",
        "From the sheet too",
    )
    put(shop, int(other[0]), "Faster")
    page.open("?view=import")
    choose(page, rows)
    page.sees("changed since")
    page.button("Import the other 1").click()
    page.sees("0 stores created, 1 changed")
    found = {store["id"]: store["name"] for store in stores_of(shop)}
    assert (found[int(edited[0])], found[int(other[0])]) == ("From the sheet", "Faster")


def test_ticked_stores_are_exported_whatever_was_searched_in_between(
    shop: Running, open_console: Open
) -> None:
    first, second = HARBOUR + 18, HARBOUR + 19
    page = open_console(shop, "?q=harbour+18", size=PHONE)
    page.row(first).get_by_role("link").focus()
    page.page.keyboard.press("Space")
    page.sees("1 ticked")
    page.page.get_by_placeholder("Search name or address").fill("harbour 19")
    page.row(second).get_by_label(f"Tick store {second}").check()
    page.sees("2 ticked")
    with page.page.expect_download() as saved:
        page.button("CSV of the ticked stores").click()
    with saved.value.path().open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert [row[:3] for row in rows] == [
        ["id", "name", "address"],
        [str(first), "Harbour 18", "18 Quay Road"],
        [str(second), "Harbour 19", "19 Quay Road"],
    ]
    with page.page.expect_download() as saved:
        page.button("Excel of the ticked stores").click()
    assert saved.value.suggested_filename == "stores-ticked.xlsx"
    assert saved.value.path().read_bytes().startswith(b"PK")
    page.button("Clear").click()
    expect(page.page.get_by_text("ticked")).to_be_hidden()
    put(shop, second, "Harbour 19", "elsewhere")
    rows[2][2] = "19 Mole"
    page.open("?view=import")
    choose(page, rows)
    page.sees("changed since")
    put(shop, second, "Harbour 19", "19 Quay Road")


@task("Give a key, and sign out")
def test_token(shop: Running, open_console: Open) -> None:
    """`test_states` has all the ways that this can go."""
    page = open_console(shop)
    page.button("Menu").click()
    page.button("Give a key").click()
    page.page.get_by_label("This is a shared computer").check()
    page.page.get_by_role("textbox", name="Key").fill("skt_" + "a" * 49)
    page.button("Use this key").click()
    page.button("Menu").click()
    page.button("Sign out").click()
    page.sees("Live")


@task("A store closes, or was created twice")
def test_close(shop: Running, open_console: Open) -> None:
    page = open_console(shop, f"?store={HARBOUR + 15}")
    page.name.fill("Closed: Harbour 15")
    page.where.fill("")
    page.button("Save").click()
    page.saved()
    assert store_of(shop, HARBOUR + 15) == ("Closed: Harbour 15", None)
    page.page.get_by_placeholder("Search name or address").fill("closed")
    page.sees("1 store found")


def choose(page: Console, rows: list[list[str]]) -> None:
    """Choose a CSV file with these rows."""
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    buffer = out.getvalue().encode()
    page.page.locator("#file").set_input_files(
        {"name": "stores.csv", "mimeType": "text/csv", "buffer": buffer}
    )
