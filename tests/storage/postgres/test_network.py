"""What becomes of requests when the network to PostgreSQL is cut at any byte, or delivers
nothing for a while."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import weakened
from tests.harness.cases import thorough
from tests.harness.databases import postgres
from tests.harness.process import Running, serving
from tests.harness.proxy import Proxy, proxied
from tests.oracles.aftermath import judge
from tests.oracles.history import Recorder
from tests.oracles.lincheck import Kind, Outcome
from tests.oracles.promises import wait_until_ready

OPERATIONS = 1_000
CUTS = 5
TIMEOUT = 60.0
"""Seconds for a cut that matters: when a COMMIT is on its way, or the response to one."""

LATE = 10.0
"""Seconds within which every request is answered: the 5 that decision 30 gives, and some for a busy
machine."""


@pytest.fixture
def database() -> Iterator[str]:
    with postgres().database() as url:
        yield url


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with proxied(postgres().port) as running:
        yield running


def through(proxy: Proxy, database: str) -> str:
    return database.replace(f":{postgres().port}/", f":{proxy.port}/")


def assert_sound(recorder: Recorder, database: str, *services: Running) -> None:
    """Nothing acknowledged is lost, nothing refused is there, nothing is there twice; and no
    response is a 500. Whether a cut leads to a 503 or to no response at all is chance."""
    assert judge(recorder.history, database) == []
    assert recorder.odd == []
    assert {200, 304, 404, 412} <= set(recorder.statuses) <= {200, 304, 404, 412, 503}
    for service in services:
        assert "event=bug" not in service.log


def unknown(recorder: Recorder) -> bool:
    return any(op.outcome is Outcome.UNKNOWN for op in recorder.history)


def use_until(enough: Callable[[], bool], recorder: Recorder, ports: list[int]) -> None:
    give_up = time.monotonic() + TIMEOUT
    while time.monotonic() < give_up:
        recorder.run(ports, OPERATIONS // 10)
        if enough():
            return
        time.sleep(0.1)  # or all of them are refused while it tries to connect again
    pytest.fail("none of the cuts came when it matters")


@pytest.mark.parametrize("most", [6_000, *thorough(60_000)])
def test_a_line_that_is_cut_at_any_byte_loses_nothing_and_repeats_nothing(
    proxy: Proxy, database: str, tmp_path: Path, most: int
) -> None:
    recorder = Recorder(most)
    url = through(proxy, database)
    with serving(tmp_path, database=url) as one, serving(tmp_path, database=url) as two:
        ports = [one.port, two.port]
        with proxy.cutting(most):
            use_until(lambda: proxy.cuts >= CUTS and unknown(recorder), recorder, ports)
        for service in (one, two):
            wait_until_ready(service)
        recorder.run(ports, OPERATIONS)
        for port in ports:
            recorder.settle(port)
        assert_sound(recorder, database, one, two)


@pytest.mark.thorough
def test_a_commit_that_was_cut_off_and_is_called_refused_is_found(
    proxy: Proxy, database: str, tmp_path: Path
) -> None:
    recorder = Recorder(mix={Kind.CREATE: 10, Kind.REPLACE: 90})
    change = weakened.environment("forgets_what_it_sent")
    weak = serving(
        tmp_path, database=through(proxy, database), env=change, program=weakened.PROGRAM
    )
    with weak as service, proxy.cutting(20_000, responses=True):
        use_until(lambda: faults(recorder, database) != set(), recorder, [service.port])


def faults(recorder: Recorder, database: str) -> set[str]:
    return {violation.fault for violation in judge(recorder.history, database)}


def test_a_network_that_delivers_nothing_keeps_nobody_waiting(
    proxy: Proxy, database: str, tmp_path: Path
) -> None:
    """All requests are answered in time; when the network is back, so is the service."""
    recorder = Recorder()
    slowest = [0.0]
    with serving(tmp_path, database=through(proxy, database)) as service:

        def partition() -> None:
            end = time.monotonic() + 7
            with proxy.standing_still():
                while time.monotonic() < end:
                    began = time.monotonic()
                    assert service.request("GET", "/api/stores/1").status == 503
                    slowest[0] = max(slowest[0], time.monotonic() - began)

        recorder.run(service.port, OPERATIONS)
        thread = threading.Thread(target=partition)
        recorder.run(service.port, OPERATIONS, when=OPERATIONS // 2, then=thread.start)
        thread.join()
        wait_until_ready(service)
        recorder.run(service.port, OPERATIONS)
        recorder.settle(service.port)
        assert_sound(recorder, database, service)
    assert 0 < slowest[0] < LATE
