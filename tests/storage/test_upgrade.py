"""Lists and backups that earlier versions made, as this version upgrades, verifies and restores
them. `schemas` has a small one of each schema, made by that version itself."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from storekeeper.domain.commands import Create, Replace
from storekeeper.domain.errors import CannotStart
from storekeeper.domain.queries import Query
from storekeeper.domain.search import FOLDING, fold, folded_texts, parse
from storekeeper.domain.stores import MAX_NAME_LENGTH, Payload, Replay, Store
from storekeeper.storage import backups, databases, verification
from storekeeper.storage import folding as refolding
from storekeeper.storage.databases import Database as Opened
from storekeeper.storage.postgres import schema as of_postgres
from storekeeper.storage.sql import SCHEMA_NUMBER
from storekeeper.storage.sqlite import schema as of_sqlite
from storekeeper.storage.tokens import read_tokens
from tests.harness.collection import now, run
from tests.harness.databases import Database, Postgres, Sqlite, opened
from tests.harness.imports import counts, import_into

SCHEMAS = Path(__file__).parent / "schemas"

EPOCHS: dict[int, dict[type, str]] = {
    9: {Sqlite: "n3nkk5lq", Postgres: "goerfyqj"},
    10: {Sqlite: "nmk5w5qk", Postgres: "jlkb4o7o"},
}
"""The epoch of each kept list."""

USERS = {9: [], 10: [(6, "anna")]}
GIVEN: dict[int, dict[str, str | None]] = {
    9: {"A7": None, "B8": None},
    10: {"A7": "Leeds", "B8": "York"},
}
IMPORTS = {9: [], 10: [(7, 8, "stores.csv"), (9, 9, "names.csv")]}
"""What the list of schema 10 has in addition."""


STORES = [
    (1, "Main Street", "1 Main Street, Springfield", 1),
    (2, "Harbour", "", 5),
    (3, " airport  KIOSK ", None, 6),
    (4, "Ærø Köbmand", "1 Åvej\r\nØby", 4),
    (5, "Leeds Central", "3 High St", 9),
    (6, "York", None, 8),
]


@pytest.fixture(params=sorted(EPOCHS))
def number(request: pytest.FixtureRequest) -> int:
    """The number of an earlier schema."""
    return int(request.param)


@pytest.fixture
def older(database: Database, number: int) -> Database:
    """A database as the version with that schema left it."""
    if isinstance(database, Sqlite):
        shutil.copy(SCHEMAS / f"schema-{number}.db", database.path)
    else:
        with psycopg.connect(database.url) as connection:
            connection.execute((SCHEMAS / f"schema-{number}.sql").read_bytes())
    return database


def select(database: Database, statement: str) -> list[Any]:
    with databases.database(database.url).snapshot() as snapshot:
        return list(snapshot.select(statement))


def upgrade(database: Database) -> Opened:
    found = databases.database(database.url)
    found.prepare()
    return found


class TestUpgrade:
    """On both databases."""

    def test_a_list_of_an_earlier_schema_keeps_all_that_it_has(
        self, older: Database, number: int
    ) -> None:
        upgrade(older)
        upgrade(older)
        rows = select(older, "SELECT id, name, address, version FROM stores ORDER BY id")
        assert rows == STORES
        assert len(older.changes()) == 9
        users = "SELECT seq, user_name FROM changes WHERE user_name IS NOT NULL"
        assert select(older, users) == USERS[number]
        keys = select(older, "SELECT value, store_id, given_name FROM external_ids ORDER BY value")
        given = GIVEN[number]
        assert keys == [("A7", 5, given["A7"]), ("B8", 6, given["B8"])]
        imports = select(older, "SELECT first_seq, last_seq, file FROM imports ORDER BY first_seq")
        assert imports == IMPORTS[number]
        assert [key for key, *_ in older.key_rows()] == ["key-1", "import-1"]
        names = [(each.name, each.revoked is not None) for each in read_tokens(older.url)]
        assert names == [("till", False), ("wall", True)]
        assert databases.epoch(older.url, renew=False) == EPOCHS[number][type(older)]
        assert verification.verify(older.url) == []

    def test_names_are_sorted_by_their_folded_text(self, older: Database) -> None:
        upgrade(older)
        found = select(older, "SELECT folded_name FROM stores ORDER BY folded_name, id")
        assert found == sorted((fold(name),) for _, name, *_ in STORES)

    async def test_stores_are_found_by_what_people_type(self, older: Database) -> None:
        upgrade(older)
        async with opened(older.url) as collection:
            for q in ("aero", "kobmand", "oby", "ÆRØ"):
                found = await now(collection.list(Query(limit=9, search=parse(q))))
                assert [store["id"] for store in json.loads(b"[" + found.first + b"]")] == [4]

    def test_a_name_may_be_as_long_as_in_a_new_list(self, older: Database) -> None:
        """The tables check the limit too, so a higher one needs a migration."""
        upgrade(older)

        async def write() -> Store | None:
            async with opened(older.url) as collection:
                return await collection.write(Create(Payload("x" * MAX_NAME_LENGTH)))

        made = run(write())
        assert made is not None
        assert made.id == 7

    def test_what_comes_next_is_written_as_ever(self, older: Database) -> None:
        upgrade(older)

        async def write() -> list[object]:
            async with opened(older.url) as collection:
                again = Create(STORES_4, key=("key-1", 7))
                edit = Replace(2, Payload("Zoë"), user="anna")
                return [await collection.write(each) for each in (again, edit)]

        replayed, _ = run(write())
        assert isinstance(replayed, Replay)
        assert replayed.id == 4
        done = import_into(
            older, "Store Number,name,address\nA7,Leeds Central,3 High St\n", "key:Store Number"
        )
        assert counts(done) == {"unchanged": 1, "missing": 5}
        assert select(older, "SELECT user_name FROM changes WHERE seq > 9") == [("anna",)]
        [found] = select(older, "SELECT folded_name FROM stores WHERE id = 2")
        assert found == ("zoe",)
        assert verification.verify(older.url) == []

    def test_a_command_refuses_it_until_the_service_upgraded_it(self, older: Database) -> None:
        for use in (lambda: databases.epoch(older.url, renew=True), lambda: read_tokens(older.url)):
            with pytest.raises(CannotStart, match="written by an older Storekeeper"):
                use()
        upgrade(older)
        assert len(read_tokens(older.url)) == 2

    def test_an_upgrade_that_ends_between_two_pieces_is_completed_by_the_next(
        self, older: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Meanwhile the list can be read, and only services that fold the rest may use it."""
        monkeypatch.setattr(refolding, "PIECE", 1)
        names: list[str] = []

        def fold_three(name: str, address: str | None) -> tuple[str, str]:
            names.append(name)
            if len(names) > 3:
                raise KeyboardInterrupt
            return folded_texts(name, address)

        with monkeypatch.context() as patched:
            patched.setattr(refolding, "folded_texts", fold_three)
            with pytest.raises(KeyboardInterrupt):
                upgrade(older)
        assert len(older.changes()) == 9
        with pytest.raises(CannotStart, match="written by an older Storekeeper"):
            read_tokens(older.url)
        upgrade(older)
        assert verification.verify(older.url) == []

    def test_a_list_that_an_older_version_moved_is_told_and_left_as_it_is(
        self, older: Database, number: int
    ) -> None:
        """No upgrade gives it a writer."""
        collection, changes = TABLES[number]
        table = changes if isinstance(older, Sqlite) else collection
        moved = table.partition("_")[0] + "_moved"
        script = f"""ALTER TABLE {table} RENAME TO {moved};
          CREATE VIEW {table} AS SELECT * FROM {moved}"""
        if isinstance(older, Sqlite):
            with closing(apsw.Connection(str(older.path))) as connection:
                connection.pragma("legacy_alter_table", True)
                connection.execute(script)
        else:
            with psycopg.connect(older.url) as connected:
                connected.execute(script.encode())
        for use in (
            lambda: upgrade(older),
            lambda: databases.epoch(older.url, renew=True),
            lambda: read_tokens(older.url),
        ):
            with pytest.raises(CannotStart, match="with that version"):
                use()
        assert len(older.changes()) == 9

    def test_texts_that_another_folding_made_are_folded_again(self, older: Database) -> None:
        upgrade(older)
        with databases.write_session(older.url) as session:
            table = session.collection_table
            session.write("UPDATE stores SET folded = 'x', folded_name = 'y'")
            session.write(f"UPDATE {table} SET folding = {FOLDING - 1}")
        with pytest.raises(CannotStart, match="written by an older Storekeeper"):
            read_tokens(older.url)
        upgrade(older)
        assert verification.verify(older.url) == []
        with databases.write_session(older.url) as session:
            session.write(f"UPDATE {table} SET folding = {FOLDING + 1}")
        with pytest.raises(CannotStart, match="written by a newer Storekeeper"):
            upgrade(older)


