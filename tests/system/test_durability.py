"""A response to a write says that it is on the disk; whatever kills the service takes none of
them away."""

import os
import signal
from pathlib import Path

import pytest

from tests.campaigns.powerloss import calls
from tests.harness.process import COMMAND, TIMEOUT, serving

TRACED = "trace=read,recvfrom,recvmsg,write,writev,sendto,sendmsg,fsync,fdatasync"


@pytest.mark.usefixtures("strace")
def test_between_a_request_and_its_response_the_log_is_synced(tmp_path: Path) -> None:
    """One write after another, so that no sync is another's."""
    trace = tmp_path / "trace"
    program = ["strace", "-f", "-qq", "-y", "-s", "100", "-o", str(trace), "-e", TRACED, *COMMAND]
    with serving(tmp_path, program=program) as service:
        for number in range(5):
            assert service.request("POST", "/api/stores", {"name": "New"}).status == 200
            assert (
                service.request("PUT", f"/api/stores/{number + 1}", {"name": "Newer"}).status == 200
            )
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
