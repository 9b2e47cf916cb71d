"""`storekeeper copy`: a whole collection from one database to another, of whatever kind."""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import apsw
import psycopg
import pytest
from msgspec.structs import astuple

from storekeeper.domain.commands import Create, Replace, tag
from storekeeper.domain.errors import PreconditionFailed
from storekeeper.domain.queries import State
from storekeeper.domain.stores import Payload, Replay
from storekeeper.domain.tokens import Token
from storekeeper.storage import copying as transfer
from storekeeper.storage import databases, tokens
from storekeeper.storage.collection import CopyTarget, Row, Rows, Snapshot
from storekeeper.storage.postgres.schema import LOCK
from storekeeper.storage.sqlite import connections
from tests.harness.cases import thorough
from tests.harness.collection import create, get, numbered, replace, run, state
from tests.harness.command import run as run_command
from tests.harness.databases import Database, Postgres, Sqlite, handle, postgres
from tests.harness.databases import make as make_database
from tests.harness.loading import add_all
from tests.harness.process import refused, serving
from tests.harness.stores import a_store_with

PAIRS = [
    ("sqlite", "postgres"),
    ("postgres", "sqlite"),
    ("sqlite", "sqlite"),
    ("postgres", "postgres"),
]
NAMES = [
    "Zürich",
    "店舗",
    'The "Corner"\\',
    "tab\t\n",
    "\x01\x7f",
    "\U0010ffff",
    "NULL",
    "\\N",
    "''",
    "👩‍👩‍👧‍👦",
]

KEYS = [(str(number), 2**63 - number) for number in range(1, 6)]
"""Of the writes of a database that was filled: the first two changed something, not the others."""

