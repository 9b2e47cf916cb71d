"""What holds the workers together: when it is short of everything, and when it is told to stop."""

import os
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import apsw
import psycopg
import pytest

from tests.harness import forks, weakened
from tests.harness.cases import thorough
from tests.harness.client import create as store
from tests.harness.client import until
from tests.harness.databases import KINDS, Database, Sqlite
from tests.harness.linux import of, ports, workers
from tests.harness.machine import need
from tests.harness.process import TIMEOUT, Running, assert_nothing_logged, assert_stopped, serving
from tests.harness.wire import create, dial, request

STOP = 10.0
"""Seconds that a stop may take, whatever came before."""

SHORT = weakened.environment("has_short_timeouts")


def open_files(pid: int) -> int:
    return len(list((of(pid) / "fd").iterdir()))


@contextmanager
def without_a_file(pid: int) -> Iterator[None]:
    """Keep a process from opening any more file, and so from making a process."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_files(pid), before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


# Short of everything.


def test_a_worker_that_cannot_be_replaced_is_replaced_once_it_can_be_and_a_stop_works_meanwhile(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--workers=2", env=SHORT, program=weakened.PROGRAM) as service:
        store(service, "Before")
        killed = min(workers(service))
        with without_a_file(service.process.pid):
            os.kill(killed, signal.SIGKILL)
            until(lambda: service.log.count("worker cannot start") >= 2)
            assert store(service, "Meanwhile") == 2
        until(lambda: len(workers(service) - {killed}) == 2)
        assert "Too many open files" in service.log
        with without_a_file(service.process.pid):
            os.kill(min(workers(service)), signal.SIGKILL)
            until(lambda: service.log.count("worker cannot start") >= 4)
            began = time.monotonic()
            assert service.stop() == 0
        assert time.monotonic() - began < STOP / 2
        assert not workers(service)
        assert "Traceback" not in service.log


@pytest.mark.parametrize("kind", ["sqlite", *thorough("postgres")])
def test_workers_that_serve_are_kept_if_their_successors_cannot_start_at_sighup(
    tmp_path: Path, kind: str
) -> None:
    with (
        KINDS[kind](tmp_path) as database,
        serving(tmp_path, "--workers=2", database=database.url) as service,
    ):
        store(service, "Before")
        before = workers(service)
        ours = set_schema(database, 999)
        service.process.send_signal(signal.SIGHUP)
        until(lambda: "no worker is replaced at SIGHUP" in service.log)
        assert workers(service) == before
        assert store(service, "Meanwhile") == 2
        set_schema(database, ours)
        service.process.send_signal(signal.SIGHUP)
        until(lambda: len(workers(service) - before) == 2)
        assert store(service, "After") == 3
        assert service.stop() == 0


def set_schema(database: Database, version: int) -> int:
    """Say in the database of a running service which version of Storekeeper has written it;
    return what it said."""
    if isinstance(database, Sqlite):
        with closing(apsw.Connection(str(database.path))) as connection:
            before = int(connection.pragma("user_version"))
            connection.pragma("user_version", version)
    else:
        with psycopg.connect(database.url) as server:
            [(before,)] = server.execute("SELECT schema FROM storekeeper").fetchall()
            server.execute("UPDATE storekeeper SET schema = %s", (version,))
    return before


def test_a_limit_of_open_files_that_is_too_low_is_said(tmp_path: Path) -> None:
    limited = ["sh", "-c", 'ulimit -n 26; exec "$0" "$@"']
    with serving(tmp_path, "--workers=2", within=limited, ready=False) as service:
        assert service.process.wait(TIMEOUT) == 2
        said = "only 26 files may be open at once, at least 68 are needed: raise ulimit -n"
        assert service.log == f"storekeeper: {said}\n"


def responses(service: Running) -> bool:
    """Tell whether a newcomer is served, and not one too many."""
    with suppress(OSError):
        return service.request("GET", "/test").status == 200
    return False


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 2])
def test_the_lowest_limit_of_open_files_that_is_taken_is_enough(tmp_path: Path, count: int) -> None:
    limited = ["sh", "-c", f'ulimit -n {60 + 4 * count}; exec "$0" "$@"']
    with serving(tmp_path, f"--workers={count}", within=limited) as service:
        wires = [dial(service) for _ in range(100)]
        for wire in wires:
            wire.client.close()
        until(lambda: responses(service))
        assert store(service, "There") == 1
        assert service.stop() == 0


def within_processes(most: int) -> list[str]:
    """Return what runs a command as a user who has no other process, and may have so many,
    threads included."""
    if shutil.which("setpriv") is None or shutil.which("prlimit") is None:
        need("setpriv", "there is no setpriv, or no prlimit")
    if os.geteuid():
        return ["prlimit", f"--nproc={most}"]
    capabilities = (
        "-all,+dac_override"  # to reach the program wherever it is; it does not lift the limit
    )
    user = [
        f"--reuid={100_000 + os.getpid()}",
        "--clear-groups",
        f"--inh-caps={capabilities}",
        f"--ambient-caps={capabilities}",
    ]
    return ["setpriv", *user, "prlimit", f"--nproc={most}"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_start_without_any_more_process_or_thread_is_said(open_folder: Path, count: int) -> None:
    """A supervisor of the supervisor may try again: this can pass."""
    with serving(
        open_folder, f"--workers={count}", within=within_processes(1), ready=False
    ) as service:
        assert service.process.wait(TIMEOUT) == 1
        assert "worker cannot start" in service.log
        assert "Traceback" not in service.log


def test_a_stop_needs_no_more_thread(open_folder: Path) -> None:
    """Two are enough for all it does: the one that serves, and the one that writes."""
    with serving(open_folder, within=within_processes(2), ready=False) as service:
        until(lambda: ports(service.process.pid))
        service.port = ports(service.process.pid).pop()
        assert store(service, "There") == 1
        assert service.request("GET", "/api/stores?at=1").status == 200
        assert service.stop() == 0
        assert "Traceback" not in service.log


# Told to stop.


def test_a_stop_does_not_wait_for_workers_that_are_being_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers=2") as service:
        for _ in range(10):
            service.process.send_signal(signal.SIGHUP)
        until(lambda: len(workers(service)) == 3)
        began = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - began < STOP / 2
        assert_nothing_logged(service)


def test_workers_that_end_of_the_signal_that_stops_the_service_are_not_called_lost(
    tmp_path: Path,
) -> None:
    """A service manager and `timeout` send it to all processes, and one that only starts ends at
    once."""
    with serving(tmp_path, "--workers=2") as service:
        service.process.send_signal(signal.SIGSTOP)
        for worker in workers(service):
            os.kill(worker, signal.SIGKILL)
        until(lambda: not workers(service))
        service.process.send_signal(signal.SIGTERM)
        service.process.send_signal(signal.SIGCONT)
        assert_stopped(service)


def test_a_worker_that_stands_still_during_a_stop_is_killed_and_meanwhile_new_clients_are_refused(
    tmp_path: Path,
) -> None:
    """Though it still has the socket on which it would take them."""
    args = ("--workers=2", "--drain-delay=1")
    with serving(tmp_path, *args, env=SHORT, program=weakened.PROGRAM) as service:
        still = min(workers(service))
        os.kill(still, signal.SIGSTOP)
        service.process.send_signal(signal.SIGHUP)
        service.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        until(lambda: not ports(service.process.pid))
        with pytest.raises(ConnectionError):
            service.socket()
        assert still in workers(service)
        assert service.process.wait(TIMEOUT) == 0
        assert time.monotonic() - began < STOP
        assert not workers(service)


def stopped_by_many_signals(service: Running) -> int:
    """Send SIGTERM a thousand times a second until the service has ended; give its status."""
    while (status := service.process.poll()) is None:
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    return status


@pytest.mark.parametrize("count", [1, 2])
def test_until_the_end_of_a_stop_clients_are_served_and_signals_ignored(
    tmp_path: Path, count: int
) -> None:
    """Those too that the kernel has connected but no worker has accepted yet: a proxy makes a 502
    of a reset.

    The machine may hold the service up just then.
    """
    env = weakened.environment("stands_still_at_its_stop") | forks.NEVER
    run = serving(tmp_path, f"--workers={count}", env=env, program=weakened.PROGRAM)
    with run as service, ExitStack() as clients:
        serve = workers(service) or {service.process.pid}
        begun = [
            clients.enter_context(dial(service)) for _ in range(8)
        ]  # each worker has something to finish
        for wire in begun:
            wire.send(request("GET", "/test") + create("Half")[:-3])
            assert wire.response().body == b"OK"
        for pid in serve:
            os.kill(pid, signal.SIGSTOP)
        waiting = [clients.enter_context(dial(service)) for _ in range(100)]
        for wire in waiting:
            wire.send(create("Waiting"))
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)  # the supervisor passes it on; the workers' next look at it is due
        for pid in serve:
            os.kill(pid, signal.SIGCONT)
        for wire in waiting:
            assert wire.response().status == 200
        asked = time.monotonic()
        refused = 0
        while refused < 50:
            assert time.monotonic() < asked + STOP / 2
            try:
                with service.socket() as client:  # the last that was taken: it hears so at once
                    client.sendall(request("GET", "/test"))
                    began = time.monotonic()
                    with suppress(ConnectionError):
                        client.recv(1000)
                    assert time.monotonic() - began < STOP / 2
            except ConnectionError:
                refused += 1
        for wire in begun:
            wire.send(create("Half")[-3:])
            assert wire.response().status == 200
        assert stopped_by_many_signals(service) == 0
        assert_nothing_logged(service)


@pytest.mark.thorough
def test_a_service_that_heeds_signals_after_its_stop_would_be_seen(tmp_path: Path) -> None:
    """In one of 20 stops at least: it is for the last milliseconds only."""
    heeding = weakened.environment("heeds_signals_to_the_end") | forks.NEVER

    def status() -> int:
        with serving(tmp_path, env=heeding, program=weakened.PROGRAM) as service:
            return stopped_by_many_signals(service)

    assert any(status() == -signal.SIGTERM for _ in range(20))
