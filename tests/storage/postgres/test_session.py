"""What a PostgreSQL session inherits (from its role, its database, the server, the URL) changes
no promise."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from storekeeper.domain.commands import Create, Replace
from storekeeper.domain.errors import CannotStart, KeyReused, Outcome, Unavailable
from storekeeper.domain.stores import Payload, Replay
from storekeeper.storage import databases
from storekeeper.storage.collection import Collection
from storekeeper.storage.postgres import PostgresCollection
from storekeeper.storage.postgres import connections as session
from storekeeper.storage.postgres.schema import COLLECTION_TABLE
from tests.harness.client import load, until
from tests.harness.collection import create, get, listing, numbered, replace, run, stores
from tests.harness.command import run as run_command
from tests.harness.databases import Postgres, handle, make, postgres
from tests.harness.loading import add_all
from tests.harness.machine import need
from tests.harness.postgres_server import Server, running
from tests.harness.process import free_port
from tests.harness.stores import a_row, a_store, content, shown

USER = "inheriting"
STALL = 8.0
"""Seconds for which a server takes nothing: more than its clients wait to learn whether it has
vanished."""

SESSIONS = 20
"""What the pooler has for each user of a database."""


@contextmanager
def owned(server: Server) -> Iterator[Postgres]:
    """Make an empty database that belongs to an ordinary user, who is taken away with what was
    set for them."""
    with server.database() as url:
        server.sql(f"CREATE ROLE {USER} LOGIN")
        server.sql(f"ALTER DATABASE {url.rpartition('/')[2]} OWNER TO {USER}")
        try:
            yield Postgres(url.replace("storekeeper@", f"{USER}@"))
        finally:
            server.sql(f"ALTER DATABASE {url.rpartition('/')[2]} OWNER TO storekeeper")
            server.sql(f"DROP OWNED BY {USER} CASCADE; DROP ROLE {USER}", url.rpartition("/")[2])


@pytest.fixture
def database() -> Iterator[Postgres]:
    """An empty database of an ordinary user."""
    with owned(postgres()) as database:
        yield database


def inherit(**settings: str) -> None:
    """Have every later session of the user begin with these settings."""
    postgres().sql(
        "; ".join(f"ALTER ROLE {USER} SET {name} = '{value}'" for name, value in settings.items())
    )


def administer(database: Postgres, statement: str) -> None:
    """Do something to a database as its administrator."""
    postgres().sql(statement, database.url.rpartition("/")[2])


@contextmanager
def configured(server: Server, name: str, value: str) -> Iterator[None]:
    """Change a setting of a running server, for its sessions too; take it back at the end."""
    before = server.sql(f"SHOW {name}")
    server.sql(f"ALTER SYSTEM SET {name} = '{value}'")
    server.reload()
    try:
        until(lambda: server.sql(f"SHOW {name}") == value)
        server.sql(
            "CHECKPOINT"
        )  # by then the process has read it that tells all others of standbys
        yield
    finally:
        server.sql(f"ALTER SYSTEM RESET {name}")
        server.reload()
        until(lambda: server.sql(f"SHOW {name}") == before)


# Acknowledged is durable.


async def test_what_is_acknowledged_was_flushed_though_the_server_is_told_meanwhile_not_to(
    database: Postgres,
) -> None:
    server = postgres()
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        with (
            configured(server, "synchronous_commit", "off"),
            psycopg.connect(server.url(), autocommit=True) as it,
        ):
            late = 0
            for _ in range(20):
                await create(collection, Payload("Next"))
                ((flushed,),) = it.execute(
                    "SELECT pg_current_wal_insert_lsn() <= pg_current_wal_flush_lsn()"
                ).fetchall()
                late += not flushed
        # The server writes something of its own every 15 s.
        assert late <= 1


@pytest.mark.thorough
async def test_a_crash_loses_nothing_although_the_server_was_told_not_to_flush() -> None:
    postgres()
    with running() as server:
        url = server.new_database()
        async with handle(Postgres(url)) as collection:
            await create(collection, Payload("First"))
            with psycopg.connect(server.url(), autocommit=True) as other:
                server.configure(synchronous_commit="off", wal_writer_delay="10s")
                server.reload()
                until(lambda: other.execute("SHOW synchronous_commit").fetchone() == ("off",))
            await asyncio.gather(*(create(collection, Payload("Next")) for _ in range(50)))
            for _ in range(20):
                await create(collection, Payload("Last"))
            server.kill()
        server.start()
        assert len(Postgres(url).changes()) == 71


async def _create(collection: Collection, _: Path) -> None:
    await create(collection, Payload("Cancelled"))


async def _import(collection: Collection, _: Path) -> None:
    await add_all(collection, numbered(3))


WAYS: dict[str, Callable[[Collection, Path], Coroutine[Any, Any, None]]] = {
    "create": _create,
    "import": _import,
}


async def cancel_the_wait(server: Server) -> None:
    """Wait until a commit waits for its standby; cancel that."""
    cancel = (
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    )
    await asyncio.to_thread(until, lambda: server.sql(cancel) != "0", 4)


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_wait_for_the_standby_is_no_success_though_warnings_are_switched_off(
    database: Postgres, tmp_path: Path, way: str
) -> None:
    inherit(client_min_messages="error")
    server = postgres()
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        with configured(server, "synchronous_standby_names", "nobody"):
            writing = asyncio.create_task(WAYS[way](collection, tmp_path))
            await cancel_the_wait(server)
            with pytest.raises(Unavailable, match="standby") as caught:
                await writing
            assert caught.value.outcome is Outcome.UNKNOWN


async def test_what_is_here_already_is_acknowledged_only_when_a_standby_has_it(
    database: Postgres,
) -> None:
    """A replay and a write that changes nothing: what they say may have been committed only
    here."""
    keyed, unchanged = Create(Payload("Keyed"), key=("5", 5)), Replace(1, Payload("First"))
    server = postgres()
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        with configured(server, "synchronous_standby_names", "nobody"):
            for command in (keyed, keyed, unchanged):
                writing = asyncio.ensure_future(collection.write(command))
                await cancel_the_wait(server)
                with pytest.raises(Unavailable, match="standby") as caught:
                    await writing
                assert caught.value.outcome is Outcome.UNKNOWN
            # Nothing is acknowledged by these.
            assert await replace(collection, 9, Payload("Nobody")) is None
            with pytest.raises(KeyReused):
                await collection.write(Create(Payload("Other"), key=("5", 6)))
        replay = await collection.write(keyed)
        assert (type(replay), replay) == (Replay, a_store(2, "Keyed", None, 2))
        assert await collection.write(unchanged) == a_store(1, "First", None, 1)
    assert len(database.changes()) == 2


async def test_a_copy_whose_wait_for_the_standby_is_cancelled_is_no_success(
    database: Postgres, tmp_path: Path
) -> None:
    source = f"sqlite:///{tmp_path}/stores.db"
    inherit(client_min_messages="error")
    server = postgres()
    async with handle(Postgres(source)) as collection:
        await add_all(collection, numbered(3))
    make(database.url)
    with configured(server, "synchronous_standby_names", "nobody"):
        copying = asyncio.create_task(
            asyncio.to_thread(databases.copy, source, database.url, _silent)
        )
        await cancel_the_wait(server)
        with pytest.raises(databases.CopyFailed, match="standby") as caught:
            await copying
        assert caught.value.outcome is Outcome.UNKNOWN


def _silent(done: int, total: int) -> None:
    del done, total


# What it stores is what it said.


async def test_an_address_that_is_not_given_is_stored_as_none_whatever_arrays_take_null_for(
    database: Postgres,
) -> None:
    inherit(array_nulls="off")
    async with handle(database) as collection:
        created = await create(collection, Payload("First"))
        assert await get(collection, 1) == created == a_store(1, "First", None, 1)
        assert await stores(collection) == [shown(1, "First")]
    assert database.changes() == [a_row(1, 1, "First")]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_an_import_beside_writers_goes_through_whatever_isolation_is_the_default(
    database: Postgres, isolation: str
) -> None:
    inherit(default_transaction_isolation=isolation)
    async with handle(database) as collection:
        loop = asyncio.get_running_loop()

        async def write() -> None:
            await create(collection, Payload("Beside"))

        def source() -> Iterator[Payload]:
            yield Payload("Imported")
            asyncio.run_coroutine_threadsafe(write(), loop).result(30)

        assert await add_all(collection, source()) == range(2, 3)
        assert [store["name"] for store in await stores(collection)] == ["Beside", "Imported"]


# While hosts vanish, or a disk is slow.


def until_a_vanished_client(connection: psycopg.Connection[Any]) -> list[str]:
    """Return what the server's kernel says about this session's socket."""
    names = (
        "tcp_keepalives_idle",
        "tcp_keepalives_interval",
        "tcp_keepalives_count",
        "tcp_user_timeout",
    )
    return [str(*connection.execute(f"SHOW {name}".encode()).fetchone() or ()) for name in names]


def test_the_server_soon_ends_the_sessions_of_a_host_that_vanished_with_their_locks(
    database: Postgres,
) -> None:
    """Else an import whose machine loses its power keeps all writers waiting, for two hours at
    worst."""
    inherit(tcp_keepalives_idle="7200", tcp_user_timeout="0")
    with session.connected(database.url) as connection:
        assert until_a_vanished_client(connection) == ["5", "2", "3", "30000"]
    with psycopg.connect(database.url, autocommit=True) as connection:
        for statement in session.setup_statements(session.SERVING):
            connection.execute(statement.encode())
        assert until_a_vanished_client(connection) == ["5", "2", "3", "30000"]


def test_an_export_may_be_read_as_slowly_as_one_likes(database: Postgres) -> None:
    """What its reader does not take yet counts as unacknowledged."""
    with session.connected(database.url, commits=False) as connection:
        assert until_a_vanished_client(connection) == ["5", "2", "3", "0"]


@pytest.mark.thorough
def test_an_import_goes_on_after_the_server_has_taken_nothing_for_seconds(
    database: Postgres,
) -> None:
    copying = f"SELECT pid FROM pg_stat_activity WHERE usename = '{USER}' AND query LIKE 'COPY%'"

    def source() -> Iterator[Payload]:
        yield Payload("First")
        backend = int(postgres().sql(copying))
        os.kill(backend, signal.SIGSTOP)
        threading.Timer(STALL, os.kill, (backend, signal.SIGCONT)).start()
        yield from [Payload("Long", "x" * 1_000_000)] * 20

    make(database.url)
    assert load(database.url, source()) == range(1, 22)


# Whatever else it inherits.

OTHERS = {
    "client_encoding": "latin1",
    "DateStyle": "German",
    "TimeZone": "Asia/Kathmandu",
    "extra_float_digits": "-15",
    "statement_timeout": "150ms",
    "lock_timeout": "150ms",
    "idle_in_transaction_session_timeout": "150ms",
    "idle_session_timeout": "150ms",
}
"""Beside those that are on or off or one of some words: what says how something is written, and
limits of time."""

TOLD = {"default_transaction_read_only"}
"""What it is right to follow: writes are refused, and the client is told."""


def choices() -> list[tuple[str, str]]:
    """Return every setting that a role may have, that is on or off or one of some words, with
    each other value."""
    found = postgres().sql(
        "SELECT name, other FROM pg_settings, unnest(coalesce(enumvals, '{on,off}')) AS other"
        " WHERE context = 'user' AND vartype IN ('bool', 'enum') AND other <> setting ORDER BY"
        " name, other"
    )
    pairs = [line.split("|") for line in found.splitlines()] + [
        list(pair) for pair in OTHERS.items()
    ]
    return [
        (name, value)
        for name, value in pairs
        if name not in TOLD and not name.startswith("transaction_")
    ]


async def keep_the_promises(database: Postgres, folder: Path) -> None:
    """Do everything once, and see that it is as ever."""
    first, second = Payload('Zoë "1"\\', None), Payload("NULL", "{a,\\b}\n")
    async with handle(database) as one, handle(database) as two:
        assert list(await asyncio.gather(create(one, first), create(one, second))) == [
            a_store(1, first.name, first.address, 1),
            a_store(2, second.name, second.address, 2),
        ]
        await asyncio.sleep(0.2 if folder.name == "patient" else 0)
        assert await replace(one, 1, second) == a_store(1, second.name, second.address, 3)
        assert (
            await replace(one, 1, first)
            == await get(two, 1)
            == a_store(1, first.name, first.address, 4)
        )
        done = await asyncio.gather(
            *(create(one, Payload(name)) for name in ("C", "x" * 31)), return_exceptions=True
        )
        assert done[0] == a_store(3, "C", None, 5)
        assert isinstance(done[1], Unavailable)
        assert len(await add_all(two, slowly(folder))) == 2
        names = [first.name, second.name, "C", "Store 1", "Store 2"]
        assert [(store["id"], store["name"]) for store in await stores(two)] == list(
            enumerate(names, 1)
        )
        assert [store["address"] for store in await stores(one, second.name)] == [second.address]
    copied = folder / "copy.db"
    assert (await asyncio.to_thread(databases.copy, database.url, f"sqlite:///{copied}", _silent))[
        :2
    ] == (5, 7)
    assert database.changes() == [
        *[
            (seq, id, *content(was))
            for seq, id, was in ((1, 1, first), (2, 2, second), (3, 1, second), (4, 1, first))
        ],
        *[a_row(5, 3, "C"), a_row(6, 4, "Store 1", "1 Road"), a_row(7, 5, "Store 2", "2 Road")],
    ]


def slowly(folder: Path) -> Iterator[Payload]:
    """Return stores that take longer than the limits of time."""
    for payload in numbered(2):
        time.sleep(0.2 if folder.name == "patient" else 0)
        yield payload


def test_every_setting_that_a_role_may_have_changes_nothing(
    database: Postgres, tmp_path: Path
) -> None:
    turned = dict(choices())
    assert len(turned) > 60
    inherit(**turned)
    run(keep_the_promises(database, made(tmp_path / "patient")))


def test_a_service_that_pins_nothing_would_be_seen(
    database: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "storekeeper.storage.postgres.connections.setup_statements", lambda *_: ("BEGIN", "COMMIT")
    )
    monkeypatch.setattr("storekeeper.storage.postgres.connections.CHECK_CLAIM", "SELECT 1")
    inherit(array_nulls="off")
    with pytest.raises(AssertionError):
        run(keep_the_promises(database, tmp_path))


@pytest.mark.thorough
def test_each_setting_that_a_role_may_have_changes_nothing_alone(tmp_path: Path) -> None:
    for number, (name, value) in enumerate(choices()):
        with owned(postgres()) as database:
            inherit(**{name: value})
            try:
                run(keep_the_promises(database, made(tmp_path / f"{number}")))
            except BaseException as error:
                error.add_note(f"{name} = {value}")
                raise


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


# Where it looks.


async def test_a_schema_that_comes_to_stand_before_the_collection_changes_nothing(
    database: Postgres,
) -> None:
    """PostgreSQL looks in the schema with the user's name first, as soon as there is one."""
    async with handle(database) as before:
        await create(before, Payload("First"))
        administer(database, f"CREATE SCHEMA {USER} AUTHORIZATION {USER}")
        async with handle(database) as after:
            assert await create(after, Payload("Second")) == a_store(2, "Second", None, 2)
            assert len(await add_all(after, numbered(1))) == 1
        # What stands there under the same names has never been ours.
        administer(database, f"CREATE TABLE {USER}.stores (LIKE public.stores)")
        administer(
            database,
            f"CREATE TABLE {USER}.collection AS SELECT 1 AS one, 50 AS count, 50 AS version",
        )
        assert await create(before, Payload("Fourth")) == a_store(4, "Fourth", None, 4)
        assert [store["id"] for store in await stores(before)] == [1, 2, 3, 4]


