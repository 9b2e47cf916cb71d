"""Conditional and repeatable writes: what `commands.apply` decides, decided inside the
transaction."""

import asyncio
import time
from importlib import import_module
from typing import Any, cast

import msgspec
import pytest

from storekeeper.domain import commands
from storekeeper.domain.commands import ANY, Command, Create, Patch, Replace, tag
from storekeeper.domain.errors import KeyReused, PreconditionFailed
from storekeeper.domain.stores import Payload, PayloadPatch, Replay, Store
from storekeeper.log import events
from storekeeper.storage.collection import Collection
from tests.harness.collection import create, get, listing, numbered, numbers, stores
from tests.harness.databases import Database, handle
from tests.harness.in_process import until
from tests.harness.loading import add_all
from tests.harness.stores import a_store

CLIENTS = 100

COUNTERS, INCREMENTS = 8, 15


async def written(collection: Collection, command: Command) -> Store:
    store = await collection.write(command)
    assert store is not None
    return store


async def outcomes(*writes: tuple[Collection, Command]) -> list[Store | BaseException | None]:
    """Return what becomes of commands that are sent at once, in their order."""
    pending = [collection.write(command) for collection, command in writes]
    return await asyncio.gather(*pending, return_exceptions=True)


async def tags(collection: Collection, *versions: int) -> frozenset[str]:
    epoch = (await listing(collection)).epoch
    return frozenset(tag(version, epoch) for version in versions)