Make = Callable[[str], Database]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes an empty database of a kind."""
    with ExitStack() as stack:

        def new(kind: str) -> Database:
            if kind == "postgres":
                return Postgres(stack.enter_context(postgres().database()))
            folder = tmp_path / f"database-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return Sqlite(folder)

        yield new


def fill(database: Database, count: int = 2500) -> None:
    async def main() -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(count))
            await asyncio.gather(
                *(
                    replace(collection, id, Payload(name, name * 3))
                    for id, name in enumerate(NAMES, 1)
                ),
                *(create(collection, Payload(name, "")) for name in NAMES[1:]),
                create(collection, Payload("No address")),
            )
            await collection.write(
                Replace(count, Payload(f"Store {count}", f"{count} Road"), key=KEYS[0])
            )
            await asyncio.gather(
                *(collection.write(Replace(count, Payload("Keyed"), key=key)) for key in KEYS[1:])
            )

    run(main())


EXTERNAL_IDS = [(2, "Nummer", "1"), (2, "store number", "Ä-7"), (3, "Nummer", "01")]


def add_external_ids(database: Database) -> None:
    with databases.write_session(database.url) as session:
        for row in reversed(EXTERNAL_IDS):
            session.execute(
                "INSERT INTO external_ids (store_id, column_name, value) VALUES ($1, $2, $3)", row
            )


def rows_of(database: Database, table: str) -> list[Row]:
    with databases.database(database.url).snapshot() as snapshot:
        return list(snapshot.rows(table))


def name_of(url: str) -> str:
    return databases.database(url).name


def state_of(database: Database) -> State:
    with databases.database(database.url).snapshot() as snapshot:
        return snapshot.state()


def nothing(_done: int, _of: int) -> None:
    """Show no progress."""


def test_a_damaged_source_is_named_and_not_the_target(make: Make) -> None:
    source, target = make("sqlite"), make("sqlite")
    assert isinstance(source, Sqlite)
    fill(source)
    with source.path.open("r+b") as file:
        file.seek(source.path.stat().st_size // 4096 // 2 * 4096)
        file.write(b"\xff" * 4096 * 8)
    [line] = refused(run_command("copy", source.url, target.url))
    assert line.startswith(f"storekeeper: source {source.path}")
    assert not databases.database(target.url).exists()


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_copy_has_every_store_and_every_change(make: Make, one: str, other: str) -> None:
    source, target = make(one), make(other)
    fill(source)
    add_external_ids(source)
    tokens.add_token(source.url, Token(0, "by a person", "read", "0" * 64, 1, created_by="anna"))
    done = run_command("copy", source.url, target.url)
    assert (done.returncode, done.stderr) == (0, b"")
    [line] = done.stdout.decode().splitlines()
    between = f"from {name_of(source.url)} into {name_of(target.url)}"
    epoch = state_of(target).epoch
    assert (
        line == f"2,510 stores and 2,521 changes copied {between}, and verified; its new epoch is"
        f" {epoch}"
    )
    assert target.changes() == source.changes()
    assert target.key_rows() == source.key_rows()
    assert [(key, request) for key, request, _ in target.key_rows()] == KEYS
    assert [row[:3] for row in rows_of(target, "external_ids")] == EXTERNAL_IDS
    for table in ("external_ids", "stores", "tokens"):
        assert rows_of(target, table) == rows_of(source, table)
    assert rows_of(target, "tokens")
    assert state_of(target) == (2510, 2521, epoch)
    assert epoch != state_of(source).epoch


@pytest.mark.parametrize(("one", "other"), PAIRS[:2])
def test_what_is_moved_keeps_its_epoch_and_its_keys(make: Make, one: str, other: str) -> None:
    source, target = make(one), make(other)
    fill(source, 20)
    before = state_of(source)
    done = run_command("copy", "--move", source.url, target.url)
    assert done.returncode == 0
    assert done.stdout.decode().endswith(
        f", and verified; the copy keeps the epoch {before.epoch}; the source refuses all writes"
        " now\n"
    )
    assert state_of(target) == state_of(source) == before

    async def main() -> None:
        async with handle(target) as collection:
            again = await collection.write(Replace(20, Payload("Keyed"), key=KEYS[-1]))
            assert again == Replay(
                *astuple(a_store_with(20, Payload("Keyed"), before.version, before.epoch))
            )
            new = await collection.write(Create(Payload("New"), key=("9", 9)))
            assert new is not None
            assert new.version == before.version + 1

    run(main())


@pytest.mark.parametrize(("one", "other"), PAIRS[:2])
def test_a_target_that_has_stores_is_left_as_it_is(make: Make, one: str, other: str) -> None:
    source, target = make(one), make(other)
    fill(source, 20)
    fill(target, 3)
    before = target.changes()
    [line] = refused(run_command("copy", source.url, target.url))
    assert line.startswith(f"storekeeper: target {name_of(target.url)}: ")
    says = (
        "there is a file of that name: name a new one",
        "the database has stores already: name an empty one",
    )
    assert line.endswith(says[other == "postgres"])
    assert target.changes() == before


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_source_that_is_none_is_refused_and_not_created(
    make: Make, tmp_path: Path, kind: str
) -> None:
    source, target = make(kind), make("sqlite")
    [line] = refused(run_command("copy", source.url, target.url))
    assert line.startswith(f"storekeeper: source {name_of(source.url)}: there is no such database")
    assert not list(tmp_path.rglob("*.db"))


class Falsified:
    """A snapshot that loses or changes something on its way."""

    def __init__(
        self, whole: Snapshot, falsify: Callable[[str, Row], Row | None] | None = None
    ) -> None:
        self._snapshot = whole
        self._falsify = falsify
        self.state = whole.state
        self.select = whole.select

    def rows(self, table: str) -> Rows:
        """Return them, falsified."""
        for row in self._snapshot.rows(table):
            if (falsified := self._falsify(table, row) if self._falsify else row) is not None:
                yield falsified


class FalsifiedTarget(Falsified):
    """The same of a target, which may also get another epoch than it is told."""

    def __init__(
        self,
        whole: CopyTarget,
        falsify: Callable[[str, Row], Row | None] | None,
        epoch: str | None,
    ) -> None:
        super().__init__(whole, falsify)
        self.fill = whole.fill
        self.finish = whole.finish if epoch is None else lambda _: whole.finish(epoch)


def one_letter(table: str, row: Row) -> Row:
    return (*row[:2], "Stor", *row[3:]) if (table, row[0]) == ("changes", 7) else row


def without(name: str, number: int) -> Callable[[str, Row], Row | None]:
    return lambda table, row: None if (table, row[0]) == (name, number) else row


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_copy_that_is_not_the_same_or_has_not_got_its_epoch_is_not_kept(
    make: Make, kind: str
) -> None:
    source, target = make("sqlite"), make(kind)
    fill(source, 20)
    old = state_of(source).epoch
    for move, falsify, epoch in (
        (False, one_letter, None),
        (False, without("stores", 7), None),
        (False, without("keys", 1), None),
        (False, None, old),
        (True, None, "falsifie"),
    ):
        with (
            pytest.raises(
                transfer.VerificationFailed, match="differ, or the epoch" if epoch else None
            ),
            databases.database(source.url).snapshot() as whole,
            databases.database(target.url).target() as to,
        ):
            transfer.copy(whole, FalsifiedTarget(to, falsify, epoch), nothing, move=move)
        assert not databases.database(target.url).exists()
    assert run_command("copy", source.url, target.url).returncode == 0


def test_a_source_that_sends_fewer_stores_than_it_counts_is_not_copied(make: Make) -> None:
    """What arrived is what was sent, but not all that there is."""
    source, target = make("sqlite"), make("sqlite")
    fill(source, 20)
    with (
        pytest.raises(transfer.VerificationFailed, match="numbers of stores and changes differ"),
        databases.database(source.url).snapshot() as whole,
        databases.database(target.url).target() as to,
    ):
        transfer.copy(Falsified(whole, without("stores", 7)), to, nothing)
    assert not databases.database(target.url).exists()


def test_a_copy_to_postgresql_waits_for_others_only_so_long(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make("sqlite"), make("postgres")
    fill(source, 20)
    make_database(target.url)
    monkeypatch.setattr(
        "storekeeper.storage.postgres.snapshot.LOCK_TIMEOUT", "SET LOCAL lock_timeout = '100ms'"
    )
    # The server ends the other one before a copy that waits for ever would keep the test.
    with psycopg.connect(target.url, options="-c idle_in_transaction_session_timeout=5s") as other:
        other.execute(LOCK.encode())
        with pytest.raises(
            databases.CopyFailed, match=r"target .*: canceling statement due to lock timeout"
        ):
            databases.copy(source.url, target.url, nothing)
    assert target.changes() == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_copy_is_of_one_moment(make: Make, kind: str) -> None:
    """What is written to the source meanwhile is not in it."""
    source, target = make(kind), make("sqlite")
    fill(source, 20)
    before = source.changes()
    with databases.database(source.url).snapshot() as whole:
        whole.state()
        fill(source, 20)
        with databases.database(target.url).target() as to:
            transfer.copy(whole, to, nothing)
    assert target.changes() == before
    assert len(source.changes()) > len(before)


def test_a_copy_with_a_damaged_index_is_not_kept(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although all of its rows are there: no search would find them by name."""
    source, target = make("sqlite"), make("sqlite")
    fill(source, 20)
    open_read_only = connections.open_read_only

    def damaged(path: Path, *, immutable: bool) -> apsw.Connection:
        with closing(open_read_only(path, immutable=True)) as connection:
            root = connection.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = 'stores_by_name'"
            ).get
            page_size = connection.pragma("page_size")
        with path.open("r+b") as file:
            file.seek((root - 1) * page_size + 3)  # how many entries it has
            file.write(bytes(2))
        return open_read_only(path, immutable=immutable)

    monkeypatch.setattr(connections, "open_read_only", damaged)
    with pytest.raises(databases.CopyFailed, match="what was written is damaged"):
        databases.copy(source.url, target.url, nothing)
    assert not databases.database(target.url).exists()