TABLES = {9: ("collection", "changes"), 10: ("collection_10", "changes_10")}
"""What an instance of each schema locks on PostgreSQL, and where a process writes in a file."""

STORES_4 = Payload("Ærø Köbmand", "1 Åvej\r\nØby")


def test_a_process_of_an_older_version_reads_on_and_writes_nothing_more(
    older: Database, number: int
) -> None:
    """With the statements that it has prepared before."""
    collection, changes = TABLES[number]
    select_both = f"SELECT max(seq), (SELECT epoch FROM {collection}) FROM {changes}"
    if isinstance(older, Postgres):
        select_both = select_both.replace(changes, "changes")
        lock = f"SELECT count, version FROM {collection} WHERE one = 1 FOR UPDATE".encode()
        with psycopg.connect(older.url, prepare_threshold=0) as old:
            assert old.execute(lock).fetchall() == [(6, 9)]
            old.rollback()
            upgrade(older)
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                old.execute(lock)
            old.rollback()
            found = old.execute(select_both.encode()).fetchall()
            assert found == [(9, EPOCHS[number][Postgres])]
        return
    assert isinstance(older, Sqlite)
    select_both = select_both.replace(collection, "collection")
    insert = f"""INSERT INTO {changes} (seq, store_id, name, at, count, token_number)
      VALUES (10, 1, 'E', 9795746046704, 6, 0)"""
    with closing(apsw.Connection(str(older.path))) as connection:
        connection.execute(f"BEGIN IMMEDIATE; {insert}; ROLLBACK")
        upgrade(older)
        with pytest.raises(apsw.SQLError, match="it is a view"):
            connection.execute(insert)
        assert connection.execute(select_both).fetchall() == [(9, EPOCHS[number][Sqlite])]


