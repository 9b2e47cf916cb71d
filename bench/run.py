"""`make bench`: measures Storekeeper and its peers in interleaved rounds, and writes the tables
of two pages."""

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench import load, report, smoke
from bench.cases import CASES, Case
from bench.machine import describe
from bench.servers import CORES, Server, UnavailableError
from bench.systems import BENCH, DATA, SYSTEMS, System, call

FAILURES = (UnavailableError, OSError, http.client.HTTPException, subprocess.SubprocessError)
WARM_UP_SECONDS = 5
"""A just-in-time compiler can take that long."""


def options() -> argparse.Namespace:
    cases = [case.name for case in CASES]
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=...",
        description=__doc__,
        epilog=f"Cases: {', '.join(cases)}. Systems: {', '.join(SYSTEMS)}.",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds over all systems (3)")
    parser.add_argument("--seconds", type=int, default=2, help="length of one measurement (2)")
    parser.add_argument(
        "--stores", type=int, default=1_000_000, help="how many stores each system has (1,000,000)"
    )
    parser.add_argument(
        "--only", type=listed, default=cases, metavar="CASE,...", help="some of the cases"
    )
    parser.add_argument("--systems", type=listed, default=list(SYSTEMS), metavar="SYSTEM,...")
    parser.add_argument("--quick", action="store_true", help="one round of 1 s; changes no page")
    parser.add_argument("--report", action="store_true", help="write the last run's tables again")
    chosen = parser.parse_args()
    for word in chosen.only + chosen.systems:
        if word not in cases and word not in SYSTEMS:
            parser.error(f"there is no case or system {word}")
    if chosen.quick:
        chosen.rounds, chosen.seconds = 1, 1
    return chosen


def listed(words: str) -> list[str]:
    return words.split(",")


class Bench:
    """One run: `versions` has the systems that take part, `missing` the reason for each that does
    not."""

    def __init__(self, chosen: argparse.Namespace, data: Path) -> None:
        self.chosen, self.data = chosen, data
        self.versions: dict[str, dict[str, str]] = {}
        self.missing: dict[str, str] = {}

    def admit(self) -> None:
        """Install each system, and check that it fulfils the contract, or at least the requests
        that are measured."""
        needed = {name for case in CASES if case.name in self.chosen.only for name in case.systems}
        for name in (name for name in self.chosen.systems if name in needed):
            try:
                self.versions[name] = self.tried(SYSTEMS[name])
                log(f"{name}: {report.version_text(self.versions[name])}")
            except FAILURES as error:
                self.missing[name] = str(error)
                log(f"{name}: left out: {error}")

    def tried(self, system: System) -> dict[str, str]:
        """Return the versions of a system that was installed and has passed its tests."""
        versions = system.install()
        tests = smoke.TESTS[system.smoke_test]
        if tests:
            with system.serve(smoke.SEED, self.data) as server:
                for test in tests:
                    test(server)
        return versions

    def measure(self, case: Case) -> report.Outcome:
        """Measure all systems of a case, whose servers run from the first round to the last.

        Each server is stopped while another one is measured.
        """
        log(f"\n{case.title}")
        failures = {name: self.missing[name] for name in case.systems if name in self.missing}
        servers: dict[str, Server] = {}
        with ExitStack() as stack:
            for name in (name for name in case.systems if name in self.versions):
                try:
                    serving = SYSTEMS[name].serve(self.chosen.stores, self.data)
                    servers[name] = stack.enter_context(serving)
                    with servers[name].awake():
                        warm_up(servers[name], case, 1 if self.chosen.quick else WARM_UP_SECONDS)
                except FAILURES as error:
                    servers.pop(name, None)
                    failures[name] = str(error)
                    log(f"  {name}: left out: {error}")
            rounds = self.rounds(case, servers, failures)
        return {
            "rounds": self.chosen.rounds,
            "seconds": self.chosen.seconds,
            "stores": self.chosen.stores,
            "date": time.strftime("%Y-%m-%d"),
            "figures": rounds,
            "failures": failures,
        }

    def rounds(
        self, case: Case, servers: dict[str, Server], failures: dict[str, str]
    ) -> report.Rounds:
        """Return one dictionary per round; each round begins with a different system."""
        rounds: report.Rounds = []
        names = list(servers)
        for number in range(self.chosen.rounds):
            figures: dict[str, load.Figures] = {}
            first = number % max(1, len(names))
            for name in names[first:] + names[:first]:
                try:
                    with servers[name].awake():
                        figures[name] = load.wrk(servers[name], case, self.chosen.seconds)
                        figures[name]["mib"] = servers[name].memory()
                    found = figures[name]
                    log(f"  {number + 1} {name}: {found['rate']:,.0f} /s, {found['us']:,.1f} µs")
                except FAILURES as error:
                    failures[name] = f"round {number + 1} is invalid: {error}"
                    log(f"  {name}: {failures[name]}")
            rounds.append(figures)
        return rounds


def warm_up(server: Server, case: Case, limit: int) -> None:
    """Load a server until it gets no faster, for about `limit` seconds at most."""
    best, unimproved, end = 0.0, 0, time.monotonic() + limit
    while not best or (unimproved < 2 and time.monotonic() < end):
        rate = load.wrk(server, case, 1)["rate"]
        unimproved = unimproved + 1 if rate < best * 1.03 else 0
        best = max(best, rate)


def log(text: str) -> None:
    print(text, flush=True)


def run(chosen: argparse.Namespace, store: Path) -> None:
    """Measure the chosen cases; the results keep the other cases of earlier runs."""
    generator = call("wrk", "-v", accept=1).split()[1]
    os.sched_setaffinity(0, {CORES[1]})
    results = json.loads(store.read_text()) if store.exists() else {"cases": {}}
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        bench = Bench(chosen, Path(folder))
        bench.admit()
        results["machine"] = {**describe(DATA), "load generator": f"wrk {generator}"}
        results["versions"] = {**results.get("versions", {}), **bench.versions}
        for case in CASES:
            if case.name in chosen.only:
                results["cases"][case.name] = bench.measure(case)
                store.write_text(json.dumps(results, indent=1))


def main() -> int:
    chosen = options()
    if len(CORES) < 2:
        log("The benchmark needs Linux and two cores: one for the server, one for the load.")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    store = BENCH / ("results-quick.json" if chosen.quick else "results.json")
    try:
        if not chosen.report:
            run(chosen, store)
        results = json.loads(store.read_text())
        log("\n" + "\n".join(report.lines(results)))
        if not chosen.quick:
            report.write(results)
    except UnavailableError as error:
        log(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
