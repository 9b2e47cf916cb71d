"""Starts, pins, watches and always stops one server process; knows nothing of what it serves."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
PATIENCE = 120.0


class UnavailableError(Exception):
    """A system cannot be measured here; the message is the reason that the report prints."""


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    seconds_to_start: float

    def get(self, path: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        return self.send("GET", path)

    def send(
        self, method: str, path: str, body: bytes | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Outside such blocks the server stands still, so that its housekeeping disturbs no other."""
        os.killpg(self.process.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGSTOP)

    def memory(self) -> float:
        """Resident memory of the process and all its descendants, in MiB."""
        return sum(map(resident, family(self.process.pid)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], env: dict[str, str], cwd: Path, port: int, log: Path) -> Iterator[Server]:
    """Runs the command on the first core until the block ends; its output goes to `log`."""
    begin = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["taskset", "-c", str(CORES[0]), *command],
            env={**os.environ, **env}, cwd=cwd, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for_answer(process, port, log)
        yield Server(process, port, time.perf_counter() - begin)
    finally:
        stop(process)


def wait_for_answer(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Returns after the first 200 to GET /test."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UnavailableError(f"ended at the start: {last_line(log)}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            with contextlib.closing(connection):
                connection.request("GET", "/test")
                if connection.getresponse().status == 200:
                    return
        time.sleep(0.001)
    raise UnavailableError(f"no answer within {PATIENCE:.0f} s: {last_line(log)}")


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "no output"


def stop(process: subprocess.Popen[bytes]) -> None:
    """The process leads a session of its own, so its group is it and its workers, nothing else."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            if not family(process.pid):
                return


def family(root: int) -> list[int]:
    """The ids of all living processes in the session that `root` leads."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == root and state != "Z":
                found.append(int(stat.parent.name))
    return found


def resident(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0
