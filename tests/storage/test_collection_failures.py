"""Each method of a collection while something below it fails: what it says, and what it leaves."""

import asyncio
import inspect
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from storekeeper.concurrency import batcher
from storekeeper.domain import commands
from storekeeper.domain.commands import Batch, Before, Command, Replace
from storekeeper.domain.errors import Outcome, Unavailable
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from storekeeper.storage.collection import Collection
from storekeeper.storage.sqlite import TICK_INTERVAL, writer
from tests.harness import probe
from tests.harness.collection import MANY, numbered, run, stores
from tests.harness.databases import Sqlite, handle, make_file
from tests.harness.in_process import until
from tests.harness.loading import add_all
from tests.harness.machine import fill_disk, mounted
from tests.harness.probe import LOAD, QUESTIONS
from tests.harness.process import environment, launch
from tests.harness.stores import shown
from tests.harness.system_calls import injecting

ASK_NOTHING = {"observe_writes", "writes_refused", "queued_writes", "refused_lists"}
METHODS = sorted(
    name
    for name, value in vars(Collection).items()
    if inspect.isfunction(value) and name[0] != "_" and name not in ASK_NOTHING
)
READS = [
    "begin_reads",
    "numbers",
    "end_reads",
    "get",
    "get_at",
    "list",
    "state",
    "changes",
    "keys",
    "tokens",
    "all_tokens",
    "restored",
    "traces",
    "mark_used",
    "check",
    "with_snapshot",
]
CACHED = ["figures"]
"""What is read of pages that a process has in its memory anyway."""
WRITES = ["write", "in_session", "refusal_of_writes"]
ALONE = ["close", "in_session", "write"]
TOGETHER = [",".join(method for method in METHODS if method not in ALONE), *ALONE]
"""The questions of one process, each to a handle of its own: some need to know what only they
have done."""
SOON = {TOGETHER[0], "write"}
"""What meets every fault; the rest, in the ordinary run, a fault before a write and one after
it."""


class Probe:
    """A process that asks questions of a database, each of another handle, as often as it is
    told to."""

    def __init__(self, path: Path, questions: str, *rights: str) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            program = [sys.executable, probe.__file__, str(path), questions, *rights]
            self.process = launch(program, environment(None), (theirs.fileno(), theirs.fileno(), 2))
            self.line = ours.makefile("rw")

    def wait(self) -> None:
        line = self._line()
        assert line == "ready", line

    def ask(self) -> dict[str, tuple[str, list[str]]]:
        self._send("ask\n")
        response: dict[str, tuple[str, list[str]]] = json.loads(self._line())
        return response

    def close(self) -> None:
        self._send("\n")
        assert self._line() == "closed"
        assert self.process.wait(30) == 0

    def _send(self, line: str) -> None:
        self.line.write(line)
        self.line.flush()

    def _line(self) -> str:
        return self.line.readline().strip()


@contextmanager
def probing(path: Path, questions: str, *rights: str) -> Iterator[Probe]:
    probing = Probe(path, questions, *rights)
    try:
        probing.wait()
        yield probing
    finally:
        probing.process.kill()
        probing.process.wait()
        probing.line.close()


# The faults. Each is a context: what is wrong begins within, and is fixed at its end.


@contextmanager
def locked(path: Path, _probe: Probe) -> Iterator[None]:
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.close()


@contextmanager
def full(path: Path, _probe: Probe) -> Iterator[None]:
    fill_disk(path.with_name("filler"))
    yield
    path.with_name("filler").unlink()


@contextmanager
def read_only(_path: Path, _probe: Probe) -> Iterator[None]:
    yield


