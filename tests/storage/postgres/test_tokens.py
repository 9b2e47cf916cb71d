"""PostgreSQL is away while tokens are in use, and while a service starts without a mode."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from storekeeper.api.token_table import MAX_AGE
from storekeeper.domain.tokens import generate
from tests.harness import weakened
from tests.harness.cases import thorough
from tests.harness.client import until
from tests.harness.databases import make, postgres
from tests.harness.postgres_server import Server, running
from tests.harness.process import TIMEOUT, Response, Running, serving
from tests.harness.tokens import add_token

OPENED = (
    "storekeeper: the database has tokens: choose which requests need one, with --auth (or"
    " STOREKEEPER_AUTH) all,"
    " writes or open (none)"
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


@contextmanager
def two_instances(
    server: Server, folder: Path, **how: Any
) -> Iterator[tuple[list[Running], str, str]]:
    """Serve one database twice; yield both instances, a valid token and an unknown one."""
    url = server.new_database()
    make(url)
    good, unknown = add_token(url, "good", "write"), generate()
    with ExitStack() as stack:
        both = [
            stack.enter_context(serving(folder, "--auth=all", database=url, **how))
            for _ in range(2)
        ]
        for one in both:
            assert [ask(one, good).status, ask(one, unknown).status] == [200, 401]
        yield both, good, unknown


def seen_while_away(both: list[Running], good: str, unknown: str, seconds: float) -> Counter[str]:
    """Return what the responses were, once the tokens that were read must be too old."""
    away, seen = time.monotonic(), Counter[str]()
    while (
        sent := time.monotonic()
    ) < away + seconds or seen.total() < 18:  # a busy machine may stand still
        for one in both:
            responses = [ask(one, good), ask(one, unknown), ask(one, good, "POST")]
            assert responses[0].status == responses[2].status == 503
            if sent > away + MAX_AGE:
                seen.update(f"{each.status} {each.json.get('outcome')}" for each in responses)
                assert all(each.headers["retry-after"] for each in responses if each.status == 503)
        time.sleep(0.05)
    return seen


@pytest.mark.parametrize("seconds", [1.5, pytest.param(60.0, marks=pytest.mark.thorough)])
def test_while_it_is_away_no_token_is_good_and_none_is_bad(
    server: Server, seconds: float, tmp_path: Path
) -> None:
    with two_instances(server, tmp_path) as (both, good, unknown):
        server.stop()
        try:
            assert set(seen_while_away(both, good, unknown, seconds)) == {"503 none"}
        finally:
            server.start()
        for one in both:
            until(partial(_is_served, one, good))
            assert ask(one, unknown).status == 401
            until(partial(_is_served, one, good, "POST"))


@pytest.mark.thorough
def test_a_token_that_is_called_bad_while_it_is_away_would_be_seen(
    server: Server, tmp_path: Path
) -> None:
    change = weakened.environment("knows_tokens_for_ever")
    with two_instances(server, tmp_path, env=change, program=weakened.PROGRAM) as (
        both,
        good,
        unknown,
    ):
        server.stop()
        try:
            assert seen_while_away(both, good, unknown, 1.5)["401 None"] > 4
        finally:
            server.start()


def _is_served(instance: Running, good: str, method: str = "GET") -> bool:
    status = ask(instance, good, method).status
    assert status in (200, 503), "a valid token was called invalid"
    return status == 200


@pytest.mark.parametrize("workers", [1, *thorough(2)])
def test_a_start_without_it_serves_nothing_before_it_is_known_that_there_are_no_tokens(
    server: Server, workers: int, tmp_path: Path
) -> None:
    without, with_token = server.new_database(), server.new_database()
    for url in (without, with_token):
        make(url)
    add_token(with_token, "first", "read")
    server.stop()
    with (
        serving(tmp_path, f"--workers={workers}", database=without, create=False) as opens,
        serving(tmp_path, f"--workers={workers}", database=with_token, create=False) as ends,
    ):
        for one in (opens, ends):
            assert one.request("GET", "/api/stores").status == 503
            assert one.request("GET", "/health/live").status == 200
        server.start()
        until(lambda: opens.request("GET", "/api/stores").status == 200)
        until(
            lambda: opens.request("POST", "/api/stores", {"name": "A"}).status == 200
        )  # another worker may get it
        while ends.process.poll() is None:
            try:
                assert ends.request("GET", "/api/stores").status == 503
            except OSError:
                break  # it has closed its socket
        assert ends.process.wait(TIMEOUT) == 2
        assert ends.log.splitlines()[-1] == OPENED
        assert ends.log.count("storekeeper: ") == 1