def test_a_backup_of_an_older_schema_is_verified_and_restored(
    older: Database, number: int, tmp_path: Path
) -> None:
    """The morning after an upgrade."""
    backup = tmp_path / f"schema-{number}.db"
    for file in (backup.name, f"{backup.name}.sha256"):
        shutil.copy(SCHEMAS / file, tmp_path / file)
    before = backup.read_bytes()
    assert verification.verify(f"sqlite:///{backup}") == []
    target = older.url
    if isinstance(older, Postgres):
        with psycopg.connect(older.url) as connection:
            connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    else:
        upgrade(older)
    restored = backups.restore(backup, target, lambda *_: None)
    assert restored[:2] == (6, 9)
    assert backup.read_bytes() == before
    rows = select(older, "SELECT id, name, address, version FROM stores ORDER BY id")
    assert rows == STORES
    assert verification.verify(target) == []


def test_a_backup_of_an_older_schema_that_is_damaged_is_refused(
    tmp_path: Path, number: int
) -> None:
    backup = tmp_path / "backup.db"
    shutil.copy(SCHEMAS / f"schema-{number}.db", backup)
    with closing(apsw.Connection(str(backup))) as connection:
        connection.execute(f"UPDATE {TABLES[number][1]} SET name = 'Mine Street' WHERE seq = 1")
    [problem] = verification.verify(f"sqlite:///{backup}")
    assert problem == "store 1 is not what its latest change made of it"
    target = f"sqlite:///{tmp_path}/stores.db"
    with pytest.raises(CannotStart, match="not valid, so nothing was restored"):
        backups.restore(backup, target, lambda *_: None)
    assert not (tmp_path / "stores.db").exists()


def test_there_is_a_small_list_of_each_earlier_schema() -> None:
    numbers = range(SCHEMA_NUMBER, of_sqlite.current_number())
    assert sorted(EPOCHS) == list(numbers)
    assert of_postgres.current_number() == of_sqlite.current_number()
    for end in ("db", "sql"):
        assert set(SCHEMAS.glob(f"*.{end}")) == {SCHEMAS / f"schema-{n}.{end}" for n in numbers}
