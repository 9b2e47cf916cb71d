"""Several tabs and windows of one browser: their drafts, what each has seen, and the one stream of
changes."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.harness.client import until
from tests.harness.console import Console, add, put, store_of, stores_of
from tests.harness.process import Running

Open = Callable[..., Console]


def another(page: Console, address: str) -> Console:
    """Open another tab of the same browser."""
    return Console(page.page.context.new_page(), page.service).open(address)


def test_each_tab_has_its_own_draft(shop: Running, open_console: Open) -> None:
    first = open_console(shop, "?store=new", refusals=True)
    first.name.fill("Of the first tab")
    second = another(first, "?store=new")
    expect(second.name).to_have_value("")
    second.name.fill("Of the second tab")
    for page, name in ((first, "Of the first tab"), (second, "Of the second tab")):
        page.page.reload()
        expect(page.name).to_have_value(name)
    first.page.context.set_offline(True)
    for page in (first, second):
        page.button("Create store").click()
        page.sees("No response yet")
    first.page.context.set_offline(False)
    for page, name in ((first, "Of the first tab"), (second, "Of the second tab")):
        expect(page.page.locator("h1")).to_have_text(name)
    names = [store["name"] for store in stores_of(shop)]
    assert names.count("Of the first tab") == names.count("Of the second tab") == 1


def test_a_tab_takes_over_the_draft_of_one_that_is_closed_and_of_no_other(
    shop: Running, open_console: Open
) -> None:
    id = add(shop, "Drafted")
    closed = open_console(shop, f"?store={id}")
    kept = another(closed, f"?store={id}")
    closed.name.fill("Of the closed tab")
    kept.name.fill("Of the open tab")
    context = closed.page.context
    closed.page.close()
    third = another(kept, f"?store={id}")
    expect(third.name).to_have_value("Of the closed tab")
    kept.page.reload()
    expect(kept.name).to_have_value("Of the open tab")
    third.button("Discard").click()
    kept.button("Save").click()
    kept.saved()
    assert store_of(shop, id)[0] == "Of the open tab"
    assert len(context.pages) == 2


def test_a_copy_of_a_tab_is_another_tab(shop: Running, open_console: Open) -> None:
    """A browser copies what the tab keeps, its name included."""
    id = add(shop, "Copied")
    first = open_console(shop, f"?store={id}")
    first.name.fill("Of the first")
    with first.page.expect_popup() as opened:
        first.page.evaluate("() => { window.open(location.href); }")
    copy = Console(opened.value, shop)
    expect(copy.name).to_have_value("Copied")
    copy.name.fill("Of the copy")
    first.page.reload()
    expect(first.name).to_have_value("Of the first")


def test_the_number_beside_changes_counts_for_each_window(
    shop: Running, open_console: Open
) -> None:
    id = add(shop, "Counted")
    mine = open_console(shop, f"?store={id}")
    other = another(mine, "")
    for page in (mine, other):
        page.sees("Live")
    mine.name.fill("Counted by the other")
    mine.button("Save").click()
    mine.saved()
    other.page.get_by_role("link", name="Changes 1", exact=True).wait_for()
    expect(mine.page.locator("#unseen")).to_be_empty()


def streams(page: Page) -> list[str]:
    """Collect the requests of streams that a page sends."""
    sent: list[str] = []

    def note(accept: str | None, url: str) -> None:
        if accept == "text/event-stream":
            sent.append(url)

    page.on("request", lambda request: note(request.headers.get("accept"), request.url))
    return sent


def test_eight_windows_share_one_stream_and_another_takes_it_over(
    shop: Running, open_console: Open
) -> None:
    id = add(shop, "Streamed")
    first = open_console(shop, "?q=streamed")
    windows = [first, *(another(first, "?q=streamed") for _ in range(7))]
    for page in windows:
        page.sees("Live")
    put(shop, id, "Streamed to all")
    for page in windows:
        expect(page.row(id).get_by_text("Streamed to all")).to_be_visible()
    sent = [streams(page.page) for page in windows]
    first.page.close()  # it is the one that leads
    until(lambda: _pumped(windows[1:], sent))
    put(shop, id, "Streamed on")
    for page in windows[1:]:
        expect(page.row(id).get_by_text("Streamed on")).to_be_visible()
    assert sum(map(len, sent)) == 1


def _pumped(windows: list[Console], sent: list[list[str]]) -> bool:
    """Let events come in; return whether a window has asked for a stream."""
    windows[0].page.wait_for_timeout(50)
    return any(sent)
