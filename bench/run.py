"""`make bench`: measures Storekeeper and its peers in interleaved rounds and writes the report."""

import argparse
import http.client
import json
import math
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
QUICK = (
    *(
        "storekeeper",
        "storekeeper-plain",
        "storekeeper-tokens",
        "storekeeper-changed",
        "storekeeper-postgres",
        "storekeeper-postgres-plain",
    ),
    *("floor", "floor-postgres", "nginx", "fastify", "hapi"),
)
MIN_REQUESTS = 200_000
"""Requests of all rounds of a system together, over which its processor time is taken."""
MAX_SECONDS = 5


def options() -> argparse.Namespace:
    cases = [case.name for case in CASES]
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=...",
        description=__doc__,
        epilog=f"Cases: {', '.join(cases)}. Systems: {', '.join(SYSTEMS)}.",
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds over all systems (5)")
    parser.add_argument("--seconds", type=int, default=2, help="length of one measurement (2)")
    parser.add_argument("--only", type=listed, default=cases, metavar="CASE,...", help="some of the cases")
    parser.add_argument("--systems", type=listed, default=list(SYSTEMS), metavar="SYSTEM,...")
    parser.add_argument("--quick", action="store_true", help="one round of 1 s, reported in bench/.data only")
    parser.add_argument("--report", action="store_true", help="write the last run's report again")
    chosen = parser.parse_args()
    for word in chosen.only + chosen.systems:
        if word not in cases and word not in SYSTEMS:
            parser.error(f"there is no case or system {word}")
    if chosen.quick:
        chosen.rounds, chosen.seconds = 1, 1
        chosen.systems = [name for name in chosen.systems if name in QUICK]
    return chosen


def listed(words: str) -> list[str]:
    return words.replace("_", "-").split(",")


class Bench:
    """One run: `versions` of the systems that take part, `missing` with the reason of each that does not."""

    def __init__(self, chosen: argparse.Namespace, data: Path) -> None:
        self.chosen, self.data = chosen, data
        self.versions: dict[str, dict[str, str]] = {}
        self.missing: dict[str, str] = {}

    def admit(self) -> None:
        """Install each system and check that it fulfils the contract, or what the cases measure of it."""
        for name in self.chosen.systems:
            try:
                self.versions[name] = SYSTEMS[name].install()
                if tests := smoke.TESTS[SYSTEMS[name].smoke_test]:
                    with SYSTEMS[name].serve(smoke.SEED, self.data) as server:
                        for test in tests:
                            test(server)
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
        seconds: dict[Entry, int] = {}
        servers: dict[Entry, Server] = {}
        rate = 0.0

        def measure(entry: Entry) -> load.Figures:
            server, time = servers[entry], seconds[entry]
            with server.awake():
                if case.kind == "offered" and rate:
                    return load.offered(server, case, time, rate, load.build_generator(DATA))
                return load.measure(server, case, time, DATA)

        with ExitStack() as stack:
            rates = {}
            for entry in entries:
                try:
                    server = stack.enter_context(SYSTEMS[entry[0]].serve(entry[1], self.data))
                    if case.expected:
                        smoke.expect(case.path, smoke.request(server, "GET", case.path), case.expected(entry[1]))
                    servers[entry], seconds[entry] = server, 1
                    if case.kind != "past":
                        rates[entry] = warm_up(measure, entry, 1 if self.chosen.quick else 4 * self.chosen.seconds)
                    seconds[entry] = self.length(case, rates.get(entry, 0.0))
                except FAILURES as error:
                    servers.pop(entry, None)
                    failures[report.key(entry)] = str(error)
                    log(f"  {report.key(entry)}: left out: {error}")
            if case.kind == "offered":
                rate = rates.get(("fastify", 10), 0.0) / 2
                if not rate:
                    raise UnavailableError("the offered rate is half of Fastify's: it has to take part")
                log(f"  {rate:,.0f} requests are offered each second")
            return self.rounds(case, list(servers), measure, failures)

    def length(self, case: Case, rate: float) -> int:
        """Return the seconds of one measurement: enough for `MIN_REQUESTS` in all rounds, up to `MAX_SECONDS`."""
        least: int = max(self.chosen.seconds, case.least_seconds)
        if self.chosen.quick or case.kind == "list-changed" or case.least_seconds > 1:
            return least
        enough: int = math.ceil(MIN_REQUESTS / self.chosen.rounds / rate)
        return max(least, min(MAX_SECONDS, enough))

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


def warm_up(measure: Measure, entry: Entry, limit: int) -> float:
    """Measure until it gets no faster, as a just-in-time compiler can need seconds; return the best rate."""
    best, unimproved, end = 0.0, 0, time.monotonic() + limit
    while not best or (unimproved < 2 and time.monotonic() < end):
        rate = measure(entry)["rate"]
        unimproved = unimproved + 1 if rate < best * 1.03 else 0
        best = max(best, rate)
    return best


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
            if case.name in chosen.only:
                try:
                    results["cases"][case.name] = bench.measure(case)
                except UnavailableError as error:
                    log(f"  left out: {error}")
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
