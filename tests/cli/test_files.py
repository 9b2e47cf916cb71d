"""The files that commands write and read: whole by themselves or not there, read even where
nothing can be written.

The databases here are SQLite files; `test_transfer` has what holds for copies of every kind.
"""

import errno
import io
import os
import shutil
import stat
import subprocess
import sys
from contextlib import chdir, closing, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from storekeeper.domain.errors import StorekeeperError
from storekeeper.domain.stores import Payload
from storekeeper.sheets import export as exports
from storekeeper.storage import atomicfile, databases
from storekeeper.storage import copying as transfer
from storekeeper.storage.sqlite.snapshot import SqliteSnapshot, SqliteTarget
from tests.harness.client import fill, until
from tests.harness.command import run
from tests.harness.databases import Sqlite, make
from tests.harness.machine import mounted, without_rights
from tests.harness.process import TIMEOUT, refused, serving
from tests.harness.stores import HistoryRow, an_export
from tests.harness.system_calls import SYNCS, injected, slowed
from tests.harness.tokens import add_token

LONG = "x" * 3000
GOOD = an_export((1, "The last good one"))
finish = SqliteTarget.finish


def filled(folder: Path, count: int, address: str = LONG) -> Sqlite:
    """Make a database in a folder of its own, closed."""
    folder.mkdir(exist_ok=True)
    fill(folder, (Payload(f"Store {number}", address) for number in range(1, count + 1)))
    return Sqlite(folder)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Sqlite:
    """A database of some 3 MiB that no test changes."""
    return filled(tmp_path_factory.mktemp("source"), 400)


def whole(path: Path, folder: Path) -> list[HistoryRow]:
    """Return the changes of a file that was taken away from its neighbours, found
    sound."""
    folder.mkdir(exist_ok=True)
    taken = Sqlite(folder)
    shutil.copyfile(path, taken.path)
    with closing(apsw.Connection(str(taken.path))) as connection:
        assert connection.pragma("integrity_check") == "ok"
    return taken.changes()


def nothing(_done: int, _of: int) -> None:
    """Show no progress."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused_copy(source: Sqlite, target: Path, message: str) -> None:
    with pytest.raises(StorekeeperError, match=message):
        databases.copy(source.url, f"sqlite:///{target}", nothing)


# A copy is one file.


@pytest.mark.parametrize("kib", [2048, 3600])
def test_a_copy_is_whole_by_itself_or_refused_in_one_line(
    tmp_path: Path, source: Sqlite, kib: int
) -> None:
    with mounted(tmp_path / "disk", f"size={kib}k") as disk:
        done = run("copy", source.url, f"sqlite:///{disk}/backup.db")
        if kib == 2048:
            assert refused(done) == [f"storekeeper: target {disk}/backup.db: The disk is full"]
            assert names(disk) == []
        else:
            assert whole(disk / "backup.db", tmp_path / "taken") == source.changes()
            assert names(disk) == ["backup.db"]


def spoilt(path: Path) -> None:
    """Flip a bit of one name, wherever it stands in a file."""
    data = path.read_bytes().replace(b"Store 200", b"Stose 200")
    with path.open("r+b") as file:
        file.write(data)


def test_a_copy_that_reads_otherwise_from_the_disk_is_found_and_not_kept(
    tmp_path: Path, source: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:

    def finish_spoilt(self: SqliteTarget, epoch: str | None) -> None:
        finish(self, epoch)
        spoilt(self.path)

    monkeypatch.setattr(SqliteTarget, "finish", finish_spoilt)
    refused_copy(source, tmp_path / "backup.db", "differ from those")
    assert names(tmp_path) == []


def test_a_copy_that_was_read_back_through_the_writers_cache_would_be_seen(
    tmp_path: Path, source: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: it says that all is well."""

    def through_the_cache(self: SqliteTarget, _: str | None) -> None:
        self._connection.execute("UPDATE collection SET epoch = 'renewed'")
        self._connection.pragma("cache_size", -16 * 1024)
        assert SqliteSnapshot.state(self)[0]
        list(SqliteSnapshot.rows(self, "stores"))
        list(SqliteSnapshot.rows(self, "changes"))
        self._connection.execute("COMMIT")
        spoilt(self.path)

    monkeypatch.setattr(SqliteTarget, "finish", through_the_cache)
    databases.copy(source.url, f"sqlite:///{tmp_path}/backup.db", nothing)
    assert b"Stose" in (tmp_path / "backup.db").read_bytes()


