"""What is PostgreSQL's own: one query for a loop iteration, the same bytes, locks and lost
connections.

`domain/test_collection` has the promises.
"""

import asyncio
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
import psycopg
import pytest

from storekeeper.concurrency.batcher import MAX_QUEUED
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.stores import EXAMPLES, Payload, Store
from storekeeper.storage import databases
from storekeeper.storage.collection import Collection
from storekeeper.storage.postgres import connections as session
from storekeeper.storage.postgres.schema import COLLECTION_TABLE
from tests.harness import weakened
from tests.harness.client import until
from tests.harness.collection import create, get, listing, now, numbered, replace
from tests.harness.databases import Postgres, Sqlite, handle, make, postgres
from tests.harness.loading import add_all
from tests.harness.process import serving, start
from tests.harness.stores import a_store, shown_with


def statements(database: Postgres) -> list[str]:
    """Return the prepared statements that were carried out in a database that logs it, oldest
    first."""
    name = database.url.rpartition("/")[2]
    return [
        line.partition("execute ")[2].partition(":")[0]
        for line in postgres().log.splitlines()
        if f"@{name} " in line and "execute " in line and "execute <unnamed>" not in line
    ]


# One query for a loop iteration.


@pytest.fixture
def logged(database: Postgres) -> Postgres:
    """A database that logs every statement."""
    name = database.url.rpartition("/")[2]
    postgres().sql(f"ALTER DATABASE {name} SET log_statement = 'all'")
    return database


async def warm(collection: Collection) -> None:
    await add_all(collection, numbered(20))
    await asyncio.gather(
        get(collection, 1), listing(collection, "x"), create(collection, Payload("x"))
    )


async def test_reads_by_id_of_one_tick_are_one_query_and_a_list_is_its_numbers_and_its_pages(
    logged: Postgres,
) -> None:
    async with handle(logged) as collection:
        await warm(collection)
        before = statements(logged)
        responses = [get(collection, id) for id in range(1, 31)]
        lists = [listing(collection, f"Store {number}") for number in range(1, 31)]
        found = await asyncio.gather(*responses)
        named = await asyncio.gather(*lists, listing(collection), listing(collection))
        assert [store.name for store in found if store] == [
            f"Store {number}" for number in range(1, 21)
        ] + ["x"]
        assert [bool(one.first) for one in named] == [True] * 20 + [False] * 10 + [True] * 2
        expected = ["get", *["named"] * 30, *["picked"] * 20, *["range", "state"] * 2]
        assert Counter(statements(logged)[len(before) :]) == Counter(expected)


BLOAT = f"""
-- It would be counted, and remove them.
ALTER TABLE {COLLECTION_TABLE} SET (autovacuum_enabled = false);
ALTER TABLE {COLLECTION_TABLE}
  DROP CONSTRAINT collection_pkey, DROP CONSTRAINT collection_one_check;
INSERT INTO {COLLECTION_TABLE} SELECT number, 0, 0, 0, repeat('x', 1000)
  FROM generate_series(2, 4000) AS number;
UPDATE {COLLECTION_TABLE} SET at = at WHERE one = 1;
DELETE FROM {COLLECTION_TABLE} WHERE one > 1;
ALTER TABLE {COLLECTION_TABLE} ADD PRIMARY KEY (one)"""
"""Leaves 500 pages before the row, as its dead versions do that a long transaction has kept."""


async def test_a_read_looks_at_no_dead_version_of_the_numbers(database: Postgres) -> None:
    def blocks() -> int:
        # A session tells what it has looked at by its end.
        left = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
        until(lambda: postgres().sql(left) == "0")
        return int(postgres().sql(looked_at, name))

    name = database.url.rpartition("/")[2]
    looked_at = (
        "SELECT heap_blks_hit + heap_blks_read FROM pg_statio_user_tables WHERE"
        f" relname = '{COLLECTION_TABLE}'"
    )
    async with handle(database) as collection:
        await create(collection, Payload("First"))
    postgres().sql(BLOAT, name)
    before = await asyncio.to_thread(blocks)
    async with handle(database) as collection:
        for _ in range(3):
            assert await get(collection, 1) == a_store(1, "First", None, 1)
            assert (await listing(collection)).last is None
            assert (await listing(collection, "First")).last is None
            assert (await now(collection.state())).total == 1
    assert await asyncio.to_thread(blocks) - before < 2 * 500  # a start reads it once


