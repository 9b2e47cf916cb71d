"""The four ways to measure a running or starting system; imports cases, seeds, servers and systems."""

import http.client
import itertools
import json
import resource
import statistics
import subprocess
import time
from pathlib import Path

from bench import seeds
from bench.cases import Case
from bench.servers import TIMEOUT, Server, UnavailableError, send
from bench.systems import System

SCRIPTS = Path(__file__).resolve().parent / "wrk"
Figures = dict[str, float]


def wrk(server: Server, case: Case, seconds: int) -> Figures:
    """Return requests per second and latencies (ms) at full load; any error makes the run invalid."""
    script = "mixed.lua" if case.mix else "report.lua"
    options = ["-t", "1", "-c", str(case.connections), "-d", f"{seconds}s", "--timeout", "60s", "--latency"]
    url = f"http://127.0.0.1:{server.port}{case.path}"
    words = ["wrk", *options, "-s", script, url, "--", *map(str, case.mix)]
    before = busy()
    done = subprocess.run(words, cwd=SCRIPTS, capture_output=True, text=True, check=False, timeout=seconds + TIMEOUT)
    report = done.stdout.rpartition("@@")[2]
    if done.returncode or not report.startswith("{"):
        raise UnavailableError(f"wrk failed: {(done.stderr or done.stdout).splitlines()[-1:]}")
    figures = json.loads(report)
    if figures["errors"] or not figures["requests"]:
        counts = f"{figures['requests']} responses within {seconds} s, {figures['errors']} errors"
        raise UnavailableError(counts)
    percentiles = {key: figures[key] for key in ("p50", "p99", "p999")}
    rate = figures["requests"] / figures["seconds"]
    return {
        "rate": rate,
        "requests": figures["requests"],
        "generator": (busy() - before) / figures["seconds"],
        **percentiles,
    }


def busy() -> float:
    """Return the processor seconds of all children that have ended: wrk's share of its core."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def list_after_write(server: Server, case: Case, seconds: int) -> Figures:
    """Return the time (ms) of a whole list right after a store changed; the change must be in it."""
    times: list[float] = []
    end = time.monotonic() + seconds
    with server.connect() as connection:
        for number in itertools.count(time.monotonic_ns()):
            name = f"Bench {number % 1_000_000:06}"
            exchange(connection, "PUT", "/api/stores/7", seeds.compact({"name": name}))
            begin = time.perf_counter()
            body = exchange(connection, "GET", case.path)
            times.append(time.perf_counter() - begin)
            if name.encode() not in body:
                raise UnavailableError("the list lacks the change before it")
            if time.monotonic() > end and len(times) >= 3:
                break
    median = statistics.median(times)
    return {"ms": median * 1000, "rate": 1 / median}


def exchange(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
    response, content = send(connection, method, path, body)
    if response.status != 200:
        raise UnavailableError(f"{method} {path}: {response.status}")
    return content


def start_up(system: System, count: int, data: Path) -> Figures:
    with system.serve(count, data) as server:
        return {"ms": server.seconds_to_start * 1000}


def memory(system: System, count: int, data: Path, reads: Case) -> Figures:
    """Return MiB after a second of reading single stores, then after the whole list was read once."""
    with system.serve(count, data) as server:
        wrk(server, reads, 1)
        at_work = server.memory()
        with server.connect() as connection:
            exchange(connection, "GET", "/api/stores")
        return {"mib": at_work, "after_list": server.memory()}
