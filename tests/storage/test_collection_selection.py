"""The promises of `storekeeper.storage.collection` on sorted and filtered lists and on outside
keys, for every kind of database."""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from storekeeper.domain import search, selection
from storekeeper.domain.changes import NOW, Cursor
from storekeeper.domain.errors import EpochEnded, InvalidInput
from storekeeper.domain.queries import Query
from storekeeper.domain.search import fold, like_text
from storekeeper.domain.selection import Place, Selection
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases, selecting
from storekeeper.storage.collection import Collection, Listing
from tests.harness.collection import create, now, numbered, replace, state
from tests.harness.databases import Database, handle
from tests.harness.loading import add_all

NAMES = (
    "A",
    "a",
    "Ä",
    "b",
    "B ",
    "b  c",
    "ß",
    "ss",
    "z",
    "\U0010ffff",
    "'",
    "店舗",
    "\u0301",
    "10",
    "9",
)
ADDRESSES = (None, "", " \u3000\n", "1 Road", "1  ROAD", "x" * 600, "é", "e\u0301")


def a_payload(chance: Random) -> Payload:
    return Payload(chance.choice(NAMES), chance.choice(ADDRESSES))


def a_selection(chance: Random, version: int) -> Selection:
    """Return any selection that a list of this version can have."""
    return Selection(
        chance.choice(selection.SORTS),
        chance.random() < 0.5,
        chance.choice([None, None, Cursor(chance.randint(0, version))]),
        chance.random() < 0.3,
        chance.random() < 0.3,
    )


