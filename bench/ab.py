"""Compares two checkouts of this project: ab.py OLD NEW; processor time for each request, in alternating pairs.

Each run is a fresh server on a fresh file, alone on its core, with this Python's packages and the checkout's source.
Processor time is user and system time of the server with all its threads, which the machine's noise hardly moves.
"""

import argparse
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.cases import CASES, Case
from bench.load import measure as run
from bench.seeds import STORES_OF_CHANGED, write_csv
from bench.servers import CORES, free_port, running
from bench.systems import DATA, ROOT, call


def measure(checkout: Path, case: Case, requests: int, stores: int) -> tuple[float, float]:
    """Processor microseconds for each of at least so many requests, and requests per second."""
    with tempfile.TemporaryDirectory(prefix="storekeeper-ab-") as folder:
        port, rows = free_port(), Path(folder) / "rows.csv"
        command = (sys.executable, "-m", "storekeeper")
        environment: dict[str, Any] = {
            "PYTHONPATH": str(checkout / "src"),
            "STOREKEEPER_DATABASE": f"sqlite:///{folder}/stores.db",
        }
        write_csv(rows, STORES_OF_CHANGED if case.kind == "past" else stores)
        call(*command, "import", rows, **environment)
        if case.kind == "past":
            call(
                sys.executable,
                "-m",
                "bench.changed",
                Path(folder) / "stores.db",
                str(stores),
                PYTHONPATH=f"{checkout / 'src'}:{ROOT}",
            )
        serve = [*command, "serve", f"--port={port}", "--no-examples"]
        with running(serve, environment, Path(folder), port, Path(folder) / "log") as server:
            server.system, server.stores = "storekeeper", stores
            seconds = max(1, math.ceil(requests / run(server, case, 1, DATA)["rate"]))
            figures = run(server, case, seconds, DATA)
            return figures["us"], figures["rate"]


def compare(old: Path, new: Path, case: Case, given: argparse.Namespace) -> None:
    """Prints a line for each pair, and the medians."""
    rows = []
    for number in range(given.pairs):
        order = (old, new) if number % 2 == 0 else (new, old)
        found = {checkout: measure(checkout, case, given.requests, given.stores) for checkout in order}
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
    print(f"{case.name}: median of {given.pairs} pairs {change}; {rates[0]:.0f} -> {rates[1]:.0f} /s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="a checkout")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument("--cases", nargs="+", default=["get-one", "list-5", "post", "mix"])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument(
        "--stores",
        type=int,
        default=10,
        help="how many stores random ids and names are among (past: how often one was changed)",
    )
    given = parser.parse_args()
    if len(CORES) < 2:
        sys.exit("two cores are needed: one for the server, one for wrk")
    cases = {case.name: case for case in CASES if case.kind in {"wrk", "past"}}
    for name in given.cases:
        compare(given.old.resolve(), given.new.resolve(), cases[name], given)


if __name__ == "__main__":
    main()
