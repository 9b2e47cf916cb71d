"""A browser's own EventSource, with what `examples/live.js` adds, misses no change."""

import time
from pathlib import Path

from playwright.sync_api import Page

from tests import ROOT
from tests.harness import browser
from tests.harness.client import until
from tests.harness.databases import postgres
from tests.harness.postgres_server import running
from tests.harness.process import Running, free_port, serving

AWAY = 1.0
"""Seconds without the database: less than a comment's interval, so that nothing at all comes on
the stream."""


def program() -> str:
    """Return `examples/live.js` with a pause of 0.2 s instead of 5 s; the page notes what it
    heard."""
    text = (ROOT / "examples/live.js").read_text().replace("export function", "function")
    pause = "timer = setTimeout(connect, 5000);"
    assert text.count(pause) == 1
    text = text.replace(pause, "{ remade += 1; timer = setTimeout(connect, 200); }")
    return f"window.remade = 0; window.heard = []; {text}"


LISTEN = "window.stop = listen(location.origin, '0', (type, data) => heard.push([type, data.seq]));"


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
            page.evaluate(f"() => {{ {program()}\n{LISTEN} }}")
            add(service, page)
            server.stop()
            time.sleep(AWAY)
            server.start()
            add(service, page)
        with serving(tmp_path, args, database=url) as service:
            add(service, page)
            assert page.evaluate("remade") == 0, "so far it has connected again by itself"
        server.stop()
        with serving(tmp_path, args, database=url, create=False) as service:
            page.wait_for_function("remade > 0")
            server.start()
            add(service, page)
            page.evaluate("stop()")
            until(lambda: service.request("POST", "/api/stores", {"name": "Unheard"}).status == 200)
            page.wait_for_timeout(500)
            assert page.evaluate("heard.length") == len(expected)
