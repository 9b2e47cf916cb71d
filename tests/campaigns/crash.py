"""Repeatedly kills a service, its worker, its supervisor, or a command that runs next to it, under
load; then checks."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from storekeeper.domain.stores import Payload
from tests.harness import command, weakened
from tests.harness.client import fill
from tests.harness.linux import workers
from tests.harness.process import COMMAND, TIMEOUT, Running, alive, kill_group, serving
from tests.oracles.aftermath import examine, judge
from tests.oracles.history import Recorder, csv
from tests.oracles.lincheck import Kind, Outcome, Violation

LIFE = 3000
"""The most operations between two kills."""

Moments: TypeAlias = Sequence[tuple[str, int]]
Completed: TypeAlias = "subprocess.CompletedProcess[bytes]"

MANY = 60_000
"""More stores than clients create, and more calls than anything makes."""

FOUR = ("--workers=4",)

DATABASE = 20
"""Kills of one database before its whole history is checked."""

POINT_READS = {Kind.CREATE: 10, Kind.REPLACE: 40, Kind.READ: 50}
_COPY = """
import sys
from pathlib import Path
from storekeeper.storage.sqlite.connections import connect
connect(Path(sys.argv[1])).execute("VACUUM INTO ?", (sys.argv[2],))
"""
CALLS = tuple(
    (call, number)
    for call in ("pwrite64", "fdatasync", "ftruncate", "unlink")
    for number in range(1, 300)
)
"""The moments at which a command can be killed: as it begins its n-th such call."""


@dataclass
class Row:
    """One line of a soak's report: what was done, and every violation."""

    name: str
    figures: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def __str__(self) -> str:
        faults = Counter(violation.fault for violation in self.violations)
        lost, phantom = faults.pop("lost", 0), faults.pop("phantom", 0)
        gaps = faults.pop("gap", 0) + faults.pop("duplicate", 0)
        done = "".join(f" {name}={figure}" for name, figure in self.figures.items())
        return f"{self.name}{done} lost={lost} phantom={phantom} gaps={gaps} other={faults.total()}"

    def judge(self, recorder: Recorder, folder: Path) -> None:
        """Check a history, and what its database holds; count it."""
        self.violations += judge(recorder.history, f"sqlite:///{folder}/stores.db")
        self.violations += [Violation("odd", text) for text in recorder.odd]
        self.figures["operations"] += len(recorder.history)
        self.figures["acked"] += recorder.acknowledged


# What can be killed.


def everything(service: Running, _rng: random.Random) -> None:
    kill_group(service.process)


def supervisor(service: Running, _rng: random.Random) -> None:
    service.process.kill()
    service.process.wait(TIMEOUT)


def worker(service: Running, rng: random.Random) -> None:
    os.kill(rng.choice(sorted(workers(service))), signal.SIGKILL)


