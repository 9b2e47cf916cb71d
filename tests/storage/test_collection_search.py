"""The promises of `storekeeper.storage.collection` on searches, for every kind of database."""

import asyncio
import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storekeeper.domain import search
from storekeeper.domain.errors import Outcome, Unavailable
from storekeeper.domain.queries import Query
from storekeeper.domain.search import fold
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases, postgres
from storekeeper.storage.collection import Collection, Listing
from tests.harness.collection import create, now, numbered, replace, run, state, stores
from tests.harness.databases import Database, handle
from tests.harness.loading import add_all

LETTERS = "aAbB01’'–-æø \t\u00a0äÄa\u0308ßsSİi\u0131\u017fﬁf%_*\"'\\,店\ufdfa\u0435\u0401\U0001f3ea"
TEXTS = st.text(LETTERS, max_size=12)
LONG = TEXTS.map(lambda text: text + "x" * (498 - len(text)) + "YÄZ")
PAYLOADS = st.builds(Payload, TEXTS.filter(bool), st.none() | TEXTS | LONG)
QUERIES = st.lists(
    st.text(LETTERS, min_size=1, max_size=3) | st.sampled_from(["xy", "ya", "%", "a b"]), max_size=3
)


def ids_of(listing: Listing) -> list[int]:
    return [store["id"] for store in json.loads(b"[" + listing.first + b"]")]


async def searched(
    collection: Collection, q: str, after: int | None = None, limit: int = 50
) -> Listing:
    wanted = search.parse(q)
    assert wanted is not None
    query = Query(after=after or 0, limit=limit, search=wanted._replace(follows=after is not None))
    found = await now(collection.list(query))
    assert found.total is None
    if found.rest is not None:
        parts = [found.first] + [part async for part in found.rest]
        return Listing(found.version, found.epoch, b"".join(parts), last=found.last)
    return found


async def found_by(collection: Collection, q: str) -> list[int]:
    return ids_of(await searched(collection, q))


def with_words(everything: Sequence[dict[str, Any]], q: str) -> list[int]:
    """Return the ids of the stores that have all words, by Python's `in`; none without words."""
    words = search.words_of(q)
    return [
        store["id"]
        for store in everything
        if words
        and all(
            word in fold(store["name"]) or word in fold((store["address"] or "")[:500])
            for word in words
        )
    ]


def add_keys(database: Database, *rows: tuple[int, str, str]) -> None:
    with databases.write_session(database.url) as session:
        for row in rows:
            session.execute(
                "INSERT INTO external_ids (store_id, column_name, value) VALUES ($1, $2, $3)", row
            )


