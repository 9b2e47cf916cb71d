"""What the tests of the console share: one browser for a module, and pages of it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.harness.browser import chromium
from tests.harness.console import OTHER_HOST, Console, console


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(f"--host-resolver-rules=MAP {OTHER_HOST} 127.0.0.1") as started:
        yield started


@pytest.fixture
def open_console(browser: Browser) -> Iterator[Callable[..., Console]]:
    """Opens the console of a service; each time in a browser profile of its own."""
    with ExitStack() as stack:
        opened = partial(console, browser)

        def start(service: Any, address: str = "", **options: Any) -> Console:
            return stack.enter_context(opened(service, **options)).open(address)

        yield start
