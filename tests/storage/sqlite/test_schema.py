"""A SQLite file at a start: made, upgraded, or refused and left as it was."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import apsw
import pytest

from storekeeper.domain.errors import CannotStart, Unavailable
from storekeeper.domain.stores import EXAMPLES
from storekeeper.storage import databases, sessions, tokens
from storekeeper.storage.sql import SCHEMA_NUMBER
from storekeeper.storage.sqlite import SqliteCollection, connections, schema
from storekeeper.storage.sqlite.migrations import CHANGES_TABLE, MIGRATIONS
from storekeeper.storage.sqlite.session import open_session
from storekeeper.storage.sqlite.snapshot import snapshot
from storekeeper.storage.verification import verify
from tests.harness.cases import thorough
from tests.harness.client import fill
from tests.harness.collection import get, numbered, run
from tests.harness.databases import Sqlite, handle, make_file
from tests.harness.loading import add_all, load_into
from tests.harness.machine import mounted, without_rights
from tests.harness.process import TIMEOUT, serving
from tests.harness.system_calls import injected

NOW = schema.current_number()
"""The number of today's schema."""

Make = Callable[[Path], object]

SECOND = "CREATE TABLE second (a INTEGER); INSERT INTO second SELECT id FROM stores;"


@pytest.fixture
def path(open_folder: Path) -> Path:
    """A database of ours with five stores, closed."""
    fill(open_folder, numbered(5))
    assert [file.name for file in open_folder.iterdir()] == ["stores.db"]
    return open_folder / "stores.db"


def names(path: Path) -> list[str]:
    with snapshot(path) as found:
        return [row[1] for row in found.rows("stores")]


def connected(path: Path) -> closing[apsw.Connection]:
    return closing(apsw.Connection(str(path)))


def inside(folder: Path) -> dict[str, bytes]:
    # What SQLite keeps in shared memory is not data of a user.
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.is_file() and file.suffix != ".db-shm"
    }


# Migrations.


def test_a_new_database_has_the_whole_schema_and_says_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    make_file(path)
    assert [file.name for file in tmp_path.iterdir()] == ["new.db"]
    with connected(path) as connection:
        assert connection.pragma("user_version") == NOW
        assert connection.pragma("application_id") == 0x53544F52
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("integrity_check") == "ok"
    before = inside(tmp_path)
    make_file(path)
    assert inside(tmp_path) == before


def test_a_later_migration_upgrades_and_keeps_the_stores(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        schema, "MIGRATIONS", (*MIGRATIONS, SECOND, "ALTER TABLE second ADD COLUMN b TEXT;")
    )
    make_file(path)
    with connected(path) as connection:
        assert connection.pragma("user_version") == NOW + 2
        assert connection.execute("SELECT count(*), count(b) FROM second").get == (5, 0)
    assert names(path) == [payload.name for payload in numbered(5)]


def test_a_migration_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = inside(path.parent)
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, SECOND, "CREATE TABLE stores (again);"))
    with pytest.raises(CannotStart):
        make_file(path)
    assert inside(path.parent) == before