async def test_a_second_collection_along_the_search_path_is_refused_in_one_line(
    database: Postgres,
) -> None:
    """An instance that serves one of them continues with it, on new connections too."""
    async with handle(database) as collection:
        assert isinstance(collection, PostgresCollection)
        await create(collection, Payload("First"))
        administer(database, f"CREATE SCHEMA {USER} AUTHORIZATION {USER}")
        make(f"{database.url}?options=-csearch_path%3D{USER}")
        for connection in list(collection._pool._connections):
            connection.drop("dropped by the test")
        assert await get(collection, 1) == a_store(1, "First", None, 1)
        assert await create(collection, Payload("Second")) == a_store(2, "Second", None, 2)
    done = run_command("serve", "--port", "0", "--database", database.url)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert f"two collections are there, in the schemas {USER} and public".encode() in done.stderr


# What stands in its place.

SWALLOWED = {
    "a trigger": """CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RETURN NULL; END';
      CREATE TRIGGER swallow BEFORE INSERT OR UPDATE ON stores
        FOR EACH ROW EXECUTE FUNCTION swallow()""",
    "a rule for changes": "CREATE RULE swallow AS ON INSERT TO changes DO INSTEAD NOTHING",
    "a rule for stores": """CREATE RULE swallow AS ON INSERT TO stores DO INSTEAD NOTHING;
      CREATE RULE swallow_too AS ON UPDATE TO stores DO INSTEAD NOTHING""",
    "a rule for the numbers": f"CREATE RULE swallow AS ON UPDATE TO {COLLECTION_TABLE} DO"
    " INSTEAD NOTHING",
    "a policy": f"""ALTER TABLE stores ENABLE ROW LEVEL SECURITY;
      ALTER TABLE stores FORCE ROW LEVEL SECURITY;
      CREATE POLICY hide ON stores TO {USER} USING (id > 1)""",
}
"""What keeps rows from being written, or hides them, without an error."""


