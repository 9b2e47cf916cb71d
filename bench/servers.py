"""Starts, pins, watches and always stops one server process, whatever it serves."""

import contextlib
import http.client
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
TIMEOUT = 120.0


class UnavailableError(Exception):
    """A system cannot be measured here; the message is the reason that the report prints."""


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    seconds_to_start: float = 0.0
    stores: int = 10
    sent: int = 0
    """How many requests earlier runs have sent: the next run continues from there."""
    load: tuple[str, ...] = ()
    """Arguments of `wrk/requests.lua` in addition to those of a case."""
    database: Path | None = None
    """The file of its stores."""

    def connect(self) -> contextlib.closing[http.client.HTTPConnection]:
        return contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        )

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Let the server run in this block; outside, it is stopped, so that its housekeeping
        disturbs no other server."""
        os.killpg(self.process.pid, signal.SIGCONT)
        self.read_file()
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGSTOP)

    def read_file(self) -> None:
        """Read the database into the page cache again, from which the system may have dropped
        it."""
        if self.database is not None:
            with self.database.open("rb") as file:
                while file.read(2**20):
                    pass

    def memory(self) -> float:
        """Return the resident memory of the process and its workers, in MiB."""
        return sum(family(self.process.pid).values()) / 2**20

    def changes(self) -> int | None:
        """Return how many changes the database has; None if it does not count changes."""
        if self.database is None:
            return None
        with contextlib.closing(
            apsw.Connection(str(self.database), apsw.SQLITE_OPEN_READONLY)
        ) as connection:
            connection.set_busy_timeout(2000)
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'changes'").get:
                return None
            return int(connection.execute("SELECT ifnull(max(seq), 0) FROM changes").get)

    def processor_seconds(self) -> float:
        """Return user and system time of the process, with all its threads and workers (fields
        as in proc(5))."""
        ticks = 0
        for pid in family(self.process.pid):
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))  # including children that have ended
        return ticks / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    command: list[str], env: dict[str, str], cwd: Path, port: int, log: Path, core: int = 0
) -> Iterator[Server]:
    """Run the command on one core until the block ends; its output goes to `log`."""
    begin = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["taskset", "-c", str(CORES[core]), *command],
            env={**os.environ, **env}, cwd=cwd, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        server = Server(process, port)
        wait_for_response(server, log)
        server.seconds_to_start = time.perf_counter() - begin
        yield server
    finally:
        stop(process)


def wait_for_response(server: Server, log: Path) -> None:
    """Return after the first 200 to GET /test."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise UnavailableError(f"ended at the start: {last_line(log)}")
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            server.connect() as connection,
        ):
            if send(connection, "GET", "/test")[0].status == 200:
                return
        time.sleep(0.001)
    raise UnavailableError(f"no response within {TIMEOUT:.0f} s: {last_line(log)}")


def send(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    response = connection.getresponse()
    return response, response.read()


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "no output"


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the process and its workers; nothing else is in its group, because it leads its own
    session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            if not family(process.pid):
                return


def family(root: int) -> dict[int, int]:
    """Return the resident bytes of each running process in the session of `root` (fields as in
    proc(5))."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == root and fields[0] != "Z":
                found[int(stat.parent.name)] = int(fields[21]) * resource.getpagesize()
    return found
