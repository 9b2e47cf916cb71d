"""`storekeeper backup`, `verify` and `restore`: a file that can be trusted, and the way back."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import apsw
import pytest

from storekeeper.domain.errors import CannotStart
from storekeeper.domain.stores import Payload
from storekeeper.storage import backups, databases, verification
from storekeeper.storage.tokens import read_tokens, revoke_token
from tests.campaigns.crash import kill_at
from tests.harness.cases import case, thorough
from tests.harness.client import create, fill, load, until
from tests.harness.command import Done
from tests.harness.command import run as run_command
from tests.harness.databases import KINDS, Database, Sqlite
from tests.harness.machine import mounted
from tests.harness.metrics import scrape, series
from tests.harness.process import COMMAND, TIMEOUT, refused, serving
from tests.harness.system_calls import slowed
from tests.harness.tokens import add_token, now

STORES = [Payload("Castle Hill", "3 Hill Lane"), Payload("Old Mill"), Payload("Zürich 店舗", "")]


@pytest.fixture
def source(database: Database) -> Database:
    """A database of each kind with three stores and two tokens."""
    load(database.url, STORES)
    add_token(database.url, "anna", "read")
    add_token(database.url, "bert", "read")
    return database


@pytest.fixture
def kept(tmp_path: Path) -> Sqlite:
    """A file with three stores."""
    fill(tmp_path, STORES)
    return Sqlite(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for backups."""
    made = tmp_path / "backups"
    made.mkdir()
    return made


def run(database: Database, *args: str) -> Done:
    return run_command(*args, "--database", database.url)


def backed_up(database: Database, target: Path, *options: str) -> Path:
    done = run(database, "backup", str(target), *options)
    assert done.returncode == 0, done.stderr
    return Path(re.findall(r"backed up into (.+), and verified", done.stdout.decode())[0])


