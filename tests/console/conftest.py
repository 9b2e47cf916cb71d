"""What the tests of the console share: one browser and two services, and pages of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from storekeeper.domain.stores import Payload
from tests.harness.browser import chromium
from tests.harness.client import load
from tests.harness.console import (
    HARBOUR,
    HOSTILE,
    OTHER_HOST,
    PATIENCE,
    Console,
    Guarded,
    console,
    put,
)
from tests.harness.process import Running, serving

expect.set_options(timeout=PATIENCE)

# Of the package and not of the session: while Playwright runs, this thread can run no other event
# loop.


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium(f"--host-resolver-rules=MAP {OTHER_HOST} 127.0.0.1") as started:
        yield started


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="package")
def shop(folder: Path) -> Iterator[Running]:
    """A service for all: stores with hostile names, each changed once; then `Store 7` and so on;
    then harbours."""
    url = f"sqlite:///{folder}/open.db"
    names = [
        *("Before" for _ in HOSTILE),
        *(f"Store {number}" for number in range(len(HOSTILE) + 1, HARBOUR + 1)),
    ]
    stores = [Payload(name, f"{id} Quay Road") for id, name in enumerate(names, 1)]
    stores += [Payload(f"Harbour {number}", f"{number} Quay Road") for number in range(1, 21)]
    load(url, stores)
    with serving(folder, "--allowed-host", OTHER_HOST, database=url) as service:
        for id, name in enumerate(HOSTILE, 1):
            put(service, id, name, f"<script>alert(1)</script> {'long' * 100}")
        yield service


@pytest.fixture(scope="package")
def guarded(folder: Path) -> Iterator[Guarded]:
    url = f"sqlite:///{folder}/guarded.db"
    proxy = ("--user-header=X-Forwarded-User", "--trusted-proxy=127.0.0.1")
    with serving(folder, "--auth=writes", *proxy, database=url) as service:
        yield Guarded(service, url)


@pytest.fixture
def open_console(browser: Browser) -> Iterator[Callable[..., Console]]:
    """Opens the console of a service; each time in a browser profile of its own."""
    with ExitStack() as stack:

        def start(service: Any, address: str = "", **options: Any) -> Console:
            return stack.enter_context(console(browser, service, **options)).open(address)

        yield start
