"""Takes the pictures of the console for the documentation, in Chromium from `serve --demo`
(`make screenshots`)."""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count, product
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from urllib.request import Request, urlopen

from playwright.sync_api import Page, sync_playwright

COMMAND = str(Path(sys.executable).with_name("storekeeper"))
TARGET = Path("docs/console")
TAKEN: list[tuple[str, Literal["light", "dark"]]] = [
    ("desktop", "light"),
    ("desktop", "dark"),
    ("phone", "light"),
]
SIZES: dict[str, Any] = {
    "desktop": {"width": 1280, "height": 800},
    "phone": {"width": 390, "height": 844},
}
_NUMBERS = count(12)
LINK = re.compile(r"with (?P<file>\S+);.* (?P<base>http://\S+/)console/#token=(?P<token>\w+)")


class Demo:
    """The demonstration, and another user who writes to it."""

    def __init__(self, line: str) -> None:
        found = LINK.search(line)
        assert found, line
        self.base, self.token = found["base"], found["token"]
        database = f"--database=sqlite:///{found['file']}"
        add = [COMMAND, "token", "add", "marek", "--scope=write", database]
        self.other = subprocess.run(add, capture_output=True, text=True, check=True).stdout.strip()

    def send(self, method: str, path: str, body: object = None) -> Any:
        """Send a request as the other user; return the JSON of the response."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.other}", "content-type": "application/json"}
        with urlopen(Request(f"{self.base}api/{path}", data, headers, method=method)) as response:
            return json.load(response)

    def put(self, id: int, name: str, address: str) -> None:
        """Replace a store."""
        self.send("PUT", f"stores/{id}", {"name": name, "address": address})

    def open(self, page: Page, query: str) -> None:
        """Open a view of the console."""
        page.goto(f"{self.base}console/?{query}")
        page.get_by_text("Live").wait_for()


def main() -> None:
    """Serve the demonstration, and take all pictures."""
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryFile("w+") as log:
        service = subprocess.Popen([COMMAND, "serve", "--demo", "--port=0"], stderr=log)
        try:
            while not (line := _link(log)):
                time.sleep(0.1)
            _take_all(Demo(line))
        finally:
            service.terminate()
            service.wait()


def _link(log: Any) -> str:
    log.seek(0)
    return next((line for line in log if LINK.search(line)), "")


def _take_all(demo: Demo) -> None:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-quic"]
        )
        for (name, show), (size, scheme) in product(VIEWS.items(), TAKEN):
            page = browser.new_page(viewport=SIZES[size], color_scheme=scheme, locale="en-GB")
            page.goto(f"{demo.base}console/#token={demo.token}")
            page.get_by_text("Live").wait_for()
            show(demo, page)
            page.wait_for_timeout(400)
            page.screenshot(path=TARGET / f"{name}-{size}-{scheme}.png")
            page.context.close()
        browser.close()


def _show_changes(demo: Demo, page: Page) -> None:
    for store in demo.send("GET", "stores?q=lighthouse")[:2]:
        demo.put(store["id"], store["name"], _somewhere())
    demo.open(page, "view=changes")
    page.get_by_text("earlier changes").wait_for()


def _show_list(demo: Demo, page: Page) -> None:
    demo.open(page, "q=harbour")
    page.locator("tbody mark").first.wait_for()
    third = demo.send("GET", "stores?q=harbour")[2]
    demo.put(third["id"], third["name"], _somewhere())
    page.get_by_text("changed", exact=True).wait_for()
    if page.viewport_size != SIZES["phone"]:
        page.locator("tbody tr").nth(4).click()
        page.get_by_text("Created").wait_for()


def _show_import(demo: Demo, page: Page) -> None:
    demo.open(page, "view=import")
    stores = demo.send("GET", "stores?limit=40")
    version = demo.send("GET", "changes?order=desc&limit=1")["next"]
    demo.put(7, stores[6]["name"], _somewhere())
    rows = [["id", "Store Name", "Street", "Town", "Opened", "version"]]
    for number, store in enumerate(stores):
        street, _, town = (store["address"] or "").partition(", ")
        unit = f"Unit {number}, " if number % 9 == 6 else ""
        rows.append([str(store["id"]), store["name"], unit + street, town, "2019", version])
    new = [
        (f"Pier Kiosk {number}", f"{number} Harbour Wall", "Dún Laoghaire A96")
        for number in (1, 2, 3)
    ]
    new += [
        ("Teavana @ Mall of the Emirates 2", "Sheikh Zayed Road", "Dubai"),
        ("", "1 Mole", "Hull"),
    ]
    rows += [["", name, street, town, "2026", ""] for name, street, town in new]
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    file: Any = {
        "name": "stores-november.csv",
        "mimeType": "text/csv",
        "buffer": out.getvalue().encode(),
    }
    page.locator("#file").set_input_files(file)
    page.get_by_label("How we recognise a store").select_option("id")
    page.locator(".rows").wait_for()


def _show_history(demo: Demo, page: Page) -> None:
    id = demo.send("GET", "changes?order=desc&limit=200")["changes"][60]["store"]["id"]
    store = demo.send("GET", f"stores/{id}")
    town = (store["address"] or "Whitby YO22").rpartition(", ")[2]
    if len(demo.send("GET", f"changes?store={id}")["changes"]) < 4:
        demo.put(id, store["name"], f"4 Custom House Ln, {town}")
        demo.put(id, store["name"], f"4 Custom House Lane, {town}")
    demo.open(page, f"q={quote(town)}&store={id}")
    page.get_by_text("Restore this version").first.wait_for()
    page.get_by_label("Name", exact=True).press("Tab")


def _show_conflict(demo: Demo, page: Page) -> None:
    id = demo.send("GET", "stores?q=whitby+harbour")[0]["id"]
    demo.put(id, "Old Harbour", "4 Custom House Ln, Whitby")
    demo.open(page, f"store={id}")
    page.get_by_label("Name", exact=True).fill("Old Harbour Coffee")
    page.get_by_label("Address", exact=True).fill("4 Custom House Lane, Whitby YO22 4DE")
    demo.put(id, "Old Harbour Whitby", "4 Custom House Ln, Whitby")
    page.get_by_text("while you were editing").wait_for()
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_label("Yours").check()


def _somewhere() -> str:
    return f"{next(_NUMBERS)} Pier Approach"


VIEWS: dict[str, Callable[[Demo, Page], None]] = {
    "changes": _show_changes,
    "list": _show_list,
    "import": _show_import,
    "history": _show_history,
    "conflict": _show_conflict,
}


if __name__ == "__main__":
    main()
