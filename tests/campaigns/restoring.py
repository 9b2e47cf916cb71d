"""Stops a restore at its system calls while others wait for its database; then kills it, or lets it
continue."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from storekeeper.storage import verification
from tests.campaigns.crash import Moments, Row, wait_for
from tests.harness.process import COMMAND, TIMEOUT, Running, kill_group, run, serving, start
from tests.oracles.lincheck import Violation

CALLS = tuple((call, number) for call in ("link", "rename", "fsync") for number in range(1, 30))
"""The moments at which a restore can be stopped: after its n-th such call."""

PAUSE = 1.0
"""Seconds for the others to reach the point where they wait; any value is right, a longer one tests
more."""

BACKED_UP = ["Castle Hill", "Old Mill", "Harbour"]
OLD = [*BACKED_UP, "Later", "Latest"]

MAY_BE_STARTED_AGAIN = 74


def stop_at(call: str, number: int, trace: str) -> list[str]:
    """Return the words before a command that stop it after its n-th such call; its process is that
    of the command."""
    inject = f"inject={call}:signal=STOP:when={number}"
    return ["strace", "-D", "-f", "-qq", "-o", trace, "-e", f"trace={call}", "-e", inject]


@dataclass
class Others:
    """The outcome for those that waited."""

    statuses: dict[str, tuple[int, str]]
    """For each command that has ended: its status, and its message."""

    served: list[str] | None
    """The list of a service that serves, with a store that it acknowledged at the end."""


def kill_restore(folder: Path, moments: Moments = CALLS) -> Row:
    """Stop a restore after each of its calls, and let a start, an import and a backup wait; then
    kill it and restore again, or let it continue.

    Each of them has the old list or the new one, and what it was told is true.
    """
    row = Row("A52-restore")
    killed = _killed_database(folder)
    past: set[str] = set()
    for call, number in moments:
        for end in (signal.SIGKILL, signal.SIGCONT):
            if call in past:
                continue
            place = folder / f"{call}-{number}-{end.name}"
            shutil.copytree(killed, place)
            if not _stop(row, place, call, number, end):
                past.add(call)  # it has no more of them
            shutil.rmtree(place)
    shutil.rmtree(killed)
    return row


def _killed_database(folder: Path) -> Path:
    """Make a database whose service was killed, an earlier backup, and a file to import."""
    made, killed = folder / "made", folder / "killed"
    for each in (made, killed):
        each.mkdir(parents=True)
    with serving(made) as service:
        for name in BACKED_UP:
            service.request("POST", "/api/stores", {"name": name})
        run("backup", f"{killed}/backup.db", f"--database=sqlite:///{made}/stores.db")
        for name in OLD[len(BACKED_UP) :]:
            service.request("POST", "/api/stores", {"name": name})
        kill_group(service.process)
    for file in made.glob("stores.db*"):
        shutil.copy(file, killed)
    (killed / "rows.csv").write_text("name\nImported\n")
    shutil.rmtree(made)
    return killed


def _stop(row: Row, place: Path, call: str, number: int, end: signal.Signals) -> bool:
    """Stop a restore after its n-th call; return whether it makes that many."""
    database = f"--database=sqlite:///{place}/stores.db"
    with tempfile.NamedTemporaryFile("r") as trace:
        restore = subprocess.Popen(
            [
                *stop_at(call, number, trace.name),
                *COMMAND,
                "restore",
                f"{place}/backup.db",
                database,
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(
                lambda: "stopped by" in Path(trace.name).read_text() or restore.poll() is not None,
                TIMEOUT,
            )
            if restore.poll() is not None:
                return False
            with _others(place, database) as others:
                restore.send_signal(end)
                status = restore.wait(TIMEOUT)
                ended = _ended(place, others)
        finally:
            restore.kill()
            restore.wait(TIMEOUT)
    row.figures["kills" if end is signal.SIGKILL else "stops"] += 1
    where = f"{end.name} after {call} {number}"
    row.violations += [
        Violation("odd", f"{where}: {wrong}") for wrong in _judge(place, ended, status)
    ]
    return True


@contextmanager
def _others(place: Path, database: str) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """Start what will wait; kill what is left of it at the end."""
    commands = {
        "serve": ["serve", "--port=0", database],
        "import": ["import", "--add", "--yes", f"{place}/rows.csv", database],
        "backup": ["backup", f"{place}/made.db", database],
    }
    with ExitStack() as stack:
        processes = {}
        for name, command in commands.items():
            stderr = stack.enter_context((place / f"{name}.log").open("wb"))
            processes[name] = start(*command, stderr=stderr)
            stack.callback(kill_group, processes[name])
        time.sleep(PAUSE)
        yield processes


def _ended(place: Path, others: dict[str, "subprocess.Popen[bytes]"]) -> Others:
    """Wait until the commands have ended, and the service serves or has ended; then stop it."""
    log = place / "serve.log"
    wait_for(lambda: "listens on" in log.read_text() or others["serve"].poll() is not None, TIMEOUT)
    served = None
    if others["serve"].poll() is None:
        served = _served(others["serve"], log)
        others["serve"].terminate()
    return Others(
        {
            name: (process.wait(TIMEOUT), (place / f"{name}.log").read_text())
            for name, process in others.items()
        },
        served,
    )


def _served(process: "subprocess.Popen[bytes]", log: Path) -> list[str]:
    """Return the list of a service after one more store, if it accepts that."""
    service = Running(process, 0, log)
    service.wait()
    service.request("POST", "/api/stores", {"name": "Posted"})
    return [store["name"] for store in service.request("GET", "/api/stores").json]


def names_of(path: Path) -> list[str]:
    """Return the names of a list as it is with its log, without touching it."""
    with tempfile.TemporaryDirectory() as folder:
        for end in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copy(f"{path}{end}", f"{folder}/copy.db{end}")
        with closing(apsw.Connection(f"{folder}/copy.db")) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM stores ORDER BY id")]


def _judge(place: Path, others: Others, status: int) -> Iterator[str]:
    """Return what is wrong after all have ended; restore again if the restore was killed."""
    path = place / "stores.db"
    for name, (ended, said) in others.statuses.items():
        refused = ended == 2 and "restore was killed here" in said and status < 0
        if ended not in (0, MAY_BE_STARTED_AGAIN) and not refused:
            yield f"{name} ended with {ended}: {said.strip()[-200:]}"
    if status < 0:
        again = run("restore", f"{place}/backup.db", f"--database=sqlite:///{path}")
        if again.returncode:
            yield f"it cannot be restored again: {again.stderr.decode()}"
    if wrong := verification.verify(f"sqlite:///{path}"):
        yield f"the list is damaged: {wrong}"
    lists = [names_of(path), *map(names_of, place.glob("stores-before-restore-*.db"))]
    if status != 2 and lists[0][: len(BACKED_UP) + 1] == OLD[: len(BACKED_UP) + 1]:
        yield "the old list is there"
    if not any(found[: len(OLD)] == OLD for found in lists):
        yield f"the old list is lost: {lists}"
    imported = others.statuses["import"][0] == 0
    if imported and not any("Imported" in found for found in lists):
        yield "an import is lost"
    if others.served is not None and not any(_begins(found, others.served) for found in lists):
        yield f"{others.served} was served, and there are {lists}"


def _begins(found: list[str], served: list[str]) -> bool:
    return found[: len(served)] == served
