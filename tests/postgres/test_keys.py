"""Conditions and keys on PostgreSQL: what a batch of them says to the server, and what is deleted, by whom, when."""

import asyncio
import time

import psycopg
import pytest
from msgspec.structs import astuple

from storekeeper import databases, key_index
from storekeeper import postgres as storekeeper_postgres
from storekeeper.collection import Collection, State
from storekeeper.commands import ANY, MAX_KEY_AGE, MAX_KEYS, MAX_KEYS_DELETED, Create, Replace
from storekeeper.errors import KeyReused, Outcome, PreconditionFailed, Unavailable
from storekeeper.postgres import PostgresCollection, keys
from storekeeper.stores import Payload, Replay, Store
from tests.harness.collection import create, now, numbered, replace, run, stores
from tests.harness.databases import Postgres, handle, postgres
from tests.harness.postgres_server import replicated
from tests.harness.proxy import proxied
from tests.harness.stores import a_store
from tests.oracles.promises import until

OLD = frozenset(['"1.aaaaaaaa"'])
"""A tag that no store has."""


def statements(database: Postgres) -> list[str]:
    """Return the prepared statements that were carried out in a database that logs it, oldest first."""
    name = database.url.rpartition("/")[2]
    lines = [line for line in postgres().log.splitlines() if f"@{name} " in line and "execute " in line]
    executed = [line.partition("execute ")[2].partition(":")[0] for line in lines]
    return [statement for statement in executed if statement != "<unnamed>"]


def remembered(database: Postgres) -> list[tuple[int, str]]:
    """Return the numbers of the rows of keys that are remembered, and the last key in each."""
    with psycopg.connect(database.url) as connection:
        return connection.execute("SELECT n, entries::json -> -1 ->> 0 FROM keys ORDER BY n").fetchall()


def insert_keys(database: Postgres, count: int, at: int, first: int = 1) -> None:
    """Have a collection remember keys of that time, each in a row of its own; each key is its number."""
    with psycopg.connect(database.url) as connection:
        connection.execute(
            "INSERT INTO keys SELECT n, %s, format('[[\"%%s\",0,1]]', n) FROM generate_series(%s::bigint, %s) AS n",
            (at, first, first + count - 1),
        )


async def written(collection: Collection, *numbers: int) -> list[type]:
    """Write creates with these keys, all in one batch; return what each led to."""
    commands = [Create(Payload(f"Store {number}"), key=(str(number), 1)) for number in numbers]
    done = await asyncio.gather(*map(collection.write, commands), return_exceptions=True)
    return [type(result) for result in done]


# What a batch says to the server.


def test_conditions_and_keys_take_no_more_round_trips_and_a_refusal_splits_no_batch(database: Postgres) -> None:
    async def main() -> None:
        async with handle(database) as collection:
            await collection.load(numbered(3))
            await collection.write(Create(Payload("Known"), key=("1", 1)))
            postgres().sql(f"ALTER DATABASE {database.url.rpartition('/')[2]} SET log_statement = 'all'")
        async with handle(database) as collection:
            assert isinstance(collection, PostgresCollection)
            await collection._writer.load_keys()
            before = len(statements(database))
            done = await asyncio.gather(
                collection.write(Replace(1, Payload("New"), if_match=OLD)),
                collection.write(Create(Payload("Other"), key=("1", 2))),
                collection.write(Create(Payload("Known"), key=("1", 1))),
                collection.write(Replace(2, Payload("New"), if_match=ANY, key=("2", 2))),
                collection.write(Replace(9, Payload("New"), key=("3", 3))),
                replace(collection, 3, Payload("Store 3", "3 Road")),
                create(collection, Payload("Last")),
                return_exceptions=True,
            )
            assert [type(one) for one in done] == [
                PreconditionFailed, KeyReused, Replay, Store, type(None), Store, Store,
            ]  # fmt: skip
            assert (done[2], done[3]) == (a_store(4, "Known", None, 4), a_store(2, "New", None, 5))
            assert (done[5], done[6]) == (a_store(3, "Store 3", "3 Road", 3), a_store(5, "Last", None, 6))
            assert statements(database)[before:] == [
                "begin", "lock", "touched", "new keys", "remembered",
                "create", "replace", "change", "count", "remember", "forget", "commit",
            ]  # fmt: skip
            assert not await collection.refusal_of_writes()
            assert collection._state.reason == ""

    run(main())
    assert len(remembered(database)) == 2