async def test_writes_of_one_tick_are_one_transaction(logged: Postgres) -> None:
    async with handle(logged) as collection:
        await warm(collection)
        before = statements(logged)
        writes = [create(collection, Payload("new")) for _ in range(30)]
        replaces = [replace(collection, id, Payload("other")) for id in range(1, 31)]
        await asyncio.gather(*writes, *replaces)
        done = statements(logged)[len(before) :]
        assert done == [
            "begin",
            "lock",
            "replacements",
            "create",
            "replace",
            "change",
            "count",
            "commit",
        ]


async def test_a_read_that_arrives_while_another_is_under_way_is_asked_after_it_arrived(
    database: Postgres,
) -> None:
    """It must not be given the response of a query that was sent before the write before it was
    acknowledged."""
    async with handle(database) as one, handle(database) as two:
        await add_all(one, numbered(50))
        stop = asyncio.Event()

        async def readers() -> None:
            while not stop.is_set():
                await asyncio.gather(*(get(two, id) for id in range(1, 51)))

        beside = asyncio.create_task(readers())
        for tick in range(300):
            replaced = await replace(one, 7, Payload(f"Turn {tick}"))
            assert await get(two, 7) == replaced
        stop.set()
        await beside


async def test_more_than_may_wait_is_refused_at_once(database: Postgres) -> None:
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        reads = [collection.get(1) for _ in range(MAX_QUEUED + 5)]
        found = await asyncio.gather(
            *[one for one in reads if isinstance(one, asyncio.Future)], return_exceptions=True
        )
        assert [type(one) for one in found] == [Store] * MAX_QUEUED + [Unavailable] * 5


# The same bytes.


async def test_lists_are_byte_for_byte_those_of_sqlite(database: Postgres, tmp_path: Path) -> None:
    """Over every code point up to U+0800 and samples beyond, which two databases could escape
    differently."""
    points = [
        *range(1, 0x801),
        0xFFF,
        *range(0x2000, 0x2070),
        0xD7FF,
        0xE000,
        *range(0xFEFE, 0x10000),
    ]
    points += [0x10000, 0x1F3EA, 0xE0001, 0x10FFFF]
    texts = ["".join(map(chr, points[at : at + 20])) for at in range(0, len(points), 20)]
    payloads = [Payload(text, "|".join(text)) for text in texts] + [
        Payload(" ", ""),
        Payload("\\u0041", None),
    ]

    async def parts(collection: Collection, name: str | None) -> bytes:
        found = await listing(collection, name)
        assert found.rest is None
        return found.first

    async with handle(database) as one, handle(Sqlite(tmp_path)) as other:
        await asyncio.gather(add_all(one, payloads), add_all(other, payloads))
        everything = await parts(one, None)
        assert everything == await parts(other, None)
        encoded = [shown_with(id, payload) for id, payload in enumerate(payloads, 1)]
        assert b"[" + everything + b"]" == msgspec.json.encode(encoded)
        for id, text in enumerate(texts, 1):
            assert (
                await parts(one, text)
                == await parts(other, text)
                == msgspec.json.encode(encoded[id - 1])
            )
            store = a_store(id, text, "|".join(text), id)
            assert [await get(one, id), await get(other, id)] == [store, store]


# The database goes away, or is locked.


