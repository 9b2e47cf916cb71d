"""Time that does not pass as it should: a stopped process, a clock that is set, signals next to
those that stop."""

import asyncio
import math
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from storekeeper.domain.commands import Result
from storekeeper.domain.stores import Payload
from storekeeper.http import limits
from storekeeper.process import supervisor
from storekeeper.storage.sqlite.writer import SqliteWriter
from tests.harness import weakened
from tests.harness.client import create as store
from tests.harness.client import until
from tests.harness.collection import create as put
from tests.harness.collection import run as run_as_a_service
from tests.harness.databases import Sqlite, handle
from tests.harness.in_process import inside, receive, statuses
from tests.harness.linux import connections, workers
from tests.harness.machine import need
from tests.harness.metrics import scrape, series
from tests.harness.process import TIMEOUT, Running, run, serving
from tests.harness.stores import shown
from tests.harness.wire import Wire, create, dial, request

DAY = 86_400


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Keep a process from running."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# A process that stands still.


def half_sent(service: Running) -> tuple[Wire, bytes]:
    """Return a connection with the first half of a request, which the service has read, and the
    other half."""
    wire = dial(service)
    data = create("Half")
    wire.send(request("GET", "/test") + data[:40])
    assert wire.response().body == b"OK"
    return wire, data[40:]


def test_what_came_while_the_process_stood_still_is_read_before_it_is_late(tmp_path: Path) -> None:
    environment = weakened.environment("is_impatient")
    with serving(tmp_path, env=environment, program=weakened.PROGRAM) as service:
        wire, rest = half_sent(service)
        with wire:
            with stopped(service.process.pid):
                wire.send(rest)
                time.sleep(3)  # what happens is that time passes
            assert wire.response().status == 200


