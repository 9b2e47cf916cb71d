"""The six ways to measure a running or starting system; imports cases, seeds, servers and systems."""

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
from bench.systems import System, call, is_older

SCRIPTS = Path(__file__).resolve().parent / "wrk"
FIELDS = ("User-Agent: bench/1.0", "Accept: application/json", "Accept-Encoding: gzip, deflate")
"""What clients send beside Host."""
ERRORS = ("connect_errors", "read_errors", "write_errors", "timeouts", "refusals", "errors")
WRITES = ("put=", "post=")
TAGGED = "/api/stores?limit=1"
"""Has the tag of the list."""
MAX_NOT_MODIFIED = 300
"""Bytes of a 304."""
PAST_RATE = 1000
"""Requests per second beside which the past is read."""
DRAIN_SECONDS = 1
"""How long wrk waits for the last responses where there are writes: then each 200 has to be one change."""
Figures = dict[str, float]


def measure(server: Server, case: Case, seconds: int, folder: Path) -> Figures:
    """Measure a running system; `folder` is for programs that are built."""
    if case.kind == "list-changed":
        return list_after_write(server, case, seconds)
    if case.kind == "past":
        return beside_the_past(server, case, seconds, build_generator(folder))
    return wrk(server, case, seconds)


def wrk(server: Server, case: Case, seconds: int) -> Figures:
    """Return requests per second, processor time and latencies (ms) at full load; any error makes the run invalid."""
    words = case.words(server.system)
    if words:
        words += (f"stores={server.stores}", f"skip={server.sent}", *current_tag(server, words))
    drain = 0
    if any(word.startswith(WRITES) for word in words):
        drain, words = DRAIN_SECONDS, (*words, f"seconds={seconds}")
    options = ["-t", "1", "-c", str(case.connections), "-d", f"{seconds + drain}s", "--timeout", "60s", "--latency"]
    options += [word for field in (*FIELDS, *server.fields) for word in ("-H", field)]
    script = SCRIPTS / ("requests.lua" if words else "report.lua")
    url = f"http://127.0.0.1:{server.port}{case.path}"
    changes, sent = server.changes(), server.sent
    figures = generate(server, ["wrk", *options, "-s", str(script), url, "--", *words], seconds + drain)
    server.sent = max(sent, int(figures["sent"]))
    if "tags=1" in words and figures["bytes"] > MAX_NOT_MODIFIED * figures["requests"]:
        raise UnavailableError(f"{figures['bytes'] / figures['requests']:.0f} bytes for each 304")
    if drain:
        check_writes(figures, server.sent - sent, changes, server.changes())
    return figures


def current_tag(server: Server, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return version and epoch of the list as words for requests.lua, if it is to send tags."""
    if "tags=1" not in words:
        return ()
    with server.connect() as connection:
        response, _ = send(connection, "GET", TAGGED)
    version, dot, epoch = (response.headers["etag"] or "").strip('"').partition(".")
    if not dot:
        raise UnavailableError("the list has no entity tag")
    return f"version={version}", f"epoch={epoch}"


def generate(server: Server, command: list[str], seconds: int) -> Figures:
    """Run a load generator, which prints its figures as JSON; add the server's processor time to them."""
    before, used = busy(), server.processor_seconds()
    done = subprocess.run(
        command, cwd=SCRIPTS, capture_output=True, text=True, check=False, timeout=seconds + TIMEOUT
    )  # fmt: skip
    used = server.processor_seconds() - used
    report = done.stdout.rpartition("@@")[2]
    name = Path(command[0]).name
    if done.returncode or not report.startswith("{"):
        raise UnavailableError(f"{name} failed: {(done.stderr or done.stdout).splitlines()[-1:]}")
    figures: Figures = json.loads(report)
    statuses = figures.pop("statuses", "")
    kinds = [f"{figures[kind]} {kind.replace('_', ' ')}{statuses}" for kind in ERRORS if figures.get(kind)]
    if kinds or not figures["requests"]:
        counts = f"{figures['requests']} responses within {seconds} s, {', '.join(kinds)}"
        raise UnavailableError(counts)
    return {
        **figures,
        "rate": figures["requests"] / figures["seconds"],
        "us": used / figures["requests"] * 1e6,
        "generator": (busy() - before) / figures["seconds"],
    }


def check_writes(figures: Figures, sent: int, before: int | None, after: int | None) -> None:
    """Raise UnavailableError if a request got no response, or if the writes were not one change each."""
    requests, writes = int(figures["requests"]), int(figures["writes"])
    if requests != sent:
        raise UnavailableError(f"{sent} requests got {requests} responses")
    if before is not None and after is not None and after - before != writes:
        raise UnavailableError(f"{writes} writes were {after - before} changes")


def offered(server: Server, case: Case, seconds: int, rate: float, generator: Path, *paths: str) -> Figures:
    """Return latencies (ms) at a fixed rate of requests, which wait for no other; `paths` are read beside them."""
    words = [str(generator), *map(str, (server.port, f"{rate:.0f}", seconds, case.connections, server.stores))]
    return generate(server, [*words, *paths], seconds)


def build_generator(folder: Path) -> Path:
    """Return the path of the program that offers requests at a fixed rate."""
    program, source = folder / "openloop", SCRIPTS.parent / "openloop.c"
    if is_older(program, source):
        call("cc", "-O2", "-o", program, source)
    return program


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


def beside_the_past(server: Server, case: Case, seconds: int, generator: Path) -> Figures:
    """Return latencies (ms) of GET at a fixed rate while the past of a store and of the list is read all the time.

    `quiet` is p99 without such reads, `times` the ratio of the two, `past` the median of such a read, `late` the
    share that took longer than the second that they may take (503).
    """
    server.stores = seeds.STORES_OF_CHANGED
    quiet = offered(server, case, seconds, PAST_RATE, generator)
    beside = offered(server, case, seconds, PAST_RATE, generator, case.path, case.path.replace("/7", ""))
    return {**beside, "quiet": quiet["p99"], "times": beside["p99"] / quiet["p99"]}


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