# Backup and restore: what was written after the backup is lost, and other changes get its numbers.


def write_until(database: Database, version: int, name: str) -> tuple[str, State]:
    """Write to the first store until the version; return the first store's tag, and the numbers
    of the collection."""

    async def main() -> tuple[str, State]:
        async with handle(database) as collection:
            before = await state(collection)
            if not before.total:
                await create(collection, Payload(name))
            for number in range(max(before.version, 1), version):
                await replace(collection, 1, Payload(f"{name} {number}"))
            store = await get(collection, 1)
            assert store is not None
            return tag(store.version, store.epoch), await state(collection)

    return run(main())


def holds(database: Database, old: str) -> bool:
    """Tell whether a tag still is that of the first store, by a write that asks for it."""

    async def main() -> bool:
        async with handle(database) as collection:
            store = await get(collection, 1)
            assert store is not None
            try:
                written = await collection.write(
                    Replace(1, Payload("Only if it is the same"), frozenset({old}))
                )
            except PreconditionFailed as refusal:
                assert refusal.tag == tag(store.version, store.epoch) != old
                return False
            assert written is not None
            assert tag(store.version, store.epoch) == old
            return True

    return run(main())


@pytest.mark.parametrize("renewed", [True, False])
def test_a_restore_by_other_tools_needs_a_new_epoch(tmp_path: Path, *, renewed: bool) -> None:
    """The control: without it, the tag of a lost change holds for another one."""
    database = Sqlite(tmp_path)
    write_until(database, 100, "Before")
    shutil.copy(database.path, tmp_path / "backup")
    old, _ = write_until(database, 124, "Lost")
    shutil.copy(tmp_path / "backup", database.path)
    if renewed:
        databases.epoch(database.url, renew=True)
    new, _ = write_until(database, 124, "Other")
    assert (old == new) is not renewed
    assert holds(database, old) is not renewed


