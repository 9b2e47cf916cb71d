"""Metrics of several workers: one total, whoever is asked, whoever is killed or replaced."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path

from tests.harness.client import until
from tests.harness.linux import workers
from tests.harness.metrics import Series, responses, scrape, series
from tests.harness.process import Running, ask, serving

CLIENTS = 4
KILLS = 2
CACHED, MISSING, CREATED = ("GET", "/api/stores/1"), ("GET", "/api/stores/x"), ("POST", "/api/stores")


class Clients:
    """Clients that send requests until they are told to stop, and count their responses."""

    def __init__(self, service: Running) -> None:
        self._service = service
        self._stopping = threading.Event()
        self.got: Counter[tuple[str, str, str]] = Counter()
        self.cut = 0
        """Requests whose connection ended before their response came."""
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._stopping.is_set():
            connection = self._service.connection()
            try:
                for _ in range(20):
                    method, path = chance.choice((CACHED, MISSING, CREATED))
                    body = {"name": "Counted"} if method == "POST" else None
                    response = ask(connection, method, path, body)
                    with self._lock:
                        route = "/api/stores" if method == "POST" else "/api/stores/{id}"
                        self.got[route, method, str(response.status)] += 1
            except (OSError, HTTPException):
                with self._lock:
                    self.cut += 1
            finally:
                connection.close()


def totals(found: Mapping[Series, float]) -> Mapping[Series, float]:
    """Return what may never fall."""
    return {
        key: value
        for key, value in found.items()
        if key[0].startswith("storekeeper_") and key[0].endswith(("_total", "_count", "_sum", "_bucket"))
    }


def assert_never_fell(before: Mapping[Series, float], after: Mapping[Series, float]) -> None:
    assert {key: value for key, value in totals(before).items() if after.get(key, 0) < value} == {}


def test_every_worker_shows_what_clients_got_from_all_and_totals_never_fall_though_workers_are_killed(
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
        before = scrape(service)
        clients = Clients(service)
        try:
            for number in range(KILLS):
                end = time.monotonic() + 0.5
                while time.monotonic() < end:
                    found = scrape(service)
                    assert_never_fell(before, found)
                    before = found
                    time.sleep(0.1)
                os.kill(sorted(workers(service))[number], signal.SIGKILL)
        finally:
            clients.stop()
        until(lambda: scrape(service)[series("worker_restarts_total")] == KILLS)
        found = scrape(service)
        assert_never_fell(before, found)
        counted = responses(found)
        assert clients.got.keys() <= counted.keys()
        assert set(clients.got) == {(route, m, s) for route, m, s in counted if m == "POST" or "{id}" in route}
        # A worker may have sent a response that it did not count any more, or counted one that did not arrive.
        for key, got in clients.got.items():
            assert abs(counted[key] - got - (key[1] == "POST")) <= CLIENTS * KILLS
        total = sum(counted[key] for key in clients.got) - 1
        assert abs(total - sum(clients.got.values())) <= CLIENTS * KILLS
        assert sum(clients.got.values()) > 100
        assert found[series("worker_restarts_total")] == KILLS