@contextmanager
def limited(_path: Path, probe: Probe) -> Iterator[None]:
    """No file may grow."""
    resource.prlimit(probe.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    yield
    resource.prlimit(
        probe.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )


@contextmanager
def unwritten(path: Path, probe: Probe) -> Iterator[None]:
    with injecting(probe.process.pid, "pwrite64", path.with_name(path.name + "-wal")):
        yield


@contextmanager
def unreadable(path: Path, probe: Probe) -> Iterator[None]:
    with injecting(probe.process.pid, "pread64", path):
        yield


@contextmanager
def unsynced(path: Path, probe: Probe) -> Iterator[None]:
    with injecting(probe.process.pid, "fsync,fdatasync", path.with_name(path.name + "-wal")):
        yield


@contextmanager
def corrupted(path: Path, _probe: Probe) -> Iterator[None]:
    # By another program: were this process to open and close the file, it would drop its own locks
    # on it.
    before = path.read_bytes()
    spoil = (
        f"f = open({str(path)!r}, 'r+b'); f.seek(4096); f.write(b'\\xa5' * {len(before) - 4096})"
    )
    subprocess.run([sys.executable, "-c", spoil], check=True)
    yield
    path.write_bytes(before)


Fault = Callable[[Path, Probe], Any]

LOST = "The database failed"
DAMAGED = "The database is damaged"
READ_ONLY = "The database cannot be written"
EXPECTED: dict[Fault, dict[str, str]] = {
    locked: dict.fromkeys(WRITES, "none: The database is locked"),
    full: dict.fromkeys(WRITES, "none: The disk is full"),
    read_only: dict.fromkeys(WRITES, f"none: {READ_ONLY}"),
    limited: dict.fromkeys(WRITES, "none: The disk is full"),
    unwritten: dict.fromkeys(WRITES, f"unknown: {LOST}"),
    unsynced: dict.fromkeys(WRITES, f"unknown: {LOST}"),
    unreadable: dict.fromkeys(READS, f"none: {LOST}") | dict.fromkeys(WRITES, f"unknown: {LOST}"),
    corrupted: dict.fromkeys(READS, f"none: {DAMAGED}")
    | dict.fromkeys(WRITES, f"unknown: {DAMAGED}"),
}
for fault, reason in (
    (limited, "The disk is full"),
    (unwritten, LOST),
    (unsynced, LOST),
    (unreadable, LOST),
    (corrupted, DAMAGED),
):
    EXPECTED[fault]["refusal_of_writes"] = f"none: {reason}"
EXPECTED[locked]["mark_used"] = "none: The database is locked"
EXPECTED[read_only]["mark_used"] = f"none: {READ_ONLY}"
"""What a question is answered while a fault lasts; any other is answered as always."""


@pytest.fixture
def path(request: pytest.FixtureRequest, open_folder: Path) -> Iterator[Path]:
    """A database of many stores, closed, on a small disk of its own if the fault needs one."""
    with ExitStack() as stack:
        small = request.node.callspec.params.get("fault") is full
        folder = (
            stack.enter_context(mounted(open_folder / "disk", "size=2m")) if small else open_folder
        )
        database = Sqlite(folder)

        async def main() -> None:
            async with handle(database) as collection:
                await add_all(collection, numbered(MANY))

        run(main())
        yield database.path


def test_every_method_of_the_protocol_is_asked() -> None:
    assert sorted(QUESTIONS) == METHODS
    assert sorted([*READS, *CACHED, *WRITES, "close"]) == METHODS


CASES = [
    pytest.param(
        fault,
        questions,
        id=f"{fault.__name__}-{questions if questions in ALONE else 'others'}",
        marks=[] if questions in SOON or fault in (full, unsynced) else pytest.mark.thorough,
    )
    for fault in EXPECTED
    for questions in TOGETHER
]


@pytest.mark.parametrize(("fault", "questions"), CASES)
def test_what_is_wrong_below_is_said_and_leaves_nothing_behind(
    path: Path, fault: Fault, questions: str
) -> None:
    rights = ["nobody"] if fault is read_only else []
    if rights:
        path.chmod(0o444)
    with probing(path, questions, *rights) as probe:
        with fault(path, probe):
            said = probe.ask()
        again = probe.ask()
        for question in said:
            _as_expected(
                question, EXPECTED[fault].get(question, "response"), said[question], again[question]
            )
        probe.close()
    written = [
        response
        for asked in (said, again)
        for response, _ in asked.values()
        if questions in {"write", "in_session"}
    ]
    _whole(path, most=MANY + LOAD * sum(not response.startswith("none") for response in written))


def _as_expected(
    question: str, expected: str, said: tuple[str, list[str]], again: tuple[str, list[str]]
) -> None:
    told = LOST in expected
    lost = told or DAMAGED in expected
    assert said[0].startswith(expected), f"{question}: {said}"
    assert len(said[1]) == told, f"{question}: the process was not told, or more than once"
    if READ_ONLY in expected or (lost and question in WRITES):
        assert again[0].startswith("none: The database"), (
            f"{question}: it continued after it had failed"
        )
    elif not lost:
        assert again[0] == "response", f"{question}: it did not continue"
    assert len(again[1]) == told, question


def _whole(path: Path, most: int) -> None:
    """What a write left is all of it or nothing, and not what was refused."""
    path.chmod(0o644)

    async def main() -> list[dict[str, Any]]:
        async with handle(Sqlite(path.parent)) as collection:
            return await stores(collection)

    listed = run(main())
    changes = Sqlite(path.parent).changes()
    assert [seq for seq, *_ in changes] == list(range(1, len(changes) + 1))
    latest = {id: shown(id, *content) for _, id, *content in changes}
    assert listed == [latest[id] for id in range(1, len(latest) + 1)]
    assert len(listed) in (MANY, MANY + 1, MANY + 2, MANY + LOAD, MANY + 2 * LOAD)
    assert len(listed) <= most


def test_a_stop_does_not_wait_for_a_writer_whose_last_batch_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the inbox is taken together with that batch."""
    began_first, go_on = threading.Event(), threading.Event()
    failures: list[object] = []

    def apply(batch: Sequence[Command], before: Before, now: int) -> Batch:
        began_first.set()
        assert go_on.wait(30)
        if len(batch) == 2:
            raise apsw.CorruptError("a damaged page")
        return commands.apply(batch, before, now)

    make_file(tmp_path / "stores.db")

    async def main() -> float:
        collection = databases.database(f"sqlite:///{tmp_path}/stores.db").open_collection(
            failures.append
        )
        await collection.check()
        monkeypatch.setattr(writer, "apply", apply)
        first = collection.write(Replace(1, Payload("first")))
        await until(began_first.is_set)
        last = [collection.write(Replace(1, Payload("last"))) for _ in range(2)]
        began = time.monotonic()
        asyncio.get_running_loop().call_later(0.1, go_on.set)
        await collection.close()
        assert await first is None
        for write in last:
            with pytest.raises(Unavailable):
                await write
        return time.monotonic() - began

    assert run(main()) < 4


async def test_what_waits_behind_a_batch_that_fails_is_refused_at_once_and_changed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()
    failures: list[object] = []

    def apply(*_: object) -> Batch:
        began.set()
        assert go_on.wait(30)
        raise apsw.IOError("a lost page")

    make_file(tmp_path / "stores.db")
    collection = databases.database(f"sqlite:///{tmp_path}/stores.db").open_collection(
        failures.append
    )
    monkeypatch.setattr(writer, "apply", apply)
    tried = collection.write(Replace(1, Payload("tried")))
    await until(began.is_set)
    waiting = collection.write(Replace(1, Payload("waiting")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it is handed over
    late = collection.write(Replace(1, Payload("late")))
    go_on.set()
    outcomes = []
    for write in (tried, waiting, late):
        with pytest.raises(Unavailable, match="The database failed: a lost page") as error:
            await write
        outcomes.append(error.value.outcome)
    assert outcomes == [Outcome.UNKNOWN, Outcome.NONE, Outcome.NONE]
    assert len(failures) == 1
    monkeypatch.setattr(batcher, "RESPONSE_TIMEOUT", 0.0)
    await asyncio.sleep(2 * TICK_INTERVAL)  # none of them is overdue
    assert "a lost page" in await collection.refusal_of_writes(probe=False)
    await collection.close()
