"""Cuts the power of a service at any moment, on paper: replays its system calls into what a disk
may then hold.

`record` runs the real service under strace. `images` goes through the calls and, at moments of a
crash, yields what may be on the disk: everything that was synced, and of the rest nothing,
everything, or any part in sectors of 512 bytes, in any order. A name in a directory is on the disk
once the directory was synced, or perhaps sooner, but names come in order, as in a journal. The
service's responses on its sockets are among the calls, so that at each moment it is known what had
been acknowledged.
"""

import os
import random
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

from storekeeper.domain.errors import CannotStart
from tests.harness import weakened
from tests.harness.process import COMMAND, TIMEOUT, serving
from tests.oracles.aftermath import examine
from tests.oracles.history import Recorder
from tests.oracles.lincheck import Kind, Violation

SECTOR = 512
_MEMORY = Path("/dev/shm")
"""Where images are opened, if the folder exists: there are many, and nothing depends on their being
synced."""

WRITES_ONLY = {Kind.CREATE: 1, Kind.REPLACE: 2}

_SENDS = ("write", "writev", "sendto", "sendmsg")
_SYNCS = ("fsync", "fdatasync")
_NAMES = ("openat", "link", "linkat", "unlink", "unlinkat", "rename")
_CHANGES = ("pwrite64", "ftruncate")
_MODELLED = (*_NAMES, *_CHANGES, *_SYNCS, *_SENDS)
_NOT_MODELLED = ("renameat", "renameat2", "pwritev", "pwritev2", "fallocate", "mmap")
"""These are traced too, so that we notice if a service begins to use one of them on its files."""

_STRACE = (
    *("strace", "-f", "-y", "-xx", "-s", "9999999", "--seccomp-bpf", "-e", "signal=none"),
    *("-e", "trace=" + ",".join(_MODELLED + _NOT_MODELLED)),
)
_BEGIN = re.compile(r"(\d+) +(\w+)\((.*)")
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)")
_RESULT = re.compile(r".*\) += (-?\d+)", re.DOTALL)
_DESCRIPTOR = re.compile(r"(?:^|, )\d+<((?:\\x[0-9a-f]{2})*)>")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_RESPONSE = re.compile(
    rb'HTTP/1\.1 200 .*?\r\n\r\n\{"id":(\d+),"name":"[^"]*","address":"(\d+)"[,}]', re.DOTALL
)