@pytest.mark.parametrize("what", SWALLOWED)
async def test_a_write_that_the_database_swallows_is_not_acknowledged(
    database: Postgres, what: str
) -> None:
    """COMMIT was sent with it, so that what became of it is unknown; an import looks before."""
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        administer(database, SWALLOWED[what])
        with pytest.raises((Unavailable, CannotStart)):
            await add_all(collection, numbered(2))
        assert len(database.changes()) == 1
        for write in (
            create(collection, Payload("Second")),
            replace(collection, 1, Payload("Other")),
        ):
            with pytest.raises(Unavailable):
                await write


async def test_a_list_that_a_policy_would_shorten_is_refused(database: Postgres) -> None:
    async with handle(database) as collection:
        await add_all(collection, numbered(3))
        administer(database, SWALLOWED["a policy"])
        for question in (listing(collection), get(collection, 1), listing(collection, "Store 3")):
            with pytest.raises(Unavailable):
                await question


@pytest.mark.parametrize("what", ["a trigger", "a rule for the numbers"])
async def test_a_copy_that_the_database_swallows_is_refused(
    database: Postgres, tmp_path: Path, what: str
) -> None:
    source = f"sqlite:///{tmp_path}/stores.db"
    async with handle(Postgres(source)) as collection:
        await add_all(collection, numbered(3))
    make(database.url)
    administer(database, SWALLOWED[what])
    with pytest.raises(databases.CopyFailed):
        databases.copy(source, database.url, _silent)
    assert database.changes() == []


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE changes SET UNLOGGED",
        "ALTER TABLE stores RENAME TO kept; CREATE VIEW stores AS SELECT * FROM kept",
        SWALLOWED["a rule for stores"],
    ],
)
def test_a_table_that_a_crash_would_empty_or_that_is_none_is_refused(
    database: Postgres, change: str
) -> None:
    make(database.url)
    administer(database, f"SET ROLE {USER}; {change}")
    with pytest.raises(CannotStart, match="not an ordinary table"):
        make(database.url)


