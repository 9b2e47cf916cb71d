"""Compares two checkouts of this project: ab.py OLD NEW; processor time for each request, in
alternating pairs.

Each run is a fresh server on a fresh file, alone on its core, with this Python's packages and
the checkout's source. Processor time is user and system time of the server with all its threads,
which the machine's noise hardly moves.
"""

import argparse
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import load, seeds
from bench.cases import BY_NAME, Case
from bench.servers import CORES, free_port, running
from bench.systems import call


def measure(checkout: Path, case: Case, requests: int, stores: int) -> tuple[float, float]:
    """Return processor microseconds for each of at least so many requests, and requests per
    second."""
    with tempfile.TemporaryDirectory(prefix="storekeeper-ab-") as folder:
        port, rows = free_port(), Path(folder) / "rows.csv"
        command = (sys.executable, "-m", "storekeeper")
        environment: dict[str, Any] = {
            "PYTHONPATH": str(checkout / "src"),
            "STOREKEEPER_DATABASE": f"sqlite:///{folder}/stores.db",
        }
        seeds.write_csv(rows, stores)
        call(*command, "import", rows, **environment)
        serve = [*command, "serve", f"--port={port}", "--no-examples"]
        with running(serve, environment, Path(folder), port, Path(folder) / "log") as server:
            server.stores = stores
            seconds = max(1, math.ceil(requests / load.wrk(server, case, 1)["rate"]))
            figures = load.wrk(server, case, seconds)
            return figures["us"], figures["rate"]


def compare(old: Path, new: Path, case: Case, given: argparse.Namespace) -> None:
    """Print a line for each pair, and the medians."""
    rows = []
    for number in range(given.pairs):
        order = (old, new) if number % 2 == 0 else (new, old)
        found = {
            checkout: measure(checkout, case, given.requests, given.stores) for checkout in order
        }
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
    print(
        f"{case.name}: median of {given.pairs} pairs {change}; {rates[0]:.0f} -> {rates[1]:.0f} /s",
        flush=True,
    )


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
    given = parser.parse_args()
    if len(CORES) < 2:
        sys.exit("two cores are needed: one for the server, one for wrk")
    for name in given.cases:
        compare(given.old.resolve(), given.new.resolve(), BY_NAME[name], given)


if __name__ == "__main__":
    main()
