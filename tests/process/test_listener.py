"""Where the service listens: a Unix socket, or the socket that systemd passes."""

import math
import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from storekeeper.http.deadlines import DRAIN_TIMEOUT
from storekeeper.process.supervisor import Supervisor
from tests.harness.cases import thorough
from tests.harness.client import until
from tests.harness.command import run
from tests.harness.databases import make_file
from tests.harness.machine import need
from tests.harness.process import (
    COMMAND,
    TIMEOUT,
    Response,
    Running,
    ask,
    environment,
    free_port,
    kill_group,
    refused,
    serving,
)
from tests.harness.wire import create, dial

ACTIVATE = "systemd-socket-activate"


class OverPath(HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(str(self._path))


def fetch(
    path: Path, method: str, target: str, body: object = None, host: str = "localhost"
) -> Response:
    with closing(OverPath(path)) as connection:
        return ask(connection, method, target, body, {"host": host, "accept-language": "en"})


@contextmanager
def at(path: Path, *args: str) -> Iterator[Running]:
    """Run a service at a Unix socket."""
    with serving(path.parent, "--uds", str(path), *args, ready=False) as service:
        until(lambda: f"listens on unix:{path} " in service.log)
        yield service


# A Unix socket.


@pytest.mark.parametrize("workers", [1, 2])
def test_a_unix_socket_serves_its_owner_and_group_and_goes_with_the_service(
    tmp_path: Path, workers: int
) -> None:
    path = tmp_path / "stores.sock"
    with at(
        path, f"--workers={workers}", "--host=0.0.0.0"
    ) as service:  # loopback, whatever --host says: no --auth
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert fetch(path, "POST", "/api/stores", {"name": "First"}).json["id"] == 1
        assert fetch(path, "GET", "/api/stores/1").status == 200
        assert fetch(path, "GET", "/api/stores/1", host="rebound.example").status == 403
        assert service.stop() == 0
        assert not path.exists()


def test_only_the_socket_of_a_killed_service_is_replaced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "stores.sock"
    with at(path) as service:
        command = ("serve", "--uds", str(path), "--database", f"sqlite:///{tmp_path}/other.db")
        [line] = refused(run(*command))
        assert line == f"storekeeper: --uds {path}: in use by another service: name another path"
        assert not (tmp_path / "other.db").exists()
        assert fetch(path, "GET", "/test").status == 200
        service.process.kill()
        service.process.wait(TIMEOUT)
        assert path.exists()
    with at(path) as next:
        assert fetch(path, "GET", "/test").status == 200
        path.unlink()
        with at(path):
            assert next.stop() == 0
            assert fetch(path, "GET", "/test").status == 200


def test_what_cannot_be_a_socket_is_refused_and_stays(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    for path, says in (
        (mine, "not a socket: name another path"),
        (
            tmp_path / "none" / "stores.sock",
            "cannot be a socket (No such file or directory): name another path",
        ),
        (tmp_path / ("x" * 120), "cannot be a socket (AF_UNIX path too long): name another path"),
    ):
        [line] = refused(
            run("serve", "--uds", str(path), "--database", f"sqlite:///{tmp_path}/other.db")
        )
        assert line == f"storekeeper: --uds {path}: {says}"
    assert mine.read_text() == "mine"


# The socket that systemd passes.


@contextmanager
def activated(
    folder: Path, *args: str, listen: str = "127.0.0.1:0", more: tuple[str, ...] = ()
) -> Iterator[Running]:
    """Have a program pass its socket to services, as systemd does; after one that ends well the
    next one starts."""
    if not (program := shutil.which(ACTIVATE)):
        need("systemd", f"{ACTIVATE} is not installed")
    port = free_port()
    listen = listen.replace(":0", f":{port}")
    make_file(folder / "stores.db")
    serve = " ".join(
        [*COMMAND, "serve", "--no-examples", f"--database=sqlite:///{folder}/stores.db", *args]
    )
    again = f"while sh -c 'echo $$ > pid; LISTEN_PID=$$ exec {serve}'; do :; done"
    command = [program, f"--listen={listen}", *more, "sh", "-c", again]
    log = folder / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment({}),
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        until(lambda: "Listening on" in log.read_text())
        yield Running(process, port, log)
    finally:
        kill_group(process)


def restart(folder: Path) -> None:
    """Stop the service that runs; wait until the next one was started."""
    pid = folder / "pid"
    before = pid.read_text()
    os.kill(int(before), signal.SIGTERM)
    until(lambda: pid.read_text() not in ("", before))


def wait_for_more(served: Sequence[int]) -> None:
    enough = len(served) + 50
    until(lambda: len(served) > enough)


@pytest.mark.parametrize("workers", [2, *thorough(1)])
def test_a_restart_under_load_refuses_and_loses_no_connection(tmp_path: Path, workers: int) -> None:
    failed: list[str] = []
    served: list[int] = []
    over = threading.Event()

    def load(running: Running) -> None:
        while not over.is_set():
            began = sent = time.monotonic()
            try:
                with dial(running) as wire:
                    wire.send(create("Load", "Connection: close"))
                    sent = time.monotonic()
                    response = wire.response()
                    assert response.status == 200
                    served.append(response.json["id"])
            except (OSError, AssertionError) as error:
                # Else a busy machine held up the client, whose connection was closed as one that
                # says nothing.
                if sent - began < DRAIN_TIMEOUT / 2:
                    failed.append(repr(error))

    with activated(tmp_path, f"--workers={workers}") as running:
        assert running.request("GET", "/test").status == 200  # which starts it
        with ThreadPoolExecutor() as pool:
            for _ in range(4):
                pool.submit(load, running)
            try:
                wait_for_more(served)
                restart(tmp_path)
                wait_for_more(served)
            finally:
                over.set()
        assert failed == []
        assert sorted(served) == list(range(1, len(served) + 1))
        assert f"listens on http://127.0.0.1:{running.port} " in running.log


def test_a_supervisor_that_gives_its_workers_up_leaves_a_passed_socket_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as kept:
        for passed in (True, False):
            supervisor = Supervisor(1, print, kept.dup(), print, print, passed=passed)
            supervisor._workers = [type("Worker", (), {"closing": False})()]
            supervisor._closes_at = -math.inf
            supervisor._refuse_clients()
            with socket.socket() as client:
                assert (client.connect_ex(kept.getsockname()) == 0) == passed


def test_a_passed_socket_that_others_reach_needs_auth(tmp_path: Path) -> None:
    with activated(tmp_path, listen="0.0.0.0:0") as running:
        socket.create_connection(("127.0.0.1", running.port)).close()
        until(
            lambda: "storekeeper: ListenStream 0.0.0.0 can be reached from elsewhere" in running.log
        )
    (tmp_path / "with").mkdir()
    with activated(tmp_path / "with", "--auth=writes", listen="0.0.0.0:0") as running:
        assert running.request("POST", "/api/stores", {"name": "First"}).status == 401


def test_sockets_that_cannot_be_served_are_refused(tmp_path: Path) -> None:
    with activated(tmp_path, more=(f"--listen={tmp_path}/second.sock",)) as running:
        socket.create_connection(("127.0.0.1", running.port)).close()
        until(lambda: "storekeeper: systemd must pass one socket that listens" in running.log)


def test_sockets_for_another_process_are_not_taken(tmp_path: Path) -> None:
    with serving(tmp_path, env={"LISTEN_PID": "1", "LISTEN_FDS": "1"}) as service:
        assert service.request("GET", "/test").status == 200