def test_a_file_that_appears_during_a_copy_is_left_as_it_is(
    tmp_path: Path, source: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup.db"
    monkeypatch.setattr(
        SqliteTarget, "finish", lambda *args: (finish(*args), target.write_text("mine"))
    )
    refused_copy(source, target, "there is a file of that name")
    assert target.read_text() == "mine"
    assert names(tmp_path) == ["backup.db"]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_takes_no_name_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", _not_permitted)
    new, path = tmp_path / "new", tmp_path / "path"
    new.write_text("new")
    atomicfile.publish(new, path)
    assert path.read_text() == "new"
    new.write_text("newer")
    with pytest.raises(FileExistsError):
        atomicfile.publish(new, path)


def _not_permitted(*_args: object, **_options: object) -> None:
    raise PermissionError(errno.EPERM, "not here")


def _failing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let each sync of a folder fail with this error."""
    sync = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(number, os.strerror(number))
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("links", [True, False])
def test_a_copy_whose_name_does_not_reach_the_disk_is_not_kept(
    tmp_path: Path, source: Sqlite, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", _not_permitted)
    _failing(monkeypatch, errno.EIO)
    refused_copy(source, tmp_path / "backup.db", os.strerror(errno.EIO))
    assert names(tmp_path) == []


def test_a_file_system_that_syncs_no_folder_and_knows_no_modes_is_written_to(
    tmp_path: Path, source: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a shared folder of a virtual machine, and a memory stick."""
    _failing(monkeypatch, errno.EINVAL)
    monkeypatch.setattr(os, "fchmod", _not_permitted)
    assert run("export", "--database", source.url, str(tmp_path / "all.csv")).returncode == 0
    assert run("copy", source.url, f"sqlite:///{tmp_path}/backup.db").returncode == 0
    assert whole(tmp_path / "backup.db", tmp_path / "taken") == source.changes()
    make(f"sqlite:///{tmp_path}/new.db")


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_a_copy_does_not_begin_next_to_the_log_of_another_file(
    tmp_path: Path, source: Sqlite, end: str
) -> None:
    """SQLite would take it for the new file's own."""
    log = tmp_path / f"backup.db{end}"
    log.write_bytes(b"left behind")
    refused_copy(source, tmp_path / "backup.db", log.name)
    assert names(tmp_path) == [log.name]


def test_a_copy_to_what_is_no_file_is_refused(tmp_path: Path, source: Sqlite) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder", "nowhere/backup.db"):
        refused_copy(source, tmp_path / name, str(tmp_path / name))
    assert names(tmp_path) == ["folder", "pipe"]


# A process that is killed.


def killed(target: Path, *command: str, calls: str) -> None:
    """Kill a command that has begun to write; what it leaves says what it is."""
    unfinished = f".{target.name}.unfinished-*"
    with slowed(*command, calls=calls):
        until(
            lambda: any(
                path.stat().st_size
                for path in target.parent.glob(f"{unfinished}/**/*")
                if path.is_file()
            )
        )
    assert [path for path in target.parent.iterdir() if path != target] == list(
        target.parent.glob(unfinished)
    )


@pytest.mark.usefixtures("strace")
def test_a_killed_copy_leaves_nothing_under_its_name(tmp_path: Path, source: Sqlite) -> None:
    target = tmp_path / "backup.db"
    killed(target, "copy", source.url, f"sqlite:///{target}", calls="pwrite64")
    assert not target.exists()
    assert run("copy", source.url, f"sqlite:///{target}").returncode == 0
    assert whole(target, tmp_path / "taken") == source.changes()


@pytest.mark.usefixtures("strace")
def test_a_killed_export_leaves_the_last_good_file(tmp_path: Path, source: Sqlite) -> None:
    file = tmp_path / "all.csv"
    file.write_bytes(GOOD)
    killed(file, "export", "--force", "--database", source.url, str(file), calls="write")
    assert file.read_bytes() == GOOD


# An export is never more readable than what it replaces.


@pytest.mark.parametrize(("mode", "result"), [(0o600, 0o600), (0o640, 0o640), (None, 0o644)])
def test_an_export_is_never_more_readable_than_the_file_that_it_replaces_and_keeps_the_owner(
    tmp_path: Path, source: Sqlite, monkeypatch: pytest.MonkeyPatch, mode: int | None, result: int
) -> None:
    file, owner = tmp_path / "all.csv", os.geteuid()
    if mode is not None:
        file.write_bytes(GOOD)
        file.chmod(mode)
        owner = owner or 65534  # only root gives files away
        os.chown(file, owner, -1)
    seen: list[int] = []

    def write(*arguments: Any) -> exports.Written:
        seen.extend(
            stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir() if path != file
        )
        return exports_write(*arguments)

    exports_write = exports.write
    monkeypatch.setattr(exports, "write", write)
    mask = os.umask(0o022)
    try:
        assert run("export", "--force", "--database", source.url, str(file)).returncode == 0
    finally:
        os.umask(mask)
    assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_uid) == (result, owner)
    assert seen == [0o700]  # the folder that it is written in