@pytest.mark.parametrize(
    ("standstill", "statuses_then"), [(limits.CLOCK_GAP, []), (math.inf, [408])]
)
async def test_after_a_standstill_deadlines_are_held_half_a_second_later(
    tmp_path: Path, standstill: float, statuses_then: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And at once in a build that does not notice it."""
    monkeypatch.setattr(limits, "CLOCK_GAP", standstill)
    async with inside(tmp_path) as service:
        all = service.service.runtime.limits.connections
        connection, line = service.connect()
        receive(connection, b"GET /te")
        now = connection.reader.began
        for seconds in (0, 0.5, 1):
            await all.sweep(now + seconds)
        await all.sweep(now + 30)
        assert statuses(line) == statuses_then
        await all.sweep(now + 30.5)
        assert statuses(line) == [408]


def test_while_a_worker_stands_still_the_others_serve_and_afterwards_it_does_too(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--workers=2") as service:
        id = store(service, "There")
        with dial(service) as wire:
            wire.send(request("GET", f"/api/stores/{id}"))
            assert wire.response().json["name"] == "There"
            until(lambda: sum(map(connections, workers(service))) == 1)
            (still,) = (pid for pid in workers(service) if connections(pid))
            with stopped(still):
                wire.send(create("Waited"))
                for number in range(20):
                    assert store(service, f"Meanwhile {number}") == id + 1 + number
            assert wire.response().json == shown(id + 21, "Waited")
        assert still in workers(service)
        assert service.stop() == 0


@pytest.mark.thorough
def test_a_worker_that_stands_still_for_long_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers=2") as service:
        id = store(service, "Before")
        still = min(workers(service))
        os.kill(still, signal.SIGSTOP)
        until(lambda: len(workers(service) - {still}) == 2)
        assert still not in workers(service)
        until(lambda: "worker lost, starting another" in service.log)
        assert store(service, "After") == id + 1
        assert service.stop() == 0


@pytest.mark.thorough
def test_a_worker_whose_event_loop_is_stuck_is_replaced_though_its_threads_run(
    tmp_path: Path,
) -> None:
    environment = weakened.environment("gets_stuck", "replaces_stuck_workers_soon")
    with serving(tmp_path, "--workers=2", env=environment, program=weakened.PROGRAM) as service:
        before = workers(service)
        with dial(service) as wire:
            wire.send(create("Stuck"))
            wire.assert_closed()
        until(lambda: len(workers(service) - before) >= 1)
        assert service.request("GET", "/test").status == 200
        assert "worker lost, starting another" in service.log
        assert service.stop() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_systemd_is_told_that_the_service_works_by_nothing_that_outlives_its_work(
    tmp_path: Path, workers: int
) -> None:
    """By the event loop, or by the supervisor, which replaces a stuck worker."""
    name = f"storekeeper-watchdog-{os.getpid()}-{workers}"
    environment = weakened.environment("gets_stuck") | {
        "NOTIFY_SOCKET": f"@{name}",
        "WATCHDOG_USEC": "2000000",
    }
    as_systemd = ["sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}")
        systemd.settimeout(TIMEOUT)
        with serving(
            tmp_path,
            f"--workers={workers}",
            env=environment,
            program=weakened.PROGRAM,
            within=as_systemd,
        ) as service:
            for expected in (b"WATCHDOG=1", b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"):
                while systemd.recv(100) != expected:
                    pass
            if workers == 1:
                with dial(service) as wire:
                    wire.send(create("Stuck"))
                    is_silent_for(systemd, 2.0)
            service.process.kill()


def is_silent_for(systemd: socket.socket, seconds: float) -> None:
    """Wait until nothing has come for so long; it may come until a request is being handled."""
    systemd.settimeout(seconds)
    with suppress(TimeoutError):
        for _ in range(20):
            systemd.recv(100)
        pytest.fail("it is still told that the service works")


@pytest.mark.thorough
def test_a_machine_that_sleeps_loses_no_worker(tmp_path: Path) -> None:
    """Not even if the supervisor continues before its workers do, which have sent no heartbeat for
    so long."""
    with serving(tmp_path, "--workers=2") as service:
        store(service, "Before")
        before = workers(service)
        with ExitStack() as asleep:
            for pid in before:
                asleep.enter_context(stopped(pid))
            with stopped(service.process.pid):
                time.sleep(supervisor.HEARTBEAT_TIMEOUT + 1)  # what happens is that time passes
            time.sleep(1)
        assert store(service, "After") == 2
        assert workers(service) == before
        assert service.stop() == 0


def test_what_was_written_while_the_process_stood_still_is_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is there, but the timer comes first: the write would be 503 with an outcome
    that no process knows."""
    monkeypatch.setattr("storekeeper.concurrency.batcher.RESPONSE_TIMEOUT", 0.6)
    commit, committed = SqliteWriter._commit, threading.Event()

    def commit_slowly(*given: Any) -> list[Result]:
        time.sleep(0.3)
        try:
            return commit(*given)
        finally:
            committed.set()

    monkeypatch.setattr(SqliteWriter, "_commit", commit_slowly)

    async def scenario() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            write = put(collection, Payload("A"))
            for _ in range(5):
                await asyncio.sleep(0)  # until the writer has it
            assert not write.done()
            assert committed.wait(TIMEOUT)
            time.sleep(0.7)
            assert (await write).id == 1
            assert not await collection.refusal_of_writes(probe=False)

    run_as_a_service(scenario())


# A clock that is set.


@pytest.fixture
def library() -> str:
    """The library that tells a program another time."""
    if shutil.which("faketime") is None:
        need("faketime", "there is no faketime")
    found = [
        path
        for parent in ("", "*/")
        for path in Path("/usr/lib").glob(f"{parent}faketime/libfaketime.so.1")
    ]
    if not found:
        need("faketime", "faketime has no library here")
    return str(found[0])


def clock(folder: Path, library: str) -> tuple[dict[str, str], Path]:
    """Return the environment of a program, and the file that says by how many days its clock is
    wrong."""
    file = folder / "clock"
    set_clock(file, 0)
    environment = {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }
    return environment, file


def set_clock(file: Path, days: int) -> None:
    new = file.with_name("clock-to-be")
    new.write_text(f"{days * DAY:+d}\n")
    new.rename(file)


def test_a_clock_that_jumps_ends_no_wait_and_breaks_no_order(tmp_path: Path, library: str) -> None:
    """10 days back, 10 days on: a half-sent request is still waited for, and changes keep their
    order."""
    environment, file = clock(tmp_path, library)
    with serving(tmp_path, env=environment) as service:
        for number, days in enumerate((-10, 10)):
            wire, rest = half_sent(service)
            set_clock(file, days)
            until(lambda: service_is_off_by(service, days))  # noqa: B023 - asked at once
            assert two_sweeps_later(service)
            with wire:
                wire.send(rest)
                assert wire.response().json["id"] == 2 * number + 1
            assert store(service, "After") == 2 * number + 2
        assert [each["id"] for each in service.request("GET", "/api/stores").json] == list(
            range(1, 5)
        )
        assert service.stop() == 0


def test_a_clock_that_was_wrong_for_one_write_is_reported(tmp_path: Path, library: str) -> None:
    """Ten years ahead, then right: later changes have the time of that one."""
    environment, file = clock(tmp_path, library)
    backup = tmp_path / "backup.db"
    url = f"sqlite:///{tmp_path}/stores.db"
    with serving(tmp_path, env=environment) as service:
        for days, wrong_commits in ((0, 0), (3650, 1), (0, 3)):
            set_clock(file, days)
            until(lambda: service_is_off_by(service, days))  # noqa: B023 - asked at once
            for _ in range(1 if days else 2):
                store(service, "A")
            found = scrape(service)
            assert found[series("wrong_clock_commits_total")] == wrong_commits
        assert 3649 * DAY < found[series("latest_change_ahead_seconds")] < 3651 * DAY
        assert found[series("seconds_since_last_change")] == 0
        lines = [line for line in service.log.splitlines() if "the clock is or was wrong" in line]
        assert len(lines) == 2
        assert "expected=" in lines[0]
        assert "latest_change=" in lines[1]
        assert run("backup", str(backup), "--database", url).returncode == 0
        assert service.stop() == 0
    done = run("verify", str(backup))
    good, remark = done.stdout.decode().splitlines()
    assert (done.returncode, good) == (0, f"{backup} is valid")
    assert remark.startswith("Remark: 3 changes are dated after now, from number 3 on and up to 20")
    assert run("restore", str(backup), "--database", url).returncode == 0


@pytest.mark.thorough
def test_a_clock_that_jumps_would_be_seen(tmp_path: Path, library: str) -> None:
    """The same with a build whose deadlines go by it."""
    environment, file = clock(tmp_path, library)
    environment |= weakened.environment("goes_by_the_clock_on_the_wall")
    with serving(tmp_path, env=environment, program=weakened.PROGRAM) as service:
        wire, _ = half_sent(service)
        set_clock(file, 10)
        with wire:
            assert wire.response().status == 408


def service_is_off_by(service: Running, days: int) -> bool:
    """Tell whether the service's clock is that wrong: it dates its responses."""
    said = parsedate_to_datetime(service.request("GET", "/test").headers["date"]).timestamp()
    return abs(said - time.time() - days * DAY) < DAY / 24


def two_sweeps_later(service: Running) -> bool:
    """Wait until a connection that is opened now would have been looked at twice; the service
    answers meanwhile."""
    until_then = time.monotonic() + 1.1
    while time.monotonic() < until_then:
        assert service.request("GET", "/test").status == 200
        time.sleep(0.05)
    return True


# Signals other than those that stop.


def test_a_terminal_that_closes_does_not_stop_it_under_nohup(tmp_path: Path) -> None:
    with serving(tmp_path, within=["nohup"]) as service:
        service.process.send_signal(signal.SIGHUP)
        assert store(service, "Afterwards") == 1
        assert service.stop() == 0
        assert "signal=SIGTERM" in service.log
