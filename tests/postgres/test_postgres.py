"""What is PostgreSQL's own: one query for a loop iteration, URLs, secrets, migrations.

`domain/test_collection` has the promises.
"""

import asyncio
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
import psycopg
import pytest

from storekeeper import databases
from storekeeper.collection import Collection, Moment
from storekeeper.concurrency.queue_limit import MAX_QUEUED
from storekeeper.errors import CannotStart, Unavailable
from storekeeper.postgres import schema, session
from storekeeper.postgres.schema import COLLECTION
from storekeeper.stores import EXAMPLES, Payload, Store
from tests.harness import weakened
from tests.harness.collection import create, get, listing, now, numbered, replace, run, state
from tests.harness.command import run as run_command
from tests.harness.databases import Postgres, Sqlite, handle, postgres
from tests.harness.machine import need
from tests.harness.postgres_server import Server, running
from tests.harness.process import Running, ask, refused, serving, start
from tests.harness.stores import a_store, an_export, shown_with
from tests.oracles.promises import until

pytestmark = pytest.mark.count_processes

SECRET = "s3cret-%41/?&"
ENCODED = "s3cret-%2541%2F%3F%26"


@pytest.fixture
def database() -> Iterator[Postgres]:
    """An empty database of the test's own."""
    with postgres().database() as url:
        yield Postgres(url)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that asks for a password: the user `keeper` has it."""
    postgres()
    with running() as server:
        server.sql(f"CREATE ROLE keeper LOGIN SUPERUSER PASSWORD '{SECRET}'")
        rules = server.data / "pg_hba.conf"
        rules.write_text("host all keeper 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        server.reload()
        yield server


def statements(database: Postgres) -> list[str]:
    """Return the prepared statements that were carried out in a database that logs it, oldest first."""
    name = database.url.rpartition("/")[2]
    return [
        line.partition("execute ")[2].partition(":")[0]
        for line in postgres().log.splitlines()
        if f"@{name} " in line and "execute " in line and "execute <unnamed>" not in line
    ]


# One query for a turn.


@pytest.fixture
def logged(database: Postgres) -> Postgres:
    """A database that logs every statement."""
    name = database.url.rpartition("/")[2]
    postgres().sql(f"ALTER DATABASE {name} SET log_statement = 'all'")
    return database


async def warm(collection: Collection) -> None:
    """Have a collection connect."""
    await collection.load(numbered(20))
    await asyncio.gather(get(collection, 1), listing(collection, "x"), create(collection, Payload("x")))


def test_reads_by_id_of_one_tick_are_one_query_and_each_list_is_one(logged: Postgres) -> None:
    async def main() -> None:
        async with handle(logged) as collection:
            await warm(collection)
            before = statements(logged)
            responses = [get(collection, id) for id in range(1, 31)]
            lists = [listing(collection, f"Store {number}") for number in range(1, 31)]
            found = await asyncio.gather(*responses)
            named = await asyncio.gather(*lists, listing(collection), listing(collection))
            assert [store.name for store in found if store] == [f"Store {number}" for number in range(1, 21)] + ["x"]
            assert [bool(one.first) for one in named] == [True] * 20 + [False] * 10 + [True] * 2
            assert sorted(statements(logged)[len(before) :]) == ["first", "get", *["named"] * 30]

    run(main())


BLOAT = f"""
ALTER TABLE {COLLECTION} SET (autovacuum_enabled = false);  -- it would be counted, and remove them
ALTER TABLE {COLLECTION} DROP CONSTRAINT collection_pkey, DROP CONSTRAINT collection_one_check;
INSERT INTO {COLLECTION} SELECT number, 0, 0, 0, repeat('x', 1000) FROM generate_series(2, 4000) AS number;
UPDATE {COLLECTION} SET at = at WHERE one = 1;
DELETE FROM {COLLECTION} WHERE one > 1;
ALTER TABLE {COLLECTION} ADD PRIMARY KEY (one)"""
"""Leaves 500 pages before the row, as its dead versions do that a long transaction has kept."""


def test_a_read_looks_at_no_dead_version_of_the_numbers(database: Postgres) -> None:
    def blocks() -> int:
        # A session tells what it has looked at by its end.
        left = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
        until(lambda: postgres().sql(left) == "0")
        return int(postgres().sql(looked_at, name))

    async def main() -> None:
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

    name = database.url.rpartition("/")[2]
    looked_at = f"SELECT heap_blks_hit + heap_blks_read FROM pg_statio_user_tables WHERE relname = '{COLLECTION}'"
    run(main())


def test_writes_of_one_tick_are_one_transaction(logged: Postgres) -> None:
    async def main() -> None:
        async with handle(logged) as collection:
            await warm(collection)
            before = statements(logged)
            writes = [create(collection, Payload("new")) for _ in range(30)]
            replaces = [replace(collection, id, Payload("other")) for id in range(1, 31)]
            await asyncio.gather(*writes, *replaces)
            done = statements(logged)[len(before) :]
            assert done == ["begin", "lock", "touched", "create", "replace", "change", "count", "commit"]

    run(main())


def test_a_read_that_arrives_while_another_is_under_way_is_asked_after_it_arrived(database: Postgres) -> None:
    """It must not be given the response of a query that was sent before the write before it was acknowledged."""

    async def main() -> None:
        async with handle(database) as one, handle(database) as two:
            await one.load(numbered(50))
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

    run(main())


@pytest.mark.parametrize("times", [200, pytest.param(1000, marks=pytest.mark.thorough)])
def test_created_on_one_instance_it_is_read_on_the_other_a_thousand_times(
    database: Postgres, tmp_path: Path, times: int
) -> None:
    with (
        serving(tmp_path, database=database.url) as one,
        serving(tmp_path, "--no-fast-lane", database=database.url) as two,
        ExitStack() as stack,
    ):
        here, there = stack.enter_context(closing(one.connection())), stack.enter_context(closing(two.connection()))
        for number in range(1, times + 1):
            created = ask(here, "POST", "/api/stores", {"name": f"Store {number}"}).json
            assert created["id"] == number
            assert ask(there, "GET", f"/api/stores/{number}").json == created
            assert ask(there, "GET", f"/api/stores?name=Store+{number}").json == [created]
            here, there = there, here


def test_more_than_may_wait_is_refused_at_once(database: Postgres) -> None:
    async def main() -> None:
        async with handle(database) as collection:
            await create(collection, Payload("First"))
            reads = [collection.get(1) for _ in range(MAX_QUEUED + 5)]
            found = await asyncio.gather(
                *[one for one in reads if isinstance(one, asyncio.Future)], return_exceptions=True
            )
            assert [type(one) for one in found] == [Store] * MAX_QUEUED + [Unavailable] * 5

    run(main())


# The same bytes.


def test_lists_are_byte_for_byte_those_of_sqlite(database: Postgres, tmp_path: Path) -> None:
    """Over every code point up to U+0800 and samples beyond, which two databases could escape differently."""
    points = [*range(1, 0x801), 0xFFF, *range(0x2000, 0x2070), 0xD7FF, 0xE000, *range(0xFEFE, 0x10000)]
    points += [0x10000, 0x1F3EA, 0xE0001, 0x10FFFF]
    texts = ["".join(map(chr, points[at : at + 20])) for at in range(0, len(points), 20)]
    payloads = [Payload(text, "|".join(text)) for text in texts] + [Payload(" ", ""), Payload("\\u0041", None)]

    async def parts(collection: Collection, name: str | None) -> bytes:
        found = await listing(collection, name)
        assert found.rest is None
        return found.first

    async def main() -> None:
        async with handle(database) as one, handle(Sqlite(tmp_path)) as other:
            await asyncio.gather(one.load(payloads), other.load(payloads))
            everything = await parts(one, None)
            assert everything == await parts(other, None)
            encoded = [shown_with(id, payload) for id, payload in enumerate(payloads, 1)]
            assert b"[" + everything + b"]" == msgspec.json.encode(encoded)
            for id, text in enumerate(texts, 1):
                assert await parts(one, text) == await parts(other, text) == msgspec.json.encode(encoded[id - 1])
                store = a_store(id, text, "|".join(text), id)
                assert [await get(one, id), await get(other, id)] == [store, store]

    run(main())


# Where the database is, and who may know.


@pytest.mark.parametrize(
    "query",
    [
        "host=127.0.0.1,127.0.0.1&port=1,{port}",
        "host=127.0.0.1,127.0.0.1&port=1,{port}&target_session_attrs=read-write",
        "host=127.0.0.1&port={port}&target_session_attrs=primary&application_name=mine&connect_timeout=5",
        "host={folder}&port={port}&sslmode=disable&keepalives_idle=9",
    ],
)
def test_a_url_is_what_libpq_takes(database: Postgres, query: str) -> None:
    server = postgres()
    name = database.url.rpartition("/")[2]
    words = query.format(port=server.port, folder=server.folder)
    done = run_command("export", "--database", f"postgres://storekeeper@/{name}?{words}")
    assert b"no such database" in done.stderr, done.stderr
    databases.prepare(database.url)
    done = run_command("export", "--database", f"postgres://storekeeper@/{name}?{words}")
    assert (done.returncode, done.stdout) == (0, an_export()), done.stderr


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://keeper@[::1]:5433/stores",
        "postgresql://keeper@[fe80::1],db2:5433/stores",
        "postgresql://keeper@%2Frun%2Fpostgresql:5433/stores",
    ],
)
def test_a_url_is_shown_as_one_that_can_be_used(url: str) -> None:
    assert session.describe(url) == url


@pytest.mark.parametrize("how", ["URL", "PGPASSWORD", "passfile", "PGPASSFILE", "service"])
def test_a_password_may_come_from_wherever_libpq_takes_it(guarded: Server, tmp_path: Path, how: str) -> None:
    with guarded.database() as url:
        plain = url.replace("storekeeper@", "keeper@")
        env: dict[str, str] = {}
        passfile, services = tmp_path / "passfile", tmp_path / "services"
        passfile.write_text(f"127.0.0.1:{guarded.port}:*:keeper:{SECRET}\n")
        passfile.chmod(0o600)
        name = url.rpartition("/")[2]
        services.write_text(
            f"[stores]\nhost=127.0.0.1\nport={guarded.port}\nuser=keeper\npassword={SECRET}\ndbname={name}\n"
        )
        match how:
            case "URL":
                plain = url.replace("storekeeper@", f"keeper:{ENCODED}@")
            case "PGPASSWORD":
                env["PGPASSWORD"] = SECRET
            case "passfile":
                plain += f"?passfile={passfile}"
            case "PGPASSFILE":
                env["PGPASSFILE"] = str(passfile)
            case "service":
                plain, env["PGSERVICEFILE"] = "postgresql://?service=stores", str(services)
        with serving(tmp_path, database=plain, env=env) as running_service:
            assert running_service.request("POST", "/api/stores", {"name": "A"}).json["id"] == 1
            assert SECRET not in running_service.log
            if how == "service":
                assert 'database="postgresql:///?service=stores"' in running_service.log
            else:
                assert f"database=postgresql://keeper@127.0.0.1:{guarded.port}/{name}" in running_service.log
        assert run_command("export", "--database", plain, env=env).stdout == an_export((1, "A"))


@pytest.mark.parametrize("how", ["URL", "PGAPPNAME", "service"])
def test_its_sessions_have_the_name_that_libpq_is_told(database: Postgres, tmp_path: Path, how: str) -> None:
    """By that, people tell instances apart in what the server shows and logs."""
    services = tmp_path / "services"
    services.write_text("[mine]\napplication_name=mine\n")
    query = {"URL": "?application_name=mine", "service": "?service=mine"}.get(how, "")
    env = {"PGSERVICEFILE": str(services)} | ({"PGAPPNAME": "mine"} if how == "PGAPPNAME" else {})
    with serving(tmp_path, database=database.url + query, env=env) as service:
        assert service.request("GET", "/health/ready").status == 200
        ours = f"datname = '{database.url.rpartition('/')[2]}'"
        assert postgres().sql(f"SELECT DISTINCT application_name FROM pg_stat_activity WHERE {ours}") == "mine"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://keeper:{ENCODED}@127.0.0.1:{{port}}/nobody",
        f"postgresql://keeper:wrong{ENCODED}@127.0.0.1:{{port}}/{{name}}",
        f"postgresql://keeper:{ENCODED}@127.0.0.1:1/{{name}}",
        f"postgresql://keeper:{SECRET}@127.0.0.1:{{port}}/{{name}}",
        f"postgresql://keeper:x@{SECRET}@127.0.0.1:{{port}}/{{name}}",
        f"postgresql://keeper:{ENCODED}@127.0.0.1:x{{port}}/{{name}}?sslmode={ENCODED}",
        f"postgresql://keeper@127.0.0.1:{{port}}/{{name}}?password={ENCODED}&no_such_word=1",
        f"mysql://keeper:{SECRET}@127.0.0.1/{{name}}",
    ],
)
def test_a_password_is_in_no_message_and_in_no_log(guarded: Server, tmp_path: Path, url: str) -> None:
    """Whatever is wrong with the URL or with the connection."""
    with guarded.database() as good:
        database = url.format(port=guarded.port, name=good.rpartition("/")[2])
        done = run_command("export", "--database", database)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
        texts = [done.stderr.decode()]
        if not any(word in database for word in ("mysql", SECRET, "no_such_word", "sslmode")):
            with serving(tmp_path, database=database) as unready:
                texts.append(unready.request("GET", "/health/ready").body.decode())
                texts.append(unready.log)
            assert "database cannot be reached" in texts[-1]
        for text in texts:
            assert "s3cret" not in text


def test_a_password_is_not_in_the_log_when_the_server_goes_away(guarded: Server, tmp_path: Path) -> None:
    with (
        guarded.database() as url,
        serving(tmp_path, database=url.replace("storekeeper@", f"keeper:{ENCODED}@")) as here,
    ):
        assert here.request("POST", "/api/stores", {"name": "A"}).status == 200
        guarded.kill()
        assert here.request("POST", "/api/stores", {"name": "A"}).status == 503
        guarded.start()
        wait_until(here, 200)
        assert "database cannot be reached" in here.log
        assert "database can be reached again" in here.log
        assert "s3cret" not in here.log


def wait_until(instance: Running, status: int) -> None:
    """Ask for readiness until it is so."""
    for _ in range(600):
        if instance.request("GET", "/health/ready").status == status:
            return
        asyncio.run(asyncio.sleep(0.05))
    raise AssertionError(instance.log)


def test_tls_is_used_and_verified_as_the_url_says(tmp_path: Path) -> None:
    postgres()
    if not shutil.which("openssl"):
        need("postgres", "openssl is not installed (Debian: apt-get install openssl)")
    with running() as server:
        key, certificate = server.data / "server.key", server.data / "server.crt"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
            check=True, capture_output=True,
        )  # fmt: skip
        for file in (key, certificate):
            file.chmod(0o600)
            if server.uid is not None and server.gid is not None:
                os.chown(file, server.uid, server.gid)
        server.configure(ssl="on")
        rules = server.data / "pg_hba.conf"
        rules.write_text("hostnossl all keeper all reject\n" + rules.read_text())
        server.sql("CREATE ROLE keeper LOGIN SUPERUSER")
        server.stop()
        server.start()
        trusted = tmp_path / "root.crt"
        shutil.copy(certificate, trusted)
        with server.database() as url:
            keeper = url.replace("storekeeper@", "keeper@")
            verified = f"{keeper}?sslmode=verify-full&sslrootcert={trusted}"
            with serving(tmp_path, database=verified) as here:
                assert here.request("POST", "/api/stores", {"name": "A"}).status == 200
            assert run_command("export", "--database", f"{keeper}?sslmode=disable").returncode == 2
            other = verified.replace("127.0.0.1", "localhost")
            done = run_command("export", "--database", other.replace("verify-full", "verify-ca"))
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("attributes", ["any", "standby", "prefer-standby", "read-only"])
def test_a_url_that_allows_a_standby_is_refused(attributes: str) -> None:
    with pytest.raises(CannotStart, match="may be behind"):
        session.parameters(f"postgresql://host/stores?target_session_attrs={attributes}")


# The schema.

FIRST_SCHEMA = """
INSERT INTO stores VALUES (1, 'A', NULL, 1), (2, 'D', 'x', 5), (3, 'C', NULL, 3);
INSERT INTO changes VALUES (1, 1, 'A', NULL, 10), (2, 2, 'B', NULL, 30), (3, 3, 'C', NULL, 20), (4, 2, 'B', 'x', 40),
  (5, 2, 'D', 'x', 50);