def wait_for(condition: Callable[[], bool], timeout: float = 15.0) -> bool:
    """Wait for a condition; return whether it became true in time."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


# Under load.


def kill_service(
    name: str,
    folder: Path,
    kills: int,
    args: Sequence[str],
    strike: Callable[[Running, random.Random], None],
    *,
    change: str = "",
    life: int = LIFE,
) -> Row:
    """Kill that often, each time at a different moment; every promise holds over all of the lives
    together."""
    row = Row(name)
    rng = random.Random(name)
    for number, count in enumerate(_shares(kills, DATABASE)):
        place = folder / f"{name}-{number}"
        place.mkdir(parents=True)
        recorder = Recorder(number)
        for _ in range(count):
            with _serving(place, args, change) as service:
                before = len(workers(service))
                moment = rng.randint(1, life)
                recorder.run(service.port, life, when=moment, then=partial(strike, service, rng))
                row.figures["kills"] += 1
                _check_afterwards(row, service, strike, before)
        with _serving(place, args, change) as service:
            recorder.run(service.port, life)
            recorder.settle(service.port)
        row.judge(recorder, place)
        shutil.rmtree(place)
    return row


def _serving(folder: Path, args: Sequence[str], change: str) -> AbstractContextManager[Running]:
    if change:
        return serving(folder, *args, env=weakened.environment(change), program=weakened.PROGRAM)
    return serving(folder, *args)


def _check_afterwards(
    row: Row, service: Running, strike: Callable[[Running, random.Random], None], before: int
) -> None:
    if strike is worker:
        if not wait_for(lambda: len(workers(service)) == before):
            row.violations.append(Violation("down", "a killed worker was not replaced"))
    elif not wait_for(lambda: not alive(service.process.pid)):
        row.violations.append(Violation("orphan", f"{alive(service.process.pid)} are left"))


def _shares(total: int, share: int) -> Iterator[int]:
    while total > 0:
        yield min(total, share)
        total -= share


# Commands next to a service.


def kill_import(folder: Path, kills: int, args: Sequence[str] = FOUR, many: int = 20_000) -> Row:
    """Kill an import under load, next to a service, as it is about to write: all of its rows are
    there, or none."""
    row = Row("A1-import")
    rng = random.Random(1)
    place = folder / "import"
    place.mkdir(parents=True)
    recorder = Recorder(mix=POINT_READS | {Kind.LIST: 1}, most_stores=MANY)
    program = [*COMMAND, "import", "--add", "--yes", f"{place}/rows.csv", _database(place)]
    imports = []
    whole = 0
    with serving(place, *args) as service:
        recorder.run(service.port, 500)
        for _ in range(kills + 1):
            rows = recorder.rows(many)
            (place / "rows.csv").write_bytes(csv(rows))
            # The first one finishes, which shows how often it writes.
            at = rng.randint(1, whole) if whole else MANY
            if writes := _write_beside(recorder, service, program, at):
                whole = writes
                recorder.acknowledge(rows)
            imports.append(rows)
            row.figures["finished" if writes else "kills"] += 1
    row.judge(recorder, place)
    there = {value for _, value in examine(place / "stores.db")[0]}
    for rows in imports:
        if 0 < sum(op.value in there for op in rows) < len(rows):
            row.violations.append(Violation("torn", "a part of an import is there"))
    shutil.rmtree(place)
    return row


def kill_copy(folder: Path, kills: int, args: Sequence[str] = FOUR, many: int = 20_000) -> Row:
    """Copy under load, and kill the copy: the service does not notice; a complete copy is a state
    that existed."""
    row = Row("A20-copy")
    rng = random.Random(2)
    place = folder / "copy"
    place.mkdir(parents=True)
    recorder = Recorder(mix=POINT_READS, most_stores=MANY)
    copies = []
    whole = 0
    with serving(place, *args) as service:
        rows = recorder.rows(many)
        fill(place, (Payload(op.name, str(op.value)) for op in rows))
        recorder.acknowledge(rows)
        for number in range(2 * kills):
            copy = place / f"copy-{number}.db"
            before = {op.value for op in recorder.history if op.writes and op.outcome is Outcome.OK}
            program = [sys.executable, "-c", _COPY, f"{place}/stores.db", str(copy)]
            # Every other one finishes, which shows how often it writes.
            at = rng.randint(1, whole) if number % 2 else MANY
            if writes := _write_beside(recorder, service, program, at):
                whole = writes
                copies.append((copy, before))
            row.figures["copies" if writes else "kills"] += 1
    row.judge(recorder, place)
    order = examine(place / "stores.db")[0]
    for copy, before in copies:
        copied, found = examine(copy)
        row.violations += found
        if copied != order[: len(copied)]:
            row.violations.append(Violation("torn", "a copy is not a state that existed"))
        if before - {value for _, value in copied}:
            row.violations.append(
                Violation("lost", "a copy lacks what was acknowledged before it began")
            )
    shutil.rmtree(place)
    return row


def _write_beside(recorder: Recorder, service: Running, program: list[str], at: int) -> int:
    """Run a command, and clients while it writes; kill it as it begins that write.

    Return how often its busiest thread wrote, since the kernel counts for each thread; 0 if it was
    killed.
    """
    with tempfile.NamedTemporaryFile("r") as trace:
        began = time.monotonic()
        process = subprocess.Popen(
            [*kill_at("pwrite64", at, trace.name), *program],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: bool(Path(trace.name).stat().st_size or process.poll()), TIMEOUT)
            while process.poll() is None and time.monotonic() < began + TIMEOUT:
                recorder.run(service.port, 100)
        finally:
            process.kill()
        finished = process.wait(TIMEOUT) == 0
        threads = Counter(line.split()[0] for line in trace if "pwrite64(" in line)
        return max(threads.values()) if finished else 0


# At a chosen system call.


def kill_at(call: str, number: int, trace: str = os.devnull) -> list[str]:
    """Return the words before a command that kill it as one of its threads begins its n-th such
    call."""
    inject = f"inject={call}:signal=KILL:when={number}"
    return ["strace", "-f", "-qq", "-o", trace, "-e", f"trace={call}", "-e", inject]


def kill_service_at_calls(folder: Path, kills: int) -> Row:
    """Kill a service as it is about to write or sync, during its start or under load; the next
    start works."""
    row = Row("A3-calls")
    rng = random.Random(3)
    for number in range(kills):
        place = folder / f"calls-{number}"
        place.mkdir(parents=True)
        # The kernel counts for each thread: for the one that starts, and for the one that writes.
        call, at = (
            ("fdatasync", rng.randint(1, 40)) if number % 2 else ("pwrite64", rng.randint(1, 500))
        )
        recorder = Recorder(number)
        with serving(place, program=[*kill_at(call, at), *COMMAND], ready=False) as service:
            if _has_started(service):
                recorder.run(service.port, LIFE)
            else:
                row.figures["in_start"] += 1
            row.figures["kills"] += wait_for(partial(_has_ended, service))
        with serving(place) as service:
            recorder.run(service.port, LIFE // 10)
            recorder.settle(service.port)
        row.judge(recorder, place)
        shutil.rmtree(place)
    return row


def _has_started(service: Running) -> bool:
    """Wait for a service that may be killed while it starts; return whether it responds."""
    wait_for(lambda: bool(service.log) or _has_ended(service), TIMEOUT)
    if service.log:
        service.wait()
    return bool(service.log)


def _has_ended(service: Running) -> bool:
    return service.process.poll() is not None


def fail_writer(folder: Path, lives: int) -> Row:
    """Let the thread that writes die of a bug under load: no client waits for ever, and the process
    ends."""
    row = Row("A22-writer")
    for number in range(lives):
        place = folder / f"writer-{number}"
        place.mkdir(parents=True)
        recorder = Recorder(number)
        environment = weakened.environment("fails_in_the_writer") | {
            "FAILS_AT": str(5 + 4 * number)
        }
        with serving(place, env=environment, program=weakened.PROGRAM) as service:
            recorder.run(service.port, LIFE)
            row.figures["ends"] += wait_for(partial(_has_ended, service))
            status = service.process.returncode
        if status != 74:
            row.violations.append(Violation("down", f"it ended with {status}"))
        row.judge(recorder, place)
        shutil.rmtree(place)
    return row


_UPGRADE = """
import sys, tests.harness.weakened
from storekeeper import cli
from storekeeper.storage.databases import database
database(sys.argv[-1][11:]).prepare()
cli.main()
"""
"""The first calls of a service; a command refuses an older file."""


def kill_migration(folder: Path, moments: Moments = CALLS, life: int = LIFE) -> Row:
    """Kill an upgrade of the schema at each of its calls: afterwards the next one succeeds, with
    all data intact."""
    place = folder / "migration"
    place.mkdir(parents=True)
    recorder = Recorder()
    with serving(place) as service:
        recorder.run(service.port, life)
    expected = command.run("export", _database(place)).stdout
    upgrade = [sys.executable, "-c", _UPGRADE, "export"]
    environment = weakened.environment("has_a_next_schema")

    def look(tried: Path) -> str:
        upgraded = _run(upgrade, tried, environment)
        if upgraded.returncode or upgraded.stdout != expected:
            return "the next upgrade failed, or the data is another"
        older = command.run("export", _database(tried))
        return (
            ""
            if (older.returncode, older.stdout) == (2, b"")
            else "the older program opened the newer file"
        )

    return _kill_at_each_call("A21-migration", place, upgrade, environment, look, moments)


def kill_first_start(folder: Path, moments: Moments = CALLS) -> Row:
    """Kill an import into a new database at each of its calls: the same command then works, and
    nothing is half done."""
    place = folder / "first"
    place.mkdir(parents=True)
    recorder = Recorder()
    (folder / "rows.csv").write_bytes(csv(recorder.rows(100)))
    first = ["import", "--create", "--add", "--yes", f"{folder}/rows.csv"]

    def look(tried: Path) -> str:
        again = command.run(*first, _database(tried))
        if again.returncode:
            return again.stderr.decode()
        rows = command.run("export", _database(tried)).stdout.count(b"\n") - 1
        return "" if rows in (100, 200) else f"{rows} rows after two imports of 100"

    return _kill_at_each_call("A21-first-start", place, [*COMMAND, *first], {}, look, moments)


def _kill_at_each_call(
    name: str,
    folder: Path,
    program: list[str],
    environment: dict[str, str],
    look: Callable[[Path], str],
    moments: Moments,
) -> Row:
    row = Row(name)
    past: set[str] = set()
    for call, number in moments:
        if call in past:
            continue
        place = folder.with_name(f"{folder.name}-{call}-{number}")
        shutil.copytree(folder, place)
        status = _run([*kill_at(call, number), *program], place, environment).returncode
        row.figures["kills"] += status != 0
        if status == 0:
            past.add(call)  # it has no more of them
        if wrong := look(place):
            row.violations.append(Violation("lost", f"killed at {call} {number}: {wrong}"))
        shutil.rmtree(place)
    return row


def _run(program: Sequence[str], folder: Path, environment: dict[str, str]) -> Completed:
    return subprocess.run(
        [*program, _database(folder)],
        env=os.environ | environment,
        capture_output=True,
        timeout=60,
        check=False,
    )


def _database(folder: Path) -> str:
    return f"--database=sqlite:///{folder}/stores.db"
