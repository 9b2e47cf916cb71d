"""Several processes that serve one database: their ids, what each sees of the others, what happens when one dies."""

import os
import signal
from pathlib import Path

import pytest

from tests.harness.client import create as store
from tests.harness.client import until
from tests.harness.linux import connections, parent, workers
from tests.harness.process import TIMEOUT, serving
from tests.harness.wire import dial, request


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers=3") as service:
        id = store(service, "Before")
        before = workers(service)
        assert len(before) == 3
        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(workers(service) - {killed}) == 3)
        for _ in range(20):
            assert service.request("GET", f"/api/stores/{id}").json["name"] == "Before"
        assert store(service, "After") == id + 1
        until(lambda: f"pid={killed}" in service.log)
        assert service.stop() == 0


def test_a_worker_is_replaced_although_the_folder_of_the_start_was_deleted(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    within = ["env", "--chdir", str(tmp_path / "here")]
    with serving(tmp_path, "--workers=2", within=within) as service:
        (tmp_path / "here").rmdir()
        before = workers(service)
        os.kill(min(before), signal.SIGKILL)
        until(lambda: workers(service) - before or "worker cannot start" in service.log)
        assert "worker cannot start" not in service.log


def test_a_supervisor_that_is_killed_leaves_no_worker_behind(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers=3") as service:
        orphans = workers(service)
        assert len(orphans) == 3
        with dial(service) as wire:
            wire.send(request("GET", "/test"))
            assert wire.response().body == b"OK"
            service.process.kill()
            service.process.wait(TIMEOUT)
            wire.assert_closed()
        until(lambda: not any(parent(pid) for pid in orphans))
        with pytest.raises(OSError, match="refused"):
            service.socket()


def test_each_worker_serves_connections(tmp_path: Path) -> None:
    """Connections spread, so that one slow list does not stop all clients: more workers than one have sockets."""
    with serving(tmp_path, "--workers=2") as service:
        store(service, "There")
        wires = [dial(service) for _ in range(60)]
        try:
            for wire in wires:
                wire.send(request("GET", "/api/stores/1"))
            for wire in wires:
                assert wire.response().json["name"] == "There"
            assert {connections(pid) > 0 for pid in workers(service)} == {True}
        finally:
            for wire in wires:
                wire.client.close()