UPDATE collection SET count = 3, version = 5"""


def migrate(database: Postgres, number: int) -> None:
    """Bring a database to an older schema."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:number])
        databases.prepare(database.url)


@pytest.fixture(params=[1, 2])
def older(database: Postgres, request: pytest.FixtureRequest) -> Postgres:
    """A database of an older schema with three stores, of which the second was replaced twice."""
    migrate(database, 1)
    postgres().sql(FIRST_SCHEMA, database.url.rpartition("/")[2])
    migrate(database, request.param)
    return database


@pytest.fixture
def lock(older: Postgres) -> str:
    """How an instance of that schema begins to write."""
    with psycopg.connect(older.url) as connection:
        ((number,),) = connection.execute("SELECT schema FROM storekeeper").fetchall()
    table = "collection" if number == 1 else f"collection_{number}"
    return f"SELECT count, version FROM {table} WHERE one = 1 FOR UPDATE"


def test_a_database_of_an_older_schema_is_upgraded_with_its_history(older: Postgres) -> None:
    databases.prepare(older.url)
    with psycopg.connect(older.url) as connection:
        rows = connection.execute("SELECT seq, at, previous, count FROM changes ORDER BY seq").fetchall()
        assert rows == [(1, 10, 0, 1), (2, 30, 0, 2), (3, 30, 0, 3), (4, 40, 2, 3), (5, 50, 4, 3)]
        (numbers,) = connection.execute(f"SELECT count, version, at, epoch FROM {COLLECTION}".encode()).fetchall()
        assert numbers[:3] == (3, 5, 50)
        assert re.fullmatch("[a-z2-7]{8}", numbers[3])
        assert connection.execute("SELECT count, version, epoch FROM collection").fetchall() == [(3, 5, numbers[3])]
        assert connection.execute("SELECT count(*) FROM keys").fetchall() == [(0,)]


