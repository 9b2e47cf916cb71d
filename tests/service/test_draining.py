"""--drain-delay: a load balancer sees that the instance stops before clients do."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.harness.client import until
from tests.harness.linux import workers
from tests.harness.process import TIMEOUT, Running, ask, assert_stopped, serving
from tests.harness.wire import assert_error, dial, request

CLOSED = "The service is shutting down"
STREAM = request("GET", "/api/changes?after=now", None, "Accept: text/event-stream")
LONG = "--drain-delay=60"


def is_draining(service: Running) -> bool:
    return service.request("GET", "/health/ready").status == 503


@pytest.mark.parametrize("count", [1, 2])
def test_from_sigterm_on_it_is_not_ready_and_serves_until_the_delay_is_over(tmp_path: Path, count: int) -> None:
    with serving(tmp_path, "--drain-delay=2", f"--workers={count}") as service, dial(service) as listening:
        listening.send(STREAM)
        until(lambda: b"retry: 2000" in listening.client.recv(1000))
        kept = service.connection()
        assert ask(kept, "GET", "/health/ready").status == 200
        began = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        until(lambda: is_draining(service))
        for _ in range(5):
            assert_error(service.request("GET", "/health/ready"), 503, CLOSED, outcome="none")
            assert service.request("GET", "/health/live").status == 200
            assert service.request("POST", "/api/stores", {"name": "Late"}).status == 200
            assert ask(kept, "GET", "/api/stores").status == 200
            accept = {"accept": "text/event-stream"}
            assert_error(service.request("GET", "/api/changes", headers=accept), 503, CLOSED, outcome="none")
        until(lambda: b"Late" in listening.client.recv(10_000))  # the stream that was open goes on
        kept.close()
        assert time.monotonic() - began < 2
        assert_stopped(service)
        assert 2 <= time.monotonic() - began < 10
        assert "event=stopped signal=SIGTERM" in service.log


def test_without_a_delay_it_stops_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        began = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - began < 2


@pytest.mark.parametrize(("count", "before"), [(1, []), (2, [signal.SIGTERM])])
def test_ctrl_c_ends_the_delay(tmp_path: Path, count: int, before: list[signal.Signals]) -> None:
    with serving(tmp_path, LONG, f"--workers={count}") as service:
        for number in before:
            service.process.send_signal(number)
            until(lambda: is_draining(service))
        began = time.monotonic()
        assert service.stop(signal.SIGINT) == 0
        assert time.monotonic() - began < TIMEOUT


def test_sighup_replaces_workers_without_a_delay_and_the_service_stays_ready(tmp_path: Path) -> None:
    with serving(tmp_path, LONG, "--workers=2") as service:
        before = workers(service)
        service.process.send_signal(signal.SIGHUP)
        while workers(service) & before or len(workers(service)) != 2:
            assert not is_draining(service)
            time.sleep(0.01)
        assert service.stop(signal.SIGINT) == 0


def test_a_worker_that_stands_still_during_the_delay_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain-delay=1", "--workers=2") as service:
        os.kill(min(workers(service)), signal.SIGSTOP)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(TIMEOUT) == 0