# Whose session it is.


@contextmanager
def pooled(database: Postgres, mode: str, more: str = "") -> Iterator[Postgres]:
    """Run PgBouncer before a server; give the database as it is reached through it."""
    program = shutil.which("pgbouncer") or need(
        "pgbouncer", "it is not installed (Debian: apt-get install pgbouncer)"
    )
    server = postgres()
    port = free_port()
    settings = server.folder / f"pgbouncer-{mode}.ini"
    settings.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port} user={USER}\n[pgbouncer]\n"
        "listen_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
        f"default_pool_size = {SESSIONS}\n{more}\n"
    )
    process = subprocess.Popen(
        [program, "-q", settings], user=server.uid, group=server.gid, extra_groups=server.groups,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: responses(port))
        yield Postgres(database.url.replace(f":{server.port}/", f":{port}/"))
    finally:
        process.kill()
        process.wait()


def responses(port: int) -> bool:
    """Tell whether a server listens."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_pooler_that_shares_sessions_is_refused(database: Postgres) -> None:
    """What was set for a session would be set for another client's, and not for ours."""

    async def main(url: str) -> None:
        failures: list[object] = []
        collection = databases.database(url).open_collection(failures.append)
        with pytest.raises(Unavailable):
            await create(collection, Payload("First"))
        await collection.close()
        assert "session pooling" in str(failures[0])

    with pooled(database, "transaction") as shared:
        make(database.url)
        run(main(shared.url))
        with pytest.raises(CannotStart, match="session pooling"):
            make(shared.url)
    assert database.changes() == []