@pytest.mark.parametrize(
    "command", [Replace(1, Payload("Store 1", "1 Road")), Replace(1, Payload("B"), if_match=OLD)]
)
def test_a_batch_that_changes_nothing_commits_nothing(database: Postgres, command: Replace) -> None:
    async def main() -> None:
        async with handle(database) as collection:
            await collection.load(numbered(1))
            name = database.url.rpartition("/")[2]
            postgres().sql(f"ALTER DATABASE {name} SET log_statement = 'all'")
        async with handle(database) as collection:
            before = await now(collection.state())
            said = len(statements(database))
            await asyncio.gather(*(collection.write(command) for _ in range(5)), return_exceptions=True)
            assert statements(database)[said:] == ["begin", "lock", "touched", "rollback"]
            assert await now(collection.state()) == before

    run(main())


def test_addresses_are_compared_where_they_are(database: Postgres) -> None:
    """What comes back for writes of the longest addresses is not the addresses, whether they are equal or not."""
    address = "x" * 2**20

    async def main() -> int:
        async with handle(Postgres(url)) as collection:
            await collection.load(Payload("Long", address) for _ in range(12))
            await now(collection.state())
            received = proxy.passed[1]
            writes = [replace(collection, id, Payload("Long", address)) for id in range(1, 13)]
            writes += [collection.write(Replace(1, Payload("Short"), if_match=OLD, key=("1", 1)))]
            done = await asyncio.gather(*writes, return_exceptions=True)
            assert [type(one) for one in done] == [Store] * 12 + [PreconditionFailed]
            assert await now(collection.state()) == State(12, 12, done[0].epoch)  # type: ignore[union-attr]  # a Store
            return proxy.passed[1] - received

    with proxied(postgres().port) as proxy:
        url = database.url.replace(f":{postgres().port}/", f":{proxy.port}/")
        assert run(main()) < 100_000


def test_a_key_of_another_request_brings_no_address(database: Postgres) -> None:
    async def main() -> int:
        async with handle(Postgres(url)) as collection:
            await collection.write(Create(Payload("Long", "x" * 2**20), key=("7", 1)))
            received = proxy.passed[1]
            with pytest.raises(KeyReused):
                await collection.write(Create(Payload("Short"), key=("7", 2)))
            few = proxy.passed[1] - received
            done = await asyncio.gather(
                collection.write(Create(Payload("Long", "x" * 2**20), key=("7", 1))),
                collection.write(Create(Payload("Short"), key=("7", 3))),
                return_exceptions=True,
            )
            assert [type(one) for one in done] == [Replay, KeyReused]
            assert done[0] == a_store(1, "Long", "x" * 2**20, 1)
            return few

    with proxied(postgres().port) as proxy:
        url = database.url.replace(f":{postgres().port}/", f":{proxy.port}/")
        assert run(main()) < 10_000


# Over instances.


def test_two_instances_that_get_one_key_at_once_make_one_store(database: Postgres) -> None:
    """200 times; whichever comes second waits for the lock, and finds the key."""

    async def main() -> None:
        async with handle(database) as one, handle(database) as two:
            for number in range(1, 201):
                command = Create(Payload(f"Store {number}"), key=(str(number), number))
                done = await asyncio.gather(one.write(command), two.write(command))
                assert [*done] == [a_store(number, f"Store {number}", None, number)] * 2
                assert {type(store) for store in done} == {Store, Replay}
                assert len({store.epoch for store in done if store}) == 1
            assert len(await stores(one)) == 200

    run(main())
    assert [int(key) for _, key in remembered(database)] == [*range(1, 201)]