def test_each_collection_has_an_epoch_of_its_own() -> None:
    epochs = set()
    for _ in range(3):
        with postgres().database() as url:
            databases.prepare(url)
            epochs.add(databases.epoch(url, renew=False))
            assert databases.epoch(url, renew=False) in epochs
            epochs.add(databases.epoch(url, renew=True))
            assert databases.epoch(url, renew=False) in epochs
    assert len(epochs) == 6


def test_an_instance_of_an_older_version_reads_but_writes_nothing_more(older: Postgres, lock: str) -> None:
    """Its statements are prepared already; the lock is the first of each write."""
    with psycopg.connect(older.url, prepare_threshold=0) as old:
        assert old.execute(lock.encode()).fetchall() == [(3, 5)]
        old.rollback()
        databases.prepare(older.url)
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            old.execute(lock.encode())
        old.rollback()
        assert old.execute(lock.removesuffix("FOR UPDATE").encode()).fetchall() == [(3, 5)]
    assert f"collection_{len(schema.MIGRATIONS)}" == COLLECTION, "each migration renames it"


def test_an_upgrade_waits_for_an_older_instance_that_is_writing_and_is_no_deadlock(
    older: Postgres, lock: str
) -> None:
    """That instance has the lock of the writers by then, and writes its change only afterwards."""
    waiting = """SELECT count(*) > 0 FROM pg_locks
      WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
    with psycopg.connect(older.url) as old, ThreadPoolExecutor(1) as pool:
        old.execute(lock.encode())
        upgrade = pool.submit(databases.prepare, older.url)
        with psycopg.connect(older.url, autocommit=True) as watch:
            until(lambda: watch.execute(waiting).fetchone() == (True,))
        old.execute("SET LOCAL lock_timeout = '2s'")
        old.execute("UPDATE changes SET name = name")
        old.commit()
        upgrade.result()


def test_an_upgrade_behind_a_dump_keeps_the_reads_of_an_older_instance_waiting_for_a_second_at_most(
    older: Postgres, lock: str
) -> None:
    read = lock.removesuffix("FOR UPDATE").encode()
    with psycopg.connect(older.url) as dump, psycopg.connect(older.url) as old, ThreadPoolExecutor(1) as pool:
        dump.execute(read)
        upgrade = pool.submit(databases.prepare, older.url)
        old.execute("SET lock_timeout = '2s'")
        old.commit()
        while not upgrade.done():
            old.execute(read)
            old.rollback()
        with pytest.raises(Unavailable, match="lock timeout"):
            upgrade.result()
        dump.rollback()
    databases.prepare(older.url)


def test_only_the_service_upgrades_a_database(older: Postgres, tmp_path: Path) -> None:
    file = tmp_path / "stores.csv"
    file.write_text("name,address\nA,\n")
    for command in (
        ("import", "--database", older.url, str(file)),
        ("export", "--database", older.url),
        ("epoch", "--database", older.url),
        ("epoch", "--new", "--database", older.url),
        ("copy", older.url, f"sqlite:///{tmp_path}/copy.db"),
    ):
        done = run_command(*command)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert (
            b"was written by an older Storekeeper: upgrade it first, by starting `storekeeper serve`" in done.stderr
        )
    with psycopg.connect(older.url) as connection:
        assert connection.execute("SELECT count(*) FROM changes").fetchall() == [(5,)]


def test_ten_that_start_at_once_make_one_schema() -> None:
    for _ in range(3):
        with postgres().database() as url, ThreadPoolExecutor(10) as pool:
            list(pool.map(databases.prepare, itertools.repeat(url, 10)))
            with psycopg.connect(url) as connection:
                assert connection.execute("SELECT schema FROM storekeeper").fetchall() == [(len(schema.MIGRATIONS),)]
                assert connection.execute("SELECT count, version FROM collection").fetchall() == [(0, 0)]


def test_a_publication_of_all_tables_disturbs_no_start_no_upgrade_and_no_write(database: Postgres) -> None:
    postgres().sql("CREATE PUBLICATION everything FOR ALL TABLES", database.url.rpartition("/")[2])
    migrate(database, 1)
    databases.prepare(database.url)

    async def main() -> None:
        async with handle(database) as collection:
            await create(collection, Payload("A"))
            await replace(collection, 1, Payload("B"))
            await collection.load([Payload("C")])
            assert (await state(collection))[:2] == (2, 3)

    run(main())


def test_ten_first_starts_at_once_put_in_the_examples_once(database: Postgres) -> None:
    async def first_start() -> range:
        async with handle(database) as collection:
            return await collection.load(EXAMPLES, only_if_empty=True)

    async def main() -> list[range]:
        return await asyncio.gather(*(first_start() for _ in range(10)))

    assert sorted(map(list, run(main()))) == [[]] * 9 + [[1, 2, 3]]


def test_a_newer_schema_is_refused_in_one_line(database: Postgres) -> None:
    databases.prepare(database.url)
    with psycopg.connect(database.url) as connection:
        connection.execute("UPDATE storekeeper SET schema = schema + 1")
    for command in (["serve", "--port", "0"], ["export"], ["import", "-"]):
        done = run_command(*command, "--database", database.url, stdin=b"name,address\n")
        assert done.returncode == 2
        assert b"newer Storekeeper" in done.stderr
        assert done.stderr.count(b"\n") == 1


def test_tables_of_another_program_are_left_alone(database: Postgres) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute("CREATE TABLE stores (theirs text)")
    done = run_command("serve", "--port", "0", "--database", database.url)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"another program" in done.stderr
    with psycopg.connect(database.url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert tables == [("stores",)]


@pytest.mark.parametrize("restored", [False, True])
def test_a_database_in_another_encoding_is_refused(*, restored: bool) -> None:
    """Also one into which a dump was restored; that can be read, to copy it."""
    server = postgres()
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    if restored:
        server.sql(
            ";".join((*schema.MIGRATIONS, f"UPDATE storekeeper SET schema = {len(schema.MIGRATIONS)}")), "latin"
        )
        assert run_command("export", "--database", server.url("latin")).stdout == an_export()
    done = run_command("serve", "--port", "0", "--database", server.url("latin"))
    server.sql("DROP DATABASE latin WITH (FORCE)")
    assert done.returncode == 2
    assert b"UTF8" in done.stderr


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("TRUNCATE storekeeper", "has a table storekeeper that is not as we made it"),
        ("INSERT INTO storekeeper VALUES (1)", "has a table storekeeper that is not as we made it"),
        (
            "ALTER TABLE storekeeper ALTER schema DROP NOT NULL; UPDATE storekeeper SET schema = NULL",
            "has a table storekeeper that is not as we made it",
        ),
        ("ALTER TABLE storekeeper RENAME schema TO version", "has a table storekeeper that is not as we made it"),
        ("ALTER TABLE storekeeper ALTER schema TYPE text USING 'one'", "has a table storekeeper that is not"),
        ("UPDATE storekeeper SET schema = 0", "has a table storekeeper that is not as we made it"),
        ("DROP TABLE changes", "is not complete, it lacks the table changes"),
        ("DROP TABLE keys", "is not complete, it lacks the table keys"),
    ],
)
def test_what_was_not_restored_whole_is_refused_in_one_line(
    database: Postgres, tmp_path: Path, spoil: str, message: str
) -> None:
    schema.prepare(database.url)
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
        f"TRUNCATE {COLLECTION}",
        (
            f"ALTER TABLE {COLLECTION} DROP CONSTRAINT collection_pkey;"
            f" INSERT INTO {COLLECTION} SELECT * FROM {COLLECTION}"
        ),
    ],
)
def test_numbers_that_were_not_restored_whole_are_no_bug(database: Postgres, spoil: str) -> None:
    """Whoever serves meanwhile says that it cannot, and a start is refused."""

    async def main() -> None:
        async with handle(database) as collection:
            await create(collection, Payload("First"))
            postgres().sql(spoil, database.url.rpartition("/")[2])
            for question in (
                create(collection, Payload("Second")),
                listing(collection),
                listing(collection, "First"),
                collection.load(EXAMPLES),
                now(collection.state()),
                collection.check(),
                now(collection.get_at(1, Moment(1))),
            ):
                with pytest.raises(Unavailable, match="one row"):
                    await question
            with pytest.raises(Unavailable):  # a sub-query that finds several rows fails as a whole
                await get(collection, 1)

    run(main())
    with pytest.raises(CannotStart, match="one row"):
        databases.prepare(database.url)


@pytest.mark.parametrize(("lost", "has"), [("stores", "0 of 3 stores"), ("changes", "0 of 3 changes")])
def test_a_table_that_was_restored_without_its_rows_is_refused(database: Postgres, lost: str, has: str) -> None:
    databases.prepare(database.url)
    databases.load(database.url, EXAMPLES, only_if_empty=False)
    databases.prepare(database.url)
    postgres().sql(f"TRUNCATE {lost}", database.url.rpartition("/")[2])
    with pytest.raises(CannotStart, match=f"{has}.*: restore it"):
        databases.prepare(database.url)
    assert databases.exists(database.url)  # what is left can be exported


def test_a_user_who_may_not_create_tables_is_told(database: Postgres) -> None:
    server = postgres()
    server.sql("CREATE ROLE poor LOGIN")
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database.url.rpartition("/")[2])
    done = run_command("serve", "--port", "0", "--database", database.url.replace("storekeeper@", "poor@"))
    server.sql("DROP ROLE poor")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"--database: permission denied for schema public: the user has to own the tables" in done.stderr


def test_a_user_who_may_not_read_the_tables_is_not_told_that_there_are_none(
    database: Postgres, tmp_path: Path
) -> None:
    schema.prepare(database.url)
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
        assert "permission denied for table storekeeper: the user has to own the tables" in refused(each)[0]


def test_a_user_who_may_not_make_temporary_tables_is_told(database: Postgres, tmp_path: Path) -> None:
    server = postgres()
    server.sql("CREATE ROLE lasting LOGIN SUPERUSER")
    server.sql("ALTER ROLE lasting NOSUPERUSER")
    name = database.url.rpartition("/")[2]
    server.sql(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    server.sql("GRANT CREATE ON SCHEMA public TO lasting", name)
    url = database.url.replace("storekeeper@", "lasting@")
    stores = tmp_path / "stores.csv"
    stores.write_text("name,address\nFirst,\n")
    with serving(tmp_path, "--examples", database=url) as service:
        assert service.request("GET", "/api/stores").json == []
        assert "permission denied to create temporary tables" in service.log
    done = run_command("import", "--database", url, str(stores))
    server.sql("DROP OWNED BY lasting", name)
    server.sql("DROP ROLE lasting")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"TEMPORARY on the database" in done.stderr


def sessions(database: Postgres, then: str = "pid") -> str:
    """Return the sessions that COPY to or from a database, and end them if `then` says so."""
    name = database.url.rpartition("/")[2]
    return postgres().sql(
        f"SELECT {then} FROM pg_stat_activity WHERE datname = '{name}' AND query LIKE 'COPY%' ORDER BY pid"
    )


def test_an_import_whose_database_goes_away_says_so_in_one_line(database: Postgres) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as feeding, TemporaryFile() as said:
        with os.fdopen(reading, "rb") as pipe:
            process = start("import", "--database", database.url, "-", stdin=pipe, stderr=said)
        feeding.write(b"name,address\n")
        until(lambda: sessions(database) != "")
        sessions(database, "pg_terminate_backend(pid)")
        until(lambda: not sessions(database))
        with suppress(BrokenPipeError):
            feeding.write((b"A," + b"x" * 1000 + b"\n") * 1000)
        assert process.wait(30) == 2
        said.seek(0)
        (line,) = said.read().decode().splitlines()
    assert line.startswith(f"storekeeper: the new database {database.url}: ")
    assert line.endswith("; nothing was imported")


def test_what_was_read_to_its_end_is_whole_even_if_the_database_goes_away_then(database: Postgres) -> None:
    databases.prepare(database.url)
    with databases.snapshot(database.url) as snapshot:
        assert list(snapshot.rows("stores")) == []
        sessions(database, "pg_terminate_backend(pid)")
        until(lambda: not sessions(database))


def test_examples_ask_for_no_lock_where_there_are_stores(database: Postgres) -> None:
    async def main() -> None:
        async with handle(database) as collection:
            await create(collection, Payload("First"))
            with psycopg.connect(database.url) as other:
                other.execute(f"SELECT * FROM {COLLECTION} FOR UPDATE".encode())
                async with asyncio.timeout(10):
                    assert not await collection.load(EXAMPLES, only_if_empty=True)

    run(main())


def test_a_start_waits_for_no_lock_of_the_tables_nor_does_a_stop(database: Postgres, tmp_path: Path) -> None:
    """As while another instance migrates: it answers with 503, stops when told to, and serves once it can."""
    env = weakened.environment("starts_and_stops_soon")
    start = partial(serving, tmp_path, "--examples", database=database.url, env=env, program=weakened.PROGRAM)
    with serving(tmp_path, database=database.url):
        pass
    with psycopg.connect(database.url) as other:
        other.execute("LOCK TABLE storekeeper IN ACCESS EXCLUSIVE MODE")
        with start() as service:
            assert service.request("GET", "/health/ready").status == 503
            assert service.stop() == 0
        with start() as service:
            assert service.request("GET", "/api/stores").status == 503
            other.rollback()
            until(lambda: service.request("GET", "/health/ready").status == 200)
            until(lambda: len(service.request("GET", "/api/stores").json) == len(EXAMPLES))


@pytest.mark.parametrize(
    ("configured", "ours"), [("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")]
)
def test_commits_are_made_durable_where_the_server_would_not(database: Postgres, configured: str, ours: str) -> None:
    """Whoever sets synchronous_commit = off for all else on a server would lose acknowledged stores too."""
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
        from storekeeper import cli, databases, service
        databases.prepare("sqlite:///{tmp_path}/stores.db")
        sys.exit("psycopg" in sys.modules or "storekeeper.postgres" in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
