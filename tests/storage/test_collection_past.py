"""The promises of `storekeeper.storage.collection` on pages and on the past, for every kind of
database."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from typing import Any

import msgspec
import pytest

from storekeeper.domain.errors import EpochEnded, InvalidInput, Unavailable
from storekeeper.domain.queries import Moment, Query, State
from storekeeper.domain.stores import Payload, Store
from storekeeper.storage import databases
from storekeeper.storage.collection import Collection, Listing
from tests.harness.cases import case
from tests.harness.collection import MANY, create, get, now, numbered, replace, stores
from tests.harness.databases import Database, handle
from tests.harness.loading import add_all
from tests.harness.stores import a_store, shown_with

LATE = [2500, 2501, 2**31, 2**63 - 1000, 2**63 - 1, 2**63, 10**30]
"""Ids after which there is nothing in a collection of `MANY` stores."""


async def page(collection: Collection, query: Query) -> tuple[Listing, list[dict[str, Any]]]:
    """Read a list to its end; return it and its stores."""
    found = await now(collection.list(query))
    parts = [found.first] + ([part async for part in found.rest] if found.rest is not None else [])
    return found, json.loads(b"[" + b"".join(parts) + b"]")


async def walk(
    collection: Collection, query: Query, between: Callable[[], Awaitable[object]] | None = None
) -> list[dict[str, Any]]:
    """Read page after page, as long as there is a next one; something may be awaited before
    each."""
    everything: list[dict[str, Any]] = []
    last: int | None = 0
    while last is not None:
        if between is not None:
            await between()
        found, part = await page(collection, msgspec.structs.replace(query, after=last))
        assert found.last in (None, part[-1]["id"])
        everything, last = everything + part, found.last
    return everything


class TestPages:
    """Whatever holds the stores, a page of them is what comes after an id."""

    @pytest.mark.parametrize("name", [None, "Same"])
    async def test_page_after_page_is_the_list(self, database: Database, name: str | None) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(1250, "Same"))
            await add_all(collection, numbered(1250, "" if name is None else name))
            everything = await stores(collection, name)
            for limit in (
                999,
                1000,
                625,
            ):  # the last divides the number of stores: no empty page follows
                assert await walk(collection, Query(name, 0, limit)) == everything
            for after in (1, 1000, 2499):
                found, rest = await page(collection, Query(name, after))
                assert (rest, found.last) == (everything[after:], None)

    async def test_a_page_that_a_limit_cut_is_not_what_a_longer_one_has(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(5))
            everything = await stores(collection)
            for limit in (4, 5, 3, 4, None):
                _, shown = await page(collection, Query(None, 0, limit))
                assert shown == everything[:limit]

    @pytest.mark.parametrize("name", [None, "Store 7"])
    async def test_total_and_last_say_what_a_limit_left_out(
        self, database: Database, name: str | None
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(9))
            await add_all(collection, numbered(3, "Store 7"))  # the ids 7, 10, 11, 12
            total = 12 if name is None else None
            expected = {
                (0, 3): (3, 11),
                (0, 4): (4, None),
                (6, 1): (7, 7),
                (6, 4): (10, None),
                (11, 1): (None, None),
            }
            for (after, limit), lasts in expected.items():
                found, _ = await page(collection, Query(name, after, limit))
                assert (found.last, found.total) == (lasts[name is not None], total)  # fmt: skip
            state = await now(collection.state())
            assert state == State(12, 12, state.epoch)
            assert (found.version, found.epoch) == (12, state.epoch)

    async def test_there_is_nothing_after_the_last(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(MANY, "Same"))
            queries = (Query(), Query("Same"), Query(at=Moment(MANY)))
            for query, after, limit in product(queries, LATE, (None, 1, 1000)):
                found, part = await page(
                    collection, msgspec.structs.replace(query, after=after, limit=limit)
                )
                assert (part, found.last) == ([], None)
                assert found.total == (MANY if query.name is None else None)

    async def test_a_limit_counts_stores_however_long_they_are(self, database: Database) -> None:
        """Their addresses fill several pages of the database."""
        async with handle(database) as collection:
            await add_all(collection, (Payload("Long", "é" * 2**19) for _ in range(12)))
            for query in (Query(), Query("Long"), Query(at=Moment(12))):
                for after, (ids, last) in {
                    0: ([*range(1, 10)], 9),
                    9: ([10, 11, 12], None),
                }.items():
                    found, part = await page(
                        collection, msgspec.structs.replace(query, after=after, limit=9)
                    )
                    assert ([store["id"] for store in part], found.last) == (ids, last)


WRITES: list[Callable[[Collection], asyncio.Future[Any]]] = [
    lambda collection: create(collection, Payload("A", "1 Road")),
    lambda collection: create(collection, Payload("B")),
    lambda collection: replace(collection, 1, Payload("A")),
    lambda collection: create(collection, Payload("C", "")),
    lambda collection: replace(collection, 2, Payload("B", "2 Road")),
    lambda collection: replace(collection, 1, Payload("A", "1 Road")),
]


async def history(collection: Collection) -> list[list[dict[str, Any]]]:
    """Create and replace some stores; return the list as it was at each version."""
    lists: list[list[dict[str, Any]]] = [[]]
    for write in WRITES:
        await write(collection)
        lists.append(await stores(collection))
    return lists


class TestThePast:
    """Whatever holds the stores can say what they were."""

    async def test_each_version_is_read_as_it_was(self, database: Database) -> None:
        async with handle(database) as collection:
            lists = await history(collection)
            epoch = (await now(collection.state())).epoch
            for version, expected in enumerate(lists):
                for moment in (Moment(version), Moment(version, epoch)):
                    found, was = await page(collection, Query(at=moment))
                    assert was == expected
                    assert (found.version, found.epoch, found.total) == (
                        version,
                        epoch,
                        len(expected),
                    )
                    assert (await page(collection, Query(None, 1, 1, moment)))[1] == expected[1:2]
                    for id in (1, 2, 3, 4, 0, 2**63, 10**30):
                        one = await now(collection.get_at(id, moment))
                        assert _public(one) == (
                            expected[id - 1] if 0 < id <= len(expected) else None
                        )

    async def test_a_store_of_the_past_has_the_version_that_it_had(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await history(collection)
            versions = [
                one and one.version
                for version in range(7)
                for one in [await now(collection.get_at(1, Moment(version)))]
            ]
            assert versions == [None, 1, 1, 3, 3, 3, 6]
            assert await now(collection.get_at(1, Moment(3))) == a_store(1, "A", None, 3)

    async def test_a_time_is_the_latest_change_up_to_it(self, database: Database) -> None:
        async with handle(database) as collection:
            lists: list[list[dict[str, Any]]] = [[]]
            times, before = [], int(time.time() * 1000) - 1
            for number in range(1, 12):
                await create(collection, Payload(f"Store {number}"))
                times.append(time.time_ns() // 1_000_000)
                lists.append(await stores(collection))
                await asyncio.sleep(0.002)  # the next change is a millisecond later
            for moment in (0, -1, -(2**63), before):
                found, was = await page(collection, Query(at=Moment(time=moment)))
                assert (was, found.version) == ([], 0)
            for version, moment in enumerate(times, 1):
                found, was = await page(collection, Query(at=Moment(time=moment)))
                assert (was, found.version) == (lists[version], version)
                assert (
                    _public(await now(collection.get_at(version, Moment(time=moment)))) == was[-1]
                )

    async def test_a_change_that_a_clock_dated_ahead_is_no_moment_later_than_now(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ahead = time.time_ns() // 10**6 + 10**9
        async with handle(database) as collection:
            with monkeypatch.context() as patch:
                patch.setattr(time, "time_ns", lambda: ahead * 10**6)
                made = [await create(collection, Payload("Ahead")) for _ in range(4)]
            assert await now(collection.get_at(1, Moment(time=ahead - 1))) is None
            for store in made:  # all of one millisecond
                assert await now(collection.get_at(store.id, Moment(time=ahead))) == store
            with pytest.raises(InvalidInput):
                await now(collection.get_at(1, Moment(time=ahead + 1)))

    async def test_there_is_a_past_of_an_empty_collection_too(self, database: Database) -> None:
        async with handle(database) as collection:
            for moment in (Moment(0), Moment(time=time.time_ns() // 1_000_000)):
                found, was = await page(collection, Query(at=moment))
                assert (was, found.version, found.total, found.rest, found.last) == (
                    [],
                    0,
                    0,
                    None,
                    None,
                )
                assert await now(collection.get_at(1, moment)) is None

    async def test_a_moment_later_than_now_is_invalid(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(3))
            for moment in (
                Moment(4),
                Moment(2**63),
                Moment(10**30),
                Moment(time=2**62),
                Moment(time=10**30),
            ):
                for question in (
                    partial(collection.get_at, 1, moment),
                    partial(collection.list, Query(at=moment)),
                ):
                    with case(moment), pytest.raises(InvalidInput) as caught:
                        await now(question())  # type: ignore[arg-type]  # of either
                    assert (caught.value.source, [*caught.value.violations]) == ("query", ["at"])

    async def test_a_moment_of_a_renewed_epoch_has_ended(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(3))
            before = await now(collection.state())
            renewed = await asyncio.to_thread(databases.epoch, database.url, renew=True)
            assert renewed != before.epoch
            assert await now(collection.state()) == (3, 3, renewed)
            assert (await get(collection, 1)).epoch == renewed  # type: ignore[union-attr]  # it is there
            assert (await page(collection, Query("Store 1")))[0].epoch == renewed
            moment = Moment(2, before.epoch)
            for question in (
                lambda: collection.get_at(1, moment),
                lambda: collection.list(Query(at=moment)),
            ):
                with pytest.raises(EpochEnded) as caught:
                    await now(question())  # type: ignore[arg-type]  # of either
                assert caught.value.cursor == f"3.{renewed}"
            for moment in (Moment(2), Moment(2, renewed)):
                assert len((await page(collection, Query(at=moment)))[1]) == 2

    @pytest.mark.parametrize("query", [Query(), Query("Same"), Query(at=Moment(MANY))])
    async def test_a_long_list_ends_with_its_epoch(self, database: Database, query: Query) -> None:
        """Else what follows would be of another history, whose changes have the same numbers."""
        async with handle(database) as collection:
            await add_all(collection, numbered(MANY, "Same"))
            listing = await now(collection.list(query))
            assert listing.rest is not None
            await asyncio.to_thread(databases.epoch, database.url, renew=True)
            with pytest.raises(Unavailable, match="restored while the list was read"):
                await anext(listing.rest)

    @pytest.mark.parametrize("limit", [None, 700, 200])
    async def test_pages_of_one_moment_are_one_snapshot_while_stores_change(
        self, database: Database, limit: int | None
    ) -> None:
        async with handle(database) as one, handle(database) as two:
            await add_all(one, numbered(MANY))
            expected = await stores(one)
            moment, stop, written = Moment(MANY), asyncio.Event(), asyncio.Event()

            async def writer() -> None:
                tick = 0
                while not stop.is_set():
                    tick += 1
                    ids = range(1 + tick % 50, MANY, 50)
                    await asyncio.gather(
                        *(replace(two, id, Payload("New", str(tick))) for id in ids)
                    )
                    await create(two, Payload("Later"))
                    written.set()

            async def between() -> None:
                written.clear()
                await written.wait()

            writing = asyncio.create_task(writer())
            for _ in range(3):
                assert await walk(one, Query(None, 0, limit, moment), between) == expected
            stop.set()
            await writing


def _public(store: Store | None) -> dict[str, Any] | None:
    return None if store is None else shown_with(store.id, store)
