"""What PostgreSQL refuses, and when: each refusal is told apart by whether something may have
been written."""

import asyncio
import errno
from contextlib import suppress
from functools import partial

import psycopg
import pytest

from storekeeper.domain.commands import Create
from storekeeper.domain.errors import Outcome, Unavailable
from storekeeper.domain.queries import Moment, Query
from storekeeper.domain.stores import Payload, Store
from storekeeper.log import events
from storekeeper.storage.postgres import PostgresCollection, pool
from storekeeper.storage.postgres import connections as session
from storekeeper.storage.postgres import schema as postgres_schema
from storekeeper.storage.postgres.pipeline import PipelineConnection
from storekeeper.storage.postgres.schema import COLLECTION_TABLE
from tests.harness.cases import case
from tests.harness.collection import create, get, listing, now, replace, run, stores
from tests.harness.databases import Postgres, handle, make, opened
from tests.harness.in_process import until
from tests.harness.process import TIMEOUT
from tests.harness.stores import a_store, shown

REFUSING = """
  CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'refused by the test' USING ERRCODE = '{sqlstate}'; END $$;
  CREATE {kind} TRIGGER refuse {when} ON stores {deferred} FOR EACH ROW WHEN (NEW.name LIKE 'Bad%')
    EXECUTE FUNCTION refuse()"""
AT_ONCE = {"kind": "", "when": "BEFORE INSERT OR UPDATE", "deferred": ""}
AT_COMMIT = {
    "kind": "CONSTRAINT",
    "when": "AFTER INSERT OR UPDATE",
    "deferred": "DEFERRABLE INITIALLY DEFERRED",
}

WARNING = """
  CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE WARNING 'audited'; RETURN NULL; END $$;
  CREATE TRIGGER warn AFTER INSERT ON stores FOR EACH ROW EXECUTE FUNCTION warn()"""


def execute(database: Postgres, statement: str) -> None:
    """Do something to a database as its administrator."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(statement.encode())


async def outcome_of(write: object) -> tuple[Outcome, str]:
    assert isinstance(write, asyncio.Future)
    with pytest.raises(Unavailable) as caught:
        await write
    return caught.value.outcome, str(caught.value)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log's lines from now on."""
    lines: list[str] = []
    monkeypatch.setattr(events, "write_line", lines.append)
    monkeypatch.setattr(events, "_due", {})  # other tests have logged the same just now
    return lines


REFUSED = [
    ("53100", AT_ONCE, (Outcome.NONE, "The database is out of space, memory or connections")),
    ("25006", AT_ONCE, (Outcome.NONE, "The database is read-only")),
    ("40001", AT_ONCE, (Outcome.NONE, "The database is busy")),
    ("55P03", AT_ONCE, (Outcome.NONE, "The database is locked")),
    ("55000", AT_ONCE, (Outcome.NONE, "The database failed")),
    ("0A000", AT_ONCE, (Outcome.NONE, "The database failed")),
    ("XX001", AT_ONCE, (Outcome.NONE, "The database failed")),
    ("P0001", AT_ONCE, (Outcome.NONE, "The database failed")),
    ("P0001", AT_COMMIT, (Outcome.NONE, "The database failed")),
    ("40001", AT_COMMIT, (Outcome.NONE, "The database is busy")),
    ("40003", AT_COMMIT, (Outcome.UNKNOWN, "The database is busy")),
    ("57014", AT_COMMIT, (Outcome.UNKNOWN, "The database does not respond")),
    ("XX000", AT_COMMIT, (Outcome.UNKNOWN, "The database failed")),
]


async def test_a_refused_write_says_whether_it_may_have_happened(database: Postgres) -> None:
    """After it the same connection writes on."""
    async with handle(database) as collection:
        await create(collection, Payload("Store"))
        for id, (sqlstate, moment, expected) in enumerate(REFUSED, 2):
            with case(sqlstate):
                execute(database, REFUSING.format(sqlstate=sqlstate, **moment))
                assert await outcome_of(create(collection, Payload("Bad"))) == expected
                assert await outcome_of(replace(collection, 1, Payload("Bad too"))) == expected
                assert await create(collection, Payload("Store")) == a_store(id, "Store", None, id)
                execute(database, "DROP FUNCTION refuse CASCADE")
        assert {store["name"] for store in await stores(collection)} == {"Store"}
    assert [seq for seq, *_ in database.changes()] == list(range(1, len(REFUSED) + 2))


@pytest.mark.parametrize("moment", [AT_ONCE, AT_COMMIT], ids=["at once", "at commit"])
@pytest.mark.parametrize("sqlstate", ["23514", "P0001"])
async def test_what_is_wrong_with_the_data_of_one_write_costs_its_neighbours_nothing(
    database: Postgres, sqlstate: str, moment: dict[str, str]
) -> None:
    """As by a constraint or a trigger that was added. It is not a bug either."""
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        execute(database, REFUSING.format(sqlstate=sqlstate, **moment))
        names = ["A", "Bad", "B", "Bad", "C"]
        done = await asyncio.gather(
            *(create(collection, Payload(name)) for name in names), return_exceptions=True
        )
        good = [one.name for one in done if isinstance(one, Store)]
        assert {type(one) for one in done} == {Store, Unavailable}
        assert good == ["A", "B", "C"]
        assert await create(collection, Payload("Next")) == a_store(5, "Next", None, 5)


