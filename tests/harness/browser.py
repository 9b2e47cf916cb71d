"""A real browser: Debian's Chromium, headless, with its profile in a temporary folder."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

from tests.harness.machine import need

# Without these, Chromium contacts its vendor's hosts at every start.
QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
]


WHOLE = ("chromium", "chromium-browser", "google-chrome")
QUICK = ("chromium-headless-shell", *WHOLE)
"""Programs, best first: the headless shell takes a quarter of the time, but sends no
Accept-Language."""


@contextmanager
def chromium(*options: str, programs: Sequence[str] = QUICK) -> Iterator[Browser]:
    """Start the browser with these further options."""
    program = next(filter(None, map(shutil.which, programs)), None)
    if program is None:
        need("browser", "Chromium is not installed")
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=[*QUIET, *sandbox, *options]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page(*options: str, programs: Sequence[str] = QUICK) -> Iterator[tuple[Page, list[str]]]:
    """Open an empty page; return it with a list of everything that goes wrong on it or is sent
    outside the machine."""
    with chromium(*options, programs=programs) as browser:
        opened = browser.new_page()
        faults: list[str] = []
        opened.on(
            "console",
            lambda message: faults.append(message.text) if message.type == "error" else None,
        )
        opened.on("pageerror", lambda error: faults.append(str(error)))
        opened.on("request", lambda request: _note_foreign(request.url, faults))
        yield opened, faults


def _note_foreign(url: str, faults: list[str]) -> None:
    if not url.startswith(("http://127.0.0.1:", "data:", "blob:http://127.0.0.1:")):
        faults.append(f"asked {url}")
