"""The promises of `storekeeper.storage.collection` on changes, for every kind of database."""

import asyncio
import time
from itertools import pairwise, product
from typing import Any

import pytest

from storekeeper.domain.changes import MAX_PAGE_BYTES, Change, ChangesPage, ChangesQuery, Cursor
from storekeeper.domain.commands import Create, Replace
from storekeeper.domain.errors import EpochEnded, Unavailable
from storekeeper.domain.stores import Payload
from storekeeper.domain.tokens import Token, hashed
from storekeeper.storage import databases
from storekeeper.storage.collection import Collection
from storekeeper.storage.postgres.schema import COLLECTION_TABLE
from storekeeper.storage.tokens import add_token, revoke_token
from tests.harness.cases import case
from tests.harness.collection import create, now, numbered, replace
from tests.harness.databases import Database, Postgres, handle
from tests.harness.loading import add_all

LATE = [4, 2**31, 2**63 - 1]
"""Numbers beyond the latest of three changes."""


async def page(collection: Collection, after: int | None = 0, **query: Any) -> ChangesPage:
    """Read a page of changes behind a number, None for the latest one, whether it is there now
    or later."""
    return await now(collection.changes(ChangesQuery(Cursor(after), **query)))


async def numbers(collection: Collection, **query: Any) -> list[int]:
    """Return the numbers of the changes of a page."""
    return [change.seq for change in (await page(collection, **query)).changes]


