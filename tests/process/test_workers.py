"""Several processes that serve one database: what each sees of the others, and what happens when
one is lost."""

import os
import signal
from pathlib import Path

import pytest

from storekeeper.process.supervisor import max_processes
from tests.harness.client import create as store
from tests.harness.client import until
from tests.harness.linux import connections, parent, workers
from tests.harness.metrics import responses, scrape, series
from tests.harness.process import TIMEOUT, ask, serving
from tests.harness.wire import dial, request


def test_a_worker_that_is_killed_is_replaced_although_the_folder_of_the_start_was_deleted(
    tmp_path: Path,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    with serving(tmp_path, "--workers=2", within=["env", "--chdir", str(here)]) as service:
        here.rmdir()
        id = store(service, "Before")
        killed = min(workers(service))
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(workers(service) - {killed}) == 2)
        for _ in range(20):
            assert service.request("GET", f"/api/stores/{id}").json["name"] == "Before"
        assert store(service, "After") == id + 1
        until(lambda: f"pid={killed}" in service.log)
        assert "worker cannot start" not in service.log
        assert service.stop() == 0


def test_each_worker_serves_and_a_supervisor_that_is_killed_leaves_none_behind(
    tmp_path: Path,
) -> None:
    """Connections spread, so that one slow list does not stop all clients: more workers than one
    have sockets."""
    memory = Path("/dev/shm")
    before = set(memory.glob("pym-*"))
    with serving(tmp_path, "--workers=2") as service:
        orphans = workers(service)
        wires = [dial(service) for _ in range(60)]
        for wire in wires:
            wire.send(request("GET", "/test"))
        for wire in wires:
            assert wire.response().body == b"OK"
        assert {connections(pid) > 0 for pid in orphans} == {True}
        service.process.kill()
        service.process.wait(TIMEOUT)
        for wire in wires:
            with wire:
                wire.assert_closed()
        until(lambda: not any(parent(pid) for pid in orphans))
        with pytest.raises(OSError, match="refused"):
            service.socket()
    assert set(memory.glob("pym-*")) - before == set(), "something is left in shared memory"


def test_several_workers_are_replaced_one_after_another_at_sighup(tmp_path: Path) -> None:
    """Clients that come meanwhile are served, no delay is waited for, and no count is lost."""
    with serving(tmp_path, "--workers=2", "--drain-delay=60") as service:
        kept = service.connection()
        ask(kept, "GET", "/test")
        before = workers(service)
        os.killpg(service.process.pid, signal.SIGHUP)
        served = 0
        while workers(service) & before or len(workers(service)) != 2:
            store(service, "Meanwhile")
            served += 1
            assert service.request("GET", "/health/ready").status == 200
        assert served > 2
        kept.close()
        until(lambda: scrape(service)[series("connections")] == 1)  # the one that asks
        found = scrape(service)
        counted = responses(found)
        assert (counted["/test", "GET", "200"], counted["/api/stores", "POST", "200"]) == (
            1,
            served,
        )
        assert found[series("worker_restarts_total")] == 0
        shown = {
            int(dict(labels)["worker"]) for name, labels in found if name == "process_open_fds"
        }
        assert len(shown) == 2
        assert max(shown) < max_processes(2)
        assert store(service, "After") == served + 1
        service.process.send_signal(signal.SIGTERM)
        until(lambda: service.request("GET", "/health/ready").status == 503)
        assert service.stop(signal.SIGINT) == 0, "which ends the delay"