class TestSearches:
    """Whatever holds the stores finds them so."""

    @given(st.lists(PAYLOADS, max_size=8), st.lists(QUERIES, min_size=5, max_size=20))
    @settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_search_finds_what_python_finds(
        self, database: Database, payloads: list[Payload], queries: list[list[str]]
    ) -> None:
        async def main() -> None:
            async with handle(database) as collection:
                await add_all(collection, payloads)
                for payload in payloads[:2]:
                    await create(collection, payload)
                everything = await stores(collection)
                for words in queries:
                    q = " ".join(words)
                    if (wanted := search.parse(q)) is None or wanted.id:
                        continue
                    expected = with_words(everything, q)
                    found = await searched(collection, q, limit=20)
                    assert ids_of(found) == expected[:20], q
                    assert found.last == (expected[19] if len(expected) > 20 else None)

        run(main())

    async def test_a_store_is_found_by_what_it_is_now(self, database: Database) -> None:
        async with handle(database) as collection:
            await create(collection, Payload("Zürich", "Bahnhofstraße 1"))
            assert await found_by(collection, "STRASSE zurich") == [1]
            await replace(collection, 1, Payload("Genf"))
            assert await found_by(collection, "zürich") == []
            assert await found_by(collection, "genf") == [1]
            before = await state(collection)
            found = await searched(collection, "genf")
            assert (found.version, found.epoch) == (before.version, before.epoch)

    async def test_signs_of_other_search_languages_mean_themselves(
        self, database: Database
    ) -> None:
        names = ["100%", "a_b", "a*b", 'the "A"', "a\\b", "O'Hare", "x+", "^a.c$"]
        async with handle(database) as collection:
            await add_all(collection, (Payload(name) for name in [*names, "axb"]))
            for id, name in enumerate(names, 1):
                assert await found_by(collection, name) == [id]

    async def test_a_query_without_a_word_finds_at_most_a_whole_key(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, [*numbered(2), Payload("O'Hare - (north)", "—")])
            add_keys(database, (2, "Code", "-"))
            for q in (" \t", "’", "—", "\u00ad", "(", "store\0"):
                assert await found_by(collection, q) == []
            assert await found_by(collection, "-") == [2]

    async def test_a_store_is_found_however_its_name_is_spelled(self, database: Database) -> None:
        names = ["McDonald’s", "L'Église", "12–14 Quay", "Łódź", "Tromsø Æbler", "So\u00adho"]
        queries = ["mcdonald's", "l’eglise,", "12-14", "lodz", "aebler tromso", "soho"]
        async with handle(database) as collection:
            await add_all(collection, map(Payload, names))
            for id, q in enumerate(queries, 1):
                assert await found_by(collection, q) == [id]
                assert await found_by(collection, names[id - 1]) == [id]

    async def test_the_store_of_that_number_comes_first_and_once(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(80))
            everything = await stores(collection)
            for q, limit in product(("7", "007", " 7 "), (1, 2, 3, 50)):
                found, after = list[int](), None
                while True:
                    page = await searched(collection, q, after, limit)
                    found += ids_of(page)
                    if (after := page.last) is None:
                        break
                    assert len(ids_of(page)) == limit
                assert found == [7, *(id for id in with_words(everything, q) if id != 7)], (
                    q,
                    limit,
                )

    async def test_a_number_that_no_store_has_is_a_word(self, database: Database) -> None:
        async with handle(database) as collection:
            await add_all(collection, [Payload("Gate 66"), Payload("Gate 0"), Payload("9" * 30)])
            assert await found_by(collection, "66") == [1]
            assert await found_by(collection, "0") == [2]
            assert await found_by(collection, "9" * 30) == [3]
            assert await found_by(collection, "8" * 200) == []

    async def test_a_whole_key_of_an_outside_system_finds_its_store(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(80))
            add_keys(
                database,
                (3, "Store Number", "Ä-17 b"),
                (5, "ERP", "Ä-17 b"),
                (5, "Store Number", "77"),
            )
            assert await found_by(collection, " Ä-17 b ") == [3, 5]
            assert await found_by(collection, "ä-17 b") == []
            assert await found_by(collection, "Ä-17") == []
            assert await found_by(collection, "77") == [77, 5]
            page = await searched(collection, "Ä-17 b", limit=1)
            assert (ids_of(page), page.last) == ([3], 3)
            page = await searched(collection, "Ä-17 b", after=3, limit=1)
            assert (ids_of(page), page.last) == ([5], None)

    async def test_a_page_of_very_large_stores_comes_in_parts(self, database: Database) -> None:
        async with handle(database) as collection:
            large = "x" * 2**20
            await add_all(
                collection, (Payload(f"Large {number}", large) for number in range(1, 13))
            )
            page = await searched(collection, "12")
            assert ids_of(page) == [12]
            page = await searched(collection, "large")
            assert [
                (store["id"], len(store["address"]))
                for store in json.loads(b"[" + page.first + b"]")
            ] == [(number, 2**20) for number in range(1, 13)]

    async def test_a_search_is_as_of_its_version_whatever_is_written_meanwhile(
        self, database: Database
    ) -> None:
        async with handle(database) as collection:
            await add_all(collection, numbered(3000))
            query = Query(limit=1000, search=search.parse("store"))

            async def rename() -> None:
                for id in range(1, 60):
                    await replace(collection, id, Payload("Gone"))

            task = asyncio.create_task(rename())
            while not task.done():
                listing = await now(collection.list(query))
                parts = [listing.first] + (
                    [part async for part in listing.rest] if listing.rest else []
                )
                found = json.loads(b"[" + b"".join(parts) + b"]")
                gone = listing.version - 3000
                assert [store["id"] for store in found] == list(range(gone + 1, gone + 1001))
                assert all(store["name"] == f"Store {store['id']}" for store in found)

    async def test_a_search_that_takes_too_long_is_refused_and_nothing_else_is(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("storekeeper.domain.search.TIMEOUT", 0.0)
        monkeypatch.setattr("storekeeper.storage.sqlite.long_reads.STEPS", 100)
        monkeypatch.setitem(
            postgres._STATEMENTS, b"search timeout", "SET LOCAL statement_timeout = 1"
        )
        async with handle(database) as collection:
            await add_all(collection, numbered(20_000))
            with pytest.raises(Unavailable, match="narrow the search") as refused:
                await searched(collection, "no store has this")
            assert refused.value.outcome is Outcome.NONE
            assert (await state(collection)).total == 20_000
            assert (await now(collection.get(20_000))) is not None

    async def test_searches_wait_for_each_other_but_not_for_long(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("storekeeper.domain.search.TIMEOUT", 30.0)
        async with handle(database) as collection:
            await add_all(collection, numbered(2000))
            many = [searched(collection, f"{number} road") for number in range(1, 60)]
            assert [ids_of(page)[0] for page in await asyncio.gather(*many)] == list(range(1, 60))
        monkeypatch.setattr("storekeeper.domain.search.TIMEOUT", 0.001)
        monkeypatch.setattr("storekeeper.domain.search.MAX_AT_ONCE", 1)
        async with handle(database) as collection:
            many = [searched(collection, "no store has this") for _ in range(30)]
            done = await asyncio.gather(*many, return_exceptions=True)
            assert {str(each) for each in done if not isinstance(each, Listing)} == {
                search.TOO_LONG
            }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("  ",)),
        ("b, AAA  cc", ("aaa", "cc", "b")),
        ("x" * 200, ("x" * 200,)),
        ("a b c d e f g h", (*"abcdefgh",)),
    ],
)
def test_the_longest_word_is_looked_for_first(text: str, words: tuple[str, ...]) -> None:
    wanted = search.parse(text)
    assert wanted is not None
    assert wanted.words == words


@pytest.mark.parametrize("text", ["x" * 201, "a b c d e f g h i", "\ufdfa" * 3])
def test_too_many_words_or_characters_are_refused(text: str) -> None:
    assert search.parse(text) is None