async def test_a_warning_of_a_trigger_is_no_standby_that_does_not_respond(
    database: Postgres,
) -> None:
    """The server warns too, of each new transaction, as the numbers of transactions run out."""
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        execute(database, WARNING)
        assert await create(collection, Payload("Second")) == a_store(2, "Second", None, 2)
        assert not await collection.refusal_of_writes(probe=False)


async def test_what_nobody_expects_is_in_the_log_and_a_503(
    database: Postgres, log: list[str]
) -> None:
    """As when an operator drops the tables of a running service; it heals when they are back."""
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        execute(database, "ALTER TABLE stores RENAME TO hidden")
        for question in (
            lambda: get(collection, 1),
            lambda: listing(collection),
            lambda: listing(collection, "x"),
            collection.check,
            lambda: create(collection, Payload("Second")),
        ):
            with pytest.raises(Unavailable):
                await question()
        execute(database, "ALTER TABLE hidden RENAME TO stores")
        assert await get(collection, 1) == a_store(1, "First", None, 1)
        assert (await create(collection, Payload("Second"))).id == 2
    assert "database refused a statement" in "".join(log)


@pytest.mark.parametrize("lock", ["changes IN SHARE MODE", "keys IN ACCESS EXCLUSIVE MODE"])
async def test_a_lock_of_a_table_that_a_read_does_not_need_does_not_keep_it(
    database: Postgres, lock: str
) -> None:
    """As of an index that is made, or of VACUUM FULL: not on a new connection either."""
    async with handle(database) as collection:
        assert isinstance(collection, PostgresCollection)
        first = await create(collection, Payload("First"))
        with psycopg.connect(database.url) as other:
            other.execute(f"LOCK TABLE {lock}".encode())
            for connection in list(collection._pool._connections):
                connection.drop("dropped by the test")
            async with asyncio.timeout(TIMEOUT):
                assert await get(collection, 1) == first
                queries = (Query(), Query(limit=1), Query("First"))
                lists = await asyncio.gather(*(collection.list(query) for query in queries))
                assert {each.first for each in lists} == {b'{"id":1,"name":"First","address":null}'}


