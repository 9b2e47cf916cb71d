"""PostgreSQL is away while tokens are in use, and while a service starts of which nobody said who needs one."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from storekeeper.api.token_table import MAX_AGE
from storekeeper.databases import prepare
from storekeeper.tokens import generate
from tests.harness.client import until
from tests.harness.databases import postgres
from tests.harness.postgres_server import Server, running
from tests.harness.process import TIMEOUT, Response, Running, serving
from tests.harness.tokens import add_token

pytestmark = pytest.mark.count_processes

OPENED = (
    "storekeeper: the database has tokens: say who needs one, with --auth all, --auth writes or --auth open (nobody)"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of this module's own."""
    postgres()
    with running() as server:
        yield server


def ask(instance: Running, text: str, method: str = "GET") -> Response:
    body = {"name": "A"} if method == "POST" else None
    return instance.request(method, "/api/stores", body, {"authorization": f"Bearer {text}"})


@pytest.mark.parametrize("seconds", [1.5, pytest.param(60.0, marks=pytest.mark.thorough)])
def test_while_it_is_away_no_token_is_good_and_none_is_bad(server: Server, seconds: float, tmp_path: Path) -> None:
    url = server.new_database()
    prepare(url)
    good, unknown = add_token(url, "good", "write"), generate()
    with ExitStack() as stack:
        both = [
            stack.enter_context(serving(tmp_path, "--auth=all", adapter, database=url))
            for adapter in ("--fast-lane", "--no-fast-lane")
        ]
        for one in both:
            assert [ask(one, good).status, ask(one, unknown).status] == [200, 401]
        server.stop()
        away, seen = time.monotonic(), 0
        while (sent := time.monotonic()) < away + seconds:
            for one in both:
                responses = [ask(one, good), ask(one, unknown), ask(one, good, "POST")]
                assert responses[0].status == responses[2].status == 503
                if sent > away + MAX_AGE:
                    assert [(each.status, each.json["outcome"]) for each in responses] == [(503, "none")] * 3
                    assert all(each.headers["retry-after"] for each in responses)
                    seen += 1
            time.sleep(0.05)
        assert seen > 4
        server.start()
        for one in both:
            until(partial(_is_served, one, good))
            assert ask(one, unknown).status == 401
            until(partial(_is_served, one, good, "POST"))


def _is_served(instance: Running, good: str, method: str = "GET") -> bool:
    status = ask(instance, good, method).status
    assert status in (200, 503), "a good token was called bad"
    return status == 200


@pytest.mark.parametrize("workers", [1, 2])
def test_a_start_without_it_serves_nothing_before_it_is_known_that_there_are_no_tokens(
    server: Server, workers: int, tmp_path: Path
) -> None:
    without, with_token = server.new_database(), server.new_database()
    for url in (without, with_token):
        prepare(url)
    add_token(with_token, "first", "read")
    server.stop()
    with (
        serving(tmp_path, f"--workers={workers}", database=without) as opens,
        serving(tmp_path, f"--workers={workers}", database=with_token) as ends,
    ):
        for one in (opens, ends):
            assert one.request("GET", "/api/stores").status == 503
            assert one.request("GET", "/health/live").status == 200
        server.start()
        until(lambda: opens.request("GET", "/api/stores").status == 200)
        until(lambda: opens.request("POST", "/api/stores", {"name": "A"}).status == 200)  # another worker may get it
        while ends.process.poll() is None:
            try:
                assert ends.request("GET", "/api/stores").status == 503
            except OSError:
                break  # it has closed its socket
        assert ends.process.wait(TIMEOUT) == 2
        assert ends.log.splitlines()[-1] == OPENED
        assert ends.log.count("storekeeper: ") == 1
