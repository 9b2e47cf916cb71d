"""The schema: upgrades next to an older instance, first starts, and what is refused or told in
one line."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from storekeeper.domain.errors import CannotStart, Unavailable
from storekeeper.domain.queries import Moment
from storekeeper.domain.search import FOLDING
from storekeeper.domain.stores import EXAMPLES, Payload
from storekeeper.storage import databases
from storekeeper.storage.postgres import schema
from storekeeper.storage.postgres.schema import COLLECTION_TABLE
from storekeeper.storage.sql import SCHEMA_NUMBER
from tests.harness.client import load, until
from tests.harness.collection import create, get, listing, now, numbered, replace, run, state
from tests.harness.command import run as run_command
from tests.harness.databases import Postgres, handle, make, postgres
from tests.harness.loading import add_all
from tests.harness.process import refused
from tests.harness.stores import an_export

UPGRADE = f"""
  ALTER TABLE {COLLECTION_TABLE} RENAME TO collection_2;
  ALTER TABLE changes ADD COLUMN reason text;
  CREATE VIEW {COLLECTION_TABLE} AS
    SELECT one, count, version, at, epoch, folding FROM collection_2
      GROUP BY one, count, version, at, epoch, folding
"""
"""A made-up next schema, with all that a migration must do."""

SECOND = "CREATE TABLE second AS SELECT id FROM stores"
"""A made-up next schema to which this version can write."""

LOCK = f"SELECT count, version FROM {COLLECTION_TABLE} WHERE one = 1 FOR UPDATE"
"""How an instance of today's schema begins to write."""

MIGRATED = f"""UPDATE storekeeper SET schema = {schema.current_number()};
  UPDATE {COLLECTION_TABLE} SET folding = {FOLDING}"""

NOW = schema.current_number()
"""The number of today's schema."""


@pytest.fixture
def older(database: Postgres) -> Postgres:
    """A database of today's schema with three stores; one was replaced."""

    async def main() -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(3))
            await replace(collection, 2, Payload("B"))

    run(main())
    return database


def upgrade_with(monkeypatch: pytest.MonkeyPatch, *migrations: str) -> None:
    """Have this program know later schemas."""
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, *migrations))


def test_each_collection_has_an_epoch_of_its_own() -> None:
    epochs = set()
    for _ in range(3):
        with postgres().database() as url:
            make(url)
            epochs.add(databases.epoch(url, renew=False))
            assert databases.epoch(url, renew=False) in epochs
            epochs.add(databases.epoch(url, renew=True))
            assert databases.epoch(url, renew=False) in epochs
    assert len(epochs) == 6


