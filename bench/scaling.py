"""`make bench-scaling`: one and two instances over one PostgreSQL, into docs/evidence/scaling.md.

Each instance has a core of its own; the database and the load share all cores.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median as middle

from bench import load, report
from bench.cases import BY_NAME, Case
from bench.machine import describe
from bench.servers import Server, free_port, running
from bench.systems import DATA, ROOT, STOREKEEPER, SYSTEMS, import_stores
from tests.harness import postgres_server

PAGE = ROOT / "docs/evidence/scaling.md"
BEGIN, END = "<!-- measured: begin (written by make bench-scaling) -->", "<!-- measured: end -->"
ROUNDS, SECONDS, CONNECTIONS = 5, 4, 64
MEASURED = ("get-one", "post", "mix-95")
Rates = dict[str, list[tuple[float, float]]]


def main() -> int:
    """Measure one instance, two, and hapi in memory in interleaved rounds; print and write the
    table."""
    rates: dict[str, Rates] = {case: {"1": [], "2": [], "hapi": []} for case in MEASURED}
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=DATA)))
            database = stack.enter_context(postgres_server.running(fsync="on"))
            url = database.new_database()
            import_stores(10, folder / "stores.csv", url)
            two = [
                stack.enter_context(running(*instance(url), folder / f"log-{core}", core))
                for core in (0, 1)
            ]
            hapi = stack.enter_context(SYSTEMS["hapi"].serve(10, folder))
            for round_number in range(ROUNDS + 1):
                for case in map(BY_NAME.__getitem__, MEASURED):
                    for name, servers in (("1", two[:1]), ("2", two), ("hapi", [hapi])):
                        found = measure(case, servers, database)
                        if round_number:  # the first one warms up
                            rates[case.name][name].append(found)
    except postgres_server.Missing as error:
        sys.stderr.write(f"{error}\n")
        return 2
    text = "\n".join(table(rates))
    report.replace(PAGE, text.splitlines(), BEGIN, END)
    sys.stdout.write(f"{text}\n")
    return 0


def instance(url: str) -> tuple[list[str], dict[str, str], Path, int]:
    """Return the command, environment, folder and port of one instance."""
    port = free_port()
    return (
        [str(STOREKEEPER), "serve", "--port", str(port), "--database", url, "--no-examples"],
        {},
        ROOT,
        port,
    )


def measure(
    case: Case, servers: list[Server], database: postgres_server.Server
) -> tuple[float, float]:
    """Return the responses per second of all servers together, and the transactions per second
    of the database."""
    share = replace(case, connections=CONNECTIONS // len(servers))
    before, begin = transactions(database), time.monotonic()
    with ThreadPoolExecutor() as pool:
        rate = sum(pool.map(lambda server: load.wrk(server, share, SECONDS)["rate"], servers))
    seconds = time.monotonic() - begin
    time.sleep(1.1)  # a backend reports its counts at most once a second
    return rate, (transactions(database) - before) / seconds


def transactions(database: postgres_server.Server) -> int:
    return int(
        database.sql("SELECT sum(xact_commit) FROM pg_stat_database WHERE datname LIKE 'test%'")
    )


def table(rates: dict[str, Rates]) -> Iterator[str]:
    columns = ["one instance, times hapi in memory", "two instances, times one"]
    yield f"| case | {' | '.join(columns)} | transactions/s: one | two |"
    yield "|---|---:|---:|---:|---:|"
    for case in map(BY_NAME.__getitem__, MEASURED):
        one, two, hapi = (rates[case.name][name] for name in ("1", "2", "hapi"))
        cells = [f"{ratio(one, hapi):.2f}", f"{ratio(two, one):.2f}"]
        cells += [f"{middle(entry[1] for entry in found):,.0f}" for found in (one, two)]
        yield f"| {case.title} | {' | '.join(cells)} |"
    described = describe(DATA)
    machine = f"processor {described['processor']}, cores {described['cores']}"
    run = f"{ROUNDS} rounds of {SECONDS} s, {CONNECTIONS} clients"
    yield f"\n{time.strftime('%Y-%m-%d')}, {run}; {machine}."


def ratio(ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> float:
    """Return the median of the ratios of the rates within each round."""
    return middle(our[0] / their[0] for our, their in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    sys.exit(main())
