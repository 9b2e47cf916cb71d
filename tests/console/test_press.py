"""What arrives while a person presses, types or reads: it takes no click and moves no button."""

from collections.abc import Callable

from playwright.sync_api import Locator, expect

from tests.harness.console import Console, add, put, store_of
from tests.harness.process import Running

Open = Callable[..., Console]


def hold_down(page: Console, target: Locator) -> None:
    """Press the mouse button on something, and keep it down."""
    box = target.bounding_box()
    assert box is not None
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.page.mouse.down()


def test_a_change_of_others_between_press_and_release_takes_no_click(
    shop: Running, open_console: Open
) -> None:
    id = add(shop, "Pressed", "1 Hall Street")
    page = open_console(shop, f"?store={id}", refusals=True)
    witness = open_console(shop, f"?store={id}")
    page.sees("Live")
    witness.sees("Live")
    page.where.fill("2 Hall Street")
    hold_down(page, page.button("Save"))
    put(shop, id, "Pressed by others", "1 Hall Street")
    expect(witness.name).to_have_value("Pressed by others")
    page.page.wait_for_timeout(300)
    page.page.mouse.up()
    page.saved()
    assert store_of(shop, id) == ("Pressed by others", "2 Hall Street")


def test_a_row_that_others_change_between_press_and_release_opens(
    shop: Running, open_console: Open
) -> None:
    id = add(shop, "Pressed row")
    page = open_console(shop, "?q=pressed+row")
    witness = open_console(shop, "?q=pressed+row")
    page.sees("Live")
    witness.sees("Live")
    hold_down(page, page.row(id).locator(".address"))
    put(shop, id, "Pressed row", "2 Hall Street")
    expect(witness.row(id).get_by_text("2 Hall Street")).to_be_visible()
    page.page.wait_for_timeout(300)
    page.page.mouse.up()
    expect(page.name).to_have_value("Pressed row")
    expect(page.row(id).get_by_text("2 Hall Street")).to_be_visible()


def test_nothing_that_others_do_moves_the_buttons(shop: Running, open_console: Open) -> None:
    id = add(shop, "Unmoved", "1 Hall Street")
    page = open_console(shop, f"?store={id}", refusals=True)
    page.sees("Live")
    page.name.fill("Mine")
    page.sees("unsaved")
    before = page.button("Save").bounding_box()
    put(shop, id, "Theirs", "1 Hall Street")
    page.sees("changed this store while you were editing")
    assert page.button("Save").bounding_box() == before
    page.page.context.set_offline(True)
    page.page.evaluate("dispatchEvent(new Event('token'))")  # ends the stream, which stays open
    page.sees("No connection to the list")
    assert page.button("Save").bounding_box() == before
    page.page.context.set_offline(False)
    page.button("Discard").click()


def test_a_change_that_is_told_late_is_no_change(shop: Running, open_console: Open) -> None:
    """The store and its row were read after it: neither goes back."""
    id = add(shop, "Told late")
    page = open_console(shop, "?q=told+late", refusals=True)
    page.sees("Live")
    page.page.route("**/api/changes?*", lambda route: route.abort())
    page.page.evaluate("dispatchEvent(new Event('token'))")  # ends the stream
    page.sees("Reconnecting")
    put(shop, id, "Told late, first")
    put(shop, id, "Told late, second")
    page.row(id).click()
    expect(page.name).to_have_value("Told late, second")
    page.name.fill("Mine")
    page.page.unroute("**/api/changes?*")
    page.sees("Live")
    expect(page.row(id).get_by_text("Told late, second")).to_be_visible()
    expect(page.page.get_by_text("while you were editing")).to_have_count(0)
    page.button("Discard").click()