class Model:
    """A plain list of stores, and of their changes: id and content of each."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, Payload]] = []

    async def write(self, collection: Collection, id: int, payload: Payload) -> None:
        """Create a store, or replace that of the id, in both."""
        present = self.at(len(self.changes))
        if not 0 < id <= len(present):
            await create(collection, payload)
            self.changes.append((len(present) + 1, payload))
        elif present[id][1] != payload:
            await replace(collection, id, payload)
            self.changes.append((id, payload))

    def at(self, version: int) -> dict[int, tuple[int, Payload]]:
        """Return for each id the version and the content of its store."""
        return {id: (seq, payload) for seq, (id, payload) in enumerate(self.changes[:version], 1)}

    def selected(self, wanted: Selection, version: int | None = None) -> list[int]:
        """Return the ids that a selection has, in the order of a version."""
        present = self.at(len(self.changes))
        order = self.at(len(self.changes) if version is None else version)
        likes = [like_text(each.name, (each.address or "")[:500]) for _, each in present.values()]

        def is_selected(seq: int, each: Payload) -> bool:
            after = -1 if wanted.changed_after is None else wanted.changed_after.seq or 0
            address = each.address or ""
            return (
                seq > after
                and not (wanted.no_address and address.strip())
                and (not wanted.duplicates or likes.count(like_text(each.name, address[:500])) > 1)
            )

        keys: dict[str, Callable[[int], Any]] = {
            "id": lambda one: one,
            "name": lambda one: (fold(order[one][1].name), one),
            "changed": lambda one: order[one][0],
        }
        ids = [id for id in order if is_selected(*present[id])]
        return sorted(ids, key=keys[wanted.sort], reverse=wanted.is_descending)


async def page(
    collection: Collection, wanted: Selection, limit: int = 1000, **more: Any
) -> tuple[list[dict[str, Any]], Listing]:
    """Return the stores of a page, and the page."""
    found = await now(collection.list(Query(limit=limit, selection=wanted, **more)))
    parts = [found.first]
    if found.rest is not None:
        parts += [part async for part in found.rest]
    return json.loads(b"[" + b"".join(parts) + b"]"), found


async def ids_of(collection: Collection, wanted: Selection, **more: Any) -> list[int]:
    """Return the ids of a list that fits in a page."""
    stores, found = await page(collection, wanted, **more)
    assert found.place is None
    return [store["id"] for store in stores]


async def _walked(
    collection: Collection, wanted: Selection, model: Model, chance: Random
) -> list[int]:
    """Return the ids on all pages of a list, between which stores change."""
    found, version, limit = list[int](), len(model.changes), chance.randint(1, 4)
    while True:
        stores, listing = await page(collection, wanted, limit)
        present = model.at(len(model.changes))
        assert [store["name"] for store in stores] == [
            present[store["id"]][1].name for store in stores
        ]
        found += [store["id"] for store in stores]
        if listing.place is None:
            return found
        assert len(stores) == limit
        assert listing.place.cursor.seq == version
        wanted = wanted._replace(place=listing.place)
        for _ in range(chance.randint(0, 3)):
            await model.write(collection, chance.randint(0, len(present)), a_payload(chance))


def add_keys(database: Database, *rows: tuple[int, str, str]) -> None:
    with databases.write_session(database.url) as session:
        for row in rows:
            session.execute(
                "INSERT INTO external_ids (store_id, column_name, value) VALUES ($1, $2, $3)", row
            )


def orders() -> Iterator[Selection]:
    """Yield each way to sort."""
    for sort in selection.SORTS:
        yield Selection(sort)
        yield Selection(sort, is_descending=True)


class TestSelections:
    """Whatever holds the stores sorts and filters them so."""

    async def test_a_list_has_what_python_selects_in_its_order(self, database: Database) -> None:
        chance, model = Random(57), Model()
        async with handle(database) as collection:
            for _ in range(12):
                for _ in range(5):
                    await model.write(collection, chance.randint(0, 12), a_payload(chance))
                for _ in range(8):
                    wanted = a_selection(chance, len(model.changes))
                    assert await ids_of(collection, wanted) == model.selected(wanted), wanted

    async def test_pages_have_each_store_once_while_stores_change(self, database: Database) -> None:
        """What did not change is on one page, in order; what changed is on one page at most, and
        on one if no filter can leave it out."""
        chance, model = Random(58), Model()
        async with handle(database) as collection:
            for _ in range(8):
                await model.write(collection, 0, a_payload(chance))
            for _ in range(20):
                # Other stores decide what is a duplicate.
                wanted = a_selection(chance, len(model.changes))._replace(duplicates=False)
                version, expected = len(model.changes), model.selected(wanted)
                found = await _walked(collection, wanted, model, chance)
                before, after = model.at(version), model.at(len(model.changes))
                same = {id for id in before if after[id] == before[id]}
                assert len(found) == len(set(found)), wanted
                assert [id for id in found if id in same] == [id for id in expected if id in same]
                if not wanted.has_filter:
                    assert set(found) >= set(before), wanted

    async def test_a_store_that_is_renamed_neither_ends_nor_repeats_a_list(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, (Payload(name) for name in "dbacfe"))
            stores, first = await page(collection, Selection("name"), 3)
            assert [store["name"] for store in stores] == ["a", "b", "c"]
            await replace(collection, 4, Payload("zz"))  # c, at which the page ended
            await replace(collection, 3, Payload("zzz"))  # a, on the page
            await replace(collection, 5, Payload("0"))  # f, not on it yet
            await create(collection, Payload("bb"))
            stores, last = await page(collection, Selection("name", place=first.place))
            assert [store["name"] for store in stores] == ["d", "e", "0"]
            assert last.place is None

    async def test_a_list_that_changed_too_much_must_be_read_again(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(selecting, "MAX_CHANGES_MEANWHILE", 2)
        async with handle(database) as collection:
            await add_all(collection, numbered(3))
            _, first = await page(collection, Selection("name"), 1)
            for seq in range(3):
                await replace(collection, 1, Payload(f"Other {seq}"))
            with pytest.raises(EpochEnded) as raised:
                await page(collection, Selection("name", place=first.place))
            assert raised.value.cursor == f"6.{first.epoch}"
            assert await ids_of(collection, Selection("name")) == [1, 2, 3]

    async def test_places_and_cursors_of_another_history_are_refused(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(3))
            for cursor in (Cursor(1, "aaaaaaaa"), Cursor(4)):
                for wanted in (
                    Selection("name", place=Place(1, cursor)),
                    Selection("changed", place=Place(1, cursor)),
                    Selection(no_address=True, place=Place(1, cursor)),
                    Selection(changed_after=cursor),
                ):
                    with pytest.raises(EpochEnded) as raised:
                        await page(collection, wanted)
                    assert raised.value.cursor == f"3.{(await state(collection)).epoch}"
            for place in (Place(3, Cursor(2)), Place(4, NOW), Place(2**63 - 1, NOW)):
                with pytest.raises(InvalidInput, match='"after"'):
                    await page(collection, Selection("name", place=place))
            assert await ids_of(collection, Selection("name", place=Place(2, NOW))) == [3]
            assert await ids_of(collection, Selection(changed_after=NOW)) == []

    async def test_a_search_and_a_name_can_be_sorted_and_filtered(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(
                collection, [Payload("b x"), Payload("a x", "1"), Payload("c"), Payload("a x")]
            )
            add_keys(database, (3, "Till", "X"))
            wanted = search.parse("X")
            assert await ids_of(collection, Selection("name"), search=wanted) == [2, 4, 1, 3]
            by_number = search.parse("3")
            assert await ids_of(collection, Selection("name"), search=by_number) == [3]
            wanted = search.parse("x a")
            bare = Selection("changed", is_descending=True, no_address=True)
            assert await ids_of(collection, bare, search=wanted) == [4]
            assert await ids_of(collection, Selection("name"), search=search.NOTHING) == []
            assert await ids_of(collection, Selection(no_address=True), name="a x") == [4]
            assert await ids_of(collection, Selection("name"), name="a\0x") == []

    async def test_an_address_of_nothing_but_blanks_is_none_whatever_others_begin_with(
        self, database: Database
    ) -> None:
        none = [None, " ", "\t\n", "\u00a0", "\u2003 \u3000", " " * 400]
        some = ["!", "~", "~ x", "\x7f", "\x01", "\u00e9", "\u200b", " x", "\u3000~", "\U0001f3ea"]
        some += [" " * 999 + "x", " " * 1001 + "x", "x" * 2000]
        async with handle(database) as collection:
            await add_all(collection, [Payload("Store", each) for each in (*some, *none)])
            bare = await ids_of(collection, Selection(no_address=True))
            assert bare == [len(some) + place for place in range(1, len(none) + 1)]

    async def test_a_page_of_long_addresses_comes_in_parts_of_one_moment(
        self, database: Database
    ) -> None:
        address = "x" * 700_000
        async with handle(database) as collection:
            for name in "cab":
                await create(collection, Payload(name, address))
            found = await now(collection.list(Query(limit=3, selection=Selection("name"))))
            assert found.rest is not None
            await replace(collection, 1, Payload("changed", "short"))
            parts = [found.first, *[part async for part in found.rest]]
            assert len(parts) > 1
            stores = json.loads(b"[" + b"".join(parts) + b"]")
            assert [store["name"] for store in stores] == ["a", "b", "c"]
            assert {store["address"] for store in stores} == {address}

    async def test_only_a_list_without_a_filter_knows_its_total(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(3))
            for wanted in orders():
                assert (await page(collection, wanted, 1))[1].total == 3
            for wanted in (Selection(no_address=True), Selection(changed_after=Cursor())):
                assert (await page(collection, wanted, 1))[1].total is None

    async def test_many_changes_of_few_stores_keep_the_order_of_the_latest(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(3))
            for number in range(40):
                await replace(collection, 1 + number % 2, Payload(f"Other {number}"))
            assert await ids_of(collection, Selection("changed")) == [3, 1, 2]
            stores, first = await page(collection, Selection("changed", is_descending=True), 1)
            assert [store["id"] for store in stores] == [2]
            await replace(collection, 3, Payload("Third"))
            rest = Selection("changed", is_descending=True, place=first.place)
            assert await ids_of(collection, rest) == [1, 3]


class TestKeys:
    """Whatever holds the stores gives their outside keys so."""

    async def test_keys_come_by_store_and_column_with_the_version(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(4))
            rows = [(1, "Till", "A-1"), (1, "CRM", "é"), (3, "Till", "A-3"), (4, "Till", "A-4")]
            add_keys(database, *rows)
            found = await now(collection.keys([3, 2, 1, 99, 2**70]))
            assert [tuple(row) for row in found.rows] == [rows[1], rows[0], rows[2]]
            present = await state(collection)
            assert (found.version, found.epoch) == (present.version, present.epoch)
            assert (await now(collection.keys([2]))).rows == []