def test_a_start_waits_for_one_that_upgrades_but_not_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        schema,
        "MIGRATIONS",
        (
            *MIGRATIONS,
            SECOND,
        ),
    )
    with connected(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as patch:
            patch.setattr(schema, "START_TIMEOUT", 0.1)
            with pytest.raises(CannotStart, match="locked by another program: stop that one first"):
                make_file(path)
        with ThreadPoolExecutor(1) as pool:
            start = pool.submit(schema.prepare, path)
            with pytest.raises(TimeoutError):
                start.result(0.2)
            other.execute("COMMIT")
            start.result(10)
        assert other.pragma("user_version") == NOW + 1


def test_a_start_does_not_need_the_write_lock_that_an_import_holds(path: Path) -> None:
    with connected(path) as other:
        other.execute("BEGIN IMMEDIATE")
        make_file(path)
        assert len(names(path)) == 5


@contextmanager
def locked_after_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[apsw.Connection]:
    """Have another program take the file for itself as soon as a command has looked at it, until
    it closes."""
    prepare = schema.prepare
    with closing(apsw.Connection(str(path))) as other:
        other.set_busy_timeout(5000)

        def look_and_lock(path: Path, **options: bool) -> None:
            prepare(path, **options)
            monkeypatch.setattr(schema, "prepare", prepare)  # only the first time
            other.pragma("locking_mode", "exclusive")
            other.execute("BEGIN EXCLUSIVE")

        monkeypatch.setattr(schema, "prepare", look_and_lock)
        yield other


def read_snapshot(path: Path) -> None:
    with snapshot(path) as found:
        assert found.state()[:2] == (5, 5)


def load_examples(path: Path) -> None:
    make_file(path)
    with open_session(path, lock_timeout=connections.START_TIMEOUT) as session:
        assert load_into(session, EXAMPLES) == range(6, 9)


def open_service(path: Path) -> None:
    async def main() -> None:
        await SqliteCollection(path, lambda _reason: None).close()

    make_file(path)
    run(main())


def read_tokens(path: Path) -> None:
    assert tokens.read_tokens(f"sqlite:///{path}") == []


def renew_epoch(path: Path) -> None:
    databases.epoch(f"sqlite:///{path}", renew=True)


USES = (read_tokens, renew_epoch, read_snapshot, load_examples, open_service)


@pytest.mark.parametrize("use", USES, ids=("token list", "epoch", "copy", "import", "serve"))
def test_a_command_or_start_waits_for_a_program_that_locks_the_file_after_it_was_looked_at(
    path: Path, monkeypatch: pytest.MonkeyPatch, use: Make
) -> None:
    """But not for ever."""
    with monkeypatch.context() as patch, locked_after_look(path, patch):
        for module in (schema, connections):
            patch.setattr(module, "START_TIMEOUT", 0.1)
        patch.setattr(sessions, "LOCK_TIMEOUT", 0.1)
        with pytest.raises((CannotStart, Unavailable), match="locked"):
            use(path)
    with locked_after_look(path, monkeypatch) as other, ThreadPoolExecutor(1) as pool:
        done = pool.submit(use, path)
        with pytest.raises(TimeoutError):
            done.result(0.2)
        other.close()
        done.result(10)


def test_a_start_without_shared_memory_says_that_the_disk_has_to_be_a_local_one(path: Path) -> None:
    """As on a network file system, where SQLite only reports an I/O error."""
    unshared = injected("mmap", path.with_name(f"{path.name}-shm"), "1+", "error=ENODEV")
    with serving(
        path.parent, database=f"sqlite:///{path}", within=unshared, ready=False
    ) as service:
        assert service.process.wait(TIMEOUT) == 2
        [line] = service.log.splitlines()
        assert line.startswith(f"storekeeper: {path}: ")
        assert "a local one" in line
    assert names(path) == [f"Store {number}" for number in range(1, 6)]


# A made-up next schema.


UPGRADE = f"""
    ALTER TABLE {CHANGES_TABLE} RENAME TO changes_2;
    ALTER TABLE changes_2 ADD COLUMN reason TEXT;
    CREATE VIEW {CHANGES_TABLE} AS SELECT * FROM changes_2;
"""


@pytest.mark.parametrize(
    "what", ["", "VIEW own AS SELECT * FROM changes", "VIEW own AS SELECT * FROM nowhere"]
)
def test_a_process_of_an_older_version_reads_but_writes_nothing_more(
    path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Views of another user stay as they are."""
    with connected(path) as old:
        if what:
            old.execute(f"CREATE {what}")
        insert = f"INSERT INTO {CHANGES_TABLE} VALUES (6, 1, 'E', NULL, 60, 5, 0, NULL)"
        old.execute(f"BEGIN IMMEDIATE; {insert}; ROLLBACK")
        monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, UPGRADE))
        make_file(path)
        with pytest.raises(apsw.SQLError, match="it is a view"):
            old.execute(insert)
        assert old.execute("SELECT max(seq) FROM changes").get == 5
        assert old.pragma("user_version") == NOW + 1


def test_a_table_of_somebody_else_that_an_upgrade_needs_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(path) as connection:
        connection.execute("CREATE TABLE second (ours TEXT)")
    before = inside(path.parent)
    monkeypatch.setattr(
        schema,
        "MIGRATIONS",
        (
            *MIGRATIONS,
            SECOND,
        ),
    )
    with pytest.raises(
        CannotStart,
        match=r"stores.db: cannot be upgraded \(table second already exists\): it has a",
    ):
        make_file(path)
    assert inside(path.parent) == before


def test_only_the_service_upgrades_a_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = inside(path.parent)
    monkeypatch.setattr(
        schema,
        "MIGRATIONS",
        (
            *MIGRATIONS,
            SECOND,
        ),
    )
    for use in (read_tokens, renew_epoch, read_snapshot):
        with pytest.raises(
            CannotStart, match="written by an older Storekeeper: upgrade it first, by starting"
        ):
            use(path)
    assert inside(path.parent) == before


def test_a_file_that_another_start_upgrades_meanwhile_is_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = connections.open_read_only

    def upgraded_meanwhile(path: Path, *, immutable: bool) -> apsw.Connection:
        del immutable  # as if another start had made the log

        def trace(_cursor: apsw.Cursor, statement: str, _bindings: object) -> bool:
            if "user_version" in statement:
                monkeypatch.setattr(schema, "open_read_only", look)
                monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, UPGRADE))
                with closing(connections.connect(path)) as other:
                    schema.upgrade_schema(other)
            return True

        connection = look(path, immutable=False)
        connection.exec_trace = trace
        return connection

    monkeypatch.setattr(schema, "open_read_only", upgraded_meanwhile)
    with connected(path):
        make_file(path)
    assert vars(schema)["open_read_only"] is look, "it was upgraded meanwhile"


async def test_a_process_that_stood_still_reads_the_epoch_before_it_responds(
    tmp_path: Path,
) -> None:
    database = Sqlite(tmp_path)
    async with handle(database) as collection:
        await add_all(collection, numbered(1))
        renewed = databases.epoch(database.url, renew=True)
        time.sleep(1.1)
        store = await get(collection, 1)
        assert store is not None
        assert store.epoch == renewed


# What is refused, and stays as it was.


def sql(statements: str, *, ours: bool = False) -> Make:
    """Return what makes a database with statements, in a file of ours or in a new one."""

    def make(path: Path) -> None:
        if ours:
            make_file(path)
        with connected(path) as connection:
            list(connection.execute(statements))

    return make


THEIRS = "CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)"


def killed(statements: str, left: str) -> Make:
    """Return what makes a database by a process that is killed, which leaves a file that ends
    like this."""

    def make(path: Path) -> None:
        program = (
            f"opened = apsw.Connection({str(path)!r});"
            f" list(opened.execute({statements!r})); os.kill(os.getpid(), 9)"
        )
        subprocess.run([sys.executable, "-c", f"import apsw, os; {program}"], check=False)
        assert path.with_name(path.name + left).stat().st_size > 0

    return make


ROLLED_BACK = """CREATE TABLE theirs (a); PRAGMA cache_size = 1; BEGIN;
  WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 100)
  INSERT INTO theirs SELECT hex(randomblob(900)) FROM n"""


def beside(*ends: str) -> Make:
    """Return what makes files whose names end like this; the database itself is empty."""
    return lambda path: [path.with_name(path.name + end).write_text(end) for end in ends]


def shortened(cut: int) -> Make:
    def make(path: Path) -> None:
        make_file(path)
        os.truncate(path, path.stat().st_size - cut if cut > 0 else -cut)

    return make


def garbage_in_the_schema(path: Path) -> None:
    make_file(path)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3996)


REFUSED: dict[str, tuple[Make, str]] = {
    "foreign": (sql(THEIRS), "another program's database: name another file"),
    "with a log": (sql(f"PRAGMA journal_mode = wal; {THEIRS}"), "another program's database"),
    "by its id": (sql("PRAGMA application_id = 77; VACUUM"), "another program's database"),
    "by its version": (sql("PRAGMA user_version = 1; VACUUM"), "another program's database"),
    "killed": (
        killed(f"PRAGMA journal_mode = wal; {THEIRS}", "-wal"),
        "another program's database",
    ),
    "killed while writing": (killed(ROLLED_BACK, "-journal"), "another program's database"),
    "never released": (
        sql(f"PRAGMA user_version = {SCHEMA_NUMBER - 1}", ours=True),
        (
            f"written before the first release (its schema is {SCHEMA_NUMBER - 1}): export its"
            " stores with the"
        ),
    ),
    "newer": (
        sql(f"PRAGMA user_version = {NOW + 1}", ours=True),
        (
            f"written by a newer Storekeeper (its schema is {NOW + 1}, this one knows {NOW}):"
            " install that"
        ),
    ),
    "text": (
        lambda path: path.write_text("name,address\nHarbour,20 Quay Road\n" * 200),
        "not a database: name another",
    ),
    "empty": (
        beside(""),
        "empty, so not a database: restore it from a backup (storekeeper restore), or",
    ),
    "a log": (beside("-wal"), "gone, but its log stores.db-wal is there: restore"),
    "a journal": (beside("-journal"), "gone, but its log stores.db-journal is there: restore"),
    "emptied next to its log": (
        beside("", "-wal"),
        "gone, but its log stores.db-wal is there: restore",
    ),
    "without its end": (shortened(100), "damaged (its end is missing): restore"),
    "without a page": (shortened(4096), "damaged (database disk image is malformed): restore"),
    "one page": (shortened(-4096), "damaged (database disk image is malformed): restore"),
    "50 bytes": (shortened(-50), "damaged (database disk image is malformed): restore"),
    "garbage": (garbage_in_the_schema, "damaged (database disk image is malformed): restore"),
    **{
        f"without {table}": (
            sql(f"DROP TABLE {table}", ours=True),
            "damaged (a table is missing): restore",
        )
        for table in (CHANGES_TABLE, "tokens", "collection")
    },
    "folder": (Path.mkdir, "not a file: name another one"),
    "pipe": (os.mkfifo, "not a file: name another one"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_good_database_is_refused_untouched(
    tmp_path: Path, make: Make, message: str
) -> None:
    path = tmp_path / "stores.db"
    make(path)
    before = inside(tmp_path)
    with pytest.raises(CannotStart) as refusal:
        make_file(path)
    assert str(refusal.value).startswith(f"{path}: {message}")
    assert inside(tmp_path) == before


def test_a_link_is_followed_to_the_file_and_its_log(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "stores.db"
    link.symlink_to(elsewhere / "real.db")
    beside("-wal")(elsewhere / "real.db")
    with pytest.raises(CannotStart, match=r"its log real\.db-wal is there"):
        make_file(link)
    (elsewhere / "real.db-wal").unlink()
    make_file(link)
    assert link.is_symlink()
    assert (elsewhere / "real.db").is_file()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        CannotStart, match=r"nowhere/stores\.db: cannot be opened for writing \(No such file"
    ):
        make_file(tmp_path / "nowhere" / "stores.db")


def test_a_database_whose_log_may_not_be_written_is_refused(path: Path) -> None:
    """As a file is that another user has left: the service would start, and write nothing."""
    connection = connections.connect(path)
    connection.execute("UPDATE collection SET epoch = 'unlogged'")
    log = Path(f"{path}-wal")
    assert log.stat().st_size > 0, "nothing is in the log"
    for each in (path, Path(f"{path}-shm")):
        each.chmod(0o666)
    path.parent.chmod(0o777)
    log.chmod(0o444)
    reason = r"stores.db: cannot be opened for writing \(The database cannot be written\)"
    with without_rights(), pytest.raises(CannotStart, match=reason):
        make_file(path)
    connection.execute("BEGIN IMMEDIATE")
    make_file(path)  # another user's lock is not a reason
    connection.close()


@pytest.mark.parametrize("case", ["folder", "file", "new"])
def test_a_database_that_may_not_be_written_is_refused(path: Path, case: str) -> None:
    target = path.with_name("new.db") if case == "new" else path
    if case == "file":
        path.chmod(0o444)
        path.parent.chmod(0o777)
    else:
        path.chmod(0o666)
        path.parent.chmod(0o555)
    before = inside(path.parent)
    with (
        without_rights(),
        pytest.raises(CannotStart, match=f"{target.name}: cannot be opened for writing"),
    ):
        make_file(target)
    path.parent.chmod(0o755)
    assert inside(path.parent) == before


def test_a_read_only_disk_is_refused(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m") as disk:
        make_file(disk / "stores.db")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        before = inside(disk)
        for name in ("stores.db", "new.db"):
            with pytest.raises(CannotStart, match=f"{name}: cannot be opened for writing"):
                make_file(disk / name)
        assert inside(disk) == before


@pytest.mark.parametrize("size", range(60, 169, 18))
def test_a_disk_that_is_too_small_is_refused_and_gets_no_half_database(
    tmp_path: Path, size: int
) -> None:
    """A new database has 48 KiB, and needs as much for its log and 32 KiB for the index of that."""
    with mounted(tmp_path / "disk", f"size={size}k") as disk:
        try:
            make_file(disk / "stores.db")
        except CannotStart as refusal:
            assert (
                "stores.db: cannot be opened for writing (The disk is full): check that its folder"
                in str(refusal)
            )
            assert size < 166
            if (disk / "stores.db").exists():  # it is whole, but there is no space for its log
                shutil.copy(disk / "stores.db", tmp_path / "moved.db")
                assert not verify(f"sqlite:///{tmp_path}/moved.db")
            else:
                assert inside(disk) == {}
        else:
            assert size > 52
            assert names(disk / "stores.db") == []


def test_too_little_memory_is_no_reason_to_give_the_database_up(tmp_path: Path) -> None:
    """The service is started again after it, as it is not if the database cannot be opened."""
    with pytest.raises(MemoryError, match="out of memory"), schema.raising_cannot_start(tmp_path):
        raise apsw.NoMemError("out of memory")


def test_a_file_system_without_links_gets_its_database_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(_self: Path, _target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    make_file(tmp_path / "stores.db")
    assert [file.name for file in tmp_path.iterdir()] == ["stores.db"]
    assert names(tmp_path / "stores.db") == []


# Several first starts.


@pytest.mark.parametrize("rounds", [6, *thorough(60)])
def test_first_starts_at_one_moment_make_one_database(tmp_path: Path, rounds: int) -> None:
    together = threading.Barrier(8)

    def start(path: Path) -> None:
        together.wait()
        make_file(path)

    with ThreadPoolExecutor(8) as pool:
        for number in range(rounds):
            path = tmp_path / f"{number}.db"
            assert list(pool.map(start, [path] * 8)) == [None] * 8
            with connected(path) as connection:
                assert connection.pragma("user_version") == NOW
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        f"{number}.db" for number in range(rounds)
    )


@pytest.mark.thorough
def test_eight_services_started_at_once_on_a_new_file_have_three_examples(tmp_path: Path) -> None:
    with ExitStack() as stack:
        starts = (serving(tmp_path, "--examples", ready=False) for _ in range(8))
        services = [stack.enter_context(start) for start in starts]
        for service in services:
            service.wait()
        expected = [one.name for one in EXAMPLES]
        for service in services:
            assert [
                store["name"] for store in service.request("GET", "/api/stores").json
            ] == expected
        ids = [
            service.request("POST", "/api/stores", {"name": "New"}).json["id"]
            for service in services * 2
        ]
        assert ids == list(range(4, 20))


def test_the_schema_itself_refuses_what_validation_should_have(path: Path) -> None:
    with connected(path) as connection:
        for name in ("''", f"'{'x' * 31}'", "NULL"):
            with pytest.raises(apsw.ConstraintError):
                connection.execute(
                    f"INSERT INTO stores (id, name, folded, version) VALUES (6, {name}, '', 6)"
                )
        with pytest.raises(apsw.ConstraintError):
            connection.execute(
                "INSERT INTO stores (id, name, folded, version) VALUES (5, 'Twice', '', 6)"
            )
