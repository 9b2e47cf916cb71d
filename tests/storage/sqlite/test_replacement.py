"""Whatever is in the place of a database, a restore puts the backup there, or changes nothing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from storekeeper.domain.errors import CannotStart, CannotStartYet
from storekeeper.domain.stores import Payload
from storekeeper.storage import backups, databases, verification
from storekeeper.storage.sqlite import connections, place, schema
from storekeeper.storage.sqlite.migrations import CHANGES_TABLE
from tests.harness.cases import case
from tests.harness.client import load
from tests.harness.databases import Sqlite
from tests.harness.machine import mounted, without_rights
from tests.harness.process import TIMEOUT
from tests.harness.stores import HistoryRow, a_row

AT_BACKUP = [a_row(1, 1, "Castle Hill"), a_row(2, 2, "Old Mill"), a_row(3, 3, "Harbour")]
LATER = [a_row(4, 4, "Later"), a_row(5, 5, "Latest")]
ENDS = ("", "-wal", "-shm", "-journal")
ASIDE = "stores-before-restore-"


def names_of(rows: list[HistoryRow]) -> list[Payload]:
    return [Payload(row[2]) for row in rows]


class Parts:
    """The files that states are made of: of a list that was closed, and of one that was killed."""

    def __init__(self, folder: Path) -> None:
        path = folder / "stores.db"
        url = f"sqlite:///{path}"
        load(url, names_of(AT_BACKUP))
        self.backup = backups.back_up(url, folder / "backup.db", lambda *_: None).file
        shutil.copy(path, folder / "other.db")
        self.other_log = self._logged(folder / "other.db", [Payload("Elsewhere")] * 2)[1]
        self.file, self.log, self.index = self._logged(path, names_of(LATER))
        self.closed = path.read_bytes()
        journaled = folder / "journaled.db"
        journaled.write_bytes(self.closed)
        self.half_written, self.journal = self._journaled(journaled)

    @staticmethod
    def _logged(path: Path, added: list[Payload]) -> list[bytes]:
        """Add stores; return the file, its log and the index, as a killed service leaves them."""
        with closing(apsw.Connection(str(path))) as other:
            other.execute("SELECT * FROM collection").fetchall()
            load(f"sqlite:///{path}", added)
            return [Path(f"{path}{end}").read_bytes() for end in ENDS[:3]]

    @staticmethod
    def _journaled(path: Path) -> tuple[bytes, bytes]:
        """Return a file and its journal as a program leaves them that was killed in a
        transaction."""
        with closing(apsw.Connection(str(path))) as connection:
            connection.pragma("journal_mode", "delete")
            connection.pragma("cache_size", 1)
            connection.execute(
                f"BEGIN; UPDATE {CHANGES_TABLE} SET name = 'Half'; UPDATE stores SET name = 'Half'"
            )
            connection.cache_flush()
            return path.read_bytes(), Path(f"{path}-journal").read_bytes()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return Parts(tmp_path_factory.mktemp("parts"))


class State(NamedTuple):
    """What may be in the place, and what a restore says about it."""

    make: Callable[[Path, Parts], object]
    lost: str
    """`all of it` is said, or it `cannot be read`, or `nothing` was there, or it is `refused`."""


def having(lost: str, **contents: str | bytes) -> State:
    """Return the state with these files: each a part, by its name, or what is in it."""

    def make(path: Path, parts: Parts) -> None:
        for end, content in contents.items():
            name = f"{path}{'' if end == 'file' else f'-{end}'}"
            Path(name).write_bytes(getattr(parts, content) if isinstance(content, str) else content)

    return State(make, lost)


def cut(size: int) -> Callable[[Path, Parts], object]:
    return lambda path, parts: path.write_bytes(parts.closed[:size])


def another_programs(path: Path, _: Parts) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)")


def linked(path: Path, parts: Parts) -> None:
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "stores.db").write_bytes(parts.file)
    (elsewhere / "stores.db-wal").write_bytes(parts.log)
    path.symlink_to(elsewhere / "stores.db")


def linked_to_nothing(path: Path, _: Parts) -> None:
    path.symlink_to(path.parent / "real.db")


def read_only(path: Path, parts: Parts) -> None:
    path.write_bytes(parts.closed)
    path.chmod(0o444)


def two_names(path: Path, parts: Parts) -> None:
    """As a restore leaves it that was killed when the old file had its second name."""
    path.write_bytes(parts.closed)
    path.with_name(f"{ASIDE}2026.db").hardlink_to(path)


def killed_restore(*, logged: bool) -> Callable[[Path, Parts], None]:
    """Return what makes the mark of one that was killed before it moved the logs, or after."""

    def make(path: Path, parts: Parts) -> None:
        aside = path.with_name(f"{ASIDE}2026.db")
        aside.write_bytes(parts.file if logged else parts.closed)
        if logged:
            Path(f"{path}-wal").write_bytes(parts.log)
        marked(aside.name)(path, parts)

    return make


def marked(aside: str) -> Callable[[Path, Parts], None]:
    """Return what makes the mark of a restore, which names the old file."""

    def make(path: Path, _: Parts) -> None:
        with path.open("wb") as opened:
            place.write_mark(opened.fileno(), aside)

    return make


STATES = {
    "missing": State(lambda _path, _: None, "nothing"),
    "closed": having("all of it", file="closed"),
    "killed": having("all of it", file="file", wal="log", shm="index"),
    "killed, without the index": having("all of it", file="file", wal="log"),
    "its index is damaged": having("all of it", file="file", wal="log", shm=b"\xff" * 32768),
    "empty": having("cannot be read", file=b""),
    "empty, with a log": having("cannot be read", file=b"", wal="log", shm="index"),
    "no database": having("cannot be read", file=b"notes"),
    "no database, with a log": having("cannot be read", file=b"\xff" * 8192, wal="log"),
    "another program's": State(another_programs, "cannot be read"),
    "header": State(cut(100), "cannot be read"),
    "first page": State(cut(4096), "cannot be read"),
    "half": State(cut(20480), "cannot be read"),
    "only log": having("cannot be read", wal="log"),
    "only log and index": having("cannot be read", wal="log", shm="index"),
    "only index": having("cannot be read", shm="index"),
    "only journal": having("cannot be read", journal="journal"),
    "killed with a journal": having("cannot be read", file="half_written", journal="journal"),
    "a journal of something else": having("cannot be read", file="closed", journal=b"\xff" * 1000),
    "log of another history": having("cannot be read", file="closed", wal="other_log"),
    "a log that is not one": having("all of it", file="closed", wal=b"not a log"),
    "read-only": State(read_only, "all of it"),
    "two names": State(two_names, "all of it"),
    "link": State(linked, "all of it"),
    "link to nothing": State(linked_to_nothing, "nothing"),
    "link to itself": State(lambda path, _: path.symlink_to(path), "refused"),
    "folder": State(lambda path, _: path.mkdir(), "refused"),
    "pipe": State(lambda path, _: os.mkfifo(path), "refused"),
    "killed restore": State(killed_restore(logged=False), "all of it"),
    "killed restore, log in its place": State(killed_restore(logged=True), "cannot be read"),
    "killed restore, old file gone": State(marked(f"{ASIDE}2026.db"), "cannot be read"),
    "mark of another program": State(marked(f"../{ASIDE}2026.db"), "cannot be read"),
}


def damaged_pages(parts: Parts) -> Iterator[tuple[str, State]]:
    """Each page of the file in turn, after it was closed, and when its log is there."""
    for name, content, more in (
        ("closed", parts.closed, {}),
        ("killed", parts.file, {"wal": "log"}),
    ):
        for start in range(0, len(content), 4096):
            damaged = content[:start] + b"\xa5" * 4096 + content[start + 4096 :]
            yield f"{name}, page {start // 4096} is damaged", having("any", file=damaged, **more)


def tree(folder: Path) -> dict[str, object]:
    """Return all that is in a folder: of a file its content, of a link where it leads to."""
    return {
        str(found.relative_to(folder)): found.readlink()
        if found.is_symlink()
        else found.read_bytes()
        if found.is_file()
        else None
        for found in folder.rglob("*")
    }


def test_whatever_was_there_a_restore_puts_the_backup_there_or_changes_nothing(
    tmp_path: Path, parts: Parts
) -> None:
    """What was there is kept: as a list with its log, or to the byte if it is damaged."""
    states = STATES | dict(damaged_pages(parts))
    assert len(states) > 50
    for number, (name, state) in enumerate(states.items()):
        with case(name):
            folder = tmp_path / str(number)
            folder.mkdir()
            state.make(folder / "stores.db", parts)
            assert_restored_or_unchanged(folder, state, parts)


def assert_restored_or_unchanged(folder: Path, state: State, parts: Parts) -> None:
    path = folder / "stores.db"
    before = tree(folder)
    try:
        done = backups.restore(parts.backup, f"sqlite:///{path}", lambda *_: None)
    except CannotStart:
        assert state.lost == "refused"
        assert tree(folder) == before
        return
    assert_serves_the_backup(path, done, parts)
    assert not list(folder.rglob(".*unfinished*"))
    if state.lost == "nothing":
        assert done.aside is None
    elif state.lost != "any":
        assert done.lost == (
            backups.Lost(range(4, 6), [4, 5], [], []) if state.lost == "all of it" else None
        )
    assert_kept(folder, done, before)


def assert_serves_the_backup(path: Path, done: backups.Restored, parts: Parts) -> None:
    url = f"sqlite:///{path}"
    assert not any(Path(f"{os.path.realpath(path)}{end}").exists() for end in ENDS[1:])
    assert verification.verify(url) == []
    assert Sqlite(path.parent).changes() == AT_BACKUP
    epochs = {databases.epoch(backups.url_of(str(parts.backup)), renew=False), "killed00"}
    assert databases.epoch(url, renew=False) == done.epoch
    assert done.epoch not in epochs
    schema.prepare(path)  # as a start does


def assert_kept(folder: Path, done: backups.Restored, before: dict[str, object]) -> None:
    """All that was there is there under other names; if it could be read, as a whole list."""
    if done.lost is not None and done.lost.changes:
        assert done.aside is not None
        kept = Sqlite(done.aside.parent)
        kept.path = done.aside
        assert kept.changes() == AT_BACKUP + LATER
        assert done.aside.stat().st_nlink == 1
        return
    now = list(tree(folder).values())
    for name, content in before.items():
        is_content = isinstance(content, bytes) and not content.startswith(b"A restore is not")
        assert not is_content or content in now, f"{name} is lost"


# What a start finds meanwhile.


def test_a_start_refuses_what_a_killed_restore_left_until_another_one(
    tmp_path: Path, parts: Parts
) -> None:
    path = tmp_path / "stores.db"
    killed_restore(logged=True)(path, parts)
    before = tree(tmp_path)
    with pytest.raises(CannotStart, match="a restore was killed here: restore again"):
        schema.prepare(path)
    with pytest.raises(CannotStart, match="a restore was killed here: restore again"):
        verification.verify(f"sqlite:///{path}")
    assert tree(tmp_path) == before
    assert backups.restore(parts.backup, f"sqlite:///{path}", lambda *_: None).aside
    kept = Sqlite(tmp_path)
    kept.path = tmp_path / f"{ASIDE}2026.db"  # with its log
    assert kept.changes() == AT_BACKUP + LATER


LOCKS = """
import fcntl, sys
from pathlib import Path
from storekeeper.storage.sqlite import place
opened = Path(sys.argv[1]).open("r+b")
place.lock(opened.fileno(), sys.argv[2])
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def locked_by_another(path: Path, end: str = "") -> Iterator[None]:
    """Have another process hold SQLite's locks on a file, as a restore does."""
    program = [sys.executable, "-c", LOCKS, str(path), end]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield
        process.communicate(timeout=TIMEOUT)


