"""Compares two checkouts of this project: ab.py OLD NEW; processor time for each request, in alternating pairs.

Each run is a fresh server on a fresh file, alone on its core, with this Python's packages and the checkout's source.
Processor time is user and system time of the server with all its threads, which the machine's noise hardly moves.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path

from bench.cases import CASES, Case
from bench.load import wrk
from bench.seeds import compact, store
from bench.servers import CORES, Server, UnavailableError, free_port, running, send

TICK = os.sysconf("SC_CLK_TCK")
STORES = 10


def processor_time(pid: int) -> float:
    """Seconds of user and system time of a process with all its threads (fields as in proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def fill(server: Server) -> None:
    """Creates the stores that the cases read."""
    with server.connect() as connection:
        for id in range(1, STORES + 1):
            content = {key: value for key, value in store(id).items() if key != "id"}
            if send(connection, "POST", "/api/stores", compact(content))[0].status != 200:
                raise UnavailableError("a store could not be created")


def measure(checkout: Path, case: Case, requests: int) -> tuple[float, float]:
    """Processor microseconds for each of at least so many requests, and requests per second."""
    with tempfile.TemporaryDirectory(prefix="storekeeper-ab-") as folder:
        port = free_port()
        command = [sys.executable, "-m", "storekeeper", "serve", f"--port={port}", "--no-examples"]
        environment = {"PYTHONPATH": str(checkout / "src"), "STOREKEEPER_DATABASE": f"sqlite:///{folder}/stores.db"}
        with running(command, environment, Path(folder), port, Path(folder) / "log") as server:
            fill(server)
            seconds = max(1, math.ceil(requests / wrk(server, case, 1)["rate"]))
            before = processor_time(server.process.pid)
            figures = wrk(server, case, seconds)
            used = processor_time(server.process.pid) - before
            return used / figures["requests"] * 1e6, figures["rate"]


def compare(old: Path, new: Path, case: Case, pairs: int, requests: int) -> None:
    """Prints a line for each pair, and the medians."""
    rows = []
    for number in range(pairs):
        order = (old, new) if number % 2 == 0 else (new, old)
        found = {checkout: measure(checkout, case, requests) for checkout in order}
        rows.append((found[old], found[new]))
        (before, rate_before), (after, rate_after) = rows[-1]
        print(
            f"{case.name} {number + 1}: {before:.2f} -> {after:.2f} us, {rate_before:.0f} -> {rate_after:.0f} /s",
            flush=True,
        )
    before, after = (statistics.median(row[side][0] for row in rows) for side in (0, 1))
    rates = [statistics.median(row[side][1] for row in rows) for side in (0, 1)]
    ratio = statistics.median(row[1][0] / row[0][0] for row in rows)
    change = f"{before:.2f} -> {after:.2f} us ({after - before:+.2f}), ratio {ratio:.3f}"
    print(f"{case.name}: median of {pairs} pairs {change}; {rates[0]:.0f} -> {rates[1]:.0f} /s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="a checkout")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument("--cases", nargs="+", default=["get-one", "list-5", "post", "mix"])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--requests", type=int, default=200_000)
    given = parser.parse_args()
    if len(CORES) < 2:
        sys.exit("two cores are needed: one for the server, one for wrk")
    cases = {case.name: case for case in CASES if case.kind == "wrk"}
    for name in given.cases:
        compare(given.old.resolve(), given.new.resolve(), cases[name], given.pairs, given.requests)


if __name__ == "__main__":
    main()
