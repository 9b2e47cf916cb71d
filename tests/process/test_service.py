"""The command as an operator meets it: how it starts, how it says that it cannot, how it stops."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from storekeeper import __version__
from storekeeper.domain.stores import Payload
from tests.harness import weakened
from tests.harness.client import create as store
from tests.harness.client import fill, locked, until
from tests.harness.command import run
from tests.harness.databases import Sqlite
from tests.harness.process import TIMEOUT, Running, assert_stopped, serving
from tests.harness.tokens import add_token
from tests.harness.wire import Wire, assert_error, create, dial, request, slow_reader


def takes_no_more(service: Running) -> bool:
    """Tell whether the service has heard that it should stop."""
    try:
        service.socket(1).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGHUP), (2, signal.SIGINT)])
def test_its_start_and_its_stop_are_told(
    tmp_path: Path, workers: int, number: signal.Signals
) -> None:
    """To systemd once, when all is ready; to people and machines in the log; to clients with
    nothing under way."""
    name = f"storekeeper-{os.getpid()}-{workers}"
    args = (
        f"--workers={workers}",
        f"--drain-delay={60 * (workers - 1)}",
    )  # a delay that Ctrl-C ends
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}")
        systemd.settimeout(TIMEOUT)
        with serving(tmp_path, *args, env={"NOTIFY_SOCKET": f"@{name}"}) as service:
            assert systemd.recv(100) == b"READY=1"
            store(service, "Kept")
            with dial(service) as idle, dial(service) as mute:
                idle.send(request("GET", "/test"))
                assert idle.response().body == b"OK"
                service.process.send_signal(number)
                mute.assert_closed()
                idle.assert_closed()
            assert_stopped(service)
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.recv(100)
    people, started, stopped = service.log.splitlines()
    address, database, pid = (
        f"http://127.0.0.1:{service.port}",
        f"{tmp_path}/stores.db",
        service.process.pid,
    )
    assert people.startswith(
        f"Storekeeper listens on {address} with the new database {database}; the console is at"
        f" {address}/"
    )
    assert (
        f" version={__version__} database={database} new=true workers={workers} pid={pid} "
        in started
    )
    said = re.search(r"level=info event=stopped signal=(\w+) seconds=([\d.]+) pid=(\d+)$", stopped)
    assert said
    assert (said[1], said[3]) == (number.name, str(pid))
    assert 0 <= float(said[2]) < 10
    assert [name for _, _, name, *_ in Sqlite(tmp_path).changes()] == ["Kept"]


def test_writes_a_list_and_half_sent_requests_that_are_under_way_get_their_responses(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as service, ExitStack() as stack:
        fill(tmp_path, [Payload("Long", "x" * 5000)] * 4000)
        reader = stack.enter_context(slow_reader(service))
        writers, halves = ([stack.enter_context(dial(service)) for _ in range(3)] for _ in range(2))
        sizes = (5, 40, -5)

        def begin(wire: Wire, data: bytes) -> None:
            wire.send(request("GET", "/test") + data)
            assert wire.response().body == b"OK"  # so the rest of its packet was read too

        begin(reader, request("GET", "/api/stores"))
        for wire, size in zip(halves, sizes, strict=True):
            begin(wire, create("Half")[:size])
        with locked(tmp_path):
            for wire in writers:
                begin(wire, create("Under way") * 3)
            service.process.send_signal(signal.SIGTERM)
            until(lambda: takes_no_more(service))
        for wire in writers:
            responses = [wire.response() for _ in range(3)]
            assert [response.status for response in responses] == [200] * 3
            assert responses[-1].headers["connection"] == "close"
        for wire, size in zip(halves, sizes, strict=True):
            wire.send(create("Half")[size:])
            response = wire.response()
            assert (response.json["name"], response.headers["connection"]) == ("Half", "close")
        assert reader.response().body.count(b'"Long"') == 4000
        for wire in (reader, *writers, *halves):
            wire.assert_closed()
        assert_stopped(service)
    assert [name for _, _, name, *_ in Sqlite(tmp_path).changes()][4000:] == ["Under way"] * 9 + [
        "Half"
    ] * 3


def test_clients_that_are_stuck_do_not_keep_it_from_stopping(tmp_path: Path) -> None:
    env = weakened.environment("starts_and_stops_soon")
    with serving(tmp_path, env=env, program=weakened.PROGRAM) as service:
        fill(tmp_path, [Payload("Long", "x" * 5000)] * 2000)
        reader = slow_reader(service)
        reader.send(request("GET", "/test") + request("GET", "/api/stores") * 3)
        half = dial(service)
        half.send(request("GET", "/test") + create("Never")[:-3])
        for wire in (reader, half):
            assert wire.response().body == b"OK"
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(TIMEOUT) == 0
        assert "Traceback" not in service.log
        for wire in (reader, half):
            wire.client.close()


def test_a_signal_that_comes_early_stops_it_too(tmp_path: Path) -> None:
    """It must not be lost between the start of the command and the start of its server."""
    script = """
