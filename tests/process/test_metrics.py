"""Metrics of several workers: one total, from any worker, whichever is killed or replaced."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from types import SimpleNamespace

from tests.harness.client import until
from tests.harness.linux import workers
from tests.harness.metrics import Series, responses, scrape, series
from tests.harness.process import Running, ask, serving

CLIENTS = 4
KILLS = 2
CACHED, MISSING, CREATED = (
    ("GET", "/api/stores/1"),
    ("GET", "/api/stores/x"),
    ("POST", "/api/stores"),
)


def send_requests(
    service: Running, seed: int, over: threading.Event
) -> Counter[tuple[str, str, str]]:
    """Send requests until it is over, whatever breaks; return how many responses came by route,
    method and status."""
    chance = random.Random(seed)
    got: Counter[tuple[str, str, str]] = Counter()
    while not over.is_set():
        with closing(service.connection()) as connection, suppress(OSError, HTTPException):
            for _ in range(20):
                method, path = chance.choice((CACHED, MISSING, CREATED))
                response = ask(
                    connection, method, path, {"name": "Counted"} if method == "POST" else None
                )
                route = "/api/stores" if method == "POST" else "/api/stores/{id}"
                got[route, method, str(response.status)] += 1
    return got


def totals(found: Mapping[Series, float]) -> Mapping[Series, float]:
    """Return what may never fall."""
    return {
        key: value
        for key, value in found.items()
        if key[0].startswith("storekeeper_")
        and key[0].endswith(("_total", "_count", "_sum", "_bucket"))
    }


def assert_never_fell(before: Mapping[Series, float], after: Mapping[Series, float]) -> None:
    assert {key: value for key, value in totals(before).items() if after.get(key, 0) < value} == {}


def test_every_worker_shows_the_totals_of_all_which_never_fall(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--workers=3") as service:
        connected = [service.connection() for _ in range(30)]
        for client in connected:
            ask(client, "GET", "/test")
        for client in connected[::6]:  # which are different workers'
            until(lambda: b"storekeeper_connections 30.0\n" in ask(client, "GET", "/metrics").body)  # noqa: B023 - called before the next
        for client in connected:
            client.close()
        service.request("POST", "/api/stores", {"name": "First"})
        found = before = scrape(service)
        over = threading.Event()
        with ThreadPoolExecutor() as pool, closing(SimpleNamespace(close=over.set)):
            clients = [pool.submit(send_requests, service, seed, over) for seed in range(CLIENTS)]
            for number in range(KILLS):
                end = time.monotonic() + 0.5
                while time.monotonic() < end or sum(responses(found).values()) < 200 * (number + 1):
                    found = scrape(service)
                    assert_never_fell(before, found)
                    before = found
                    time.sleep(0.1)
                os.kill(sorted(workers(service))[number], signal.SIGKILL)
        until(lambda: scrape(service)[series("worker_restarts_total")] == KILLS)
        found = scrape(service)
        assert_never_fell(before, found)
        counted, all_got = responses(found), sum((client.result() for client in clients), Counter())
        assert all_got.keys() <= counted.keys()
        assert set(all_got) == {
            (route, m, s) for route, m, s in counted if m == "POST" or "{id}" in route
        }
        # A worker may have sent a response that it did not count any more, or counted one that did
        # not arrive.
        for key, got in all_got.items():
            assert abs(counted[key] - got - (key[1] == "POST")) <= CLIENTS * KILLS
        total = sum(counted[key] for key in all_got) - 1
        assert abs(total - sum(all_got.values())) <= CLIENTS * KILLS
        assert sum(all_got.values()) > 100
        assert found[series("worker_restarts_total")] == KILLS
