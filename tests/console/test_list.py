"""The list: sorted, filtered and scrolled to its end, with the numbers of outside systems."""

import csv
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from tests.harness.client import load
from tests.harness.console import DESKTOP, PHONE, Console, keep_undo, put, store_of
from tests.harness.process import Running, serving

Open = Callable[..., Console]

COUNT = 700
_ADD_KEY = "INSERT INTO external_ids (store_id, column_name, value) VALUES ($1, $2, $3)"


@pytest.fixture(scope="module")
def long_list(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with many stores: each tenth has a number of the tills, 600 and 601 no address,
    5 and 605 are alike."""
    folder = tmp_path_factory.mktemp("list")
    url = f"sqlite:///{folder}/stores.db"
    stores = [Payload(f"Store {COUNT - id:03}", f"{id} Road") for id in range(1, COUNT + 1)]
    stores[599:601] = [Payload("Store 100"), Payload("Store 099", " ")]
    stores[604] = Payload(f"STORE  {COUNT - 5}", "5 road")
    load(url, stores)
    with databases.write_session(url) as session:
        for id in range(10, COUNT, 10):
            session.execute(_ADD_KEY, (id, "Till", f"T-{id}"))
    with serving(folder, database=url) as service:
        yield service


def ids(page: Console) -> list[int]:
    """Return the ids of the rows that are in the page."""
    found: list[int] = page.page.evaluate(
        "[...document.querySelectorAll('.stores tbody tr')].map((row) => Number(row.dataset.id))"
    )
    return found


def exported(page: Console, button: str) -> list[int]:
    """Return the ids in the file that a button saves."""
    with page.page.expect_download() as saved:
        page.button(button).press("Enter")
    with saved.value.path().open(encoding="utf-8-sig", newline="") as file:
        return [int(row["id"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_the_whole_list_is_scrolled_with_few_rows_in_the_page_and_the_place_is_kept(
    long_list: Running, open_console: Open, size: tuple[int, int]
) -> None:
    page = open_console(long_list, "?sort=-name", size=size)
    page.row(1).wait_for()
    seen: list[int] = []
    while COUNT not in seen:
        present = ids(page)
        assert len(present) <= 300
        seen += [id for id in present if id not in seen]
        last = page.row(present[-1])
        last.scroll_into_view_if_needed()
        page.page.wait_for_function(
            "([id, end]) => Number([...document.querySelectorAll('.stores tbody tr')]"
            ".at(-1).dataset.id) !== id || id === end",
            arg=[present[-1], COUNT],
        )
    assert sorted(seen) == list(range(1, COUNT + 1))
    assert seen.index(2) > seen.index(1)
    place = page.row(650)
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    page.page.get_by_role("link", name="Changes").click()
    page.page.locator(".recent").wait_for()
    page.page.go_back()
    page.page.wait_for_function(
        "([id, y]) => { const row = document.querySelector(`.stores tr[data-id='${id}']`);"
        " return row && Math.abs(row.getBoundingClientRect().top - y) < 5; }",
        arg=[650, box["y"]],
    )
    page.page.reload()
    place.wait_for()
    expect(place).to_be_in_viewport()
    assert len(ids(page)) <= 300


def test_it_is_sorted_and_filtered_by_keyboard_and_the_address_keeps_that(
    long_list: Running, open_console: Open
) -> None:
    page = open_console(long_list)
    page.row(10).wait_for()
    keyboard = page.page.keyboard
    page.button("Name").focus()
    keyboard.press("Enter")
    expect(page.page.locator("th[aria-sort=ascending]")).to_have_text("Name")
    page.row(COUNT).wait_for()
    assert ids(page)[:2] == [COUNT, COUNT - 1]
    keyboard.press("Enter")
    expect(page.page.locator("th[aria-sort=descending]")).to_have_text("Name")
    page.row(1).wait_for()
    put(long_list, 300, "Store 400", "300 Road changed")
    page.page.get_by_label("Sort", exact=True).select_option("By latest change")
    expect(page.page.locator(".stores tbody tr").first).to_contain_text("300 Road changed")
    page.button("No address").focus()
    keyboard.press("Space")
    expect(page.page.locator(".stores tbody tr")).to_have_count(2)
    page.sees("2 stores found")
    page.button("Tick all").press("Enter")
    page.sees("2 ticked")
    page.button("Clear").press("Enter")
    assert exported(page, "CSV") == [600, 601]
    page.button("No address").focus()
    keyboard.press("Space")
    page.button("Possible duplicates").focus()
    keyboard.press("Space")
    expect(page.page.locator(".stores tbody tr")).to_have_count(2)
    assert sorted(ids(page)) == [5, 605]
    assert page.address == "?sort=-changed&twins=1"
    page.page.reload()
    expect(page.page.locator(".stores tbody tr")).to_have_count(2)
    page.button("Possible duplicates").click()
    page.page.get_by_label("Changed since").fill("2999-01-01")
    page.sees("No store fits these filters")
    page.button("CSV").press("Enter")
    expect(page.page.locator(".notice")).to_contain_text("No store fits these filters")
    page.page.get_by_label("Changed since").fill("2020-01-01")
    page.row(300).wait_for()
    page.page.go_back()


def test_numbers_of_outside_systems_are_a_column_and_marked_when_they_are_searched(
    long_list: Running, open_console: Open
) -> None:
    page = open_console(long_list)
    expect(page.page.locator("th.key")).to_have_text("Till")
    expect(page.row(10).locator(".key")).to_have_text("T-10")
    expect(page.row(9).locator(".key")).to_have_text("")
    page.page.get_by_label("Search name or address").fill("T-600")
    expect(page.row(600).locator(".key mark")).to_have_text("T-600")
    assert ids(page) == [600]


def test_a_row_that_is_edited_keeps_its_text_whatever_happens_to_the_list(
    long_list: Running, open_console: Open
) -> None:
    def edit(id: int, text: str) -> None:
        page.row(id).get_by_role("link").press("F2")
        page.page.get_by_label(f"Name of store {id}").fill(text)

    page = open_console(long_list, refusals=True)
    keys = page.page.keyboard

    # Who scrolls away from it leaves it, and comes to the end without a word from the page.
    edit(20, "Scrolled away")
    page.page.wait_for_function(
        "id => { scrollTo(0, document.documentElement.scrollHeight);"
        " return document.querySelector(`.stores tr[data-id='${id}']`); }",
        arg=COUNT,
    )
    page.sees("Store 20 was saved.")

    # An import by others draws the whole list again, but not while a row is edited.
    keep_undo(page)
    page.open("?q=road")
    page.sees("Live")
    edit(21, "Typed")
    rows = "".join(f"{id},{id} Road of others\n" for id in range(22, COUNT))
    headers = {"content-type": "text/csv"}
    sheet = f"id,address\n{rows}".encode()
    imported = long_list.request("POST", "/api/imports?match=id", sheet, headers)
    assert imported.status == 200
    expect(page.page.locator("#unseen")).to_have_text("99+")
    keys.type(" on")
    keys.press("Enter")
    page.sees("Store 21 was saved.")
    page.sees("30 Road of others")
    assert store_of(long_list, 21) == ("Typed on", "21 Road")
    expect(page.page.get_by_text("unsaved").locator("visible=true")).to_have_count(0)

    # What others have changed since, the Undo line leaves as it is.
    put(long_list, 21, "Of others", "21 Road")
    page.button("Undo").press("Enter")
    page.sees("Store 21 has been changed since, so there is nothing to undo.")
    assert store_of(long_list, 21) == ("Of others", "21 Road")

    # The row of the store that is open is edited there.
    page.open("?store=22")
    page.name.fill("Typed in the form")
    page.row(22).get_by_role("link").press("F2")
    expect(page.name).to_be_focused()
    expect(page.name).to_have_value("Typed in the form")