import signal, sys, uvicorn
from storekeeper.process import server
from storekeeper.settings import make
original = uvicorn.Config.get_loop_factory
def early(config):
    signal.raise_signal(signal.SIGTERM)
    return original(config)
uvicorn.Config.get_loop_factory = early
sys.exit(server.serve(make({"port": 0, "database": sys.argv[1], "create": True})))
"""
    command = [sys.executable, "-c", script, f"sqlite:///{tmp_path}/stores.db"]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr


# Starting.


def assert_refused(*args: str, says: str, env: dict[str, str] | None = None) -> None:
    """It ends at once with status 2 and one line that says what is wrong."""
    done = run("serve", *args, env=env)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")
    assert said.startswith("storekeeper: ")
    assert said.endswith("\n")
    assert said.count("\n") == 1
    assert says in said


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        other = f"--database=sqlite:///{tmp_path}/other.db"
        for workers in ("1", "2"):
            args = (f"--port={service.port}", "--workers", workers, other)
            assert_refused(
                *args,
                says=f"cannot listen on 127.0.0.1 port {service.port} (Address already in use)",
            )
            assert not (tmp_path / "other.db").exists(), "nothing was made"
        assert service.request("GET", "/test").status == 200


def test_an_address_that_is_not_ours_is_said(tmp_path: Path) -> None:
    for host in ("192.0.2.1", "a..b"):
        args = (
            "--host",
            host,
            "--auth=open",
            "--port=0",
            f"--database=sqlite:///{tmp_path}/stores.db",
        )
        assert_refused(*args, says=f"cannot listen on {host} port 0")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path in (f"{tmp_path}/nowhere/stores.db", f"{tmp_path}/file/stores.db"):
        assert_refused(
            "--create",
            "--port=0",
            f"--database=sqlite:///{path}",
            says=f"{path}: cannot be opened for writing",
        )
    assert_refused("--port=0", f"--database=sqlite:///{tmp_path}/folder", says="folder: not a file")
    if os.geteuid():  # root may write everywhere
        (tmp_path / "folder").chmod(0o500)
        path = f"{tmp_path}/folder/stores.db"
        assert_refused(
            "--create",
            "--port=0",
            f"--database=sqlite:///{path}",
            says=f"{path}: cannot be opened for writing",
        )


def test_a_variable_does_what_its_option_does_and_the_option_wins(tmp_path: Path) -> None:
    """And an address that others reach is warned of."""
    variables = {
        "STOREKEEPER_HOST": "0.0.0.0",
        "STOREKEEPER_AUTH": "open",
        "STOREKEEPER_MISSING_STORE": "500",
        "STOREKEEPER_ERROR_DETAIL": "generic",
        "STOREKEEPER_REQUIRE": "x",
    }
    with serving(tmp_path, "--error-detail=detailed", env=variables) as service:
        assert_error(service.request("GET", "/api/stores/1"), 500)
        response = service.request("POST", "/api/stores", {})
        assert_error(
            response, 400, '"name" is required', validation={"source": "payload", "keys": ["name"]}
        )
        until(lambda: "event=started" in service.log)
        assert (service.log.count("level=warning"), service.log.count("level=")) == (1, 2)


def test_who_needs_a_token_has_to_be_said_where_others_reach_the_service_and_where_there_are_tokens(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    for host in ("0.0.0.0", "::", "192.0.2.1", "127.0.0.1.evil.example", "localhost.evil.example"):
        says = f"--host {host} can be reached from elsewhere: "
        assert_refused("--host", host, "--port=0", "--database", url, says=says)
    add_token(url, "first", "read")
    says = (
        "the database has tokens: choose which requests need one, with --auth (or"
        " STOREKEEPER_AUTH) all"
    )
    assert_refused("--port=0", "--database", url, says=says)


def test_a_loopback_address_is_one_in_any_spelling(tmp_path: Path) -> None:
    """A page whose name was rebound to it is refused, one that uses its own name is not, and
    there is no warning."""
    with serving(tmp_path, "--host=LOCALHOST", "--auth=open") as service:
        for name, status in (("rebound.example", 403), ("localhost", 200)):
            page = {"host": name, "accept-language": "en"}
            assert service.request("GET", "/api/stores", headers=page).status == status
        until(lambda: "event=started" in service.log)
        assert "level=warning" not in service.log


def test_an_ipv6_address_is_said_in_brackets(tmp_path: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving(tmp_path, "--host=::1") as service:
        assert service.log.startswith(f"Storekeeper listens on http://[::1]:{service.port} ")
        with Wire(socket.create_connection(("::1", service.port), TIMEOUT)) as wire:
            wire.send(request("GET", "/test"))
            assert wire.response().body == b"OK"
