"""`make profile`: where the processor time of a request goes, by thread, part and step; imports cases to systems."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench import load, steps
from bench.cases import CASES, FLOOR, Case
from bench.servers import CORES, Server
from bench.systems import DATA, ROOT, SYSTEMS, System

PAGE = ROOT / "docs/benchmarks.md"
BEGIN, END = "<!-- profile: begin (written by make profile) -->", "<!-- profile: end -->"
PROFILED = ("random-id", "random-unique", "random-name", "mix-50", "get-one", "post", "post-scattered")
WARM_UP, SECONDS = 3, 8
TICKS = os.sysconf("SC_CLK_TCK")
PARTS = (
    ("kernel", r"\[(kernel|vdso|\w*hypercall)"),
    ("SQLite", r"/apsw/"),
    ("event loop", r"/uvloop/"),
    ("HTTP parser", r"/httptools/"),
    ("JSON", r"/msgspec/"),
    ("Python", r"python"),
    ("C library", r""),
)
"""A part of the process, and the pattern of the files that its code is from; the first match counts."""

Times = dict[str, float]
Row = tuple[str, Times, Times]
"""What was measured, and its microseconds by thread and by part."""


def main() -> int:
    if len(CORES) < 2:
        sys.stderr.write("The profile needs Linux and two cores: one for the server, one for the load.\n")
        return 2
    os.sched_setaffinity(0, {CORES[1]})
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        rows = [
            (f"{who}{case.title}", *measure(SYSTEMS[system], case, Path(folder)))
            for case in CASES
            if case.name in PROFILED
            for who, system in (("", "storekeeper"), ("the floor: ", FLOOR))
            if system in dict(case.entries)
        ]
    text = "\n".join([*table(rows), "", *parts_table(rows), "", *steps.table()])
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    print(text)
    return 0


def measure(system: System, case: Case, folder: Path) -> tuple[Times, Times]:
    """Return microseconds per request by thread, and by part (empty without perf)."""
    size = case.entries[0][1]
    with system.serve(size, folder) as server, server.awake():
        load.wrk(server, case, WARM_UP)
        before = spent(server.process.pid)
        rate = load.wrk(server, case, SECONDS)["rate"]
        per_request = 1e6 / (rate * SECONDS * TICKS)
        after = spent(server.process.pid)
        times = {name: (after[name] - before[name]) * per_request for name in after}
        total = sum(times.values())
        shares = sampled(server, case, folder / "samples") if shutil.which("perf") else {}
        return {"rate": rate, **times, "waiting": 1e6 / rate - total}, {
            part: share * total for part, share in shares.items()
        }


def spent(pid: int) -> dict[str, int]:
    """Return the clock ticks of the event loop's thread and of all others (the writer), by mode (see proc(5))."""
    found = Counter(dict.fromkeys(("loop, user", "loop, kernel", "writer, user", "writer, kernel"), 0))
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        thread = "loop" if int(task.name) == pid else "writer"
        found[f"{thread}, user"] += int(fields[11])
        found[f"{thread}, kernel"] += int(fields[12])
    return found


def sampled(server: Server, case: Case, data: Path) -> Times:
    """Return the share of each part in perf's samples under the same load."""
    command = ["perf", "record", "-F", "999", "-p", str(server.process.pid), "-o", str(data)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as perf:
        load.wrk(server, case, SECONDS // 2)
        perf.terminate()
    script = ["perf", "script", "-i", str(data), "-F", "ip,dso"]
    lines = subprocess.run(script, capture_output=True, text=True, check=False).stdout.splitlines()
    files = [line.rpartition("(")[2] for line in lines if "(" in line]
    counts = Counter(next(part for part, pattern in PARTS if re.search(pattern, file)) for file in files)
    return {part: counts[part] / max(1, len(files)) for part, _ in PARTS}


def table(rows: list[Row]) -> list[str]:
    names = list(rows[0][1])[1:]
    lines = [f"| microseconds per request | {' | '.join(names)} | sum |", f"|---|{'---:|' * (len(names) + 1)}"]
    for title, times, _ in rows:
        cells = [f"{times[name]:.1f}" for name in names]
        lines.append(f"| {title} | {' | '.join(cells)} | {1e6 / times['rate']:.1f} |")
    return lines


def parts_table(rows: list[Row]) -> list[str]:
    if not rows[0][2]:
        return ["Without `perf` (apt-get install linux-perf) there is no table by part."]
    lines = [f"| of which by part | {' | '.join(rows[0][2])} |", f"|---|{'---:|' * len(rows[0][2])}"]
    lines += [f"| {title} | {' | '.join(f'{value:.1f}' for value in parts.values())} |" for title, _, parts in rows]
    return lines


if __name__ == "__main__":
    sys.exit(main())
