"""`make bench`: measures Storekeeper and its peers in interleaved rounds and writes the report."""

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench import load, report, smoke
from bench.cases import CASES, READ_ONE, Case, Entry
from bench.machine import describe
from bench.servers import CORES, Server, UnavailableError
from bench.systems import BENCH, DATA, ROOT, SYSTEMS, call

FAILURES = (UnavailableError, OSError, http.client.HTTPException, subprocess.SubprocessError)
Measure = Callable[[Entry], load.Figures]


def options() -> argparse.Namespace:
    cases = [case.name for case in CASES]
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=...",
        description=__doc__,
        epilog=f"Cases: {', '.join(cases)}. Systems: {', '.join(SYSTEMS)}.",
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds over all systems (5)")
    parser.add_argument("--seconds", type=int, default=4, help="length of one measurement (4)")
    parser.add_argument("--cases", nargs="+", choices=cases, default=cases, metavar="CASE")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1 s, reported beside bench/ only")
    parser.add_argument("--report", action="store_true", help="write the last run's report again")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.seconds = 2, 1
    return chosen


class Bench:
    """One run: `versions` of the systems that take part, `missing` with the reason of each that does not."""

    def __init__(self, chosen: argparse.Namespace, data: Path) -> None:
        self.chosen, self.data = chosen, data
        self.versions: dict[str, dict[str, str]] = {}
        self.missing: dict[str, str] = {}

    def admit(self) -> None:
        """Install each system and check that it fulfils the contract."""
        for name in self.chosen.systems:
            try:
                self.versions[name] = SYSTEMS[name].install()
                if SYSTEMS[name].checked:
                    with SYSTEMS[name].serve(smoke.SEED, self.data) as server:
                        smoke.check_reads(server)
                        smoke.check_writes(server)
                log(f"{name}: {report.version_text(self.versions[name])}")
            except FAILURES as error:
                self.versions.pop(name, None)
                self.missing[name] = str(error)
                log(f"{name}: left out: {error}")

    def measure(self, case: Case) -> report.Outcome:
        log(f"\n{case.title}")
        entries = [entry for entry in case.entries if entry[0] in self.versions]
        failures: dict[str, str] = {}
        run = self.measure_separately if case.kind in {"start", "memory"} else self.measure_side_by_side
        rounds = run(case, entries, failures)
        seconds = max(self.chosen.seconds, case.least_seconds)
        settings = {"rounds": self.chosen.rounds, "seconds": seconds, "date": time.strftime("%Y-%m-%d")}
        return {**settings, "figures": rounds, "failures": failures, "missing": self.missing}

    def measure_separately(self, case: Case, entries: list[Entry], failures: dict[str, str]) -> report.Rounds:
        """Start a server for each measurement."""

        def measure(entry: Entry) -> load.Figures:
            system, size = SYSTEMS[entry[0]], entry[1]
            if case.kind == "start":
                return load.start_up(system, size, self.data)
            return load.memory(system, size, self.data, READ_ONE)

        return self.rounds(case, entries, measure, failures)

    def measure_side_by_side(self, case: Case, entries: list[Entry], failures: dict[str, str]) -> report.Rounds:
        """Keep all servers from the first round to the last; each is stopped while another one is measured."""
        load_with = load.list_after_write if case.kind == "list-changed" else load.wrk
        seconds = max(self.chosen.seconds, case.least_seconds)
        servers: dict[Entry, Server] = {}

        def measure(entry: Entry) -> load.Figures:
            with servers[entry].awake():
                return load_with(servers[entry], case, seconds)

        with ExitStack() as stack:
            for entry in entries:
                try:
                    server = stack.enter_context(SYSTEMS[entry[0]].serve(entry[1], self.data))
                    if case.expected:
                        smoke.expect(case.path, smoke.request(server, "GET", case.path), case.expected(entry[1]))
                    servers[entry] = server
                    warm_up(measure, entry, 5 * seconds)
                except FAILURES as error:
                    servers.pop(entry, None)
                    failures[report.key(entry)] = str(error)
                    log(f"  {report.key(entry)}: left out: {error}")
            return self.rounds(case, list(servers), measure, failures)

    def rounds(self, case: Case, entries: list[Entry], measure: Measure, failures: dict[str, str]) -> report.Rounds:
        """Return one dictionary per round; each round begins with another system."""
        rounds: report.Rounds = []
        for number in range(self.chosen.rounds):
            figures: dict[str, load.Figures] = {}
            first = number % max(1, len(entries))
            for entry in entries[first:] + entries[:first]:
                name = report.key(entry)
                try:
                    figures[name] = measure(entry)
                    log(f"  {number + 1} {name}: {figures[name][case.metric]:,.1f}")
                except FAILURES as error:
                    failures[name] = f"round {number + 1} is invalid: {error}"
                    log(f"  {name}: {failures[name]}")
            rounds.append(figures)
        return rounds


def warm_up(measure: Measure, entry: Entry, limit: int) -> None:
    """Measure until it gets no faster: on one core, a just-in-time compiler can need 10 s for its best."""
    best, unimproved, end = 0.0, 0, time.monotonic() + limit
    while unimproved < 2 and time.monotonic() < end:
        rate = measure(entry)["rate"]
        unimproved = unimproved + 1 if rate < best * 1.03 else 0
        best = max(best, rate)


def log(text: str) -> None:
    print(text, flush=True)


def run(chosen: argparse.Namespace, store: Path) -> None:
    """Measure the chosen cases; those of earlier runs stay in the results until they are run again."""
    generator = call("wrk", "-v", accept=1).split()[1]
    os.sched_setaffinity(0, {CORES[1]})
    results = json.loads(store.read_text()) if store.exists() else {"cases": {}}
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        bench = Bench(chosen, Path(folder))
        bench.admit()
        results["machine"] = {**describe(DATA), "load generator": f"wrk {generator}"}
        results["versions"] = {**results.get("versions", {}), **bench.versions}
        for case in CASES:
            if case.name in chosen.cases:
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
        log("\n" + report.write(json.loads(store.read_text()), DATA if chosen.quick else ROOT / "docs"))
    except UnavailableError as error:
        log(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
