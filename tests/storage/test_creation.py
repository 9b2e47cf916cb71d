"""What makes a list: only what is told to. Whatever opens a database refuses one that is not
there."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import apsw
import pytest

from storekeeper.domain.changes import ChangesQuery
from storekeeper.domain.errors import CannotStart, StorekeeperError, Taken, Unavailable
from storekeeper.domain.stores import EXAMPLES, Payload
from storekeeper.storage import databases, verification
from storekeeper.storage.collection import Snapshot
from storekeeper.storage.sqlite.connections import connect
from storekeeper.storage.sqlite.schema import prepare
from storekeeper.storage.sqlite.snapshot import new_file
from storekeeper.storage.tokens import revoke_token
from tests.harness.client import load
from tests.harness.collection import run, stores
from tests.harness.command import run as command_line
from tests.harness.databases import Database, Sqlite, handle
from tests.harness.stores import shown
from tests.harness.tokens import now

New = Callable[[], Database]


def read(url: str) -> None:
    with databases.database(url).snapshot() as snapshot:
        list(snapshot.rows("stores"))


def write(url: str) -> None:
    with databases.write_session(url):
        pass


def open_session(url: str) -> None:
    with databases.database(url).session() as session:
        list(session.execute("SELECT 1 FROM stores"))


def open_collection(url: str) -> None:
    """As a service does that may begin before the database can be reached."""

    async def main() -> list[StorekeeperError]:
        failures: list[StorekeeperError] = []
        collection = databases.database(url).open_collection(failures.append)
        with pytest.raises(Unavailable):
            await collection.check()
        await collection.close()
        return failures

    for failure in run(main()):
        raise failure


USES: dict[str, Callable[[str], object]] = {
    "prepare": lambda url: databases.database(url).prepare(),
    "prepare without an upgrade": lambda url: databases.database(url).prepare(upgrade=False),
    "a service": open_collection,
    "a snapshot": read,
    "a session": open_session,
    "a command that writes": write,
    "a command that reads": lambda url: databases.read_changes(url, ChangesQuery()),
    "a token": lambda url: revoke_token(url, "name", now()),
    "a new epoch": lambda url: databases.epoch(url, renew=True),
}
NOT_NAMED = {"a snapshot", "a session"}
"""What only commands use that looked before whether the database is there."""


def as_it_is(database: Database) -> None:
    del database


def empty_file(database: Database) -> None:
    if isinstance(database, Sqlite):
        database.path.touch()


def header_only(database: Database) -> None:
    """A file that SQLite takes for a database, but without tables."""
    if isinstance(database, Sqlite):
        with closing(apsw.Connection(str(database.path))) as connection:
            connection.execute("VACUUM")
        assert database.path.stat().st_size > 0


def tables_of(database: Database) -> list[str]:
    if isinstance(database, Sqlite):
        return [file.name for file in database.path.parent.iterdir() if file.stat().st_size]
    return [] if not databases.database(database.url).exists() else ["a collection"]


@pytest.mark.parametrize("state", [as_it_is, empty_file, header_only])
def test_whatever_opens_a_place_without_a_list_refuses_it_and_makes_none(
    new_database: New, state: Callable[[Database], None]
) -> None:
    for name, use in USES.items():
        database = new_database()
        state(database)
        before = tables_of(database)
        if name in NOT_NAMED and not isinstance(database, Sqlite):
            continue
        with pytest.raises(CannotStart) as refusal:
            use(database.url)
        for command in ("storekeeper create", "storekeeper restore"):
            assert command in str(refusal.value), name
        assert tables_of(database) == before, name


def test_a_list_is_made_once_and_whole_with_the_examples_or_without(new_database: New) -> None:
    for examples in (True, False):
        database = new_database()
        databases.create(database.url, examples=examples)
        with pytest.raises(Taken):
            databases.create(database.url, examples=examples)
        assert verification.verify(database.url) == []
        expected = [
            shown(id, one.name, one.address) for id, one in enumerate(EXAMPLES, 1) if examples
        ]
        assert run(listed(database)) == expected
        assert len(database.changes()) == len(expected)


async def listed(database: Database) -> object:
    async with handle(database) as collection:
        return await stores(collection)


def test_where_there_is_a_list_it_is_used_as_it_is(new_database: New) -> None:
    database = new_database()
    load(database.url, [Payload("Mine")])
    before = database.changes(), databases.epoch(database.url, renew=False)
    assert databases.ensure(database.url, examples=True) is False
    assert (database.changes(), databases.epoch(database.url, renew=False)) == before


def test_of_several_that_make_a_list_at_once_one_does(new_database: New) -> None:
    database = new_database()
    with ThreadPoolExecutor(6) as pool:
        made = pool.map(lambda _: databases.ensure(database.url, examples=True), range(6))
        assert sorted(made) == [False] * 5 + [True]
    assert len(database.changes()) == len(EXAMPLES)


@pytest.mark.parametrize(
    ("text", "options", "status"),
    [
        (b"Store\nA\n", [], 2),
        (b"name,address\n,1\n", [], 2),
        (b"name\nA\n\xe9\n", [], 2),
        (b"name\nA\n", ["--dry-run"], 0),
    ],
    ids=["its header", "a row", "its encoding", "a dry run"],
)
def test_an_import_that_imports_nothing_begins_no_list(
    new_database: New, text: bytes, options: list[str], status: int
) -> None:
    database = new_database()
    command = ("import", "--create", "--database", database.url, "-")
    done = command_line(*command, *options, stdin=text)
    assert done.returncode == status, done.stderr
    assert not databases.database(database.url).exists()
    if isinstance(database, Sqlite):
        assert list(database.path.parent.iterdir()) == []
    done = command_line(*command, stdin=b"name\nB\n")
    assert done.returncode == 0, done.stderr
    assert run(listed_names(database)) == ["B"]


def test_a_new_database_whose_log_is_not_folded_in_does_not_get_its_name(tmp_path: Path) -> None:
    with ExitStack() as others:

        def leave_a_log() -> None:
            with new_file(tmp_path / "stores.db") as new:
                prepare(new)
                other = others.enter_context(closing(connect(new)))
                other.execute("UPDATE collection SET epoch = 'abcdefgh'")

        with pytest.raises(Unavailable, match="cannot be folded in"):
            leave_a_log()
    assert list(tmp_path.iterdir()) == []


async def listed_names(database: Database) -> list[str]:
    async with handle(database) as collection:
        return [store["name"] for store in await stores(collection)]


def test_a_list_that_cannot_be_filled_is_not_begun(new_database: New) -> None:
    database = new_database()

    def fill(_: Snapshot) -> None:
        raise CannotStart("no examples")

    with pytest.raises(CannotStart, match="no examples"):
        databases.database(database.url).create(fill)
    assert not databases.database(database.url).exists()
    assert tables_of(database) == []


def test_what_is_in_the_place_of_a_list_is_left_there(tmp_path: Path) -> None:
    """Neither is an empty file filled, nor the log of a list that is gone lost."""
    for name in ("stores.db", "stores.db-wal", "stores.db-journal"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(b"" if name == "stores.db" else b"acknowledged")
        with pytest.raises(CannotStart):
            databases.create(f"sqlite:///{folder}/stores.db", examples=False)
        assert [file.name for file in folder.iterdir()] == [name]
