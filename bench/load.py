"""Loads a running server with wrk, and measures it."""

import json
import resource
import subprocess
from pathlib import Path

from bench.cases import Case
from bench.servers import TIMEOUT, Server, UnavailableError

SCRIPTS = Path(__file__).resolve().parent / "wrk"
FIELDS = ("User-Agent: bench/1.0", "Accept: application/json", "Accept-Encoding: gzip, deflate")
"""What clients send in addition to Host."""
ERRORS = ("connect_errors", "read_errors", "write_errors", "timeouts", "refusals")
WRITES = ("put=", "post=")
DRAIN_SECONDS = 1
"""How long wrk waits for the last responses if there are writes; each 200 must be one change."""
Figures = dict[str, float]


def wrk(server: Server, case: Case, seconds: int) -> Figures:
    """Return requests per second, processor time (µs) and latencies (ms) at full load.

    Raises:
        UnavailableError: A request failed, or the writes were not one change each.
    """
    words, drain = list(case.load), 0
    if words:
        words += [*server.load, f"stores={server.stores}", f"skip={server.sent}"]
    if any(word.startswith(WRITES) for word in words):
        words.append(f"seconds={seconds}")
        drain = DRAIN_SECONDS
    command = ["wrk", "--latency", "--threads=1", "--timeout=60s"]
    command += [f"--connections={case.connections}", f"--duration={seconds + drain}s"]
    command += [f"--header={field}" for field in FIELDS]
    command.append(f"--script={SCRIPTS / ('requests.lua' if words else 'report.lua')}")
    command += [f"http://127.0.0.1:{server.port}{case.path}", "--", *words]
    changes, sent = server.changes(), server.sent
    figures = generate(server, command, seconds + drain)
    server.sent = max(sent, int(figures["sent"]))
    if drain:
        check_writes(figures, server.sent - sent, changes, server.changes())
    return figures


def generate(server: Server, command: list[str], seconds: int) -> Figures:
    """Run wrk, and return the figures that it prints as JSON, with the server's processor time."""
    before, used = busy(), server.processor_seconds()
    done = subprocess.run(
        command, cwd=SCRIPTS, capture_output=True, text=True, check=False, timeout=seconds + TIMEOUT
    )  # fmt: skip
    used = server.processor_seconds() - used
    report = done.stdout.rpartition("@@")[2]
    if done.returncode or not report.startswith("{"):
        raise UnavailableError(f"wrk failed: {(done.stderr or done.stdout).splitlines()[-1:]}")
    figures: Figures = json.loads(report)
    statuses = figures.pop("statuses", "")
    errors = [
        f"{figures[kind]} {kind.replace('_', ' ')}{statuses}"
        for kind in ERRORS
        if figures.get(kind)
    ]
    if errors or not figures["requests"]:
        reason = f"{figures['requests']} responses within {seconds} s, {', '.join(errors)}"
        raise UnavailableError(reason)
    return {
        **figures,
        "rate": figures["requests"] / figures["seconds"],
        "us": used / figures["requests"] * 1e6,
        "generator": (busy() - before) / figures["seconds"],
    }


def check_writes(figures: Figures, sent: int, before: int | None, after: int | None) -> None:
    """Raise UnavailableError if a request got no response, or if a write was not one change."""
    requests, writes = int(figures["requests"]), int(figures["writes"])
    if requests != sent:
        raise UnavailableError(f"{sent} requests got {requests} responses")
    if before is not None and after is not None and after - before != writes:
        raise UnavailableError(f"{writes} writes were {after - before} changes")


def busy() -> float:
    """Return the processor seconds of all children that have ended, which is how much wrk used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