def test_a_start_waits_for_a_restore_that_is_under_way(
    tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stores.db"
    killed_restore(logged=False)(path, parts)
    with locked_by_another(path):
        with monkeypatch.context() as patch:
            patch.setattr(schema, "START_TIMEOUT", 0.1)
            with pytest.raises(CannotStartYet, match="locked by another program"):
                schema.prepare(path)
        with ThreadPoolExecutor(1) as pool:
            start = pool.submit(schema.prepare, path)
            with pytest.raises(TimeoutError):
                start.result(0.2)
            new = tmp_path / "new.db"
            new.write_bytes(parts.closed)
            new.replace(path)
            start.result(TIMEOUT)
    assert Sqlite(tmp_path).changes() == AT_BACKUP + LATER


def test_who_waited_for_a_file_that_was_replaced_opens_the_other_one(
    tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the old file, SQLite would read and write the log of the new one."""
    path, new = tmp_path / "stores.db", tmp_path / "new.db"
    path.write_bytes(parts.backup.read_bytes())
    new.write_bytes(parts.closed)
    opened = apsw.Connection

    def replace_after(name: str, **options: Any) -> apsw.Connection:
        made = opened(name, **options)
        if new.exists():
            new.replace(path)
        return made

    monkeypatch.setattr(apsw, "Connection", replace_after)
    with closing(connections.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM changes").get == 5


# Who uses the place.


USES = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("SELECT * FROM collection").fetchall()
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def used_by_another(path: Path) -> Iterator[None]:
    """Have another process have a database open, in which it does nothing."""
    program = [sys.executable, "-c", USES, str(path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield
        process.communicate(timeout=TIMEOUT)


def gone(path: Path) -> None:
    path.unlink()


def gone_and_replaced(path: Path) -> None:
    path.rename(path.with_name("kept.db"))
    shutil.copy(path.with_name("kept.db"), path)


def damaged(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize("fault", [gone, gone_and_replaced, damaged])
def test_whoever_uses_what_is_left_of_a_database_is_found(
    tmp_path: Path, parts: Parts, fault: Callable[[Path], None]
) -> None:
    path = tmp_path / "stores.db"
    path.write_bytes(parts.closed)
    with used_by_another(path):
        fault(path)
        before = tree(tmp_path)
        with pytest.raises(CannotStart, match=r"stores\.db: in use: stop the service first"):
            backups.restore(parts.backup, f"sqlite:///{path}", lambda *_: None)
        assert tree(tmp_path) == before
    assert backups.restore(parts.backup, f"sqlite:///{path}", lambda *_: None).stores == 3


def test_a_list_that_is_begun_meanwhile_stays(tmp_path: Path, parts: Parts) -> None:
    path = tmp_path / "stores.db"

    def begin(*_: int) -> None:
        path.write_bytes(parts.closed)

    with pytest.raises(CannotStart, match="cannot be replaced: File exists"):
        backups.restore(parts.backup, f"sqlite:///{path}", begin)
    assert Sqlite(tmp_path).changes() == AT_BACKUP + LATER
    assert list(tree(tmp_path)) == ["stores.db"]


def test_a_restore_without_the_rights_changes_nothing(open_folder: Path, parts: Parts) -> None:
    """A user cannot use the lock of a file that he cannot write, so who uses it is unknown."""
    path, backup = open_folder / "stores.db", open_folder / "backup.db"
    for file, content in ((path, parts.file), (backup, parts.backup.read_bytes())):
        file.write_bytes(content)
        file.chmod(0o644)
    Path(f"{path}-wal").write_bytes(parts.log)
    open_folder.chmod(0o777)
    before = tree(open_folder)
    with without_rights(), pytest.raises(CannotStart, match="this user cannot write it"):
        backups.restore(backup, f"sqlite:///{path}", lambda *_: None)
    assert {name: tree(open_folder)[name] for name in before} == before


def test_a_restore_to_a_disk_that_cannot_be_written_changes_nothing(
    tmp_path: Path, parts: Parts
) -> None:
    with mounted(tmp_path / "disk", "size=1m") as disk:
        (disk / "stores.db").write_bytes(parts.closed)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        before = tree(disk)
        for name in ("stores.db", "new.db"):
            with pytest.raises(CannotStart, match="Read-only file system"):
                backups.restore(parts.backup, f"sqlite:///{disk}/{name}", lambda *_: None)
        assert tree(disk) == before


@pytest.mark.parametrize("size", range(100, 300, 40))
def test_a_restore_that_finds_no_space_changes_nothing(
    tmp_path: Path, parts: Parts, size: int
) -> None:
    with mounted(tmp_path / "disk", f"size={size}k") as disk:
        try:
            (disk / "stores.db").write_bytes(parts.file)
            (disk / "stores.db-wal").write_bytes(parts.log)
        except OSError:
            (disk / "stores.db-wal").unlink()
        before = tree(disk)
        try:
            backups.restore(parts.backup, f"sqlite:///{disk}/stores.db", lambda *_: None)
        except (CannotStart, databases.CopyFailed):
            assert tree(disk) == before
        else:
            assert Sqlite(disk).changes() == AT_BACKUP


def test_a_file_system_without_links_gets_its_restore_too(
    tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(_self: Path, _target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    for name in ("missing", "killed", "only log"):
        folder = tmp_path / name
        folder.mkdir()
        STATES[name].make(folder / "stores.db", parts)
        assert_restored_or_unchanged(folder, STATES[name], parts)
