"""What commands write to: a file is replaced, a pipe or a device written into, all else
refused."""

import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from storekeeper.cli import import_report, import_review, imports
from storekeeper.domain.stores import Payload
from tests.harness.client import fill
from tests.harness.command import Done, run
from tests.harness.databases import Sqlite
from tests.harness.machine import need, without_rights
from tests.harness.process import refused

NULL, FULL, LOOP = os.makedev(1, 3), os.makedev(1, 7), os.makedev(7, 250)
HEADER = b"SQLite format 3\0"


@pytest.fixture
def database(tmp_path: Path) -> Sqlite:
    (tmp_path / "own").mkdir()
    fill(tmp_path / "own", [Payload("Store 1")])
    (tmp_path / "own" / "rows.csv").write_text("name,address\nStore 2,\n,1 Road\n")
    return Sqlite(tmp_path / "own")


def a_file(folder: Path) -> Path:
    """Return a file, with the same content at each call unless it was written."""
    file = folder / "a file"
    if not file.exists():
        file.write_bytes(b"before")
    return file


def export(database: Sqlite, target: Path, **streams: Any) -> Done:
    url = database.url
    return run("export", "--database", url, "--force", "--format=csv", str(target), **streams)


def rejects(database: Sqlite, target: Path, **streams: Any) -> Done:
    rows = str(database.path.with_name("rows.csv"))
    return run(
        *("import", "--database", database.url, "--add", rows),
        *("--rejects", str(target)),
        **streams,
    )


def cursor(database: Sqlite, target: Path) -> Done:
    return run("changes", "--database", database.url, "--cursor-file", str(target))


def backup(database: Sqlite, target: Path) -> Done:
    return run("backup", "--database", database.url, str(target))


def checksum(database: Sqlite, target: Path) -> Done:
    """Back up, with the target in the place of the checksum."""
    beside = target.with_name("new.db.sha256")
    beside.symlink_to(target)
    return run("backup", "--database", database.url, str(target.with_name("new.db")))


