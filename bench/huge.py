"""`make huge`: the same work on 1,000,000 and 10,000,000 stores, into docs/evidence.

The first argument, if there is one, replaces the 10,000,000.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import load, report, seeds
from bench.cases import BY_NAME, Case
from bench.machine import describe
from bench.servers import CORES, Server, free_port, running
from bench.systems import DATA, ROOT, STOREKEEPER

BEGIN, END = "<!-- huge: begin (written by make huge) -->", "<!-- huge: end -->"
SMALL, LARGE = 1_000_000, int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
READS = ("random-id", "random-unique", "random-name", "mix-95", "mix-50")
WARM_UP, SECONDS = 3, 8
RANDOM, GOAL = "GET a random store", 0.8
Column = dict[str, str]


def main() -> int:
    if len(CORES) < 2:
        sys.stderr.write("This needs Linux and two cores: one for the server, one for the load.\n")
        return 2
    os.sched_setaffinity(0, {CORES[1]})
    columns = []
    for count in (SMALL, LARGE):
        with tempfile.TemporaryDirectory(dir=DATA) as folder:
            columns.append(measure(count, Path(folder)))
    found = lines(*columns)
    report.replace(report.PAGE, found, BEGIN, END)
    sys.stdout.write("\n".join(found) + "\n")
    return 0


def lines(small: Column, large: Column) -> list[str]:
    """Return the table, the verdict on the goal, and the machine."""
    found = [f"| stores | {SMALL:,} | {LARGE:,} |", "|---|---:|---:|"]
    found += [f"| {what} | {small[what]} | {large[what]} |" for what in small]
    ratio = rate_of(large) / rate_of(small)
    sign = "✓" if ratio >= GOAL else "✗"
    found += ["", f"Random id: {ratio:.2f} of the rate among {SMALL:,} (goal ≥ {GOAL}) {sign}", ""]
    described = describe(DATA)
    machine = f"processor {described['processor']}, cores {described['cores']}"
    found.append(f"{time.strftime('%Y-%m-%d')}, {SECONDS} s for each rate; {machine}.")
    return found


def rate_of(column: Column) -> float:
    """Return the rate of random reads."""
    return float(column[RANDOM].partition(" /s")[0].replace(",", ""))


def measure(count: int, folder: Path) -> Column:
    """Return every figure of a database with `count` stores, by its name in the table."""
    database = folder / "stores.db"
    seeds.write_csv(folder / "rows.csv", count)
    column = {
        "import": command(
            "import", folder / "rows.csv", "--create", "--database", f"sqlite:///{database}"
        )
    }
    (folder / "rows.csv").unlink()
    column["file"] = f"{database.stat().st_size / 2**20:,.0f} MiB"
    copied = folder / "copy.db"
    column["copy"] = command("copy", f"sqlite:///{database}", f"sqlite:///{copied}")
    copied.unlink()
    return column | served(count, database, folder)


def command(*words: str | Path) -> str:
    """Run a command of Storekeeper; return its time and its peak memory."""
    begin = time.perf_counter()
    process = subprocess.Popen([STOREKEEPER, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"storekeeper {words[0]} failed")
    return f"{time.perf_counter() - begin:,.1f} s, {used.ru_maxrss / 1024:,.0f} MiB"


def served(count: int, database: Path, folder: Path) -> Column:
    """Return the figures of a server of this database."""
    port = free_port()
    words = [
        str(STOREKEEPER),
        "serve",
        f"--port={port}",
        f"--database=sqlite:///{database}",
        "--no-examples",
    ]
    with running(words, {}, ROOT, port, folder / "log") as server:
        server.stores, server.database = count, database
        column = {"start to first response": f"{server.seconds_to_start * 1000:,.0f} ms"}
        for name in READS:
            column |= rate(server, BY_NAME[name])
            if name == "random-name":
                column["memory after these reads"] = f"{server.memory():,.0f} MiB"
        column["whole list, first time"] = timed(lambda: read_list(server))
        column["whole list, again"] = timed(lambda: read_list(server))
        column["memory after the lists"] = f"{server.memory():,.0f} MiB"
        return column


def rate(server: Server, case: Case) -> Column:
    server.read_file()
    load.wrk(server, case, WARM_UP)
    found = load.wrk(server, case, SECONDS)
    return {case.title: f"{found['rate']:,.0f} /s, {found['us']:.1f} µs, p99 {found['p99']:.1f} ms"}


def timed(action: Callable[[], object]) -> str:
    begin = time.perf_counter()
    action()
    return f"{time.perf_counter() - begin:,.2f} s"


def read_list(server: Server) -> None:
    """Read the list without keeping it."""
    with server.connect() as connection:
        connection.request("GET", "/api/stores")
        response = connection.getresponse()
        while response.read(2**20):
            pass


if __name__ == "__main__":
    sys.exit(main())