# An export onto the database itself.


def other_names(database: Sqlite) -> list[Path]:
    """Return names under which a database, or its log, would be overwritten."""
    folder = database.path.parent
    for link in ("link", "link of a journal"):
        (folder / link).symlink_to(f"{database.path}{'-journal' * (link != 'link')}")
    (folder / "hard").hardlink_to(database.path)
    own = [folder / f"stores.db{end}" for end in ("", "-wal", "-shm", "-journal")]
    return [*own, *(folder / name for name in ("link", "link of a journal", "hard"))]


def test_an_export_a_copy_or_rejects_onto_what_they_come_from_are_refused(tmp_path: Path) -> None:
    database = filled(tmp_path, 3)
    files = other_names(database)
    [line] = refused(run("export", "--database", database.url, str(files[-1])))
    assert line == f"storekeeper: {files[-1]} is the database itself, or its log: name another file"
    for file in files:
        assert databases.is_database_file(database.url, file)
        assert "exists already" in refused(run("backup", "--database", database.url, str(file)))[0]
        refused_copy(
            database,
            file,
            "^target .*: the file is the source itself, or its log: name another one",
        )
    assert not databases.is_database_file(database.url, tmp_path / "all.csv")
    rows = tmp_path / "rows.csv"
    rows.write_text('name\nGood\n""\n')
    for file in (*files, rows):
        [line] = refused(
            run("import", "--database", database.url, "--add", str(rows), "--rejects", str(file))
        )
        assert line.endswith(
            f"--rejects {file}: is the database, its log, or the file to import: name another file"
        )
    assert rows.read_text().count("\n") == 3
    assert not (tmp_path / "stores.db-journal").exists()
    assert len(database.changes()) == 3


def test_an_export_appended_to_its_own_database_is_refused(tmp_path: Path) -> None:
    database = filled(tmp_path, 3)
    before = database.path.read_bytes()
    for file in ("-", "/dev/stdout"):
        with database.path.open("ab") as opened:
            done = run("export", "--database", database.url, file, stdout=opened)
        assert done.returncode == 2
        assert database.path.read_bytes() == before


# What may only be read.


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def both(url: str, folder: Path) -> tuple[list[HistoryRow], int]:
    """Copy and export; return the changes, and the lines of the export."""
    folder.mkdir()
    databases.copy(url, f"sqlite:///{folder}/stores.db", nothing)
    return Sqlite(folder).changes(), exported(url).count("\n")


def exported(url: str) -> str:
    with databases.database(url).snapshot() as snapshot:
        file = io.BytesIO()
        exports.write(snapshot, exports.Export(), file, lambda _: None)
        return file.getvalue().decode()


@pytest.mark.parametrize("log", ["none", "empty", "journal mode"])
def test_a_database_on_a_read_only_medium_is_copied_and_exported(tmp_path: Path, log: str) -> None:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        database = filled(disk, 30)
        if log == "empty":
            (disk / "stores.db-wal").touch()
        elif log == "journal mode":
            with closing(apsw.Connection(str(database.path))) as connection:
                assert connection.pragma("journal_mode", "delete") == "delete"
        before = names(disk)
        make_read_only(disk)
        changes, lines = both(database.url, tmp_path / "target")
        assert (len(changes), lines) == (30, 31)
        assert names(disk) == before


