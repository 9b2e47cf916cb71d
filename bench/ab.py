"""Compares two checkouts by processor time per request, in alternating pairs: ab.py OLD NEW.

Each run is a fresh server on a fresh file, on a core of its own, with this Python's packages and
the checkout's source. Processor time is the user and system time of the server with all its
threads; noise on the machine hardly affects it.
"""

import argparse
import math
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import load, seeds
from bench.cases import BY_NAME, Case
from bench.servers import CORES, free_port, running
from bench.systems import call


def measure(checkout: Path, case: Case, requests: int, stores: int) -> tuple[float, float]:
    """Return processor microseconds per request and requests per second, from at least
    `requests` requests."""
    with tempfile.TemporaryDirectory(prefix="storekeeper-ab-") as folder:
        port, rows = free_port(), Path(folder) / "rows.csv"
        command = (sys.executable, "-m", "storekeeper")
        environment: dict[str, Any] = {
            "PYTHONPATH": str(checkout / "src"),
            "STOREKEEPER_DATABASE": f"sqlite:///{folder}/stores.db",
        }
        seeds.write_csv(rows, stores)
        # An older checkout has no such command, and makes the database by itself.
        call(*command, "create", "--no-examples", accept=2, **environment)
        call(*command, "import", rows, **environment)
        serve = [*command, "serve", f"--port={port}", "--no-examples"]
        with running(serve, environment, Path(folder), port, Path(folder) / "log") as server:
            server.stores = stores
            seconds = max(1, math.ceil(requests / load.wrk(server, case, 1)["rate"]))
            figures = load.wrk(server, case, seconds)
            return figures["us"], figures["rate"]


def compare(old: Path, new: Path, case: Case, given: argparse.Namespace) -> None:
    """Print a line for each pair, and the medians."""
    found: dict[Path, list[tuple[float, float]]] = {old: [], new: []}
    for number in range(given.pairs):
        order = (old, new) if number % 2 == 0 else (new, old)
        for checkout in order:
            found[checkout].append(measure(checkout, case, given.requests, given.stores))
        (before, rate_before), (after, rate_after) = found[old][-1], found[new][-1]
        times = f"{before:.2f} -> {after:.2f} us"
        rates = f"{rate_before:.0f} -> {rate_after:.0f} /s"
        print(f"{case.name} {number + 1}: {times}, {rates}", flush=True)
    before, rate_before = medians(found[old])
    after, rate_after = medians(found[new])
    pairs = zip(found[old], found[new], strict=True)
    ratio = statistics.median(later[0] / earlier[0] for earlier, later in pairs)
    times = f"{before:.2f} -> {after:.2f} us ({after - before:+.2f}), ratio {ratio:.3f}"
    rates = f"{rate_before:.0f} -> {rate_after:.0f} /s"
    print(f"{case.name}: median of {given.pairs} pairs {times}; {rates}", flush=True)


def medians(runs: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the median of the processor times, and that of the rates."""
    times, rates = zip(*runs, strict=True)
    return statistics.median(times), statistics.median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="a checkout")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=BY_NAME,
        metavar="CASE",
        default=["random-id", "post", "mix-95"],
    )
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--stores", type=int, default=1_000_000, help="how many stores there are")
    parser.add_argument("--connections", type=int, help="instead of the case's own")
    given = parser.parse_args()
    if len(CORES) < 2:
        sys.exit("two cores are needed: one for the server, one for wrk")
    for name in given.cases:
        case = BY_NAME[name]
        if given.connections:
            case = replace(case, connections=given.connections)
        compare(given.old.resolve(), given.new.resolve(), case, given)


if __name__ == "__main__":
    main()