class TestChanges:
    """Whatever holds the stores, all their changes can be read, each with what its store was
    before."""

    async def test_an_empty_collection_has_none(self, database: Database) -> None:
        async with handle(database) as collection:
            for newest_first in (False, True):
                found = await page(collection, newest_first=newest_first)
                assert (found.changes, found.version, len(found.epoch)) == ([], 0, 8)

    async def test_a_change_has_its_store_its_time_and_what_was_before(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            began = time.time_ns() // 1_000_000
            await create(collection, Payload("Zoë", None))
            await create(collection, Payload("Other", ""))
            await replace(collection, 1, Payload("Zoë", "1 Road"))
            await replace(collection, 1, Payload("Zoë", "1 Road"))  # not a change
            found = await page(collection)
            assert (found.version, len(found.changes)) == (3, 3)
            assert [change._replace(at=0) for change in found.changes] == [
                Change(1, 1, "Zoë", None, 0, None, None, None, None, None),
                Change(2, 2, "Other", "", 0, None, None, None, None, None),
                Change(3, 1, "Zoë", "1 Road", 0, None, None, 1, "Zoë", None),
            ]
            times = [change.at for change in found.changes]
            assert began <= min(times)
            assert times == sorted(times)

    async def test_pages_of_either_order_and_of_one_store(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(2))
            for number in range(3, 13):
                await replace(collection, 1 + number % 2, Payload("Store", str(number)))
            everything = list(range(1, 13))
            assert await numbers(collection) == everything
            assert await numbers(collection, after=5, limit=3) == [6, 7, 8]
            assert await numbers(collection, after=12) == []
            assert await numbers(collection, after=None, newest_first=True) == everything[::-1]
            assert await numbers(collection, after=5, limit=3, newest_first=True) == [4, 3, 2]
            assert await numbers(collection, after=1, newest_first=True) == []
            assert await numbers(collection, store=2) == [2, *range(3, 13, 2)]
            assert await numbers(collection, store=1, after=4, limit=2) == [6, 8]
            assert await numbers(collection, store=1, after=None, limit=2, newest_first=True) == [
                12,
                10,
            ]
            for store in (0, 3, 2**63 - 1):
                assert await numbers(collection, store=store) == []

    async def test_behind_the_latest_there_is_nothing_and_no_place(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(3))
            for place in (3, None):
                found = await page(collection, place)
                assert (found.changes, found.version) == ([], 3)
            for after, newest_first in product(LATE, (False, True)):
                with case(after), pytest.raises(EpochEnded) as ended:
                    await page(collection, after, newest_first=newest_first)
                assert ended.value.cursor == f"3.{found.epoch}"
            with pytest.raises(EpochEnded):
                await now(collection.changes(ChangesQuery(Cursor(1, "abcdefgh"))))

    async def test_a_change_names_the_token_that_wrote_it(self, database: Database) -> None:
        async with handle(database) as collection:
            await collection.check()
            add_token(database.url, Token(0, "anna", "write", hashed(b"x"), 1))
            await add_all(collection, numbered(1))
            await collection.write(Create(Payload("By anna"), token_number=1))
            await collection.write(Replace(1, Payload("Without a token")))
            revoke_token(database.url, "anna", 2)
            assert [change.by for change in (await page(collection)).changes] == [
                None,
                "anna",
                None,
            ]

    async def test_a_page_ends_by_the_bytes_of_its_changes(self, database: Database) -> None:
        third = "x" * (MAX_PAGE_BYTES // 3)
        async with handle(database) as collection:
            for number in range(4):
                await create(collection, Payload("Large", f"{third}{number}"))
            await replace(collection, 1, Payload("Large", "y" * 2**20))
            assert await numbers(collection) == [1, 2, 3]  # the last one is beyond
            lengths = [
                len((await page(collection, after=after)).encode(with_by=False))
                for after in range(5)
            ]
            assert lengths == [2, 2, 2, 1, 1]  # the last one is longer than a page
            assert await numbers(collection, after=None, newest_first=True) == [5]

    async def test_what_json_makes_longer_ends_a_page_too(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, (Payload("Escaped", "\x01" * 100_000) for _ in range(5)))
            found = await page(collection)
            assert len(found.changes) == 5
            assert len(found.encode(with_by=True)) == 1

    async def test_readers_beside_writers_miss_none(self, database: Database) -> None:
        """Each page and its version are of one moment: a reader continues after an empty page's
        version."""
        async with handle(database) as one, handle(database) as two:
            await add_all(one, numbered(4))
            stop = asyncio.Event()

            async def write(collection: Collection, store: int) -> None:
                number = 0
                while not stop.is_set():
                    number += 1
                    await replace(collection, store, Payload("Store", str(number)))

            async def read(store: int | None) -> list[Change]:
                place, found = 0, list[Change]()
                while len(found) < 100:
                    read = await page(one, after=place, limit=5, store=store)
                    assert all(place < change.seq <= read.version for change in read.changes)
                    place = read.changes[-1].seq if read.changes else read.version
                    found += read.changes
                    await asyncio.sleep(0)
                return found

            writing = [
                asyncio.create_task(write(each, id)) for id, each in enumerate((one, two, two), 1)
            ]
            everything, *of_one = await asyncio.gather(read(None), read(2), read(3))
            stop.set()
            await asyncio.gather(*writing)
            assert [change.seq for change in everything] == list(range(1, len(everything) + 1))
            for changes in of_one:
                assert [change.previous for change in changes[1:]] == [
                    change.seq for change in changes[:-1]
                ]
                assert all(
                    int(b.address or 0) == int(a.address or 0) + 1 for a, b in pairwise(changes[1:])
                )

    async def test_a_copy_has_the_same_ones_and_its_own_epoch(
        self, new_database: Any, database: Database
    ) -> None:
        target = new_database()

        async def read(of: Database) -> ChangesPage:
            async with handle(of) as collection:
                return await page(collection)

        async with handle(database) as collection:
            await add_all(collection, numbered(2))
            await replace(collection, 1, Payload("New"))
        databases.copy(database.url, target.url, lambda *_: None)
        before, after = await read(database), await read(target)
        assert after.changes == before.changes
        assert after.version == before.version
        assert after.epoch != before.epoch
        assert databases.read_changes(target.url, ChangesQuery()) == after

    async def test_without_the_row_of_the_collection_nothing_is_read(
        self, database: Database
    ) -> None:
        table = COLLECTION_TABLE if isinstance(database, Postgres) else "collection"
        async with handle(database) as collection:
            await add_all(collection, numbered(1))
            with databases.write_session(database.url) as session:
                session.execute(f"DELETE FROM {table}")
            with pytest.raises(Unavailable, match="row"):
                await page(collection)
