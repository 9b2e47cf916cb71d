"""The console in a real browser: pages of any size and colour scheme, watched for errors."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from storekeeper.storage.tokens import revoke_token
from tests.harness.client import until
from tests.harness.process import Running
from tests.harness.tokens import add_token, now

OTHER_HOST = "stores.test"
"""A name that resolves to 127.0.0.1 in the browser, which does not trust its pages as it does those
of loopback."""

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "\u202egnp.exe",
    "🏪👩‍👩‍👧‍👦 Ünï",
    "W" * 30,
    "متجر المدينة",
    "${name}{{1+1}}'\"",
]
"""The names of the first stores that the console's tests share."""

HARBOUR = 120
"""The id of the store before `Harbour 1`."""

PATIENCE = 30_000
"""How many milliseconds a page may take to show something, on a busy machine."""

DESKTOP, PHONE = (1280, 800), (390, 844)

_REFUSALS = re.compile(
    r"Failed to load resource: "
    r"(net::ERR|the server responded with a status of (4\d\d|500|503))"
)
"""What Chromium reports for a response that is not a success, and for a service that is gone."""


class Console:
    """A page with the console of a service; `faults` has what its browser reported."""

    def __init__(self, page: Page, service: Running, base: str = "") -> None:
        self.page = page
        self.service = service
        self.base = base or f"http://127.0.0.1:{service.port}/console/"
        self.requests: list[str] = []
        self.faults: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on(
            "console",
            lambda message: self.faults.append(message.text) if message.type != "log" else None,
        )
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", self._note)

    def _note(self, request: Request) -> None:
        self.requests.append(request.url)
        if not request.url.startswith((self.base.removesuffix("console/"), "blob:")):
            self.faults.append(f"asked {request.url}")

    def open(self, address: str = "") -> "Console":
        """Go to an address below the console's, and wait until the page shows something."""
        self.page.goto(self.base + address)
        self.page.wait_for_selector("#main > *")
        return self

    @property
    def address(self) -> str:
        """The part of the address after the console's own."""
        return self.page.url.removeprefix(self.base)

    @property
    def name(self) -> Locator:
        return self.page.get_by_label("Name", exact=True)

    @property
    def where(self) -> Locator:
        return self.page.get_by_label("Address", exact=True)

    def names(self) -> list[str]:
        return self.page.locator(".stores tbody td.name a").all_inner_texts()

    def row(self, id: int) -> Locator:
        return self.page.locator(f".stores tr[data-id='{id}']")

    def button(self, text: str) -> Locator:
        return self.page.get_by_role("button", name=text, exact=True)

    def sees(self, text: str) -> None:
        """Wait until a text is shown."""
        expect(self.page.get_by_text(text).locator("visible=true").first).to_be_visible()

    def saved(self) -> None:
        expect(self.page.locator(".status.good")).to_be_visible()

    def tab_to(self, target: Locator, key: str = "Tab") -> None:
        """Press Tab, or Shift+Tab, until what is meant has the focus."""
        target.wait_for()
        for _ in range(100):
            if target.evaluate("(node) => node === document.activeElement"):
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"Tab never comes to {target}")

    def overhang(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@contextmanager
def console(
    browser: Browser,
    service: Running,
    size: tuple[int, int] = DESKTOP,
    scheme: Any = "light",
    base: str = "",
    *,
    refusals: bool = False,
) -> Iterator[Console]:
    """Open a separate page, at the address `base` if it is not the service's own; at its end,
    nothing may have gone wrong but expected `refusals`."""
    viewport: Any = {"width": size[0], "height": size[1]}
    context = browser.new_context(viewport=viewport, color_scheme=scheme, locale="en-GB")
    try:
        opened = Console(context.new_page(), service, base)
        yield opened
        faults = [fault for fault in opened.faults if not (refusals and _REFUSALS.match(fault))]
        assert not faults, faults
    finally:
        context.close()


class Guarded:
    """Run a service without stores whose writes need a token."""

    def __init__(self, service: Running, url: str) -> None:
        self.service = service
        self._url = url

    def add_token(self, name: str) -> str:
        """Add a token that may write; return its text once the service knows it."""
        text = add_token(self._url, name, "write")
        self._until(text, 200)
        return text

    def revoke(self, name: str, text: str) -> None:
        """Revoke a token; return once the service knows."""
        revoke_token(self._url, name, now())
        self._until(text, 401)

    def _until(self, text: str, status: int) -> None:
        bearer = {"authorization": f"Bearer {text}"}
        until(lambda: self.service.request("GET", "/api/stores", headers=bearer).status == status)


def keep_undo(page: Console) -> None:
    """Let the Undo line of each page that is opened now stay for a minute: a busy machine may take
    longer than its ten seconds to come to it."""
    page.page.add_init_script(
        "const wait = setTimeout;"
        "setTimeout = (run, after, ...rest) => wait(run, after === 10000 ? 60000 : after, ...rest)"
    )


def lose_response(page: Page, path: str, then: Any = lambda: None) -> list[str]:
    """Let the next write to a path arrive, call `then`, lose the response; return the keys of all
    attempts."""
    keys: list[str] = []

    def lose(route: Route) -> None:
        if key := route.request.headers.get("idempotency-key"):
            keys.append(key)
        if not key or len(keys) > 1:
            route.fallback()
            return
        route.fetch()
        then()
        route.abort()

    page.route(f"**{path}", lose)
    return keys


def store_of(service: Running, id: int) -> Any:
    store = service.request("GET", f"/api/stores/{id}").json
    return store["name"], store["address"]


def stores_of(service: Running) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(service.request("GET", "/api/stores").body)
    return found


def add(service: Running, name: str, address: str | None = None, **headers: str) -> int:
    """Add a store; return its id."""
    body = {"name": name} if address is None else {"name": name, "address": address}
    id: int = service.request("POST", "/api/stores", body, headers).json["id"]
    return id


def put(service: Running, id: int, name: str, address: str | None = None, **headers: str) -> None:
    """Replace a store, as another user would."""
    body = {"name": name} if address is None else {"name": name, "address": address}
    assert service.request("PUT", f"/api/stores/{id}", body, headers).status == 200
