"""The promises of `storekeeper.storage.collection`, for every kind of database; those of lists are
in the next module."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import chain
from typing import Any

import pytest

from storekeeper.domain.errors import Unavailable
from storekeeper.domain.queries import Moment, Query
from storekeeper.domain.stores import EXAMPLES, Payload, Store
from storekeeper.storage.collection import Collection
from tests.harness.collection import (
    MANY,
    create,
    get,
    listing,
    now,
    numbered,
    numbers,
    replace,
    run,
    stores,
)
from tests.harness.databases import Database, handle
from tests.harness.loading import add_all
from tests.harness.stores import a_row, a_store, a_store_with, content, shown

HUGE = [2**31, 2**32 + 1, 2**63 - 1, 2**63, 2**64 + 1, 10**30]

Write = asyncio.Future[Any]


class TestCollection:
    """Whatever holds the stores keeps all of this."""

    async def test_a_created_store_is_what_was_sent_with_the_next_id(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            assert await create(collection, Payload("First", "1 Road")) == a_store(
                1, "First", "1 Road", 1
            )
            assert await create(collection, Payload("Second")) == a_store(2, "Second", None, 2)
            assert await create(collection, Payload("Third", "")) == a_store(3, "Third", "", 3)
            assert await get(collection, 2) == a_store(2, "Second", None, 2)
            assert await get(collection, 3) == a_store(3, "Third", "", 3)
            assert await get(collection, 4) is None

    async def test_an_empty_collection_lists_nothing(self, database: Database) -> None:
        async with handle(database) as collection:
            assert await stores(collection) == []
            assert await stores(collection, "First") == []
            assert await get(collection, 1) is None
            await collection.check()

    async def test_a_replace_changes_both_fields_and_keeps_the_id(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(3))
            assert await replace(collection, 2, Payload("New")) == a_store(2, "New", None, 4)
            assert await get(collection, 2) == a_store(2, "New", None, 4)
            assert [store["name"] for store in await stores(collection)] == [
                "Store 1",
                "New",
                "Store 3",
            ]

    async def test_a_replace_finds_a_store_created_just_before_it(self, database: Database) -> None:
        """Both may be of one batch."""
        async with handle(database) as collection:
            writes: list[Write] = [
                create(collection, Payload("A")),
                replace(collection, 1, Payload("B")),
                create(collection, Payload("C")),
                replace(collection, 2, Payload("D")),
                replace(collection, 1, Payload("E")),
            ]
            done = await asyncio.gather(*writes)
            assert [(store.id, store.name, store.version) for store in done if store] == [
                (1, "A", 1), (1, "B", 2), (2, "C", 3), (2, "D", 4), (1, "E", 5),
            ]  # fmt: skip
            assert [store["name"] for store in await stores(collection)] == ["E", "D"]

    async def test_a_missing_store_is_none_and_replacing_it_changes_nothing(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await create(collection, Payload("Only"))
            for id in (0, 2, *HUGE):
                assert await get(collection, id) is None, id
                assert await replace(collection, id, Payload("Ghost")) is None, id
            assert await stores(collection) == [shown(1, "Only")]
        assert database.changes() == [a_row(1, 1, "Only")]

    async def test_ids_are_dense_and_in_order_over_many_handles(self, database: Database) -> None:
        async with AsyncExitStack() as stack:
            handles = [await stack.enter_async_context(handle(database)) for _ in range(3)]

            async def client(collection: Collection) -> list[int]:
                return [(await create(collection, Payload("x"))).id for _ in range(20)]

            async def burst(collection: Collection) -> list[int]:
                return [
                    store.id
                    for store in await asyncio.gather(
                        *(create(collection, payload) for payload in numbered(150))
                    )
                ]

            clients = [client(collection) for collection in handles] + [
                burst(one) for one in handles
            ]
            found = await asyncio.gather(*clients)
            assert sorted(chain(*found)) == list(range(1, 511))
            assert all(ids == sorted(ids) for ids in found), "not in the order of the creates"

    def test_versions_are_the_numbers_of_the_changes(self, database: Database) -> None:
        acknowledged: list[Store] = []

        async def client(collection: Collection, number: int) -> None:
            for tick in range(12):
                name = f"{number}-{tick}"
                acknowledged.append(await create(collection, Payload(name)))
                if replaced := await replace(collection, number + tick, Payload(name, "moved")):
                    acknowledged.append(replaced)

        async def main() -> list[Store | None]:
            async with handle(database) as one, handle(database) as two:
                await asyncio.gather(
                    *(client(collection, n) for n in range(1, 9) for collection in (one, two))
                )
                return [await get(one, store["id"]) for store in await stores(two)]

        found = run(main())
        changes = database.changes()
        assert [seq for seq, *_ in changes] == list(range(1, len(changes) + 1))
        assert sorted(changes) == sorted({(s.version, s.id, *content(s)) for s in acknowledged})
        latest = {id: a_store_with(id, Payload(*of), seq) for seq, id, *of in changes}
        assert found == [latest[id] for id in sorted(latest)]

    @pytest.mark.parametrize(
        "bad",
        [Payload("x" * 31), Payload("\ud800"), Payload("x", "\udfff")],
        ids=["31 characters", "lone surrogate in name", "in address"],
    )
    async def test_a_write_that_fails_fails_alone(self, database: Database, bad: Payload) -> None:
        """Validation keeps these out; should one slip through, its neighbours must not pay for
        it."""
        async with handle(database) as collection:
            writes: list[Write] = [
                create(collection, Payload("A")),
                create(collection, bad),
                create(collection, Payload("B")),
                replace(collection, 1, bad),
                replace(collection, 9, Payload("Nobody")),
                replace(collection, 2, Payload("C")),
                create(collection, Payload("D")),
            ]
            found = await asyncio.gather(*writes, return_exceptions=True)
            results = [one.name if isinstance(one, Store) else one and "an error" for one in found]
            assert results == ["A", "an error", "B", "an error", None, "C", "D"]
            assert [store["name"] for store in await stores(collection)] == ["A", "C", "D"]
            replaced = replace(collection, 2, bad), replace(collection, 2, Payload("E"))
            failed, done = await asyncio.gather(*replaced, return_exceptions=True)
            assert isinstance(failed, Exception)
            assert done == a_store(2, "E", None, 5)
        assert [seq for seq, *_ in database.changes()] == [1, 2, 3, 4, 5]

    async def test_a_client_that_goes_away_does_not_disturb_the_others(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            writes = [create(collection, payload) for payload in numbered(9)]
            clients = [asyncio.ensure_future(write) for write in writes[::2]]
            await asyncio.sleep(0)
            for client in clients:
                client.cancel()
            done = await asyncio.gather(*writes[1::2])
            assert [store.name for store in done] == [f"Store {n}" for n in (2, 4, 6, 8)]
            again = await create(collection, Payload("After"))
            assert [store["id"] for store in await stores(collection)] == list(
                range(1, again.id + 1)
            )

    async def test_every_handle_reads_what_another_has_written(self, database: Database) -> None:
        async with handle(database) as one, handle(database) as two:
            for tick in range(1, 30):
                writer, reader = (one, two) if tick % 2 else (two, one)
                created = await create(writer, Payload(f"New {tick}"))
                assert await get(reader, created.id) == created
                assert len(await stores(reader)) == tick
                assert len(await stores(reader, f"New {tick}")) == 1
                replaced = await replace(writer, 1, Payload(f"First {tick}"))
                assert await get(reader, 1) == replaced

    async def test_the_numbers_are_others_after_every_write(self, database: Database) -> None:
        async with handle(database) as one, handle(database) as two:
            for write in (
                lambda: create(one, Payload("A")),
                lambda: create(two, Payload("B")),
                lambda: replace(two, 1, Payload("C")),
                lambda: replace(one, 2, Payload("C")),
                lambda: add_all(one, numbered(2)),
                lambda: add_all(two, numbered(2)),
            ):
                before = numbers(one), numbers(two)
                await write()
                after = numbers(one), numbers(two)
                assert all(a is None or a != b for a, b in zip(after, before, strict=True))
                assert one.numbers() is None, "there is no batch"

    async def test_a_batch_sees_what_was_acknowledged_before_it_began(
        self, database: Database
    ) -> None:
        """And, if its reads are completed at once, nothing that was written after its first."""
        async with handle(database) as reader, handle(database) as writer:
            await create(writer, Payload("Before"))
            for number in range(20):
                await replace(writer, 1, Payload(f"Name {number}"))
                reader.begin_reads()
                first = reader.get(1)
                await replace(writer, 1, Payload(f"Later {number}"))
                second: Any = reader.get(1)
                listed: Any = reader.list(Query(f"Name {number}"))
                past = reader.get_at(1, Moment(2 * number + 2))
                reader.begin_reads()  # a later moment
                last = reader.get(1)
                reader.end_reads()
                if not asyncio.isfuture(first):
                    assert first == second == a_store(1, f"Name {number}", None, 2 * number + 2)
                    assert b"Name" in listed.first
                assert await now(past) == a_store(1, f"Name {number}", None, 2 * number + 2)
                later = a_store(1, f"Later {number}", None, 2 * number + 3)
                assert await now(last) == await get(reader, 1) == later

    # Load.

    async def test_a_load_creates_all_in_order_after_what_is_there(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await create(collection, Payload("First"))
            assert await add_all(collection, numbered(MANY)) == range(2, MANY + 2)
            assert not await add_all(collection, [])
            assert await create(collection, Payload("Last")) == a_store(
                MANY + 2, "Last", None, MANY + 2
            )
            assert await replace(collection, 2, Payload("x")) == a_store(2, "x", None, MANY + 3)
            listed = await stores(collection)
            assert [store["id"] for store in listed] == list(range(1, MANY + 3))
            assert listed[2]["name"] == "Store 2"
            assert await stores(collection, "Store 77") == [shown(78, "Store 77", "77 Road")]
        changes = database.changes()
        assert [seq for seq, *_ in changes] == list(range(1, MANY + 4))
        assert [id for _, id, *_ in changes[:-1]] == list(range(1, MANY + 3))

    async def test_a_load_whose_source_fails_leaves_nothing(self, database: Database) -> None:
        def failing() -> Iterator[Payload]:
            yield from numbered(MANY)
            raise ZeroDivisionError

        async with handle(database) as collection:
            with pytest.raises(ZeroDivisionError):
                await add_all(collection, failing())
            with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the driver says: it is a bug if it happens
                await add_all(collection, [Payload("Good"), Payload("x" * 31)])
            assert await stores(collection) == []
            assert await create(collection, Payload("First")) == a_store(1, "First", None, 1)
        assert len(database.changes()) == 1

    async def test_the_examples_go_only_into_an_empty_collection(self, database: Database) -> None:
        async with AsyncExitStack() as stack:
            handles = [await stack.enter_async_context(handle(database)) for _ in range(4)]
            loaded = await asyncio.gather(
                *(add_all(one, EXAMPLES, only_if_empty=True) for one in handles)
            )
            assert sorted(map(list, loaded)) == [[], [], [], [1, 2, 3]]
            assert await add_all(handles[0], numbered(5), only_if_empty=True) == range(0)
            assert [store["name"] for store in await stores(handles[1])] == [
                one.name for one in EXAMPLES
            ]

    async def test_loads_and_creates_beside_each_other_leave_no_hole(
        self, database: Database
    ) -> None:
        async def client(collection: Collection, stop: asyncio.Event) -> list[int]:
            ids = []
            while not stop.is_set():
                ids.append((await create(collection, Payload("single"))).id)
            return ids

        async with handle(database) as one, handle(database) as two:
            stop = asyncio.Event()
            clients = [
                asyncio.create_task(client(collection, stop)) for collection in (one, two, one, two)
            ]
            loads = [*(add_all(one, numbered(700)) for _ in range(4)), add_all(two, numbered(9))]
            loaded = list(chain(*await asyncio.gather(*loads)))
            stop.set()
            singles = list(chain(*[await task for task in clients]))
            assert len(loaded) == 2809
            listed = await stores(two)
            assert [store["id"] for store in listed] == list(
                range(1, len(loaded) + len(singles) + 1)
            )
            assert [store["id"] for store in listed if store["name"] != "single"] == sorted(loaded)
            assert [store["id"] for store in listed if store["name"] == "single"] == sorted(singles)
        assert [seq for seq, *_ in database.changes()] == list(
            range(1, len(database.changes()) + 1)
        )

    # The end.

    async def test_what_was_acknowledged_is_there_after_reopening(self, database: Database) -> None:
        for tick in range(1, 4):
            async with handle(database) as collection:
                assert await create(collection, Payload(f"{tick}")) == a_store(
                    tick, f"{tick}", None, 2 * tick - 1
                )
                assert await replace(collection, tick, Payload("x")) == a_store(
                    tick, "x", None, 2 * tick
                )
        assert len(database.changes()) == 6

    async def test_closing_finishes_the_writes_under_way(self, database: Database) -> None:
        async with handle(database) as collection:
            writes = [create(collection, payload) for payload in numbered(300)]
            await collection.close()
            assert [write.result().id for write in writes] == list(range(1, 301))
            await collection.close()
        async with handle(database) as again:
            assert len(await stores(again)) == 300

    async def test_after_closing_every_response_is_unavailable(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(MANY))
            half_read = await listing(collection)
            assert half_read.rest is not None
            await asyncio.gather(collection.close(), collection.close())

            async def rest() -> None:
                assert half_read.rest is not None
                async for _ in half_read.rest:
                    pass

            questions: list[Callable[[], Awaitable[object]]] = [
                rest,
                collection.check,
                lambda: get(collection, 1),
                lambda: stores(collection),
                lambda: stores(collection, "Store 1"),
                lambda: create(collection, Payload("Late")),
                lambda: replace(collection, 1, Payload("Late")),
                lambda: add_all(collection, numbered(1)),
            ]
            for question in questions:
                with pytest.raises(Unavailable):
                    await asyncio.wait_for(question(), 30)
            await collection.close()
        async with handle(database) as again:
            assert len(await stores(again)) == MANY