def test_a_database_in_a_folder_that_may_only_be_read_is_copied_and_exported(
    open_folder: Path,
) -> None:
    database = filled(open_folder / "closed", 30)
    database.path.chmod(0o444)
    database.path.parent.chmod(0o555)
    target = open_folder / "copy.db"
    with without_rights():
        for program in (
            ["copy", database.url, f"sqlite:///{target}"],
            ["export", "--database", database.url, "-"],
        ):
            done = run(*program)
            assert done.returncode == 0, done.stderr
    assert names(database.path.parent) == ["stores.db"]
    assert len(whole(target, open_folder / "taken")) == 30


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("export - --database {shut}", ""),
        ("epoch --database {shut}", ""),
        ("token list --database {shut}", ""),
        ("copy {shut} {other}", "source "),
        ("copy {mine} {shut}", "target "),
    ],
)
def test_a_database_in_a_folder_that_may_not_be_entered_is_named(
    open_folder: Path, command: str, names: str
) -> None:
    database = filled(open_folder / "closed", 1)
    mine, other = filled(open_folder / "mine", 1).url, f"sqlite:///{open_folder}/other.db"
    words = command.format(shut=database.url, mine=mine, other=other)
    open_folder.chmod(0o777)
    (open_folder / "mine").chmod(0o777)
    database.path.parent.chmod(0o000)
    with without_rights():
        (line,) = refused(run(*words.split()))
    database.path.parent.chmod(0o755)
    assert line.startswith(f"storekeeper: {names}{database.path}")
    assert "Permission denied" in line


@pytest.mark.parametrize("file", ["-", None])
def test_standard_output_is_not_looked_for_in_a_folder_that_may_not_be_entered(
    open_folder: Path, file: str | None
) -> None:
    """As in `cd /root; storekeeper export - > file` by another user."""
    database = filled(open_folder / "mine", 3)
    open_folder.chmod(0o777)
    (open_folder / "mine").chmod(0o777)
    closed = open_folder / "closed"
    closed.mkdir()
    words = ["export", *([file] if file else []), "--database", database.url]
    with chdir(closed):
        closed.chmod(0o000)
        with without_rights():
            done = run(*words)
            (line,) = refused(run("export", "out.csv", "--database", database.url))
        closed.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 4
    assert line == "storekeeper: cannot write out.csv: Permission denied"