def record(folder: Path, *args: str, change: str = "", operations: int = 190) -> tuple[Path, int]:
    """Let clients write to a service under strace, in an empty folder.

    Return the trace, and how many writes the clients know to be acknowledged.
    """
    trace = folder / "trace"
    program = [*_STRACE, "-o", str(trace), *(weakened.PROGRAM if change else COMMAND)]
    recorder = Recorder(clients=8, most_stores=operations // 4, mix=WRITES_ONLY)
    with serving(
        folder, *args, env=weakened.environment(change) if change else None, program=program
    ) as service:
        recorder.run(service.port, operations)
        # strace itself ignores the signal, and ends together with its program.
        os.killpg(service.process.pid, signal.SIGTERM)
        service.process.wait(TIMEOUT)
    return trace, recorder.acknowledged


# The calls.


class Call(NamedTuple):
    """A system call begins or ends; `result` is None when it begins."""

    process: str
    name: str
    arguments: str
    result: int | None


def calls(trace: Path) -> Iterator[Call]:
    """Read the output of strace. A call without another one in between begins and ends at once."""
    begun: dict[str, tuple[str, str]] = {}
    with trace.open() as lines:
        for line in lines:
            if found := _RESUMED.match(line):
                process, rest = found.groups()
                name, arguments = begun.pop(process)
            elif found := _BEGIN.match(line):
                process, name, rest = found.groups()
                arguments = rest.removesuffix(" <unfinished ...>")
                yield Call(process, name, arguments, None)
                if arguments != rest:
                    begun[process] = (name, arguments)
                    continue
            else:
                continue
            if result := _RESULT.match(rest):
                yield Call(process, name, arguments, int(result[1]))


# The disk.


T = TypeVar("T")


class Unsynced(Generic[T]):
    """What was done and not yet synced, in order."""

    def __init__(self) -> None:
        self.left: list[T] = []
        self._synced = 0

    def mark(self) -> int:
        """Return the position up to which a sync that begins now will sync."""
        return self._synced + len(self.left)

    def sync(self, mark: int) -> list[T]:
        """Remove everything before the mark; another sync may have been faster."""
        count = max(0, mark - self._synced)
        self._synced += count
        done, self.left = self.left[:count], self.left[count:]
        return done


class File:
    """One file, whatever its name is."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.changes: Unsynced[Change] = Unsynced()


class Change(NamedTuple):
    """Write bytes at a position, or with None set the file's new length."""

    place: int
    data: bytes | None

    def apply(self, content: bytearray, sectors: random.Random | None = None) -> None:
        """Make the change, or with a random generator perhaps only some sectors of it."""
        if self.data is None:
            content[self.place :] = bytes(max(0, self.place - len(content)))
            return
        content.extend(bytes(max(0, self.place + len(self.data) - len(content))))
        for start in range(0, len(self.data), SECTOR):
            if sectors is None or sectors.random() < 0.5:
                part = self.data[start : start + SECTOR]
                content[self.place + start : self.place + start + len(part)] = part


Left = Literal["nothing", "everything", "parts"]
LEFT: tuple[Left, ...] = ("nothing", "everything", "parts", "parts")
"""What is left of the changes that were not synced."""


class Disk:
    """A database's files, and what was acknowledged so far. SQLite's -shm does not count: each
    start makes it."""

    def __init__(self, database: Path) -> None:
        self.acknowledged: set[tuple[int, int]] = set()
        self._folder = str(database.parent)
        self._database = database.name
        self._names: dict[str, File] = {}
        self._synced_names: dict[str, File] = {}
        self._namings: Unsynced[tuple[str, File | None]] = Unsynced()
        self._syncs: dict[str, tuple[File | None, int]] = {}
        self._sent: dict[str, bytes] = {}

    def take(self, call: Call) -> bool:
        """Follow a call; return whether it mattered."""
        strings = [_bytes(text) for text in _STRING.findall(call.arguments)]
        if call.name in _SENDS:
            return call.result is None and self._send(call, b"".join(strings))
        if call.name in _NAMES:
            return self._name(call, [str(Path(_path(call)) / name.decode()) for name in strings])
        path = _path(call) or b"".join(strings[:1]).decode()
        if call.name in _SYNCS:
            return self._sync(call, path)
        if not self._is_ours(path):
            return False
        if call.name in _CHANGES:
            return self._change(call, path, strings)
        assert call.name == "mmap", f"{call} is not modelled"
        assert "PROT_WRITE" not in call.arguments, f"{call} is not modelled"
        return False

    def image(self, left: Left, rng: random.Random) -> dict[str, bytes]:
        """Return the files that may be there if the power fails now."""
        names = dict(self._synced_names)
        namings = self._namings.left
        kept = {"nothing": 0, "everything": len(namings), "parts": rng.randint(0, len(namings))}
        _name_all(names, namings[: kept[left]])
        return {name: self._content(file, left, rng) for name, file in names.items()}

    def _content(self, file: File, left: Left, rng: random.Random) -> bytes:
        content = bytearray(file.synced)
        for change in file.changes.left if left != "nothing" else []:
            if left == "everything" or rng.random() < 0.3:
                change.apply(content)
            elif rng.random() < 0.5:
                change.apply(content, rng)
        return bytes(content)

    def _send(self, call: Call, data: bytes) -> bool:
        # The head and the body of a response may be sent one after the other.
        socket = _path(call)
        sent = self._sent.get(socket, b"") + data
        responses = list(_RESPONSE.finditer(sent))
        self._sent[socket] = sent[responses[-1].end() if responses else 0 :]
        self.acknowledged |= {
            (int(id), int(value)) for id, value in (response.groups() for response in responses)
        }
        return bool(responses)

    def _is_ours(self, path: str) -> bool:
        """Return whether a path is a file of the database, in its folder or in one within, where it
        may be made."""
        name = path.rpartition("/")[2]
        return (
            path.startswith(self._folder + "/")
            and name.startswith(self._database)
            and not name.endswith("-shm")
        )

    def _name(self, call: Call, paths: list[str]) -> bool:
        path = paths[-1] if paths else ""
        if call.result is None or call.result < 0 or not self._is_ours(path):
            return False
        before = self._names.get(path)
        if call.name in ("unlink", "unlinkat"):
            del self._names[path]
        elif call.name == "rename":  # of two names of one file, which does nothing
            assert self._names[path] is self._names[paths[0]], f"{call} is not modelled"
        elif call.name in ("link", "linkat"):
            self._names[path] = self._names[paths[0]]
        elif "O_CREAT" in call.arguments:
            self._names.setdefault(path, File())
        if (after := self._names.get(path)) is before:
            return False
        if Path(path).parent == Path(self._folder):
            self._namings.left.append((path, after))
        return True

    def _change(self, call: Call, path: str, strings: list[bytes]) -> bool:
        # It may be on the disk as soon as the call begins. Each call succeeds, or the test is about
        # errors.
        if call.result is None and path in self._names:
            place = int(call.arguments.rpartition(", ")[2].partition(")")[0])
            self._names[path].changes.left.append(
                Change(place, strings[0] if call.name == "pwrite64" else None)
            )
        return call.result is None

    def _sync(self, call: Call, path: str) -> bool:
        """Sync what was there when the call began, once it has ended."""
        if call.result is None:
            file = self._names.get(path)
            if file is not None or path == self._folder:
                self._syncs[call.process] = (file, (file.changes if file else self._namings).mark())
            return False
        if call.process not in self._syncs:
            return False
        file, mark = self._syncs.pop(call.process)
        if file is None:
            _name_all(self._synced_names, self._namings.sync(mark))
        else:
            for change in file.changes.sync(mark):
                change.apply(file.synced)
        return True


def _name_all(names: dict[str, File], namings: Sequence[tuple[str, File | None]]) -> None:
    for name, file in namings:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


def _path(call: Call) -> str:
    """Return the object of the call's descriptor."""
    found = _DESCRIPTOR.search(call.arguments)
    return _bytes(found[1]).decode() if found else ""


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


# The verdict.


@dataclass
class Verdict:
    """`refused` of the `images` were of an interrupted first start: they were reported as such, and
    nothing had been acknowledged."""

    images: int = 0
    refused: int = 0
    acknowledged: int = 0
    violations: list[Violation] = field(default_factory=list)


def judge(trace: Path, count: int, seed: int = 0) -> Verdict:
    """Open `count` images with the service's own code, and compare with what was acknowledged by
    then."""
    rng = random.Random(seed)
    disk = Disk(trace.with_name("stores.db"))
    moments = Counter(rng.choices(range(sum(disk.take(call) for call in calls(trace))), k=count))
    verdict = Verdict()
    disk = Disk(trace.with_name("stores.db"))
    moment = -1
    for call in calls(trace):
        if disk.take(call):
            moment += 1
            for _ in range(moments[moment]):
                _open(disk, disk.image(rng.choice(LEFT), rng), verdict)
    verdict.acknowledged = len(disk.acknowledged)
    return verdict


def _open(disk: Disk, image: dict[str, bytes], verdict: Verdict) -> None:
    verdict.images += 1
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        for name, content in image.items():
            (Path(folder) / Path(name).name).write_bytes(content)
        try:
            order, found = examine(Path(folder) / "stores.db")
        except CannotStart as error:
            order, found = [], [Violation("refused", str(error))]
    if disk.acknowledged:
        lost = disk.acknowledged - set(order)
        found += (
            [Violation("lost", f"{len(lost)} of {len(disk.acknowledged)}: {sorted(lost)[:5]}")]
            if lost
            else []
        )
    elif found and found[0].fault == "refused":
        verdict.refused += 1
        return
    verdict.violations += found