def copy(database: Sqlite, target: Path) -> Done:
    return run("copy", database.url, f"sqlite:///{target}")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def a_device(kind: int, number: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        try:
            os.mknod(path, kind | 0o666, number)
            if stat.S_ISCHR(kind):
                os.close(os.open(path, os.O_WRONLY))
        except PermissionError:
            need("mknod", "no device can be made here")

    return make


def a_link(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def made(path: Path) -> None:
        make(path.with_name("linked"))
        path.symlink_to(path.with_name("linked"))

    return made


def a_log(path: Path) -> None:
    """The log of a database, next to it."""
    path.with_name(path.name.removesuffix("-wal")).write_bytes(HEADER)
    path.write_bytes(b"log")


KINDS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "pipe": ("target", a_pipe),
    "link to a pipe": ("target", a_link(a_pipe)),
    "null": ("target", a_device(stat.S_IFCHR, NULL)),
    "full": ("target", a_device(stat.S_IFCHR, FULL)),
    "block device": ("target", a_device(stat.S_IFBLK, LOOP)),
    "socket": ("target", a_socket),
    "folder": ("target", Path.mkdir),
    "database": ("target", lambda path: path.write_bytes(HEADER)),
    "link to a database": ("target", a_link(lambda path: path.write_bytes(HEADER))),
    "log": ("target-wal", a_log),
}
STREAMS = ("pipe", "link to a pipe", "null", "full")


def state(folder: Path) -> dict[str, object]:
    """Return what each name of a folder is, and what is in it if it is a file."""
    return {
        path.name: (
            (found := path.lstat()).st_mode,
            found.st_ino,
            found.st_rdev,
            path.read_bytes() if stat.S_ISREG(found.st_mode) else b"",
        )
        for path in folder.iterdir()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@contextmanager
def read(path: Path) -> Iterator[int | None]:
    """Yield a reader of a pipe, so that it can be opened; None for anything else."""
    if not path.is_fifo():
        yield None
        return
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield reader
    os.close(reader)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", [export, rejects, cursor, backup, checksum, copy])
def test_only_a_file_is_replaced_and_only_a_pipe_or_a_device_written_into(
    folder: Path, database: Sqlite, command: Callable[[Sqlite, Path], Done], kind: str
) -> None:
    if command is backup and kind == "folder":
        return  # the backup gets a name in it
    name, make = KINDS[kind]
    make(folder / name)
    before, changes = state(folder), len(database.changes())
    with read(folder / name) as reader:
        done = command(database, folder / name)
        written = os.read(reader, 10_000) if reader else b""
    after = state(folder)
    after.pop("new.db.sha256", None)
    assert after == before
    if kind not in STREAMS or command not in (export, rejects):
        [line] = refused(done)
        assert str(folder) in line
        assert len(database.changes()) == changes
        assert written == b""
    elif kind == "full":
        [line] = refused(done)[-1:]
        assert "No space left on device" in line
    else:
        assert done.returncode == 0, done.stderr
        assert bool(written) == ("pipe" in kind)
        assert written.count(b"\n") == 2 * bool(written)  # a header and a row, once


@pytest.mark.parametrize("target", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
@pytest.mark.parametrize("command", [export, rejects])
def test_a_name_of_standard_output_is_written_into_whatever_it_is(
    folder: Path, database: Sqlite, command: Callable[..., Done], target: str
) -> None:
    log = folder / "log"
    log.write_bytes(b"before\n")
    (folder / "link").symlink_to("/dev/stdout")
    inode = log.stat().st_ino
    with log.open("ab") as opened:
        done = command(database, folder / target, stdout=opened)
    assert done.returncode == 0, done.stderr
    assert log.stat().st_ino == inode
    assert log.read_bytes().startswith(b"before\n")
    assert log.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("kind", ["own", "closed", "no number of one"])
@pytest.mark.parametrize("command", [export, rejects, cursor])
def test_a_descriptor_that_the_command_was_not_started_with_is_refused(
    folder: Path, database: Sqlite, command: Callable[..., Done], kind: str
) -> None:
    """A descriptor with that number was not opened for the command: it may be its database."""
    own = os.open(folder, os.O_RDONLY) if kind == "closed" else os.open(a_file(folder), os.O_RDWR)
    number = own if kind != "no number of one" else 10**20
    if kind == "closed":
        os.close(own)
    try:
        [line] = refused(command(database, Path(f"/dev/fd/{number}")))[-1:]
    finally:
        if kind != "closed":
            os.close(own)
    assert "Bad file descriptor" in line
    assert len(database.changes()) == 1
    if kind != "closed":
        assert a_file(folder).read_bytes() == b"before"


@pytest.mark.parametrize("content", ["name\n", "name,address\n,0 Road\nStore 2,\n,1 Road\n"])
def test_a_file_that_is_corrected_while_the_import_asks_is_not_imported(
    folder: Path, database: Sqlite, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """The rejected rows were taken from the lines of the new content, and others were missing."""
    source = database.path.with_name("rows.csv")
    monkeypatch.setattr(import_review, "tell", lambda _: source.write_text(content))
    [line] = refused(rejects(database, folder / "new.csv"))[-1:]
    assert "was written while it was read" in line
    assert len(database.changes()) == 1
    assert list(folder.iterdir()) == []


def test_rejects_go_into_a_pipe_once_after_the_import_although_others_write_meanwhile(
    folder: Path, database: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe takes nothing back, and all writers would wait for its reader."""
    a_pipe(folder / "pipe")
    monkeypatch.setattr(
        import_review, "tell", lambda _: fill(database.path.parent, [Payload("Other")])
    )
    with read(folder / "pipe") as reader:
        assert reader is not None
        seen: list[bytes] = []
        tell_end = import_report.tell_end

        def told(*given: Any, **options: Any) -> None:
            with suppress(BlockingIOError):
                seen.append(os.read(reader, 100))
            tell_end(*given, **options)

        monkeypatch.setattr(imports, "tell_end", told)
        assert rejects(database, folder / "pipe").returncode == 0
        [sent] = seen
        assert sent.splitlines()[1:] == [b',1 Road,"""name"" is required"']
    assert len(database.changes()) == 3


def test_rejects_that_a_full_device_does_not_take_are_said_with_what_was_done(
    folder: Path, database: Sqlite
) -> None:
    a_device(stat.S_IFCHR, FULL)(folder / "full")
    line = refused(rejects(database, folder / "full"))[-1]
    assert line == (
        f"storekeeper: --rejects {folder}/full: cannot be written (No space left on device);"
        " the valid rows were imported"
    )
    line = refused(rejects(database, folder / "nowhere/file.csv"))[-1]
    assert line.endswith("cannot be written (No such file or directory); nothing was imported")


def test_standard_output_is_no_file_of_the_present_folder(open_folder: Path) -> None:
    """Not even of a folder that cannot be entered, or that has a file called `-`."""
    fill(open_folder, [Payload("Store 1")])
    url = f"sqlite:///{open_folder}/stores.db"
    closed = open_folder / "closed"
    closed.mkdir()
    (closed / "-").write_bytes(b"mine")
    with chdir(closed):
        assert run("export", "--database", url, "-").stdout.count(b"\n") == 2
        closed.chmod(0o000)
        (open_folder / "stores.db").chmod(0o666)
        with without_rights():
            done = run("export", "--database", url, "-")
    closed.chmod(0o755)
    assert done.stdout.count(b"\n") == 2, done.stderr
    assert (closed / "-").read_bytes() == b"mine"