@pytest.mark.thorough
def test_a_key_is_not_replayed_while_the_standby_is_gone() -> None:
    """The wait of the first try is cancelled, so that its store is committed here alone; a failover would lose it."""
    keyed = Create(Payload("Keyed"), key=("5", 5))
    unchanged = Replace(1, Payload("First"))

    async def main() -> None:
        async with handle(Postgres(primary.new_database())) as collection:
            assert await create(collection, Payload("First")) == a_store(1, "First", None, 1)
            standby.kill()
            # The first waits for the standby; the second waits for the lock of the first.
            assert await refusal(collection, keyed) is Outcome.UNKNOWN
            assert await refusal(collection, keyed) is Outcome.NONE
            assert primary.sql(f"SELECT count(pg_cancel_backend(pid)) {waiting}") == "1"
            for command in (keyed, unchanged):
                assert await refusal(collection, command, cancel=True) is Outcome.UNKNOWN
            assert len(await stores(collection)) == 2
            standby.start()
            replay = await retried(collection, keyed)
            assert (type(replay), replay) == (Replay, a_store(2, "Keyed", None, 2))
            assert await retried(collection, unchanged) == a_store(1, "First", None, 1)
            assert await now(collection.state()) == State(2, 2, replay.epoch)

    async def refusal(collection: Collection, command: Create | Replace, *, cancel: bool = False) -> Outcome:
        writing = asyncio.ensure_future(collection.write(command))
        if cancel:
            count = f"SELECT count(pg_cancel_backend(pid)) {waiting}"
            while not writing.done():
                await asyncio.to_thread(primary.sql, count)
        with pytest.raises(Unavailable) as caught:
            await writing
        return caught.value.outcome

    async def retried(collection: Collection, command: Create | Replace) -> Store:
        deadline = time.monotonic() + 30
        while True:
            try:
                store = await collection.write(command)
            except Unavailable:
                assert time.monotonic() < deadline
                continue
            assert store is not None
            return store

    waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    postgres()
    with replicated() as (primary, standby):
        run(main())


def test_a_key_that_the_database_swallows_is_not_acknowledged(database: Postgres) -> None:
    async def main() -> None:
        async with handle(database) as collection:
            await create(collection, Payload("First"))
            name = database.url.rpartition("/")[2]
            postgres().sql("CREATE RULE swallow AS ON INSERT TO keys DO INSTEAD NOTHING", name)
            with pytest.raises(Unavailable) as caught:
                await collection.write(Create(Payload("Second"), key=("1", 1)))
            assert caught.value.outcome is Outcome.UNKNOWN

    run(main())


# The index of each process.


def test_the_index_follows_other_processes_and_transactions_that_came_to_nothing(database: Postgres) -> None:
    async def main() -> None:
        async with handle(database) as one, handle(database) as two:
            assert await written(one, 1) == [Store]
            assert await written(two, 2) == [Store]
            assert await written(one, 1, 2) == [Replay] * 2
            with pytest.raises(Unavailable):
                await one.write(Create(Payload("x" * 31), key=("9", 9)))
            assert await written(two, 3, 9) == [Store] * 2
            assert await written(one, 4, 1, 2, 3, 9) == [Store, *[Replay] * 4]
            assert await written(two, 4, 5) == [Replay, Store]

    run(main())


