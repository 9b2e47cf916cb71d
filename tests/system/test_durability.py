"""A response to a write says that it is on the disk; whatever kills the service takes none of them away."""

import os
import random
import shutil
import signal
from pathlib import Path

import apsw
import pytest

from storekeeper.sqlite.migrations import CHANGES_TABLE
from tests.campaigns import crash
from tests.campaigns.powerloss import calls
from tests.harness.process import COMMAND, TIMEOUT, serving
from tests.oracles.aftermath import judge
from tests.oracles.history import Recorder
from tests.oracles.lincheck import Kind, Outcome

TRACED = "trace=read,recvfrom,recvmsg,write,writev,sendto,sendmsg,fsync,fdatasync"


@pytest.mark.usefixtures("strace")
def test_between_a_request_and_its_response_the_log_is_synced(tmp_path: Path) -> None:
    """One write after another, so that no sync is another's."""
    trace = tmp_path / "trace"
    program = ["strace", "-f", "-qq", "-y", "-s", "100", "-o", str(trace), "-e", TRACED, *COMMAND]
    with serving(tmp_path, program=program) as service:
        for number in range(5):
            assert service.request("POST", "/api/stores", {"name": "New"}).status == 200
            assert service.request("PUT", f"/api/stores/{number + 1}", {"name": "Newer"}).status == 200
        os.killpg(service.process.pid, signal.SIGTERM)
        service.process.wait(TIMEOUT)
    steps = []
    for call in calls(trace):
        if '"POST /api' in call.arguments or '"PUT /api' in call.arguments:
            steps.append("request")
        elif "sync" in call.name and "stores.db-wal" in call.arguments and call.result == 0:
            steps.append("sync")
        elif '"HTTP/1.1 200' in call.arguments and call.result is None:
            steps.append("response")
    order = [step for step, before in zip(steps, ["", *steps], strict=False) if step != before]
    order = order[order.index("request") :]  # the first start syncs too, and so may the end
    assert order[:30] == ["request", "sync", "response"] * 10
    assert set(order[30:]) <= {"sync"}


@pytest.mark.parametrize("workers", [1, 2])
def test_no_kill_takes_an_acknowledged_write_away(tmp_path: Path, workers: int) -> None:
    """After each one every acknowledged write is there, the others whole or absent, and ids have no hole."""
    row = crash.kill_service("killed", tmp_path, 2, [f"--workers={workers}"], crash.everything, life=800)
    assert row.violations == []
    assert row.figures["kills"] == 2


def test_that_check_would_see_what_is_missing(tmp_path: Path) -> None:
    """The last acknowledged store taken out of a copy, with its change: the database alone looks whole."""
    place, copy = tmp_path / "place", tmp_path / "copy"
    place.mkdir()
    recorder = Recorder(clients=16, mix={Kind.CREATE: 1})
    with serving(place) as service:
        recorder.run(service.port, 300, when=200, then=lambda: crash.everything(service, random.Random(1)))
    shutil.copytree(place, copy)
    assert judge(recorder.history, f"sqlite:///{place}/stores.db") == []
    connection = apsw.Connection(str(copy / "stores.db"))
    last = max(op.store for op in recorder.history if op.outcome is Outcome.OK)
    connection.execute(f"DELETE FROM {CHANGES_TABLE} WHERE store_id >= ?", (last,))
    connection.execute("DELETE FROM stores WHERE id >= ?", (last,))
    connection.close()
    assert "lost" in {violation.fault for violation in judge(recorder.history, f"sqlite:///{copy}/stores.db")}