@pytest.mark.parametrize("url", ["sqlite:///stores.db", None])
def test_a_present_folder_that_was_deleted_is_said(
    tmp_path: Path, source: Sqlite, url: str | None
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    with chdir(gone):
        gone.rmdir()
        (line,) = refused(run("export", "out.csv", "--database", url or source.url))
    says = (
        f"--database: {url} is in the current folder, which was"
        if url
        else "cannot write out.csv: No such file"
    )
    assert line.startswith(f"storekeeper: {says}")


@pytest.mark.parametrize("name", ["import", "export", "token list"])
def test_a_present_folder_whose_name_is_not_utf8_is_said(tmp_path: Path, name: str) -> None:
    odd = tmp_path / "odd\udcff"
    odd.mkdir()
    with chdir(odd):
        arguments = [*name.split(), *["-"] * (name == "import")]
        (line,) = refused(run(*arguments, "--database", "sqlite:///stores.db", stdin=an_export()))
    assert line.startswith("storekeeper: --database: the name of the file ")
    assert "odd\\udcff/stores.db' is not UTF-8" in line
    assert not list(odd.iterdir())


def killed_with_a_log(disk: Path) -> Sqlite:
    """Make a database whose latest writes are in its log only."""
    database = filled(disk, 30)
    with closing(
        apsw.Connection(str(database.path))
    ) as other:  # the last to close it would empty the log
        assert other.execute("SELECT count(*) FROM stores").get == 30
        filled(disk, 1)
        files = {file: file.read_bytes() for file in disk.iterdir()}
    for file, content in files.items():
        file.write_bytes(content)
    assert (disk / "stores.db-wal").stat().st_size
    return database


@pytest.mark.parametrize("index", [True, False])
def test_a_log_with_content_on_a_read_only_medium_is_read_or_refused(
    tmp_path: Path, *, index: bool
) -> None:
    """It is never passed over."""
    with mounted(tmp_path / "disk", "size=8m") as disk:
        database = killed_with_a_log(disk)
        if not index:
            (disk / "stores.db-shm").unlink()
        make_read_only(disk)
        if index:
            assert len(both(database.url, tmp_path / "target")[0]) == 31
        else:
            refused_copy(database, tmp_path / "copy.db", "not whole without stores")
            [line] = refused(run("export", "--database", database.url))
            assert "not whole without stores.db-wal" in line
            assert not (tmp_path / "copy.db").exists()


def test_a_journal_on_a_read_only_medium_is_not_passed_over(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        database = filled(disk, 30)
        with closing(apsw.Connection(str(database.path))) as connection:
            connection.pragma("journal_mode", "delete")
            connection.pragma("cache_size", 1)
            connection.execute("BEGIN IMMEDIATE; UPDATE stores SET name = 'half done'")
            connection.cache_flush()
            half_done = {
                name: (disk / name).read_bytes() for name in ("stores.db", "stores.db-journal")
            }
        for name, content in half_done.items():
            (disk / name).write_bytes(content)
        make_read_only(disk)
        with pytest.raises(StorekeeperError, match="not whole without stores"):
            exported(database.url)


def test_a_copy_of_what_is_written_meanwhile_where_nobody_can_lock_it_is_refused(
    open_folder: Path,
) -> None:
    """A service starts on it, and its log goes into the file while that is read."""
    database = filled(open_folder / "closed", 30)
    seen = os.access
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            os, "access", lambda path, mode: seen(path, mode) and Path(path) != database.path
        )

        def copy_disturbed() -> None:
            with databases.database(database.url).snapshot() as whole:
                whole.state()
                patch.undo()
                filled(database.path.parent, 3)
                with databases.database(f"sqlite:///{open_folder}/copy.db").target() as to:
                    transfer.copy(whole, to, nothing)

        with pytest.raises(StorekeeperError, match="written meanwhile: try again"):
            copy_disturbed()
    assert names(open_folder) == ["closed"]


# A quota is a full disk.


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize(
    "file", ["stores.db-wal", pytest.param("stores.db", marks=pytest.mark.thorough)]
)
def test_a_quota_that_is_used_up_refuses_writes_and_nothing_else(tmp_path: Path, file: str) -> None:
    """Either nothing can be written to the log, or the log cannot be written to the file, and no
    client needs to notice that."""
    fill(tmp_path, [])
    within = injected(
        "pwrite64", tmp_path / file, "12+" if file == "stores.db-wal" else "1+", "error=EDQUOT"
    )
    with serving(tmp_path, within=within) as service:
        first = service.request("POST", "/api/stores", {"name": "Fits"})
        statuses = {first.status}
        for _ in range(3):
            response = service.request("POST", "/api/stores", {"name": "Refused", "address": LONG})
            statuses.add(response.status)
            if response.status == 503:
                assert (response.json["outcome"], response.json["message"]) == (
                    "none",
                    "The disk is full",
                )
            assert service.request("GET", "/api/stores").status == 200
        assert statuses == ({200, 503} if file == "stores.db-wal" else {200})
        assert service.stop() == 0


@pytest.mark.thorough
@pytest.mark.usefixtures("strace")
def test_a_quota_is_still_an_error_of_the_disk_where_it_fails_a_sync(tmp_path: Path) -> None:
    """What was taken from us and is not on the disk may be gone."""
    fill(tmp_path, [])
    within = injected(SYNCS, tmp_path / "stores.db-wal", "2+", "error=EDQUOT")
    with serving(tmp_path, within=within) as service:
        for _ in range(3):
            with suppress(OSError):
                if service.request("POST", "/api/stores", {"name": "Lost?"}).status == 503:
                    break
        assert service.process.wait(TIMEOUT) == 74


MARKING = """
import asyncio, pathlib, sys
from storekeeper.storage.sqlite import SqliteCollection

async def main():
    file = pathlib.Path(sys.argv[1])
    collection = SqliteCollection(file, lambda reason: print("failed:", reason))
    try:
        await collection.mark_used([1], 10**13)
    except Exception as error:
        print(repr(error))

asyncio.run(main())
"""


@pytest.mark.usefixtures("strace")
def test_a_quota_ends_no_process_that_writes_when_a_token_was_used(tmp_path: Path) -> None:
    path = tmp_path / "stores.db"
    add_token(f"sqlite:///{path}", "reader", "read")
    within = injected("pwrite64", path.with_name("stores.db-wal"), "1+", "error=EDQUOT")
    done = subprocess.run(
        [*within, sys.executable, "-c", MARKING, path], capture_output=True, check=True
    )
    assert done.stdout == b"Unavailable('The disk is full')\n"