def test_a_process_that_lacks_many_keys_finds_them_without_its_index(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LOAD_TIME", 0.0)
    many = 2 * key_index.MAX_LOADED

    async def main() -> None:
        async with handle(database) as collection:
            assert isinstance(collection, PostgresCollection)
            await create(collection, Payload("Store"))
            insert_keys(database, many, time.time_ns() // 1_000_000)
            index = collection._writer._keys
            for known in (key_index.MAX_LOADED, 2 * key_index.MAX_LOADED):
                assert await written(collection, 1, many, many + known) == [KeyReused, KeyReused, Store]
                assert index.known[0] == known
            assert await written(collection, many, many + known, 1) == [KeyReused, Replay, KeyReused]
            assert index.known[0] == many + 2

    run(main())


def test_keys_of_any_characters_are_found_without_the_index(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LOAD_TIME", 0.0)
    odd = ["],[", "[[", ",0,1],[", "%s", "'", "{a,b}", "NULL", "1 x", "0", "/u0041", "~" * 255]
    commands = [Create(Payload("Odd"), key=(key, 0)) for key in odd]

    async def main() -> None:
        async with handle(database) as first:
            await create(first, Payload("Store"))
            insert_keys(database, 2 * key_index.MAX_LOADED, time.time_ns() // 1_000_000)
            one = await first.write(commands[0])  # in a row of its own, all others in one
            others = await asyncio.gather(*map(first.write, commands[1:]))
        for command, made in zip(commands, [one, *others], strict=True):
            async with handle(database) as collection:
                assert isinstance(collection, PostgresCollection)
                again = await collection.write(command)
                assert isinstance(again, Replay)
                assert made == Store(*astuple(again))
                assert collection._writer._keys._behind

    run(main())


def test_to_find_a_key_without_the_index_no_row_is_read_as_json(database: Postgres) -> None:
    """Of as many as are remembered, that would take longer than a write may take."""
    storekeeper_postgres.prepare(database.url)
    insert_keys(database, 10, 0)
    with psycopg.connect(database.url) as connection:
        connection.execute("UPDATE keys SET entries = 'no JSON' WHERE n < 10")
        found = psycopg.RawCursor(connection).execute(keys.STATEMENTS[b"not indexed"].encode(), (0, ["10"]))
        assert found.fetchall() == [(10,)]


def test_keys_that_look_the_same_to_the_index_are_told_apart(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "hash", lambda _key: 5, raising=False)

    async def main() -> None:
        async with handle(database) as collection:
            assert [await written(collection, number) for number in range(3)] == [[Store]] * 3
            assert await written(collection, 0, 1, 2, 3) == [Replay, Replay, Replay, Store]

    run(main())


def test_a_key_that_was_committed_is_found_though_the_index_has_no_memory_for_it(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async def main() -> None:
        async with handle(database) as collection:
            assert await written(collection, 1) == [Store]
            with monkeypatch.context() as patch:
                patch.setattr(key_index.KeyIndex, "add", fail)
                assert await written(collection, 2) == [MemoryError]
            assert await written(collection, 2, 1, 3) == [Replay, Replay, Store]

    run(main())


@pytest.mark.parametrize(
    "rows", ["", """INSERT INTO keys VALUES (2, 1, '[["7",7,1],["8",8,1]]')"""], ids=["none", "other"]
)
def test_an_index_of_a_table_that_was_replaced_is_made_anew(database: Postgres, rows: str) -> None:
    """As by a restore beside a running service: the numbers go back, and are those of other keys."""

    async def main() -> None:
        async with handle(database) as collection:
            assert await written(collection, 1, 2) == [Store] * 2
            postgres().sql(f"TRUNCATE keys; {rows}", database.url.rpartition("/")[2])
            assert await written(collection, 1, 2, 3) == [Store] * 3
            assert await written(collection, 3, 2, 1) == [Replay] * 3

    run(main())


def test_a_new_epoch_makes_the_index_anew(database: Postgres) -> None:
    """A restore may have brought another table whose last row has the same number and time."""

    async def main() -> None:
        async with handle(database) as collection:
            assert await written(collection, 1, 2) == [Store] * 2
            name = database.url.rpartition("/")[2]
            postgres().sql("""UPDATE keys SET entries = replace(entries, '"1"', '"7"')""", name)
            databases.epoch(database.url, renew=True)
            assert await written(collection, 7) == [KeyReused]
            assert await written(collection, 1, 2) == [Store, Replay]

    run(main())


def test_a_new_epoch_makes_an_index_anew_that_no_write_has_used_yet(database: Postgres) -> None:
    async def main() -> None:
        async with handle(database) as busy, handle(database) as idle:
            assert isinstance(idle, PostgresCollection)
            assert await written(busy, 1, 2) == [Store] * 2
            await idle._writer.load_keys()
            name = database.url.rpartition("/")[2]
            postgres().sql("""UPDATE keys SET entries = replace(entries, '"1"', '"7"')""", name)
            databases.epoch(database.url, renew=True)
            assert await written(idle, 7) == [KeyReused]
            assert await written(idle, 1, 2) == [Store, Replay]

    run(main())


def test_an_index_of_many_keys_is_made_soon_after_a_start(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storekeeper_postgres, "FIRST_LOOK", 0.0)
    many = 3 * key_index.MAX_LOADED

    async def main() -> None:
        async with handle(database) as one, handle(database) as two:
            await create(one, Payload("Store"))
            insert_keys(database, many, time.time_ns() // 1_000_000)
            async with handle(database) as new:
                assert isinstance(new, PostgresCollection)
                index = new._writer._keys
                await asyncio.to_thread(until, lambda: index.known[0] == many)
                assert await written(new, many, 1, many + 1) == [KeyReused, KeyReused, Store]
            assert await written(two, many + 1, many + 2) == [Replay, Store]

    run(main())


def test_a_table_that_does_not_respond_keeps_no_write_beyond_its_deadline(database: Postgres) -> None:
    async def main() -> None:
        async with handle(database) as collection:
            assert isinstance(collection, PostgresCollection)
            await create(collection, Payload("Store"))
            with psycopg.connect(database.url) as other:
                other.execute("LOCK TABLE keys")
                deadline = asyncio.get_running_loop().time() + 0.2
                (result,) = await collection._writer.commit([Create(Payload("Late"), key=("1", 1))], deadline)
            assert isinstance(result, Unavailable)
            assert (result.outcome, asyncio.get_running_loop().time() - deadline < 1) == (Outcome.NONE, True)

    run(main())


# Old keys.


def test_a_write_with_a_key_deletes_the_oldest_that_are_too_old(database: Postgres) -> None:
    async def main() -> None:
        async with handle(database) as collection:
            await create(collection, Payload("First"))
            present = time.time_ns() // 1_000_000
            insert_keys(database, 1500, present - MAX_KEY_AGE - 60_000)
            insert_keys(database, 100, present - MAX_KEY_AGE + 60_000, 1501)
            await create(collection, Payload("Without a key"))
            assert len(remembered(database)) == 1600
            for first, key in ((MAX_KEYS_DELETED + 1, 10_001), (1501, 10_002), (1501, 10_003)):
                await collection.write(Create(Payload("Keyed"), key=(str(key), key)))
                assert remembered(database)[0] == (first, str(first))
            assert remembered(database)[-1] == (1603, "10003")
            assert await now(collection.state()) == State(5, 5, (await now(collection.state())).epoch)

    run(main())
    assert [n for n, _ in remembered(database)] == [*range(1501, 1604)]


def test_batches_look_for_old_keys_once_in_a_while_and_with_each_while_there_are_some(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres().sql(f"ALTER DATABASE {database.url.rpartition('/')[2]} SET log_statement = 'all'")

    async def looks(first_key: int, interval: float) -> list[bool]:
        monkeypatch.setattr(keys, "LOOK_INTERVAL", interval)
        looked = []
        async with handle(database) as collection:
            for key in range(first_key, first_key + 5):
                said = len(statements(database))
                await collection.write(Create(Payload("Keyed"), key=(str(key), key)))
                looked.append("forget" in statements(database)[said:])
        return looked

    assert all(run(looks(20_000, 0)))
    old = time.time_ns() // 1_000_000 - MAX_KEY_AGE - 60_000
    insert_keys(database, MAX_KEYS_DELETED + 1, old, -MAX_KEYS_DELETED)
    assert run(looks(10_000, 3600)) == [True, True, True, False, False]
    assert [n for n, _ in remembered(database)] == [*range(1, 11)]


def test_keys_beyond_the_number_that_is_remembered_are_deleted(database: Postgres) -> None:
    async def main() -> None:
        async with handle(database) as collection:
            await create(collection, Payload("First"))
            present = time.time_ns() // 1_000_000
            insert_keys(database, 20, present)
            insert_keys(database, 1, present, MAX_KEYS + 9)
            await collection.write(Create(Payload("Keyed"), key=("-1", 1)))

    run(main())
    assert remembered(database) == [
        *((n, str(n)) for n in range(11, 21)),
        (MAX_KEYS + 9, str(MAX_KEYS + 9)),
        (MAX_KEYS + 10, "-1"),
    ]


def test_an_idle_instance_deletes_all_old_keys_but_the_newest(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the keys came by way of another; it is no change."""
    monkeypatch.setattr(storekeeper_postgres, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(storekeeper_postgres, "KEYS_INTERVAL", 0.05)

    async def main() -> None:
        async with handle(database) as collection:
            await create(collection, Payload("First"))
            before = await now(collection.state())
            insert_keys(database, 2500, time.time_ns() // 1_000_000 - MAX_KEY_AGE - 60_000)
            await asyncio.to_thread(until, lambda: len(remembered(database)) == 1)
            assert await now(collection.state()) == before

    run(main())
    assert remembered(database) == [(2500, "2500")]


def test_an_idle_instance_writes_nothing_where_nothing_is_old(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storekeeper_postgres, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(storekeeper_postgres, "KEYS_INTERVAL", 0.01)
    postgres().sql(f"ALTER DATABASE {database.url.rpartition('/')[2]} SET log_statement = 'all'")

    async def main() -> None:
        async with handle(database) as collection:
            await collection.write(Create(Payload("First"), key=("1", 1)))
            said = len(statements(database))
            await asyncio.to_thread(until, lambda: len(statements(database)) > said + 3)
            assert set(statements(database)[said:]) == {"expired", "oldest key", "new keys"}

    run(main())


def test_what_keeps_old_keys_from_being_deleted_disturbs_nobody(database: Postgres) -> None:
    async def main() -> None:
        async with handle(database) as collection:
            assert isinstance(collection, PostgresCollection)
            await create(collection, Payload("First"))
            insert_keys(database, 5, 0)
            name = database.url.rpartition("/")[2]
            refuse = (
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE division_by_zero; END $$"
            )
            postgres().sql(refuse, name)
            postgres().sql("CREATE TRIGGER refuse BEFORE DELETE ON keys FOR EACH ROW EXECUTE FUNCTION refuse()", name)
            with pytest.raises(Unavailable):
                await collection._writer.forget_keys()
            assert len(remembered(database)) == 5
            assert await create(collection, Payload("Second")) == a_store(2, "Second", None, 2)

    run(main())


def test_what_silently_keeps_old_keys_does_not_keep_an_instance_busy(database: Postgres) -> None:
    """Else it would take the lock of all writers and commit over and over."""

    async def main() -> None:
        async with handle(database) as collection:
            assert isinstance(collection, PostgresCollection)
            await create(collection, Payload("First"))
            insert_keys(database, 5, 0)
            postgres().sql(
                "CREATE RULE keep AS ON DELETE TO keys DO INSTEAD NOTHING", database.url.rpartition("/")[2]
            )
            assert not await collection._writer.forget_keys()
            assert len(remembered(database)) == 5

    run(main())
