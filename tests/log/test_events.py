"""A log that cannot be written stops nothing: not the service, not its recovery, not its end."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from storekeeper.log import events
from tests.harness.cases import thorough
from tests.harness.client import until
from tests.harness.databases import postgres
from tests.harness.linux import ports, workers
from tests.harness.postgres_server import running
from tests.harness.process import COMMAND, READY, TIMEOUT, Running, kill_group, serving

FULL = Path("/dev/full")


@contextmanager
def started(
    database: str, *args: str, stderr: IO[bytes] | int | None = None, within: Sequence[str] = ()
) -> Iterator[Running]:
    """Start a service that logs there; its port is not known yet."""
    command = [
        *within,
        *COMMAND,
        "serve",
        "--port=0",
        f"--database={database}",
        "--create",
        "--no-examples",
        *args,
    ]
    process = subprocess.Popen(command, stderr=stderr, start_new_session=True)
    try:
        yield Running(process, 0, Path(os.devnull))
    finally:
        kill_group(process)


@contextmanager
def unheard(database: str, *args: str) -> Iterator[Running]:
    """Start a service and close the pipe that it logs to, once it has said where it answers."""
    with started(database, *args, stderr=subprocess.PIPE) as service:
        assert service.process.stderr is not None
        found = READY.search(service.process.stderr.readline())
        assert found
        service.process.stderr.close()
        service.port = int(found["port"])
        yield service


def test_a_line_with_what_somebody_sent_stays_one_line_and_moves_no_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trigger of the database may say which name it refused."""
    lines: list[bytes] = []
    monkeypatch.setattr(events, "_log", lambda: SimpleNamespace(write=lines.append))
    reason = 'no "K\u00f6ln"\r\n \x1b[2J \u2028 \x85 \0 \x7f \u202e \udc80'
    events.emit(events.Event.DATABASE_REFUSED, reason=reason)
    events.emit(events.Event.BUG, error=ValueError(reason))
    assert len(lines) == 2
    for line in lines:
        text = line.decode().removesuffix("\n")
        assert text.isprintable()
        assert 'no \\"K\u00f6ln\\"\\r\\n \\x1b[2J \\u2028 \\x85 \\x00 \\x7f \\u202e \\udc80' in text


def test_a_database_that_is_gone_ends_it(tmp_path: Path) -> None:
    with unheard(f"sqlite:///{tmp_path}/stores.db") as service:
        assert service.request("POST", "/api/stores", {"name": "A"}).status == 200
        (tmp_path / "stores.db").unlink()
        assert service.process.wait(TIMEOUT) == 2


def test_a_worker_is_replaced_and_a_stop_is_a_stop(tmp_path: Path) -> None:
    with unheard(f"sqlite:///{tmp_path}/stores.db", "--workers", "2") as service:
        before = workers(service)
        os.kill(min(before), signal.SIGKILL)
        until(lambda: len(workers(service) | before) == 3)
        until(lambda: service.request("GET", "/health/ready").status == 200)
        assert service.stop() == 0


def test_workers_have_standard_streams_too(tmp_path: Path) -> None:
    """Else the first file that one opens would take their place."""
    closed = ["sh", "-c", 'exec "$0" "$@" 1>&- 2>&-']
    with started(f"sqlite:///{tmp_path}/stores.db", "--workers=2", within=closed) as service:
        until(lambda: len(workers(service)) == 2)
        for pid in workers(service):
            until(lambda pid=pid: bool(ports(pid)))  # type: ignore[misc]  # bound now
            assert {str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in (1, 2)} == {
                os.devnull
            }
        assert service.stop() == 0


def test_a_database_that_comes_back_is_found() -> None:
    postgres()
    with running() as server, unheard(server.new_database()) as service:
        assert service.request("POST", "/api/stores", {"name": "A"}).status == 200
        server.stop()
        until(lambda: service.request("GET", "/health/ready").status == 503)
        server.start()
        until(lambda: service.request("GET", "/health/ready").status == 200)
        assert service.stop() == 0


def test_a_log_on_a_full_disk_prevents_no_start(tmp_path: Path) -> None:
    with (
        FULL.open("wb") as full,
        started(f"sqlite:///{tmp_path}/stores.db", stderr=full) as service,
    ):
        until(lambda: bool(ports(service.process.pid)))
        service.port = ports(service.process.pid).pop()
        until(lambda: service.request("GET", "/health/ready").status == 200)
        assert service.stop() == 0


@pytest.mark.parametrize("count", [2, *thorough(1)])
def test_all_lines_of_a_log_in_json_are_objects_and_the_first_one_has_the_address(
    tmp_path: Path, count: int
) -> None:
    args = ["--log-format=json", "--access-log=all", f"--workers={count}"]
    with serving(tmp_path, *args, ready=False) as service:
        until(lambda: '"event": "started"' in service.log)
        started = json.loads(service.log.splitlines()[0])
        assert (started["event"], started["workers"]) == ("started", count)
        service.port = int(started["address"].rpartition(":")[2])
        assert service.request("GET", "/test", headers={"x-request-id": "r-1"}).status == 200
        assert service.stop() == 0
        lines = [json.loads(line) for line in service.log.splitlines()]
        assert [line["event"] for line in lines] == ["started", "response", "stopped"]
        assert lines[1]["request_id"] == "r-1"