def test_a_pooler_that_forgets_what_was_set_for_a_session_is_refused(database: Postgres) -> None:
    with (
        pooled(database, "transaction", "server_reset_query_always = 1") as forgetful,
        pytest.raises(CannotStart, match="session pooling"),
    ):
        make(forgetful.url)


def test_a_pooler_that_forgets_only_now_and_then_is_refused_when_it_does(
    database: Postgres,
) -> None:
    """As one does that sends some sessions' reads to a standby: what was created a moment ago
    would be missing."""

    async def main(url: str) -> None:
        failures: list[object] = []
        collection = databases.database(url).open_collection(failures.append)
        assert isinstance(collection, PostgresCollection)
        collection._schema = "public"  # so far it did not
        with pytest.raises(Unavailable):
            await collection.check()
        await collection.close()
        assert "session pooling" in str(failures[0])

    make(database.url)
    with pooled(database, "transaction", "server_reset_query_always = 1") as forgetful:
        run(main(forgetful.url))


def test_a_pooler_that_has_no_session_left_keeps_nobody_waiting(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the login all the same, as it does while its server is away, and says nothing for
    two minutes."""
    monkeypatch.setattr("storekeeper.storage.postgres.connections.SETUP_TIMEOUT", 0.2)
    with pooled(database, "session") as full, ExitStack() as stack:
        for _ in range(SESSIONS):
            stack.enter_context(psycopg.connect(full.url)).execute("SELECT 1")
        ours = databases.database(full.url)
        for look in (ours.prepare, ours.exists):
            with pytest.raises(Unavailable, match="does not respond"):
                look()


def test_behind_a_pooler_of_sessions_nothing_changes(database: Postgres, tmp_path: Path) -> None:
    inherit(**dict(choices()))
    with pooled(database, "session") as kept:
        run(keep_the_promises(kept, made(tmp_path / "patient")))
