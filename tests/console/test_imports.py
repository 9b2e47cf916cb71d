"""A sheet in the console: what it is read as, what a person chooses, and what happens between."""

import io
from collections.abc import Callable
from pathlib import Path

import xlsxwriter  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import Route, expect

from tests.harness.client import until
from tests.harness.console import Console, stores_of
from tests.harness.process import Running

Open = Callable[..., Console]


def choose(page: Console, name: str, content: bytes) -> None:
    """Choose a file of this content."""
    file = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    page.page.locator("#file").set_input_files(file)  # type: ignore[arg-type]  # its type is a TypedDict


def first_row(page: Console) -> str:
    return page.page.locator(".rows tbody tr").first.inner_text()


def begin(open_console: Open, shop: Running) -> Console:
    page = open_console(shop, "?view=import")
    page.sees("You see what would happen")
    return page


def test_letters_are_chosen_by_what_they_would_read(shop: Running, open_console: Open) -> None:
    page = begin(open_console, shop)
    choose(page, "liste.csv", "Filialnr;Filiale\n1;Größe\n2;Süd\n".encode("cp1252"))
    page.sees("Nothing is written yet")
    assert "Größe" in first_row(page)
    letters = page.page.get_by_label("How it should read")
    expect(letters.locator("option:checked")).to_contain_text("Größe (Western Europe)")
    letters.select_option("cp1251")
    expect(page.page.locator(".rows tbody tr").first).to_contain_text("GrцЯe")
    expect(page.page.get_by_label("Between the columns there is")).to_have_value(";")
    page.page.get_by_label("Row with the names of the columns").select_option("none")
    expect(page.page.get_by_text("3 rows")).to_be_visible()


def workbook(**sheets: list[list[str]]) -> bytes:
    """Return an Excel file with these sheets."""
    out = io.BytesIO()
    with xlsxwriter.Workbook(out) as book:
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for at, row in enumerate(rows):
                sheet.write_row(at, 0, row)
    return out.getvalue()


def test_of_several_sheets_one_is_chosen(shop: Running, open_console: Open) -> None:
    header = ["Name", "Address"]
    north = [header, *([f"North {n}", f"{n} Main Street"] for n in range(1, 4))]
    south = [header, *([f"South {n}", f"{n} Main Street"] for n in range(1, 4))]
    page = begin(open_console, shop)
    choose(page, "stores.xlsx", workbook(North=north, South=south))
    page.sees("Nothing is written yet")
    page.page.get_by_label("Sheet").select_option("South")
    expect(page.page.locator(".rows tbody tr").first).to_contain_text("South 1")
    page.button("Create 3 stores").click()
    page.page.get_by_role("dialog").get_by_role("button", name="Create 3").click()
    page.sees("3 stores created, 0 changed")
    assert [store["name"] for store in stores_of(shop)[-3:]] == ["South 1", "South 2", "South 3"]


def test_what_has_more_than_one_meaning_is_asked(shop: Running, open_console: Open) -> None:
    page = begin(open_console, shop)
    choose(page, "own.csv", b"ID,Store,Address\n7001,Asked 1,1 Quay\n7002,Asked 2,2 Quay\n")
    page.sees("Say how we recognise a store")
    expect(page.page.locator(".rows")).to_have_count(0)
    page.page.get_by_label("How we recognise a store").select_option("key:ID")
    page.button("Create 2 stores").wait_for()


def test_a_file_that_is_changed_after_its_preview_is_not_imported(
    shop: Running, open_console: Open, tmp_path: Path
) -> None:
    file = tmp_path / "stores.csv"
    file.write_text("Name,Address\nBefore the change,1 Quay\n")
    page = begin(open_console, shop)
    page.page.locator("#file").set_input_files(file)
    page.button("Create 1 store").wait_for()
    file.write_text("Name,Address\nAfter the change,1 Quay\n")
    page.button("Create 1 store").click()
    page.page.get_by_role("dialog").get_by_role("button", name="Create 1").click()
    page.sees("The file was changed after you chose it")
    names = [store["name"] for store in stores_of(shop)]
    assert not {"Before the change", "After the change"} & set(names)


def test_only_the_latest_preview_is_drawn_and_imported(shop: Running, open_console: Open) -> None:
    page = begin(open_console, shop)
    choose(page, "two.csv", b"Name,Nickname\nFormal 1,Short 1\nFormal 2,Short 2\n")
    page.button("Create 2 stores").wait_for()
    held: list[Route] = []

    def hold(route: Route) -> None:
        if held or "name%3DNickname" not in route.request.url:
            route.fallback()
        else:
            held.append(route)

    page.page.route("**/api/imports*", hold)
    name = page.page.get_by_label("Name", exact=True)
    name.select_option("Nickname")

    def pumped() -> bool:
        page.page.wait_for_timeout(20)
        return bool(held)

    until(pumped)
    expect(page.button("Create 2 stores")).to_be_disabled()
    name.select_option("Name")
    expect(page.button("Create 2 stores")).to_be_enabled()
    held[0].continue_()
    page.page.wait_for_timeout(300)
    assert "Formal 1" in first_row(page)
    expect(name).to_have_value("Name")
    page.button("Create 2 stores").click()
    page.page.get_by_role("dialog").get_by_role("button", name="Create 2").click()
    page.sees("2 stores created, 0 changed")
    assert [store["name"] for store in stores_of(shop)[-2:]] == ["Formal 1", "Formal 2"]


def test_the_progress_of_a_long_upload_is_shown(shop: Running, open_console: Open) -> None:
    page = begin(open_console, shop)
    session = page.page.context.new_cdp_session(page.page)
    session.send("Network.enable")
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1}
    session.send("Network.emulateNetworkConditions", {**slow, "uploadThroughput": 2**20})
    rows = (f"Uploaded {number},{'x' * 200}\n" for number in range(10_000))
    choose(page, "long.csv", ("Name,Address\n" + "".join(rows)).encode())
    page.page.locator("progress:not([hidden])").wait_for()
    session.send("Network.emulateNetworkConditions", {**slow, "uploadThroughput": -1})
    page.button("Create 10,000 stores").wait_for()
