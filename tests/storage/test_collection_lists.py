"""The promises of `storekeeper.storage.collection` on lists and filters, for every kind of
database."""

import asyncio
import json
import time
import unicodedata
from collections.abc import AsyncIterator

import msgspec
import pytest

from storekeeper.concurrency import slow_readers
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.queries import Moment, Query
from storekeeper.domain.stores import Payload
from storekeeper.storage import kept_ids
from storekeeper.storage.collection import Collection
from tests.harness.cases import case
from tests.harness.collection import MANY, create, get, listing, now, numbered, replace, stores
from tests.harness.databases import Database, handle
from tests.harness.loading import add_all
from tests.harness.stores import a_store, shown, shown_with

TEXTS = [
    "Main Street",
    " ",
    "O'Hare",
    'The "Corner"',
    "a,b;c\\d/e%f_g*h",
    "tab\tnew\r\nline",
    "\x01\x1f\x7f\x80\x9f",
    "Zürich",
    "店舗",
    "متجر",
    "👩‍👩‍👧‍👦🏪",
    "\u2028\u2029\ufeff\ufffd\uffff",
    "\U0010ffff",
    "' OR 1=1 --",
    "</script>",
]


class TestLists:
    """Whatever holds the stores lists them so."""

    async def test_a_list_and_a_filter_have_every_store_once_by_id(
        self, database: Database
    ) -> None:
        everything = list(numbered(MANY, "Same"))
        everything[500] = Payload("Other")
        expected = [shown_with(number, payload) for number, payload in enumerate(everything, 1)]
        there = 0
        async with handle(database) as collection:
            for count in (1, 999, 1000, 1001, 1002, MANY):
                await add_all(collection, everything[there:count])
                there = count
                assert await stores(collection) == expected[:count]
                assert (
                    await stores(collection, "Same")
                    == expected[: min(count, 500)] + expected[501:count]
                )

    @pytest.mark.parametrize("name", [None, "Same"])
    async def test_a_list_read_slowly_is_of_the_moment_it_began(
        self, database: Database, name: str | None
    ) -> None:
        """Between any two of its parts stores are replaced (also out of the filter and into it)
        and created."""
        async with handle(database) as one, handle(database) as two:
            await add_all(one, numbered(MANY, "Same"))
            await add_all(one, [Payload("Other")] * 5)
            expected = await stores(two, name)
            found = await listing(two, name)
            assert found.rest is not None
            parts = [found.first]
            await _disturb(one, 1)
            async for part in found.rest:
                parts.append(part)
                await _disturb(one, len(parts))
            assert len(parts) > 2, "nothing happened between the parts"
            whole = b"[" + b"".join(parts) + b"]"
            assert whole == msgspec.json.encode(expected)
            assert await stores(two, name) != expected, "nothing was changed"

    async def test_ids_that_slow_readers_keep_are_bounded_and_the_slowest_gives_way(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its list cannot be read on; those of others are whole. A list of all stores keeps
        none."""
        monkeypatch.setattr(kept_ids, "MAX_KEPT_BYTES", 2 * 8 * (MANY - 1000))
        async with handle(database) as collection:
            await add_all(collection, numbered(MANY, "Same"))
            expected = await stores(collection, "Same")
            everything = [await listing(collection) for _ in range(9)]
            begun = [await listing(collection, "Same") for _ in range(2)]
            with pytest.raises(Unavailable, match="Too many long lists"):
                await listing(collection, "Same")
            assert collection.refused_lists() == 1
            now = time.monotonic()
            monkeypatch.setattr(slow_readers, "monotonic", lambda: now + 10)
            first, second, third = *begun, await listing(collection, "Same")
            assert collection.refused_lists() == 2
            assert first.rest is not None
            with pytest.raises(Unavailable, match="too slowly"):
                await _joined(first.rest)
            for found in (second, third, *everything):
                assert found.rest is not None
                whole = b"[" + found.first + await _joined(found.rest) + b"]"
                assert json.loads(whole) == expected
            assert await stores(collection, "Same") == expected

    async def test_lists_of_one_moment_are_the_same_though_a_store_changes_before_they_are_read(
        self, database: Database
    ) -> None:
        """Once, on a page that was not read yet."""
        async with handle(database) as collection:
            await add_all(collection, numbered(MANY))
            expected = [
                shown_with(number, payload) for number, payload in enumerate(numbered(MANY), 1)
            ]
            begun = [await listing(collection) for _ in range(3)]
            await replace(collection, 1500, Payload("Changed"))
            assert (await get(collection, 1500) or Payload("")).name == "Changed"
            for one in begun:
                assert one.rest is not None
                parts = [one.first] + [part async for part in one.rest]
                assert json.loads(b"[" + b"".join(parts) + b"]") == expected
            expected[1499] = shown(1500, "Changed")
            assert await stores(collection) == expected

    async def test_a_store_that_changed_often_since_a_list_began_is_listed_as_it_was(
        self, database: Database
    ) -> None:
        """A list that is read meanwhile sees the present."""
        async with handle(database) as one, handle(database) as two:
            await add_all(one, numbered(MANY))
            expected = await stores(two)
            found = await listing(two)
            for number in range(40):
                await replace(one, 1500, Payload(f"Changed {number}"))
            assert found.rest is not None
            rest, present = await asyncio.gather(_joined(found.rest), stores(two))
            assert json.loads(b"[" + found.first + rest + b"]") == expected
            assert present[1499]["name"] == (await stores(two))[1499]["name"] == "Changed 39"

    async def test_lists_during_writes_are_snapshots(self, database: Database) -> None:
        """Each write makes all of some stores equal, in one transaction for one writer: no list
        sees a part of it."""

        looks = 0

        async def writer(collection: Collection) -> None:
            tick = 0
            while looks < 8:
                tick += 1
                # In this order, so that at any moment the versions never ascend by more than one
                # step.
                await asyncio.gather(
                    *(replace(collection, id, Payload(str(tick))) for id in range(1, 1101))
                )

        async with handle(database) as one, handle(database) as two:
            await add_all(one, numbered(1100, "0"))
            writing = asyncio.create_task(writer(one))
            while not writing.done():
                turns = [int(store["name"]) for store in await stores(two)]
                # Written in the order of the ids: a moment is some of the new, then the rest of the
                # old.
                assert turns == sorted(turns, reverse=True)
                assert turns[0] - turns[-1] <= 1
                looks += 1
            await writing
            assert turns[0]

    async def test_text_comes_back_as_it_was_and_is_found_by_it(self, database: Database) -> None:
        async with handle(database) as collection:
            for id, text in enumerate(TEXTS, 1):
                with case(text):
                    created = await create(collection, Payload(text, text * 50))
                    assert created == await get(collection, id) == a_store(id, text, text * 50, id)
                    assert await stores(collection, text) == [shown(id, text, text * 50)]
            assert await stores(collection) == [
                shown(id, text, text * 50) for id, text in enumerate(TEXTS, 1)
            ]

    async def test_the_filter_compares_code_point_by_code_point(self, database: Database) -> None:
        composed = unicodedata.normalize("NFC", "Café")
        names = [
            composed, unicodedata.normalize("NFD", "Café"), "CAFÉ", "café", "Caf", "Café ",
            " Café", "Cafe", "Café\n", "Ca", "1", "01", "1.0", "%", "_", "Ca%",
            "straße", "strasse", "ß", "ẞ", "i", "I", "\u0131",
            "A", "\uff21", "a'", 'a"', "null", "true", "k", "\u212a",
        ]  # fmt: skip
        async with handle(database) as collection:
            await add_all(collection, (Payload(name) for name in names))
            for id, name in enumerate(names, 1):
                assert await stores(collection, name) == [shown(id, name)], name

    async def test_a_list_of_stores_with_the_longest_addresses_can_be_read(
        self, database: Database
    ) -> None:
        """A body may have 1 MiB, so that one page of stores by number would be a gigabyte."""
        address = "é" * 2**19
        async with handle(database) as collection:
            await add_all(collection, (Payload("Long", address) for _ in range(12)))
            for name in (None, "Long"):
                found = await listing(collection, name)
                parts = [found.first] + ([part async for part in found.rest] if found.rest else [])
                assert max(map(len, parts)) < 9 * 2**20
                listed = json.loads(b"[" + b"".join(parts) + b"]")
                assert [store["id"] for store in listed] == list(range(1, 13))

    @pytest.mark.parametrize(
        "character", ["\U0001f600", "\x01"], ids=["4 bytes", "6 bytes in JSON"]
    )
    async def test_a_list_has_the_longest_address_that_can_be_imported(
        self, database: Database, character: str
    ) -> None:
        """A cell of a CSV file may have 1 Mi of characters, which is more than a body."""
        payloads = [Payload("Short"), Payload("Long", character * 2**20), Payload("Short")]
        async with handle(database) as collection:
            await add_all(collection, payloads)
            expected = [shown_with(number, payload) for number, payload in enumerate(payloads, 1)]
            assert await stores(collection) == expected
            assert await stores(collection, "Long") == expected[1:2]
            only = Query(after=1, limit=1)
            assert json.loads((await now(collection.list(only))).first) == expected[1]
            await replace(collection, 2, Payload("Short"))
            past = await now(collection.list(msgspec.structs.replace(only, at=Moment(3))))
            assert json.loads(past.first) == expected[1]


async def _disturb(collection: Collection, tick: int) -> None:
    ids = range(1, MANY + 6, 7)
    await asyncio.gather(
        *(replace(collection, id, Payload("Other" if tick % 2 else "Same", "new")) for id in ids)
    )
    await asyncio.gather(*(create(collection, Payload("Same")) for _ in range(3)))
    await replace(collection, MANY + 1, Payload("Same", "entered"))


async def _joined(parts: AsyncIterator[bytes]) -> bytes:
    return b"".join([part async for part in parts])