@pytest.mark.parametrize("table", ["collection", "stores", "changes", "keys"])
async def test_a_statement_whose_first_use_fails_is_prepared_with_the_next_one(
    database: Postgres, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Those before it in the round trip are not prepared twice, which the server would refuse."""
    monkeypatch.setitem(session.SERVING, "lock_timeout", "50ms")
    statements = (
        (b"state", ()),
        (b"get", ("{1}",)),
        (b"was", (1, 1)),
        (b"get", ("{2}",)),
        (b"find keys", ("{1}",)),
    )
    async with handle(database) as collection:
        assert isinstance(collection, PostgresCollection)
        await collection.tokens()
        (connection,) = collection._pool._connections
        with psycopg.connect(database.url) as other:
            other.execute(
                f"LOCK TABLE {COLLECTION_TABLE if table == 'collection' else table}".encode()
            )
            with pytest.raises(Unavailable, match="locked"):
                await collection._pool.execute(*statements)
        for _ in range(2):
            results = await collection._pool.execute(*statements)
            assert [result.ntuples for result in results] == [1, 0, 0, 0, 0]
        assert {connection} == collection._pool._connections


async def test_what_was_prepared_is_forgotten_when_a_column_gets_another_type(
    database: Postgres,
) -> None:
    """The server refuses it for as long as the session lasts."""
    async with handle(database) as collection:
        keyed = partial(collection.write, Create(Payload("First"), key=("1", 1)))
        first, again = await keyed(), await keyed()
        assert await get(collection, 1) == first
        execute(database, "ALTER TABLE stores ALTER name TYPE varchar(30)")
        assert (await get(collection, 1), await keyed()) == (first, again)
        execute(database, "ALTER TABLE changes ALTER name TYPE varchar(30)")
        assert (await now(collection.get_at(1, Moment(1))), await keyed()) == (first, again)
        assert await create(collection, Payload("Second")) == a_store(2, "Second", None, 2)


async def test_a_read_that_meets_a_lock_is_in_the_log(
    database: Postgres, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(session.SERVING, "lock_timeout", "50ms")
    async with handle(database) as collection:
        await create(collection, Payload("First"))
        with psycopg.connect(database.url) as other:
            other.execute("LOCK TABLE stores")
            with pytest.raises(Unavailable, match="locked"):
                await get(collection, 1)
    assert "lock timeout" in "".join(log)


async def test_what_waits_too_long_is_refused(database: Postgres) -> None:
    """While every connection is busy for longer than a client is kept waiting."""
    async with handle(database) as collection:
        assert isinstance(collection, PostgresCollection)
        await create(collection, Payload("First"))
        loop = asyncio.get_running_loop()
        busy = [await collection._pool.acquire(loop.time() + 5) for _ in range(pool.POOL_SIZE)]
        for question in (lambda: get(collection, 1), lambda: create(collection, Payload("Second"))):
            with pytest.raises(Unavailable) as caught:
                await asyncio.wait_for(question(), 10)
            assert caught.value.outcome is Outcome.NONE
        for connection in busy:
            collection._pool.release(connection)
        assert await get(collection, 1) == a_store(1, "First", None, 1)


async def test_an_old_connection_is_replaced_and_the_last_only_by_another(
    database: Postgres, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full server another client takes the place of each that is closed. The log says why
    there are no more."""

    async def refuse() -> PipelineConnection:
        raise Unavailable("sorry, too many clients already")

    async with handle(database) as collection:
        assert isinstance(collection, PostgresCollection)
        connections = collection._pool._connections
        await create(collection, Payload("x"))
        deadline = asyncio.get_running_loop().time() + 5
        old = {await collection._pool.acquire(deadline) for _ in range(3)}
        for each in old:
            each.since -= pool.MAX_CONNECTION_AGE
            collection._pool.release(each)
        with monkeypatch.context() as full:
            full.setattr(collection._pool, "_connect", refuse)
            for number in range(2, 20):
                assert (await create(collection, Payload("x"))).id == number
                await asyncio.gather(get(collection, number), stores(collection))
            assert len(connections) == 1
            assert connections <= old
        await until(lambda: connections - old)
        assert not connections & old
    (line,) = log
    assert "sorry, too many clients already" in line
    assert "connections=1" in line


async def test_a_connection_that_came_too_late_is_given_back(database: Postgres) -> None:
    """The request that waited for it was cancelled just then."""
    async with handle(database) as collection:
        assert isinstance(collection, PostgresCollection)
        await collection.check()
        connections, deadline = collection._pool, asyncio.get_running_loop().time() + TIMEOUT
        busy = [await connections.acquire(deadline) for _ in range(pool.POOL_SIZE)]
        waiting = asyncio.create_task(connections.acquire(deadline))
        await asyncio.sleep(0.01)
        connections.release(busy[0])
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await connections.acquire(deadline) is busy[0]


async def test_a_connection_that_was_lost_while_it_was_idle_is_given_to_nobody(
    database: Postgres,
) -> None:
    async with handle(database) as collection:
        assert isinstance(collection, PostgresCollection)
        await create(collection, Payload("First"))
        (lost,) = collection._pool._idle
        ours = "datname = current_database() AND pid <> pg_backend_pid()"
        execute(database, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
        await until(lambda: lost.lost)
        assert await create(collection, Payload("Second")) == a_store(2, "Second", None, 2)


async def test_one_connection_serves_all_where_the_server_lets_in_no_more(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for more now and then, not with each request."""
    attempts: list[None] = []

    async def refuse() -> PipelineConnection:
        attempts.append(None)
        raise Unavailable("too many connections for role")

    async with handle(database) as collection:
        assert isinstance(collection, PostgresCollection)
        first = await create(collection, Payload("First"))
        monkeypatch.setattr(collection._pool, "_connect", refuse)
        began = asyncio.get_running_loop().time()
        second = create(collection, Payload("Second"))
        for _ in range(50):
            read, listed = await asyncio.gather(get(collection, 1), stores(collection))
            assert (read, listed[0]) == (first, shown(1, "First"))
        assert (await second).id == 2
        assert await get(collection, 1) == first
        took = asyncio.get_running_loop().time() - began
        assert 1 <= len(attempts) <= 2 + took / pool.RETRY_PAUSE


async def test_a_text_that_libpq_would_cut_is_not_stored(database: Postgres) -> None:
    async with handle(database) as collection:
        cut, whole = create(collection, Payload("A\0B")), create(collection, Payload("C"))
        with pytest.raises(ValueError, match=r"U\+0000"):
            await cut
        assert await whole == a_store(1, "C", None, 1)


def test_whatever_keeps_it_from_connecting_it_tries_again(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the process has neither a file nor a thread left for that."""
    prepare_it = postgres_schema.prepare
    hindrances = [
        Unavailable("not yet"),
        OSError(errno.EMFILE, "Too many open files"),
        RuntimeError("no more threads"),
    ]

    def prepare(url: str) -> str:
        if hindrances:
            raise hindrances.pop(0)
        return prepare_it(url)

    async def main() -> Store | None:
        async with opened(database.url) as collection, asyncio.timeout(TIMEOUT):
            while hindrances:
                with pytest.raises(Unavailable):
                    await get(collection, 1)
                await asyncio.sleep(0.01)
            while True:
                with suppress(Unavailable):
                    return await get(collection, 1)
                await asyncio.sleep(0.01)

    make(database.url)
    monkeypatch.setattr("storekeeper.storage.postgres.schema.prepare", prepare)
    monkeypatch.setattr(pool, "RETRY_PAUSE", 0.01)
    assert run(main()) is None


def test_a_database_that_is_ready_is_prepared_without_a_lock(database: Postgres) -> None:
    """Another instance may hold that of migrations for long."""
    make(database.url)
    with psycopg.connect(database.url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (postgres_schema.MIGRATION_LOCK,))
        postgres_schema.prepare(database.url)