def sessions(database: Postgres, then: str = "pid") -> str:
    """Return the sessions that COPY to or from a database, and end them if `then` says so."""
    name = database.url.rpartition("/")[2]
    return postgres().sql(
        f"SELECT {then} FROM pg_stat_activity WHERE datname = '{name}' AND query LIKE 'COPY%'"
        " ORDER BY pid"
    )


def test_an_import_whose_database_goes_away_says_so_in_one_line(
    tmp_path: Path, database: Postgres
) -> None:
    (tmp_path / "stores.csv").write_text("name,address\n" + "A,1 Road\n" * 500_000)
    with TemporaryFile() as said:
        process = start(
            "import",
            "--create",
            "--database",
            database.url,
            str(tmp_path / "stores.csv"),
            stderr=said,
        )
        until(
            lambda: (
                postgres().sql("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COPY%staged%'")
                != ""
            )
        )
        sessions(database, "pg_terminate_backend(pid)")
        assert process.wait(60) == 2
        said.seek(0)
        (line,) = said.read().decode().splitlines()
    assert line.startswith(f"storekeeper: the new database {database.url}: ")
    assert line.endswith("; nothing was imported")


def test_what_was_read_to_its_end_is_whole_even_if_the_database_goes_away_then(
    database: Postgres,
) -> None:
    make(database.url)
    with databases.database(database.url).snapshot() as snapshot:
        assert list(snapshot.rows("stores")) == []
        sessions(database, "pg_terminate_backend(pid)")
        until(lambda: not sessions(database))


async def test_examples_ask_for_no_lock_where_there_are_stores(database: Postgres) -> None:
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        with psycopg.connect(database.url) as other:
            other.execute(f"SELECT * FROM {COLLECTION_TABLE} FOR UPDATE".encode())
            async with asyncio.timeout(10):
                assert not await add_all(collection, EXAMPLES, only_if_empty=True)


def test_a_start_waits_for_no_lock_of_the_tables_nor_does_a_stop(
    database: Postgres, tmp_path: Path
) -> None:
    """As while another instance migrates: it responds with 503, stops when told to, and serves
    once it can."""
    env = weakened.environment("starts_and_stops_soon")
    start = partial(
        serving, tmp_path, database=database.url, create=False, env=env, program=weakened.PROGRAM
    )
    make(database.url)
    with psycopg.connect(database.url) as other:
        other.execute("LOCK TABLE storekeeper IN ACCESS EXCLUSIVE MODE")
        with start() as service:
            assert service.request("GET", "/health/ready").status == 503
            assert service.stop() == 0
        with start() as service:
            assert service.request("GET", "/api/stores").status == 503
            other.rollback()
            until(lambda: service.request("GET", "/health/ready").status == 200)
            assert service.request("GET", "/api/stores").json == []


@pytest.mark.parametrize(
    ("configured", "ours"),
    [("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")],
)
def test_commits_are_made_durable_where_the_server_would_not(
    database: Postgres, configured: str, ours: str
) -> None:
    """An operator who sets synchronous_commit = off for other users of a server would lose
    acknowledged stores too."""
    name = database.url.rpartition("/")[2]
    postgres().sql(f"ALTER DATABASE {name} SET synchronous_commit = '{configured}'")

    with session.connected(database.url) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == (ours,)
    with psycopg.connect(database.url, autocommit=True) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == (configured,)
        for statement in session.setup_statements(session.SERVING):
            connection.execute(statement.encode())
        assert connection.execute("SHOW synchronous_commit").fetchone() == (ours,)


def test_the_driver_is_loaded_only_for_a_postgresql_url(tmp_path: Path) -> None:
    script = f"""if True:
        import sys
        from storekeeper import cli
        from storekeeper.storage import databases
        from storekeeper.process import service
        databases.ensure("sqlite:///{tmp_path}/stores.db", examples=True)
        databases.database("sqlite:///{tmp_path}/stores.db").prepare()
        sys.exit("psycopg" in sys.modules or "storekeeper.storage.postgres" in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
