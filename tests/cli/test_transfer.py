"""`storekeeper copy`: a whole collection from one database to another, of whatever kind."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from storekeeper import databases, transfer
from storekeeper.stores import Payload
from tests.harness.collection import create, get, numbered, replace, run, stores
from tests.harness.command import run as run_command
from tests.harness.databases import Database, Postgres, Sqlite, handle, postgres

PAIRS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite"), ("postgres", "postgres")]
NAMES = ["Zürich", "店舗", 'The "Corner"\\', "tab\t\n", "\x01\x7f", "\U0010ffff", "NULL", "\\N", "''", "👩‍👩‍👧‍👦"]

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
            await collection.load(numbered(count))
            await asyncio.gather(
                *(replace(collection, id, Payload(name, name * 3)) for id, name in enumerate(NAMES, 1)),
                *(create(collection, Payload(name, "")) for name in NAMES[1:]),
                create(collection, Payload("No address")),
            )

    run(main())


def test_a_damaged_source_is_named_and_not_the_target(make: Make) -> None:
    source, target = make("sqlite"), make("sqlite")
    assert isinstance(source, Sqlite)
    fill(source)
    with source.path.open("r+b") as file:
        file.seek(source.path.stat().st_size // 4096 // 2 * 4096)
        file.write(b"\xff" * 4096 * 8)
    done = run_command("copy", source.url, target.url)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert done.stderr.startswith(f"storekeeper: source {source.path}".encode())
    assert isinstance(target, Sqlite)
    assert not target.path.exists()


def listed(database: Database) -> list[object]:
    async def main() -> list[object]:
        async with handle(database) as collection:
            return [*[await get(collection, id) for id in (1, 2, 2501)], *await stores(collection)]

    return run(main())


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_copy_has_every_store_and_every_change(make: Make, one: str, other: str) -> None:
    source, target = make(one), make(other)
    fill(source)
    done = run_command("copy", source.url, target.url)
    assert (done.returncode, done.stdout) == (0, b"")
    [line] = done.stderr.decode().splitlines()
    into = f"into the new database {databases.describe(target.url)}, and verified"
    assert line == f"2510 stores and 2520 changes copied from {databases.describe(source.url)} {into}"
    assert target.changes() == source.changes()
    assert listed(target) == listed(source)


@pytest.mark.parametrize(("one", "other"), PAIRS[:2])
def test_a_copy_goes_on_where_the_source_stopped(make: Make, one: str, other: str) -> None:
    source, target = make(one), make(other)
    fill(source)
    run_command("copy", source.url, target.url)

    async def main() -> None:
        async with handle(target) as collection:
            store = await create(collection, Payload("Next"))
            assert (store.id, store.version) == (2511, 2521)

    run(main())


@pytest.mark.parametrize(("one", "other"), PAIRS[:2])
def test_a_target_that_has_stores_is_left_as_it_is(make: Make, one: str, other: str) -> None:
    source, target = make(one), make(other)
    fill(source)
    fill(target, 3)
    before = target.changes()
    done = run_command("copy", source.url, target.url)
    assert done.returncode == 2
    [line] = done.stderr.decode().splitlines()
    assert line.startswith(f"storekeeper: target {databases.describe(target.url)}: ")
    assert line.endswith("has stores already: name an empty database")
    assert target.changes() == before


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_source_that_is_none_is_refused_and_not_created(make: Make, tmp_path: Path, kind: str) -> None:
    source, target = make(kind), make("sqlite")
    done = run_command("copy", source.url, target.url)
    assert done.returncode == 2
    [line] = done.stderr.decode().splitlines()
    assert line.startswith(f"storekeeper: source {databases.describe(source.url)}: there is no such database")
    assert not list(tmp_path.rglob("*.db"))


class Falsified:
    """A collection that loses or changes something on its way."""

    def __init__(self, whole: transfer.Snapshot, falsify: Callable[[str, transfer.Row], transfer.Row | None]) -> None:
        self._snapshot = whole
        self._falsify = falsify
        self.count = whole.count
        self.fill = whole.fill
        self.finish = whole.finish

    def rows(self, table: str) -> Iterator[transfer.Row]:
        """Return them, falsified."""
        for row in self._snapshot.rows(table):
            if (falsified := self._falsify(table, row)) is not None:
                yield falsified


def _one_letter(table: str, row: transfer.Row) -> transfer.Row:
    return (*row[:2], "Stor", *row[3:]) if (table, row[0]) == ("changes", 7) else row


def _one_store(table: str, row: transfer.Row) -> transfer.Row | None:
    return None if (table, row[0]) == ("stores", 7) else row


@pytest.mark.parametrize("falsify", [_one_letter, _one_store])
@pytest.mark.parametrize("kind", ["sqlite", "an empty file", "postgres"])
def test_a_copy_that_is_not_the_same_is_not_kept(
    make: Make, kind: str, falsify: Callable[[str, transfer.Row], transfer.Row | None]
) -> None:
    source, target = make("sqlite"), make("postgres" if kind == "postgres" else "sqlite")
    fill(source, 20)
    if kind == "an empty file":
        databases.prepare(target.url)
    to = databases._snapshot(target.url, fill=True)

    @contextmanager
    def falsified() -> Iterator[transfer.Snapshot]:
        with to() as whole:
            yield Falsified(whole, falsify)

    opening: Callable[[], AbstractContextManager[transfer.Snapshot]] = falsified
    with pytest.raises(transfer.VerificationFailed):
        transfer.copy(databases._snapshot(source.url, fill=False), opening, lambda *_: None)
    if kind == "sqlite":
        assert not databases.exists(target.url)
    else:
        assert target.changes() == []
    assert run_command("copy", source.url, target.url).returncode == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_copy_is_of_one_moment(make: Make, kind: str) -> None:
    """What is written to the source meanwhile is not in it."""
    source, target = make(kind), make("sqlite")
    fill(source, 20)
    before = source.changes()

    @contextmanager
    def disturbed() -> Iterator[transfer.Snapshot]:
        with databases._snapshot(source.url, fill=False)() as whole:
            whole.count()
            fill(source, 3)
            yield whole

    transfer.copy(disturbed, databases._snapshot(target.url, fill=True), lambda *_: None)
    assert target.changes() == before
    assert len(source.changes()) > len(before)