class TestConditions:
    """If-Match and If-None-Match."""

    async def test_a_replace_with_a_current_tag_writes_and_with_another_it_does_not(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(3))
            good = Replace(2, Payload("Good"), if_match=await tags(collection, 9, 2))
            assert await written(collection, good) == a_store(2, "Good", None, 4)
            with pytest.raises(
                PreconditionFailed, match="Store 2 has changed: its version is 4 now"
            ) as refused:
                await collection.write(
                    Replace(2, Payload("Late"), if_match=await tags(collection, 2))
                )
            assert {refused.value.tag} == await tags(collection, 4)
            foreign = frozenset([tag(4, "aaaaaaaa")])
            with pytest.raises(PreconditionFailed):
                await collection.write(Replace(2, Payload("Restored"), if_match=foreign))
            assert await get(collection, 2) == a_store(2, "Good", None, 4)
            assert await written(collection, Replace(2, Payload("Any"), if_match=ANY))
        assert len(database.changes()) == 5

    async def test_a_replace_with_if_none_match_writes_only_what_the_client_has_not_seen(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(1))
            for seen in (await tags(collection, 1), ANY):
                with pytest.raises(PreconditionFailed):
                    await collection.write(Replace(1, Payload("New"), if_none_match=seen))
            unseen = Replace(1, Payload("New"), if_none_match=await tags(collection, 7))
            assert await written(collection, unseen) == a_store(1, "New", None, 2)

    async def test_a_condition_on_a_missing_store_is_not_looked_at(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            assert (
                await collection.write(Replace(1, Payload("x"), if_match=await tags(collection, 1)))
                is None
            )

    async def test_a_create_with_the_tag_of_the_list_needs_the_list_unchanged(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            empty = await tags(collection, 0)
            first = Create(Payload("First"), if_match=empty)
            assert await written(collection, first) == a_store(1, "First", None, 1)
            with pytest.raises(
                PreconditionFailed, match="The list has changed: its version is 1 now"
            ) as refused:
                await collection.write(Create(Payload("Second"), if_match=empty))
            assert {refused.value.tag} == await tags(collection, 1)
        assert len(database.changes()) == 1

    @pytest.mark.parametrize("kind", [Create, Replace], ids=["create", "replace"])
    async def test_of_many_writers_with_one_version_exactly_one_wins(
        self, database: Database, kind: type[Command]
    ) -> None:
        async with handle(database) as one, handle(database) as two:
            await add_all(one, numbered(1))
            condition = await tags(one, 1)

            def command(number: int) -> Command:
                payload = Payload(f"Writer {number}")
                return (
                    Create(payload, condition) if kind is Create else Replace(1, payload, condition)
                )

            async def client(number: int) -> Store | BaseException | None:
                await asyncio.sleep(0.0002 * (number % 10))  # several batches
                return (await outcomes(((one, two)[number % 2], command(number))))[0]

            found = await asyncio.gather(*map(client, range(CLIENTS)))
            won = [result for result in found if isinstance(result, Store)]
            assert [type(result) for result in found].count(PreconditionFailed) == CLIENTS - 1
            assert [store.version for store in won] == [2]
            assert await get(two, won[0].id) == won[0]
        assert len(database.changes()) == 2

    async def test_an_old_tag_is_refused_also_for_what_the_store_already_is(
        self, database: Database
    ) -> None:
        """Only its key makes a repeat of a request (decision 34)."""
        async with handle(database) as collection:
            await add_all(collection, numbered(1))
            edit = Replace(1, Payload("Edited", "x"), if_match=await tags(collection, 1))
            keyed = msgspec.structs.replace(edit, key=("attempt", 1))
            assert await written(collection, keyed) == a_store(1, "Edited", "x", 2)
            with pytest.raises(PreconditionFailed) as refused:
                await collection.write(edit)
            assert {refused.value.tag} == await tags(collection, 2)
            again = await written(collection, keyed)
            assert (type(again), again.version) == (Replay, 2)
        assert len(database.changes()) == 2

    async def test_clients_that_count_up_with_one_tag_each_are_all_counted(
        self, database: Database
    ) -> None:
        """Several write the same content at once: only one of them may have counted."""
        async with handle(database) as one, handle(database) as two:
            await add_all(one, [Payload("Counter", "0")])

            async def count_up(number: int) -> None:
                collection = (one, two)[number % 2]
                for _ in range(INCREMENTS):
                    while True:
                        seen = await get(collection, 1)
                        assert seen is not None
                        counted = Payload("Counter", str(int(seen.address or "") + 1))
                        tag_seen = frozenset([tag(seen.version, seen.epoch)])
                        [result] = await outcomes((collection, Replace(1, counted, tag_seen)))
                        if isinstance(result, Store):
                            break
                        assert isinstance(result, PreconditionFailed)

            await asyncio.gather(*map(count_up, range(COUNTERS)))
            assert await get(one, 1) == a_store(1, "Counter", "120", 121)
        assert len(database.changes()) == 121


KEPT = msgspec.UNSET
PATCHED: list[tuple[Any, Any, tuple[str, str | None]]] = [
    # name and address that are sent, the content of a store "Old" at "1 Road" afterwards
    (KEPT, KEPT, ("Old", "1 Road")),
    ("Old", "1 Road", ("Old", "1 Road")),
    ("Old", KEPT, ("Old", "1 Road")),
    (KEPT, "1 Road", ("Old", "1 Road")),
    ("New", KEPT, ("New", "1 Road")),
    (KEPT, "2 Road", ("Old", "2 Road")),
    (KEPT, None, ("Old", None)),
    (KEPT, "", ("Old", "")),
    ("New", None, ("New", None)),
    ('"{a},\\ü🏪', "b\n", ('"{a},\\ü🏪', "b\n")),
]


class TestPatches:
    """A patch changes the fields that it has, and no other (decision 56)."""

    async def test_it_writes_what_it_has_and_keeps_the_rest(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, [Payload("Old", "1 Road")] * len(PATCHED))
            sent = [
                (collection, Patch(id, PayloadPatch(name, address)))
                for id, (name, address, _) in enumerate(PATCHED, 1)
            ]
            found = await outcomes(*sent)
            version = len(PATCHED)
            for id, (result, (_, _, wanted)) in enumerate(zip(found, PATCHED, strict=True), 1):
                version += wanted != ("Old", "1 Road")
                own = id if wanted == ("Old", "1 Road") else version
                assert result == a_store(id, *wanted, own) == await get(collection, id)
            assert await collection.write(Patch(99, PayloadPatch("New"))) is None
            assert await collection.write(Patch(2**70, PayloadPatch("New"))) is None
        assert len(database.changes()) == version

    async def test_two_people_who_change_one_field_each_lose_nothing(
        self, database: Database
    ) -> None:
        """Neither sends a condition; in one batch, and over two handles."""
        async with handle(database) as one, handle(database) as two:
            for id, other in ((1, one), (2, two)):
                await add_all(one, [Payload("Old", "1 Road")])
                await outcomes(
                    (one, Patch(id, PayloadPatch("New"))),
                    (other, Patch(id, PayloadPatch(address="2 Road"))),
                )
                seen = await get(two, id)
                assert seen is not None
                assert (seen.name, seen.address) == ("New", "2 Road")
        assert len(database.changes()) == 6

    async def test_it_follows_what_was_written_before_it_in_one_batch(
        self, database: Database
    ) -> None:
        async with handle(database) as one:
            await add_all(one, [Payload("Old", "1 Road")])
            await outcomes(
                (one, Replace(1, Payload("Newer"))),
                (one, Patch(1, PayloadPatch(address="2 Road"))),
                (one, Patch(1, PayloadPatch(address="2 Road"))),
                (one, Create(Payload("Second", "2"))),
                (one, Patch(2, PayloadPatch("Third"))),
            )
            assert await get(one, 1) == a_store(1, "Newer", "2 Road", 3)
            assert await get(one, 2) == a_store(2, "Third", "2", 5)
        assert len(database.changes()) == 5

    async def test_its_tag_is_compared_and_its_key_gives_what_the_store_became(
        self, database: Database
    ) -> None:
        async with handle(database) as one:
            await add_all(one, [Payload("Old", "1 Road")])
            current = await tags(one, 1)
            patch = Patch(1, PayloadPatch("New"), current, key=("k", 1))
            assert await written(one, patch) == a_store(1, "New", "1 Road", 2)
            for refused in (
                Patch(1, PayloadPatch("Newer"), current),
                Patch(1, PayloadPatch("New"), current),
                Patch(1, PayloadPatch(), if_none_match=ANY),
            ):
                with pytest.raises(PreconditionFailed, match="its version is 2 now"):
                    await one.write(refused)
            await one.write(Replace(1, Payload("Later")))
            again, other = await outcomes((one, patch), (one, patch))
            assert type(again) is Replay
            assert again == other == Replay(1, "New", "1 Road", 2, again.epoch)
            with pytest.raises(KeyReused):
                await one.write(msgspec.structs.replace(patch, key=("k", 2)))
            assert await get(one, 1) == a_store(1, "Later", None, 3)
        assert len(database.changes()) == 3

    async def test_a_batch_that_keeps_too_much_is_committed_in_parts(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in ("sqlite", "postgres"):
            writer = import_module(f"storekeeper.storage.{module}.writer")
            monkeypatch.setattr(writer, "MAX_KEPT_BYTES", 100)
        addresses = ["a" * 40, "b" * 60, "c" * 61, "d" * 300, "", "e" * 50]
        async with handle(database) as one:
            await add_all(one, [Payload("Old", address) for address in addresses])
            for name in ("New", "Newer"):  # the second time, half of them are replays
                patches = [
                    Patch(id, PayloadPatch("New" if id % 2 else name), key=(f"k{id}", id % 2))
                    for id in range(1, 7)
                ]
                if name == "Newer":
                    patches = [
                        patch if patch.id % 2 else msgspec.structs.replace(patch, key=None)
                        for patch in patches
                    ]
                found = await outcomes(*((one, patch) for patch in patches))
                shown = [(each.name, each.address) for each in found if isinstance(each, Store)]
                assert shown == [
                    ("New" if id % 2 else name, address) for id, address in enumerate(addresses, 1)
                ]
        assert len(database.changes()) == 15


class TestUnchanged:
    """A replace of a store by what it is."""

    @pytest.mark.parametrize("address", [None, "", "1 Road"])
    async def test_it_makes_no_change_and_no_commit(
        self, database: Database, address: str | None
    ) -> None:
        async with handle(database) as one, handle(database) as two:
            await create(one, Payload("Same", address))
            before = numbers(one)
            same = Replace(1, Payload("Same", address))
            assert await outcomes((one, same), (one, same)) == [a_store(1, "Same", address, 1)] * 2
            assert await written(two, same) == a_store(1, "Same", address, 1)
            assert numbers(one) == before
            for other in {None, "", "1 Road"} - {address}:
                assert (await written(two, Replace(1, Payload("Same", other)))).address == other
        assert len(database.changes()) == 3

    async def test_what_is_unchanged_is_seen_within_a_batch(self, database: Database) -> None:
        async with handle(database) as collection:
            writes: list[Command] = [Create(Payload("A"))]
            writes += [Replace(1, Payload(name)) for name in ("A", "B", "B", "A")]
            found = await outcomes(*((collection, write) for write in writes))
            assert [cast("Store", store).version for store in found] == [1, 1, 2, 2, 3]
        assert len(database.changes()) == 3


class TestKeys:
    """Idempotency-Key."""

    async def test_a_repeated_request_gets_the_first_result_wherever_it_is_sent(
        self, database: Database
    ) -> None:
        command = Create(Payload("Once", "1 Road"), key=("~" * 255, -(2**63)))
        async with handle(database) as one, handle(database) as two:
            first, again = await outcomes((one, command), (one, command))
            assert (type(first), first) == (Store, a_store(1, "Once", "1 Road", 1))
            await written(two, Replace(1, Payload("Changed")))
            for result in (again, await written(one, command), await written(two, command)):
                assert (type(result), result) == (Replay, a_store(1, "Once", "1 Road", 1))
        async with handle(database) as reopened:
            assert type(await written(reopened, command)) is Replay
            assert len(await stores(reopened)) == 1

    async def test_requests_with_one_key_at_once_in_two_handles_write_once(
        self, database: Database
    ) -> None:
        async with handle(database) as one, handle(database) as two:
            for number in range(20):
                command = Create(Payload(f"{number}"), key=(str(number), 1))
                found = await outcomes((one, command), (two, command))
                assert {type(result) for result in found} == {Store, Replay}
                assert len({cast("Store", result).version for result in found}) == 1
        assert len(database.changes()) == 20

    async def test_a_key_of_another_request_is_refused_and_writes_nothing(
        self, database: Database
    ) -> None:
        async with handle(database) as one, handle(database) as two:
            await written(one, Create(Payload("First"), key=("1", 1)))
            for collection in (one, two):
                found = await outcomes(
                    (collection, Create(Payload("Other"), key=("1", 2))),
                    (collection, Create(Payload("First"), key=("1", 1))),
                    (collection, Create(Payload("Third"), key=("1", 3))),
                )
                assert [type(result) for result in found] == [KeyReused, Replay, KeyReused]
                assert found[1] == a_store(1, "First", None, 1)
            assert not await one.refusal_of_writes(probe=False)
        assert len(database.changes()) == 1

    async def test_a_replay_comes_before_conditions(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(1))
            command = Replace(1, Payload("Edited"), await tags(collection, 1), key=("1", 1))
            await written(collection, command)
            await written(collection, Replace(1, Payload("Later")))
            assert await written(collection, command) == a_store(1, "Edited", None, 2)
            assert await get(collection, 1) == a_store(1, "Later", None, 3)

    async def test_only_stores_are_remembered(self, database: Database) -> None:
        async with handle(database) as collection:
            key = ("1", 1)
            assert await collection.write(Replace(1, Payload("Missing"), key=key)) is None
            for _ in range(2):
                with pytest.raises(PreconditionFailed):
                    await collection.write(Create(Payload("x"), await tags(collection, 7), key))
            assert type(await written(collection, Create(Payload("New"), key=key))) is Store

    async def test_a_write_that_changes_nothing_remembers_its_key(self, database: Database) -> None:
        async with handle(database) as one, handle(database) as two:
            await create(one, Payload("Same"))
            command = Replace(1, Payload("Same"), key=("1", 1))
            assert await written(one, command) == a_store(1, "Same", None, 1)
            await written(two, Replace(1, Payload("Other")))
            assert type(await written(two, command)) is Replay
            assert await get(one, 1) == a_store(1, "Other", None, 2)
        assert len(database.changes()) == 2

    async def test_old_keys_are_deleted_but_never_the_latest_100_000(
        self, database: Database
    ) -> None:
        """The oldest go first, a thousand at once, after a write that has a key."""
        day_ago = time.time_ns() // 1_000_000 - commands.MIN_KEY_AGE
        async with handle(database) as collection:
            await written(collection, Create(Payload("First")))
            database.add_keys(1500, day_ago - 60_000)
            database.add_keys(commands.MIN_KEYS - 1, day_ago - 60_000)
            database.add_keys(10, day_ago + 3_600_000)
            for number in range(3):
                await written(collection, Create(Payload("New"), key=(f"new {number}", 1)))
                # On PostgreSQL a write does not wait for that.
                await until(lambda: len(database.key_rows()) <= commands.MIN_KEYS + 512)
            assert len(database.key_rows()) == commands.MIN_KEYS + 512
            assert database.key_rows()[0][0] == "1001"

    async def test_keys_that_cannot_be_deleted_stay_and_cost_no_write(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log: list[str] = []
        monkeypatch.setattr(events, "write_line", log.append)
        async with handle(database) as collection:
            await written(collection, Create(Payload("First")))
            database.add_keys(commands.MIN_KEYS + 1010, 0)
            database.keep_keys()
            for number in range(2):
                keyed = [
                    Create(Payload("New"), key=(f"new {number} {place}", 1)) for place in range(3)
                ]
                found = await outcomes(
                    *((collection, one) for one in (*keyed, Create(Payload("New"))))
                )
                assert [type(result) for result in found] == [Store] * 4
            assert type(await written(collection, keyed[0])) is Replay
            await until(
                lambda: any(
                    "database refused a statement" in line and "kept" in line for line in log
                )
            )
        assert len(database.key_rows()) == commands.MIN_KEYS + 1016

    async def test_keys_of_a_day_are_kept_however_many_they_are(self, database: Database) -> None:
        async with handle(database) as collection:
            first = Create(Payload("First"), key=("first", 1))
            await written(collection, first)
            database.add_keys(commands.MIN_KEYS + 10, time.time_ns() // 1_000_000)
            await written(collection, Create(Payload("New"), key=("new", 1)))
            assert type(await written(collection, first)) is Replay

    async def test_a_write_that_fails_does_not_remember_its_key(self, database: Database) -> None:
        async with handle(database) as collection:
            bad = Create(Payload("x" * 31), key=("1", 1))
            good = Create(Payload("Good"), key=("2", 2))
            found = await outcomes((collection, bad), (collection, good))
            assert [isinstance(result, Store) for result in found] == [False, True]
            assert type(await written(collection, good)) is Replay
            assert type(await written(collection, Create(Payload("Short"), key=("1", 1)))) is Store
        assert len(database.changes()) == 2


async def test_no_clock_decides_whether_a_key_counts(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten days ahead for one request with a key, then right again, then ten days behind."""
    right = time.time_ns
    ten_days = 10 * commands.MIN_KEY_AGE * 1_000_000
    async with handle(database) as collection:
        keyed = [Create(Payload(f"Store {number}"), key=(str(number), 1)) for number in range(4)]
        await written(collection, keyed[0])
        for number, off in enumerate((ten_days, 0, -ten_days), 1):
            with monkeypatch.context() as patch:
                patch.setattr(time, "time_ns", lambda off=off: right() + off)
                await written(collection, keyed[number])
                assert [type(await written(collection, each)) for each in keyed[:number]] == [
                    Replay
                ] * number
        assert [type(await written(collection, each)) for each in keyed] == [Replay] * 4
        assert len(await stores(collection)) == 4