def test_an_upgrade_keeps_the_stores_and_an_older_instance_reads_but_writes_nothing_more(
    older: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its statements are prepared already; the lock is the first of each write."""
    upgrade_with(monkeypatch, UPGRADE)
    with psycopg.connect(older.url, prepare_threshold=0) as old:
        assert old.execute(LOCK.encode()).fetchall() == [(3, 4)]
        old.rollback()
        schema.prepare(older.url)
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            old.execute(LOCK.encode())
        old.rollback()
        assert old.execute(LOCK.removesuffix("FOR UPDATE").encode()).fetchall() == [(3, 4)]
        assert old.execute("SELECT schema FROM storekeeper").fetchall() == [(NOW + 1,)]
    assert [row[1] for row in older.changes()] == [1, 2, 3, 2]


def test_an_upgrade_waits_for_an_older_instance_that_is_writing_and_is_no_deadlock(
    older: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That instance has the lock of the writers by then, and writes its change only afterwards."""
    upgrade_with(monkeypatch, UPGRADE)
    waiting = """SELECT count(*) > 0 FROM pg_locks
      WHERE NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
    with psycopg.connect(older.url) as old, ThreadPoolExecutor(1) as pool:
        old.execute(LOCK.encode())
        upgrade = pool.submit(schema.prepare, older.url)
        with psycopg.connect(older.url, autocommit=True) as watch:
            until(lambda: watch.execute(waiting).fetchone() == (True,))
        old.execute("SET LOCAL lock_timeout = '2s'")
        old.execute("UPDATE changes SET name = name")
        old.commit()
        upgrade.result()


def test_an_upgrade_behind_a_dump_keeps_the_reads_of_an_older_instance_waiting_for_a_second_at_most(
    older: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade_with(monkeypatch, UPGRADE)
    read = LOCK.removesuffix("FOR UPDATE").encode()
    with (
        psycopg.connect(older.url) as dump,
        psycopg.connect(older.url) as old,
        ThreadPoolExecutor(1) as pool,
    ):
        dump.execute(read)
        upgrade = pool.submit(schema.prepare, older.url)
        old.execute("SET lock_timeout = '2s'")
        old.commit()
        while not upgrade.done():
            old.execute(read)
            old.rollback()
        with pytest.raises(Unavailable, match="lock timeout"):
            upgrade.result()
        dump.rollback()
    schema.prepare(older.url)


def test_an_upgrade_that_fails_changes_nothing(
    older: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade_with(monkeypatch, SECOND, "CREATE TABLE stores (again integer)")
    with pytest.raises(CannotStart, match="tables of another program"):
        schema.prepare(older.url)
    with psycopg.connect(older.url) as connection:
        assert connection.execute(
            "SELECT schema, to_regclass('second') FROM storekeeper"
        ).fetchall() == [(NOW, None)]


def test_a_schema_from_before_the_first_release_or_a_newer_one_is_refused_in_one_line(
    database: Postgres,
) -> None:
    older = (
        f"--database: written before the first release (its schema is {SCHEMA_NUMBER - 1}): export"
    )
    make(database.url)
    for number, message in ((SCHEMA_NUMBER - 1, older), (NOW + 1, "newer Storekeeper")):
        postgres().sql(f"UPDATE storekeeper SET schema = {number}", database.url.rpartition("/")[2])
        for command in (["serve", "--port", "0"], ["export"], ["import", "-"]):
            [line] = refused(
                run_command(*command, "--database", database.url, stdin=b"name,address\n")
            )
            assert message in line
            assert ("storekeeper import" in line) == (message is older)


def test_only_the_service_upgrades_a_database(
    older: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade_with(monkeypatch, SECOND)
    file = tmp_path / "stores.csv"
    file.write_text("name,address\nA,\n")
    for command in (
        ("import", "--database", older.url, str(file)),
        ("export", "--database", older.url),
        ("epoch", "--database", older.url),
        ("epoch", "--new", "--database", older.url),
        ("token", "list", "--database", older.url),
        ("copy", older.url, f"sqlite:///{tmp_path}/copy.db"),
    ):
        done = run_command(*command)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert (
            b"written by an older Storekeeper: upgrade it first, by starting `storekeeper serve`"
            in done.stderr
        )
    assert len(older.changes()) == 4


def test_ten_that_start_at_once_make_one_schema() -> None:
    for _ in range(3):
        with postgres().database() as url, ThreadPoolExecutor(10) as pool:
            list(pool.map(make, [url] * 10))
            with psycopg.connect(url) as connection:
                assert connection.execute("SELECT schema FROM storekeeper").fetchall() == [(NOW,)]
                assert connection.execute("SELECT count, version FROM collection").fetchall() == [
                    (0, 0)
                ]


def test_starts_that_wait_for_the_lock_of_migrations_do_not_wait_for_each_other(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(database.url)
    upgrade_with(monkeypatch, SECOND)
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"
        " wait_event = 'advisory'"
    )
    with psycopg.connect(database.url, autocommit=True) as first, ThreadPoolExecutor(3) as pool:
        first.execute("SELECT pg_advisory_lock(%s)", (schema.MIGRATION_LOCK,))
        starts = [pool.submit(schema.prepare, database.url) for _ in range(3)]
        until(lambda: first.execute(waiting).fetchone() == (3,))
        first.execute("SELECT pg_advisory_unlock(%s)", (schema.MIGRATION_LOCK,))
        for start in starts:
            start.result()


def test_a_start_beside_a_long_migration_waits_for_it_and_takes_the_database_for_whole(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(database.url)
    upgrade_with(monkeypatch, f"{SECOND}; SELECT pg_sleep(1)")
    asleep = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"
        " wait_event = 'PgSleep'"
    )
    with psycopg.connect(database.url, autocommit=True) as watch, ThreadPoolExecutor(3) as pool:
        first = pool.submit(schema.prepare, database.url)
        until(lambda: watch.execute(asleep).fetchone() == (1,))
        others = [pool.submit(schema.prepare, database.url) for _ in range(2)]
        for start in (first, *others):
            start.result()


async def test_a_publication_of_all_tables_disturbs_no_start_no_upgrade_and_no_write(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres().sql("CREATE PUBLICATION everything FOR ALL TABLES", database.url.rpartition("/")[2])
    make(database.url)
    upgrade_with(monkeypatch, SECOND)
    async with handle(database) as collection:
        await create(collection, Payload("A"))
        await replace(collection, 1, Payload("B"))
        await add_all(collection, [Payload("C")])
        assert (await state(collection))[:2] == (2, 3)


def test_ten_first_starts_at_once_put_in_the_examples_once(database: Postgres) -> None:
    async def first_start() -> range:
        async with handle(database) as collection:
            return await add_all(collection, EXAMPLES, only_if_empty=True)

    async def main() -> list[range]:
        return await asyncio.gather(*(first_start() for _ in range(10)))

    assert sorted(map(list, run(main()))) == [[]] * 9 + [[1, 2, 3]]


def test_tables_of_another_program_are_left_alone(database: Postgres) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute("CREATE TABLE stores (theirs text)")
    done = run_command("create", "--database", database.url)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"another program" in done.stderr
    with psycopg.connect(database.url) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        assert tables == [("stores",)]


@pytest.mark.parametrize("restored", [False, True])
def test_a_database_in_another_encoding_is_refused(*, restored: bool) -> None:
    """Also one into which a dump was restored; that can be read, to copy it."""
    server = postgres()
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    if restored:
        server.sql(f"{schema.SCHEMA} {' '.join(schema.MIGRATIONS)} {MIGRATED}", "latin")
        assert run_command("export", "--database", server.url("latin")).stdout == an_export()
    done = run_command("serve", "--port", "0", "--database", server.url("latin"))
    server.sql("DROP DATABASE latin WITH (FORCE)")
    assert done.returncode == 2
    assert b"UTF8" in done.stderr


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("TRUNCATE storekeeper", "its table storekeeper is not the one we made"),
        ("INSERT INTO storekeeper VALUES (1)", "its table storekeeper is not the one we made"),
        (
            (
                "ALTER TABLE storekeeper ALTER schema DROP NOT NULL; UPDATE storekeeper SET schema"
                " = NULL"
            ),
            "its table storekeeper is not the one we made",
        ),
        (
            "ALTER TABLE storekeeper RENAME schema TO version",
            "its table storekeeper is not the one we made",
        ),
        (
            "ALTER TABLE storekeeper ALTER schema TYPE text USING 'one'",
            "its table storekeeper is not",
        ),
        ("UPDATE storekeeper SET schema = 0", "its table storekeeper is not the one we made"),
        ("DROP TABLE changes", "not complete, it lacks the table changes"),
        ("DROP TABLE keys", "not complete, it lacks the table keys"),
    ],
)
def test_what_was_not_restored_whole_is_refused_in_one_line(
    database: Postgres, tmp_path: Path, spoil: str, message: str
) -> None:
    make(database.url)
    postgres().sql(spoil, database.url.rpartition("/")[2])
    file = tmp_path / "stores.csv"
    file.write_text("name,address\nA,\n")
    for command in (
        ("serve", "--port", "0", "--database", database.url),
        ("import", "--database", database.url, str(file)),
        ("export", "--database", database.url),
        ("copy", database.url, f"sqlite:///{tmp_path}/copy.db"),
    ):
        done = run_command(*command)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert message.encode() in done.stderr


@pytest.mark.parametrize(
    "spoil",
    [
        f"TRUNCATE {COLLECTION_TABLE}",
        (
            f"ALTER TABLE {COLLECTION_TABLE} DROP CONSTRAINT collection_pkey;"
            f" INSERT INTO {COLLECTION_TABLE} SELECT * FROM {COLLECTION_TABLE}"
        ),
    ],
)
async def test_numbers_that_were_not_restored_whole_are_no_bug(
    database: Postgres, spoil: str
) -> None:
    """An instance that serves meanwhile says that it cannot, and a start is refused."""
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        postgres().sql(spoil, database.url.rpartition("/")[2])
        for question in (
            create(collection, Payload("Second")),
            listing(collection),
            listing(collection, "First"),
            add_all(collection, EXAMPLES),
            now(collection.state()),
            collection.check(),
            now(collection.get_at(1, Moment(1))),
        ):
            with pytest.raises(Unavailable, match="one row"):
                await question
        with pytest.raises(Unavailable):  # a sub-query that finds several rows fails as a whole
            await get(collection, 1)
    with pytest.raises(CannotStart, match="one row"):
        make(database.url)


@pytest.mark.parametrize(
    ("lost", "has"), [("stores", "0 of 3 stores"), ("changes", "0 of 3 changes")]
)
def test_a_table_that_was_restored_without_its_rows_is_refused(
    database: Postgres, lost: str, has: str
) -> None:
    make(database.url)
    load(database.url, EXAMPLES)
    make(database.url)
    postgres().sql(f"TRUNCATE {lost}", database.url.rpartition("/")[2])
    with pytest.raises(CannotStart, match=f"{has}.*: restore it"):
        make(database.url)
    assert databases.database(database.url).exists()  # what is left can be exported


def test_a_user_who_may_not_create_tables_is_told(database: Postgres) -> None:
    server = postgres()
    server.sql("CREATE ROLE poor LOGIN")
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database.url.rpartition("/")[2])
    done = run_command("create", "--database", database.url.replace("storekeeper@", "poor@"))
    server.sql("DROP ROLE poor")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert (
        b"--database: permission denied for schema public: the user must own the tables"
        in done.stderr
    )


def test_a_user_who_may_not_read_the_tables_is_not_told_that_there_are_none(
    database: Postgres, tmp_path: Path
) -> None:
    make(database.url)
    server, url = postgres(), database.url.replace("storekeeper@", "blind@")
    server.sql("CREATE ROLE blind LOGIN")
    done = [
        run_command(*command)
        for command in (
            ("serve", "--port", "0", "--database", url),
            ("export", "--database", url),
            ("token", "list", "--database", url),
            ("copy", url, f"sqlite:///{tmp_path}/copy.db"),
        )
    ]
    server.sql("DROP ROLE blind")
    for each in done:
        assert (
            "permission denied for table storekeeper: the user must own the tables"
            in refused(each)[0]
        )


def test_a_user_who_may_not_make_temporary_tables_is_told(
    database: Postgres, tmp_path: Path
) -> None:
    server = postgres()
    server.sql("CREATE ROLE lasting LOGIN SUPERUSER")
    server.sql("ALTER ROLE lasting NOSUPERUSER")
    name = database.url.rpartition("/")[2]
    server.sql(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    server.sql("GRANT CREATE ON SCHEMA public TO lasting", name)
    url = database.url.replace("storekeeper@", "lasting@")
    stores = tmp_path / "stores.csv"
    stores.write_text("name,address\nFirst,\n")
    make(url)
    done = run_command("import", "--database", url, str(stores))
    server.sql("DROP OWNED BY lasting", name)
    server.sql("DROP ROLE lasting")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"TEMPORARY on the database" in done.stderr