def verified(file: Path | str) -> tuple[int, str]:
    done = run_command("verify", str(file))
    return done.returncode, done.said


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_backup_has_everything_and_is_its_owners_alone(source: Database, folder: Path) -> None:
    file = backed_up(source, folder / "all.db")
    assert sqlite_at(file).changes() == source.changes()
    assert [token.name for token in read_tokens(backups.url_of(str(file)))] == [
        "anna",
        "bert",
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert names(folder) == ["all.db", "all.db.sha256"]
    assert verified(file) == (0, f"{file} is valid\n")


def sqlite_at(file: Path) -> Sqlite:
    database = Sqlite(file.parent)
    database.path, database.url = file, f"sqlite:///{file}"
    return database


def test_the_metrics_say_when_the_latest_backup_was_made(
    source: Database, tmp_path: Path, folder: Path
) -> None:
    name = series("last_backup_timestamp_seconds")
    with serving(tmp_path, "--auth=open", database=source.url) as service:
        assert name not in scrape(service)
        before = time.time()
        file = backed_up(source, folder / "all.db")
        assert before - 1 <= scrape(service)[name] <= time.time()
        failed = run(source, "backup", str(file))
        assert failed.returncode == 2
        first = scrape(service)[name]
        backed_up(source, folder)
        assert scrape(service)[name] > first
    with serving(folder, "--auth=open", database=backups.url_of(str(file))) as restored:
        assert name not in scrape(restored)


def test_the_checksum_is_as_other_programs_read_it_and_holds_after_a_use(
    kept: Sqlite, folder: Path
) -> None:
    file = backed_up(kept, folder)
    url = backups.url_of(str(file))
    assert run_command("export", "--database", url).returncode == 0
    assert run_command("copy", url, f"sqlite:///{folder}/copied.db").returncode == 0
    check = ["sha256sum", "--check", "--quiet", f"{file.name}.sha256"]
    assert subprocess.run(check, cwd=folder, check=False).returncode == 0


def test_of_a_folder_the_latest_stay_and_what_is_named_otherwise(
    kept: Sqlite, folder: Path
) -> None:
    for day in range(10, 30):
        for end in ("", ".sha256"):
            (folder / f"stores-2020-01-{day}-000000.db{end}").touch()
    (folder / "mine.db").touch()
    killed, running = (
        folder / ".mine.db.unfinished-x",
        folder / ".stores-2020-01-30-000000.db.unfinished-y",
    )
    for each in (killed, running):
        each.mkdir()
        (each / "half.db").touch()
    os.utime(killed, (0, 0))
    new = backed_up(kept, folder, "--keep", "3").name
    left = ["stores-2020-01-28-000000.db", "stores-2020-01-29-000000.db", new]
    assert names(folder) == sorted(
        [running.name, "mine.db", *left, *(f"{name}.sha256" for name in left)]
    )


def test_a_backup_that_is_served_from_the_folder_stays(kept: Sqlite, folder: Path) -> None:
    served = sqlite_at(backed_up(kept, folder / "stores-2020-01-01-000000.db"))
    backed_up(served, folder, "--keep", "1")
    assert served.changes() == kept.changes()


def test_a_new_backup_stays_whatever_the_clock_once_said(kept: Sqlite, folder: Path) -> None:
    (folder / "stores-2100-01-01-000000.db").touch()
    new = backed_up(kept, folder, "--keep", "1")
    assert names(folder) == [new.name, f"{new.name}.sha256"]


def test_a_backup_takes_the_name_of_no_file(kept: Sqlite, folder: Path) -> None:
    mine = folder / "mine.db"
    mine.write_text("mine")
    [line] = refused(run(kept, "backup", str(mine)))
    assert line == f"storekeeper: {mine}: exists already: name another file"
    [line] = refused(run(kept, "backup", str(folder / "other.db"), "--keep", "3"))
    assert "--keep is for a folder" in line
    [line] = refused(run(kept, "backup", str(folder / "none" / "other.db")))
    assert line.endswith(
        "cannot be written (No such file or directory): name a file in a folder that the user"
        " who runs this can write to"
    )
    assert names(folder) == ["mine.db"]
    assert mine.read_text() == "mine"


def test_a_backup_under_load_has_every_write_that_was_acknowledged_before(
    tmp_path: Path, folder: Path
) -> None:
    acknowledged: list[int] = []
    with serving(tmp_path) as service:
        over = threading.Event()

        def write() -> None:
            while not over.is_set():
                acknowledged.append(create(service, "Under load"))

        with ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                pool.submit(write)
            try:
                until(lambda: len(acknowledged) > 50)
                before = max(list(acknowledged))
                file = backed_up(Sqlite(tmp_path), folder / "all.db")
            finally:
                over.set()
    restored = sqlite_at(tmp_path / "restored.db")
    assert run(restored, "restore", str(file)).returncode == 0
    assert len(restored.changes()) >= before
    assert verified(restored.path)[0] == 0


def test_of_two_backups_to_one_file_one_is_refused_and_the_other_is_good(
    kept: Sqlite, folder: Path
) -> None:
    file = folder / "all.db"

    def other(*_: int) -> None:
        if not file.exists():
            backed_up(kept, file)

    with pytest.raises(CannotStart, match="exists already"):
        backups.back_up(kept.url, file, other)
    assert verified(file)[0] == 0


@pytest.mark.usefixtures("strace")
def test_a_killed_backup_leaves_nothing_under_its_name(kept: Sqlite, folder: Path) -> None:
    with slowed("backup", str(folder / "all.db"), "--database", kept.url) as process:
        until(
            lambda: any(path.stat().st_size for path in folder.glob(".all.db.unfinished-*/**/*.db"))
        )
        process.send_signal(signal.SIGKILL)
    assert not (folder / "all.db").exists()
    assert verified(backed_up(kept, folder / "all.db"))[0] == 0


@pytest.mark.parametrize(
    ("call", "number", "left"), [("link", 3, {".sha256"}), ("rename", 4, {".sha256", ".db"})]
)
@pytest.mark.usefixtures("strace")
def test_a_backup_that_is_killed_as_it_gets_its_name_has_its_checksum(
    kept: Sqlite, folder: Path, call: str, number: int, left: set[str]
) -> None:
    """`verify` would see less without it."""
    command = [*COMMAND, "backup", str(folder), "--database", kept.url]
    done = subprocess.run([*kill_at(call, number), *command], capture_output=True, check=False)
    assert done.returncode != 0
    assert {file.suffix for file in folder.glob("stores-*")} == left
    for file in folder.glob("stores-*.db"):
        assert verified(file) == (0, f"{file} is valid\n")


def test_a_checksum_without_its_backup_goes_with_the_outdated_ones(
    kept: Sqlite, folder: Path
) -> None:
    killed, running = (folder / f"stores-2020-01-0{day}-000000.db.sha256" for day in (1, 2))
    mine = folder / "mine.db.sha256"
    for file in (killed, running, mine):
        file.touch()
        if file != running:
            os.utime(file, (0, 0))
    new = backed_up(kept, folder, "--keep", "3")
    assert names(folder) == sorted([mine.name, running.name, new.name, f"{new.name}.sha256"])
    [line] = refused(run(kept, "backup", str(folder / "mine.db")))
    assert line == f"storekeeper: {mine}: exists already: name another file"


def test_a_backup_that_finds_no_space_leaves_nothing(tmp_path: Path) -> None:
    fill(tmp_path, [Payload("Large", "x" * 2**20)] * 2)
    with mounted(tmp_path / "disk", "size=1m") as disk:
        [line] = refused(run(Sqlite(tmp_path), "backup", str(disk / "all.db")))
        assert "full" in line or "space" in line
        assert names(disk) == []


@pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.thorough)])
def test_every_damaged_byte_of_a_backup_is_found(kept: Sqlite, folder: Path, count: int) -> None:
    file = backed_up(kept, folder / "all.db")
    good = file.read_bytes()
    for place in range(0, len(good), len(good) // count):
        file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        assert verification.verify(backups.url_of(str(file))) == [
            "its SHA-256 is not that of all.db.sha256"
        ]
    file.write_bytes(good)
    assert verified(file)[0] == 0


CHANGES_OF_DATA = [
    (
        "UPDATE stores SET name = 'Castle Hall' WHERE id = 1",
        "store 1 is not what its latest change made of it",
    ),
    (
        "UPDATE {changes} SET name = 'Castle Hall' WHERE seq = 1",
        "store 1 is not what its latest change made of it",
    ),
    (
        "UPDATE stores SET address = '' WHERE id = 2",
        "store 2 is not what its latest change made of it",
    ),
    (
        "UPDATE stores SET version = 1 WHERE id = 2",
        "store 2 is not what its latest change made of it",
    ),
    (
        "UPDATE stores SET folded = 'castle hall' WHERE id = 1",
        "the search text of store 1 does not match",
    ),
    (
        "UPDATE {changes} SET count = 3 WHERE seq = 2",
        "change 2 has a count, time or token that it cannot have",
    ),
    (
        "UPDATE {changes} SET at = 1 WHERE seq = 2",
        "change 2 has a count, time or token that it cannot have",
    ),
    (
        "UPDATE {changes} SET token_number = 8 WHERE seq = 2",
        "change 2 has a count, time or token that it cannot",
    ),
    ("DELETE FROM {changes} WHERE seq = 2", "there are 2 changes, but the greatest number is 3"),
    ("DELETE FROM stores WHERE id = 2", "there are 2 stores, but the greatest id is 3"),
]


def test_one_letter_that_changed_in_a_live_database_is_found(source: Database) -> None:
    def execute(*statements: str) -> None:
        with databases.write_session(source.url) as session:
            for each in statements:
                session.execute(each.format(changes=session.changes_table))

    tables = ("stores", "{changes}")
    execute(*(f"CREATE TABLE good_{table} AS SELECT * FROM {table}" for table in tables))
    for statement, problem in CHANGES_OF_DATA:
        with case(statement):
            assert verification.verify(source.url) == []
            execute(statement)
            status, output = verified(source.url)
            assert status == 1
            assert problem in output
        execute(*(f"DELETE FROM {table}" for table in reversed(tables)))
        execute(*(f"INSERT INTO {table} SELECT * FROM good_{table}" for table in tables))


def test_a_damaged_page_is_found_and_what_is_no_database_cannot_be_verified(
    kept: Sqlite, tmp_path: Path
) -> None:
    content = bytearray(kept.path.read_bytes())
    content[-4096:] = b"\xff" * 4096
    kept.path.write_bytes(content)
    status, output = verified(kept.path)
    assert status == 1
    assert output.startswith(f"{kept.path}: ")
    other = tmp_path / "notes.txt"
    other.write_text("no database")
    assert verified(other) == (2, f"storekeeper: {other}: not a database: name another file\n")
    assert verified("http://127.0.0.1")[1].startswith(
        "storekeeper: DATABASE: unknown kind of database 'http'; use"
    )
    none = tmp_path / "none.db"
    assert verified(none) == (
        2,
        f"storekeeper: {none}: there is no such database or backup: name another one\n",
    )
    checksum = tmp_path / f"{kept.path.name}.sha256"
    checksum.mkdir()
    assert verified(kept.path)[1].startswith(
        f"storekeeper: {checksum}: cannot be read (Is a directory): "
    )


_HISTORY = """WITH RECURSIVE n(seq) AS (SELECT 4 UNION ALL SELECT seq + 1 FROM n WHERE seq < ?1)
  INSERT INTO changes_11 (seq, store_id, name, at, count, token_number)
  SELECT seq, (seq - 1) % 3 + 1, 'Name ' || seq, 9000000000000, 3, 0 FROM n"""
_NOW = """UPDATE stores SET (version, name, address, folded, folded_name) =
  (SELECT seq, name, NULL, lower(name), lower(name) FROM changes WHERE store_id = id
    ORDER BY seq DESC LIMIT 1)"""


@pytest.mark.parametrize("command", ["verify", *thorough("restore")])
def test_a_long_history_takes_no_more_memory_than_a_short_one(
    kept: Sqlite, folder: Path, command: str
) -> None:
    """Each change would take some 40 bytes if not each were forgotten before the next one."""
    peaks = []
    for count in (1_000, 300_000):
        file = shutil.copy(kept.path, folder / f"{count}.db")
        with closing(apsw.Connection(str(file))) as connection:
            connection.execute(_HISTORY, (count,))
            connection.execute(_NOW)
        peaks.append(peak_memory(command, str(file), f"--database=sqlite:///{folder}/new-{count}"))
    assert peaks[1] - peaks[0] < 8 * 2**20  # caches of pages fill


_PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A small process starts the command, so that the memory of this one does not count."""


def peak_memory(command: str, file: str, database: str) -> int:
    options = [database] * (command == "restore")
    measured = [sys.executable, "-c", _PEAK, *COMMAND, command, file, *options]
    done = subprocess.run(measured, capture_output=True, check=True)
    return int(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024)


def test_a_restore_says_what_is_lost_and_keeps_the_old_file(kept: Sqlite, folder: Path) -> None:
    add_token(kept.url, "anna", "read")
    file = backed_up(kept, folder / "all.db")
    assert b"No change is lost\n" in run(kept, "restore", str(file)).stdout
    for _ in range(2):  # within one second
        backups.restore(file, kept.url, lambda *_: None)
    assert len(list(kept.path.parent.glob("stores-before-restore-*.db"))) == 3
    before, epoch = kept.changes(), databases.epoch(kept.url, renew=False)
    load(kept.url, [Payload("Later"), Payload("Latest")])
    revoke_token(kept.url, "anna", now())
    add_token(kept.url, "zoe", "read")
    everything = kept.changes()
    kept.path.chmod(0o640)

    done = run(kept, "restore", str(file))
    assert done.returncode == 0
    assert kept.changes() == before
    assert databases.epoch(kept.url, renew=False) not in (
        epoch,
        databases.epoch(backups.url_of(str(file)), renew=False),
    )
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o640
    said = done.stdout.decode().splitlines()
    aside = Path(said[1].removeprefix("What was there is now "))
    assert sqlite_at(aside).changes() == everything
    assert said[2].startswith("Lost: 2 changes that the backup does not have, of stores 4, 5: ")
    assert said[3:] == [
        "Revoked tokens are valid again: revoke anna",
        "Tokens are gone: add zoe again",
    ]
    command = said[2].partition("storekeeper ")[2].split()
    assert b'"Latest"' in run_command(*command).stdout


def test_undoing_a_wrong_restore_says_what_is_lost_by_that(kept: Sqlite, folder: Path) -> None:
    """From the first change on that the two lists do not share."""
    file = backed_up(kept, folder / "all.db")
    load(kept.url, [Payload("Later"), Payload("Latest")])
    everything = kept.changes()
    backups.restore(file, kept.url, lambda *_: None)
    [aside] = kept.path.parent.glob("stores-before-restore-*.db")
    load(kept.url, [Payload("Meanwhile")])
    done = run(kept, "restore", str(aside))
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert lines[2].startswith("Lost: 1 change that the backup does not have, of stores 4: see")
    assert lines[2].endswith("--after 3")
    assert kept.changes() == everything
    assert b'"Meanwhile"' in run_command(*lines[2].partition("storekeeper ")[2].split()).stdout


def test_the_log_of_a_database_that_is_gone_goes_aside(kept: Sqlite, folder: Path) -> None:
    """SQLite would apply it to the restored file, under the old epoch."""
    file = backed_up(kept, folder / "all.db")
    with closing(apsw.Connection(str(kept.path))) as connection:
        connection.execute("UPDATE stores SET name = 'Later'")
        log = Path(f"{kept.path}-wal")
        (content, index) = (log.read_bytes(), Path(f"{kept.path}-shm").read_bytes())
    kept.path.unlink()
    log.write_bytes(content)
    Path(f"{kept.path}-shm").write_bytes(index)
    done = run(kept, "restore", str(file))
    said = done.stdout.decode().splitlines()
    aside = said[1].removeprefix("What was there is now ")
    assert Path(aside).read_bytes() == content
    assert said[2] == "It cannot be read, so it is unknown what is lost"
    assert [row[2] for row in kept.changes()] == [store.name for store in STORES]


NOT_UTF8 = os.fsdecode(b"\xff")


@pytest.mark.parametrize("name", [f"{NOT_UTF8}.db", f"{NOT_UTF8}/all.db", "link.db"])
def test_a_name_that_is_not_utf8_is_refused_in_one_line(
    kept: Sqlite, folder: Path, name: str
) -> None:
    """SQLite has no way to such a file."""
    (folder / NOT_UTF8).mkdir()
    (folder / "link.db").symlink_to(folder / f"{NOT_UTF8}.db")
    file, good = folder / name, backed_up(kept, folder / "good.db")
    before = kept.changes()
    done = run_command("restore", str(good), "--database", f"sqlite:///{quoted(file)}")
    assert "UTF-8" in refused(done)[0]
    if not file.is_symlink():
        assert "UTF-8" in refused(run(kept, "backup", str(file)))[0]
    assert not file.exists()
    shutil.copy(good, file)
    for done in (run_command("verify", str(file)), run(kept, "restore", str(file))):
        assert "UTF-8" in refused(done)[0]
    assert kept.changes() == before


def quoted(file: Path) -> str:
    return quote(os.fsencode(file))


def test_a_restore_into_a_database_in_use_is_refused(
    kept: Sqlite, tmp_path: Path, folder: Path
) -> None:
    file = backed_up(kept, folder / "all.db")
    before = kept.changes()
    with serving(tmp_path) as service:
        [line] = refused(run(kept, "restore", str(file)))
        assert line == f"storekeeper: {kept.path}: in use: stop the service first"
        assert create(service, "Goes on") == 4
    assert len(kept.changes()) == len(before) + 1


def test_a_restore_of_what_is_not_good_changes_nothing(kept: Sqlite, folder: Path) -> None:
    file = backed_up(kept, folder / "all.db")
    file.write_bytes(file.read_bytes().replace(b"Castle", b"Cattle"))
    before = names(kept.path.parent)
    [line] = refused(run(kept, "restore", str(file)))
    assert line.startswith(f"storekeeper: {file}: not valid, so nothing was restored: its SHA-256")
    [line] = refused(run(kept, "restore", str(kept.path)))
    assert line.endswith("the file is the database itself: name a backup")
    assert names(kept.path.parent) == before


def test_a_damaged_database_with_its_log_goes_aside(kept: Sqlite, folder: Path) -> None:
    file = backed_up(kept, folder / "all.db")
    kept.path.write_bytes(b"\xff" * 8192)
    log = Path(f"{kept.path}-wal")
    log.write_bytes(b"not a log")
    done = run(kept, "restore", str(file))
    assert done.returncode == 0
    assert b"it is unknown what is lost" in done.stdout
    assert len(kept.changes()) == 3
    [aside] = kept.path.parent.glob("stores-before-restore-*.db-wal")
    assert aside.read_bytes() == b"not a log"


def test_the_list_of_another_collection_goes_aside_and_it_is_said(
    kept: Sqlite, tmp_path: Path, folder: Path
) -> None:
    file = backed_up(kept, folder / "all.db")
    other = sqlite_at(tmp_path / "other.db")
    load(other.url, [Payload("Another")])
    done = run(other, "restore", str(file))
    assert (
        b"It shares no change with the backup. Lost: 1 change that the backup does not"
        in done.stdout
    )
    assert other.changes() == kept.changes()


def test_a_new_file_and_an_empty_postgresql_take_a_restore(
    source: Database, tmp_path: Path, folder: Path
) -> None:
    file = backed_up(source, folder / "all.db")
    (tmp_path / "new").mkdir()
    with KINDS["postgres" if not isinstance(source, Sqlite) else "sqlite"](
        tmp_path / "new"
    ) as goal:
        assert run(goal, "restore", str(file)).returncode == 0
        assert goal.changes() == source.changes()
    if not isinstance(source, Sqlite):
        [line] = refused(run(source, "restore", str(file)))
        assert "the database has stores already" in line


def test_a_database_that_is_a_link_to_another_disk_is_restored_there(
    kept: Sqlite, folder: Path
) -> None:
    file = backed_up(kept, folder / "all.db")
    with mounted(folder / "disk", "size=8m") as disk:
        goal = sqlite_at(folder / "link.db")
        goal.path.symlink_to(disk / "stores.db")
        for _ in range(2):
            assert run(goal, "restore", str(file)).returncode == 0
            assert goal.path.is_symlink()
            assert goal.changes() == kept.changes()


def test_a_killed_restore_leaves_the_old_list_or_the_new_one(
    kept: Sqlite, folder: Path, tmp_path: Path
) -> None:
    file = backed_up(kept, folder / "all.db")
    load(kept.url, [Payload("Later")])
    for delay in (0.15, 0.3, 0.45, 0.6):
        home = tmp_path / str(delay)
        home.mkdir()
        shutil.copy(kept.path, home / "stores.db")
        process = subprocess.Popen(
            [*COMMAND, "restore", str(file), "--database", f"sqlite:///{home}/stores.db"],
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(TIMEOUT)
        assert len(sqlite_at(home / "stores.db").changes()) in (3, 4)
        assert verification.verify(f"sqlite:///{home}/stores.db") == []
