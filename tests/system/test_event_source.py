"""A browser's own EventSource, with the three lines of `docs/clients.md`, misses no change."""

import re
import time
from pathlib import Path

from playwright.sync_api import Page

from tests.harness import browser
from tests.harness.client import until
from tests.harness.databases import postgres
from tests.harness.pages import ROOT, blocks
from tests.harness.postgres_server import running
from tests.harness.process import Running, free_port, serving

AWAY = 3.0
"""Seconds without the database: less than a comment's interval, so that nothing at all comes on the stream."""


def recipe() -> str:
    """Return the recipe without its last line, with a pause of 0.2 s instead of 5 s; the page notes what it heard."""
    (text,) = [
        "\n".join(lines) for _, language, lines in blocks(ROOT / "docs/clients.md") if "EventSource(" in str(lines)
    ]
    text, _, _ = text.rpartition("\nconsole.log(")
    text, count = re.subn(
        "setTimeout\\(listen, 5000, take\\)", "{ remade += 1; setTimeout(listen, 200, take); }", text
    )
    assert count == 1
    return f"window.remade = 0; window.heard = []; {text}\nlisten((type, data) => heard.push([type, data.seq]));"


def test_it_goes_on_after_a_restart_without_the_database_and_after_a_503(tmp_path: Path) -> None:
    postgres()
    port = free_port()
    args = f"--port={port}"
    expected: list[list[object]] = []

    def add(service: Running, page: Page) -> None:
        until(lambda: service.request("POST", "/api/stores", {"name": "Heard"}).status == 200)
        expected.append(["change", len(expected) + 1])
        page.wait_for_function("count => heard.length >= count", arg=len(expected))
        assert page.evaluate("heard") == expected

    with running() as server, browser.page() as (page, _):
        url = server.new_database()
        with serving(tmp_path, args, database=url) as service:
            page.goto(f"http://127.0.0.1:{port}/health/live")
            page.evaluate(f"() => {{ {recipe().replace('http://127.0.0.1:8080', f'http://127.0.0.1:{port}')} }}")
            add(service, page)
            server.stop()
            time.sleep(AWAY)
            server.start()
            add(service, page)
        with serving(tmp_path, args, database=url) as service:
            add(service, page)
            assert page.evaluate("remade") == 0, "so far it has connected again by itself"
        server.stop()
        with serving(tmp_path, args, database=url) as service:
            page.wait_for_function("remade > 0")
            server.start()
            add(service, page)