# storekeeper epoch.


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_epoch_is_printed_and_renewed_beside_a_service(make: Make, kind: str) -> None:
    database = make(kind)

    async def main() -> None:
        async with handle(database) as collection:
            await create(collection, Payload("A"))
            first = await state(collection)
            assert re.fullmatch("[a-z2-7]{8}", first.epoch)
            shown = await asyncio.to_thread(run_command, "epoch", "--database", database.url)
            assert (shown.returncode, shown.stdout.decode(), shown.stderr) == (
                0,
                f"{first.epoch}\n",
                b"",
            )
            renewed = await asyncio.to_thread(
                run_command, "epoch", "--new", env={"STOREKEEPER_DATABASE": database.url}
            )
            assert renewed.returncode == 0
            second = await state(collection)
            assert renewed.stdout.decode().split()[-1] == second.epoch != first.epoch
            assert second == (*first[:2], second.epoch)
            store = await get(collection, 1)
            assert store is not None
            assert store.epoch == second.epoch
            assert (await create(collection, Payload("B"))).epoch == second.epoch

    run(main())
    assert state_of(database).version == 2


def test_an_empty_database_is_not_copied_onto_itself(make: Make) -> None:
    database = make("postgres")
    make_database(database.url)
    before = state_of(database)
    other = database.url.replace("127.0.0.1", "localhost")
    (line,) = refused(run_command("copy", database.url, other))
    assert (
        line == f"storekeeper: target {other}: the database is the source itself: name another one"
    )
    assert state_of(database) == before


def test_an_epoch_that_is_renewed_but_cannot_be_printed_is_said(make: Make) -> None:
    database = make("sqlite")
    make_database(database.url)
    with Path("/dev/full").open("wb") as full:
        (line,) = refused(run_command("epoch", "--new", "--database", database.url, stdout=full))
    told = re.fullmatch("storekeeper: the epoch is now (.*), but cannot be printed (.*)", line)
    assert told
    assert told[1] == state_of(database).epoch


@pytest.mark.parametrize("kind", ["sqlite", *thorough("postgres")])
def test_every_process_of_a_service_has_the_new_epoch_at_once(
    make: Make, tmp_path: Path, kind: str
) -> None:
    """Also in the responses that it has cached, and for earlier tags."""
    database = make(kind)
    with serving(tmp_path, "--examples", "--workers", "2", database=database.url) as service:
        for _ in range(6):
            old = service.request("GET", "/api/stores/1").headers["etag"]
            service.request("GET", "/api/stores")
        assert run_command("epoch", "--new", "--database", database.url).returncode == 0
        epoch = state_of(database).epoch
        for _ in range(6):  # each on a connection of its own, so to either process
            for target, tag in ("/api/stores/1", f'"1.{epoch}"'), ("/api/stores", f'"3.{epoch}"'):
                response = service.request("GET", target, headers={"if-none-match": old})
                assert (response.status, response.headers["etag"]) == (200, tag)
            response = service.request("PUT", "/api/stores/1", {"name": "Mine"}, {"if-match": old})
            assert (response.status, response.headers["etag"]) == (412, f'"1.{epoch}"')
