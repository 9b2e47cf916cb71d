"""The real command on a free port, as a user runs it: started, waited for, and always stopped by
its process id."""

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol

from tests.harness import forks

COMMAND = [str(Path(sys.executable).with_name("storekeeper"))]
OURS = (COMMAND[0], *(str(Path(__file__).with_name(name)) for name in ("weakened.py", "probe.py")))
READY = re.compile(rb"listens on http://(?P<host>[^ ]+):(?P<port>\d+)")
TIMEOUT = 30.0
PIPE = 64 * 1024
"""How many bytes a pipe holds that no process reads yet."""


def run(
    *args: str,
    env: dict[str, str] | None = None,
    stdin: bytes = b"",
    stdout: IO[bytes] | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end, with `stdin` in a pipe; if `stdout` is given, its output is not
    read."""
    with TemporaryFile() as out, TemporaryFile() as error, fed(stdin) as given:
        process = start(*args, env=env, stdin=given, stdout=stdout or out, stderr=error)
        try:
            status = process.wait(60)
        finally:
            kill_group(process)
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(args, status, out.read(), error.read())


def start(
    *args: str,
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    env: dict[str, str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a command with these standard streams; the others are empty, and their output is not
    read."""
    with Path(os.devnull).open("r+b") as none:
        files = [(each or none).fileno() for each in (stdin, stdout, stderr)]
        return launch([*COMMAND, *args], environment(env), files)


@contextmanager
def fed(data: bytes) -> Iterator[IO[bytes]]:
    """Return a pipe that contains only these bytes."""
    assert len(data) <= PIPE
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        with os.fdopen(writing, "wb") as feeding:
            feeding.write(data)
        yield pipe


def environment(changes: dict[str, str] | None) -> dict[str, str]:
    """Return the environment of this process without settings, with these changes."""
    mine = {
        name: value for name, value in os.environ.items() if not name.startswith("STOREKEEPER_")
    }
    return mine | (changes or {})


def free_port() -> int:
    """Return a port without a listener, which the kernel gives to no client: it is below those
    ports."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass
class Response:
    """One response as it was received; the names of `headers` are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Running:
    """A running service; `log` has what it wrote on stderr so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    def wait(self) -> None:
        """Wait until it responds; if it was started with `ready=False`, it has no port before
        that."""
        self.port = _port(self.process, self._log)

    @property
    def log(self) -> str:
        """Its log so far; a thread of the service writes it, a moment after the event."""
        text = ""
        for _ in range(20):
            before, text = text, self._log.read_text()
            if before and text == before:
                break
            time.sleep(0.05)
        return text

    def request(
        self,
        method: str,
        target: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> Response:
        """Send one request on a new connection; a body that is not bytes is sent as JSON."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            return ask(connection, method, target, body, headers)
        finally:
            connection.close()

    def connection(self, timeout: float = TIMEOUT) -> HTTPConnection:
        """Return a keep-alive connection, for `ask`."""
        return HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def socket(self, timeout: float = TIMEOUT) -> socket.socket:
        """Return a raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def raw(self, data: bytes, timeout: float = TIMEOUT) -> bytes:
        """Send bytes on a new connection; return everything until the service closes it."""
        with self.socket(timeout) as client:
            client.sendall(data)
            return read_all(client)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)


def ask(
    connection: HTTPConnection,
    method: str,
    target: str,
    body: object = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Send a request on a connection and read its response."""
    sent = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body is not None:
        sent.setdefault("content-type", "application/json")
    connection.request(method, target, body, sent)
    response = connection.getresponse()
    fields = {name.lower(): value for name, value in response.getheaders()}
    return Response(response.status, fields, response.read())


def read_all(client: socket.socket) -> bytes:
    """Read until the other side closes."""
    received = b""
    while data := client.recv(65536):
        received += data
    return received


@contextmanager
def serving(
    folder: Path,
    *args: str,
    env: dict[str, str] | None = None,
    database: str | None = None,
    create: bool = True,
    ready: bool = True,
    program: Sequence[str] = COMMAND,
    within: Sequence[str] = (),
) -> Iterator[Running]:
    """Start `storekeeper serve` on a free port with its database in `folder`; stop it in any case.

    The database is made if it is missing and `create`, without stores unless `args` say otherwise.
    `program` may replace the real command; `within` is a command that runs it.
    """
    log = folder / f"log-{time.monotonic_ns()}"
    url = database or f"sqlite:///{folder}/stores.db"
    where = ["--port", "0", "--database", url, *["--create"] * create]
    command = [*within, *program, "serve", *where, "--no-examples", *args]
    with log.open("wb") as stderr, Path(os.devnull).open("rb") as stdin:
        process = launch(command, environment(env), (stdin.fileno(), 1, stderr.fileno()))
    try:
        running = Running(process, 0, log)
        if ready:
            running.wait()
        yield running
    finally:
        # The whole group: workers too, even if the supervisor was killed.
        try:
            if process.poll() is None:
                process.terminate()
                process.wait(TIMEOUT)
        finally:
            kill_group(process)


def launch(
    command: Sequence[str], env: dict[str, str], files: Sequence[int]
) -> "subprocess.Popen[bytes]":
    """Start a command; a Python program of ours is forked, if that makes no difference."""
    program = command[1:] if command[0] == sys.executable else command
    if sys.platform != "linux" or program[0] not in OURS or not forks.server().can(env):
        stdin, stdout, stderr = files
        return subprocess.Popen(
            command, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
    return forks.server().start(program, env, files)


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a service and all its workers; a worker keeps its port until it is gone."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT)
        os.killpg(process.pid, 0)  # some are still there
        give_up = time.monotonic() + TIMEOUT
        while alive(process.pid) and time.monotonic() < give_up:
            time.sleep(0.01)
    process.wait(TIMEOUT)


def alive(group: int) -> list[int]:
    """Return the processes of a group that have not ended, if /proc lists them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of) == group and state not in "ZX":
                found.append(int(stat.parent.name))
    return found


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if found := READY.search(log.read_bytes()):
            return int(found["port"])
        if process.poll() is not None:
            break
        time.sleep(0.01)
    raise AssertionError(f"the service did not start: {log.read_text()}")


def assert_nothing_logged(service: Running) -> None:
    assert service.log.count("level=") == service.log.count("level=info"), service.log
    assert "Traceback" not in service.log


def assert_stopped(service: Running) -> None:
    assert service.process.wait(TIMEOUT) == 0
    assert_nothing_logged(service)


class Ended(Protocol):
    """How a command ended, in a separate process or in ours."""

    returncode: int
    stdout: bytes
    stderr: bytes


def refused(done: Ended) -> list[str]:
    """Return the message of a command that failed, which is its last line."""
    assert done.returncode == 2
    assert done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert lines[-1].startswith("storekeeper: ")
    assert "Traceback" not in done.stderr.decode()
    return lines
