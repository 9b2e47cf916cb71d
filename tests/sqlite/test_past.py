"""Reads of the past: at once if they are short, else on threads, two at once, for a second each."""

import asyncio
import json
import random
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from storekeeper.collection import Eventual, Listing, Moment, Query
from storekeeper.errors import Outcome, Unavailable
from storekeeper.sqlite import SqliteCollection, past
from storekeeper.stores import Payload, Store
from tests.harness.collection import create, now, numbered, replace, run, stores
from tests.harness.databases import Sqlite, handle, without_end
from tests.harness.garbage import no_garbage
from tests.harness.in_process import until

STORES = 3
LOADED = Moment(STORES)
OFTEN = 2000
"""Changes of one store: the way back over them is long."""


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "PAST_TIMEOUT", 0.2)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[SqliteCollection]:
    async with handle(Sqlite(folder)) as collection:
        assert isinstance(collection, SqliteCollection)
        yield collection


@asynccontextmanager
async def endless(folder: Path) -> AsyncIterator[SqliteCollection]:
    """Open a collection of three stores; the way back over the changes of the first one does not end."""
    async with opened(folder) as collection:
        await collection.load(numbered(STORES))
        for name in "AB":
            await replace(collection, 1, Payload(name))
        without_end(folder / "stores.db", STORES + 1)
        yield collection


def endlessly(collection: SqliteCollection) -> "asyncio.Future[Store | None]":
    """Begin a read that does not end."""
    found = collection.get_at(1, LOADED)
    assert isinstance(found, asyncio.Future)
    return found


async def changed_often(collection: SqliteCollection) -> None:
    await collection.load(numbered(STORES))
    for start in range(0, OFTEN, 1000):
        await asyncio.gather(*(replace(collection, 1, Payload(f"{start + n}")) for n in range(1000)))


def at_once(found: Eventual[Any]) -> Any:
    assert not isinstance(found, asyncio.Future), "it takes a thread"
    return found


async def inside(found: Eventual[Listing]) -> list[dict[str, Any]]:
    listing = await now(found)
    rest = [part async for part in listing.rest] if listing.rest else []
    decoded: list[dict[str, Any]] = json.loads(b"".join((b"[", listing.first, *rest, b"]")))
    return decoded


def test_a_read_that_takes_too_long_ends_and_the_next_one_is_served(tmp_path: Path) -> None:
    async def main() -> None:
        async with endless(tmp_path) as collection:
            ticks = 0
            reading = endlessly(collection)
            while not reading.done():
                await asyncio.sleep(0.005)
                ticks += 1
            with pytest.raises(Unavailable, match="took too long") as refused:
                await reading
            assert refused.value.outcome is Outcome.NONE
            assert ticks > 5, "the event loop was blocked"
            assert len(await inside(collection.list(Query(after=1, at=LOADED)))) == STORES - 1

    run(main())


def test_what_a_read_that_took_too_long_had_read_is_not_left_to_the_garbage_collector(tmp_path: Path) -> None:
    """A page may have 8 MiB."""

    async def main() -> None:
        async with endless(tmp_path) as collection:
            with no_garbage():
                with suppress(Unavailable):
                    await endlessly(collection)
                await asyncio.sleep(0)  # the loop has the refusal until then

    run(main())


def test_two_are_read_at_once_and_the_others_wait_only_so_long(tmp_path: Path) -> None:
    async def main() -> None:
        async with endless(tmp_path) as collection:
            began = time.monotonic()
            crowd = [endlessly(collection) for _ in range(12)]
            refusals = [str(one) for one in await asyncio.gather(*crowd, return_exceptions=True)]
            assert refusals[:2] == ["The read of the past took too long"] * 2
            assert set(refusals[2:]) <= {
                "Too many reads of the past are waiting",
                "The read of the past took too long",
            }
            assert "Too many reads of the past are waiting" in refusals
            assert time.monotonic() - began < 3

    run(main())


def test_a_short_way_back_needs_no_thread_and_waits_for_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with endless(tmp_path) as collection:
            await replace(collection, 2, Payload("C"))
            crowd = [endlessly(collection) for _ in range(3)]
            await asyncio.sleep(0.02)
            assert at_once(collection.get_at(2, LOADED)).name == "Store 2"
            assert at_once(collection.get_at(2, Moment(6))).name == "C"
            assert at_once(collection.get_at(4, LOADED)) is None
            listing = at_once(collection.list(Query(after=1, at=LOADED)))
            assert [store["name"] for store in await inside(listing)] == ["Store 2", "Store 3"]
            assert not any(one.done() for one in crowd)
            await asyncio.gather(*crowd, return_exceptions=True)

    run(main())


def test_a_long_way_back_needs_a_thread_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "AT_ONCE_TIMEOUT", 0.0)  # else it is long on slow machines only

    async def main() -> None:
        async with opened(tmp_path) as collection:
            await changed_often(collection)
            moment = Moment(STORES + 1)
            questions = (
                lambda: collection.get_at(1, moment),
                lambda: collection.list(Query(at=moment)),
                lambda: collection.list(Query(at=moment, limit=2)),
            )
            for question in questions:
                first = question()
                assert isinstance(first, asyncio.Future)
                found = await first
                assert at_once(question()) == found
                await create(collection, Payload("Later"))
                assert at_once(question()) == found

    run(main())


def test_what_needs_a_thread_is_refused_while_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        async with opened(tmp_path) as collection:
            await collection.load(numbered(STORES))
            monkeypatch.setattr(threading.Thread, "start", no_thread)
            for work in (
                now(collection.list(Query(at=LOADED))),
                collection.load(numbered(1)),
                collection.mark_used([1], 0),
            ):
                with pytest.raises(Unavailable, match="Too many threads are running"):
                    await work
            monkeypatch.undo()

    monkeypatch.setattr(past, "AT_ONCE_TIMEOUT", 0.0)
    monkeypatch.setattr(past, "_PROGRESS_STEPS", 1)
    run(main())


def test_a_read_that_nobody_waits_for_any_more_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "PAST_TIMEOUT", 60.0)

    def is_running() -> bool:
        return any(thread.name == "storekeeper-work" for thread in threading.enumerate())

    async def main() -> None:
        async with endless(tmp_path) as collection:
            reading = endlessly(collection)
            await until(is_running)
            reading.cancel()
            await until(lambda: not is_running())

    run(main())


def test_only_so_many_ways_back_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "MAX_REMEMBERED", 2)

    async def main() -> None:
        async with opened(tmp_path) as collection:
            await collection.load(numbered(STORES))
            for version in range(1, STORES + 1):
                assert await now(collection.get_at(1, Moment(version))) is not None
                assert len(collection._past._remembered) <= 2

    run(main())


@pytest.mark.parametrize("steps", [1, 300, 2500])
def test_a_read_is_the_same_whatever_needs_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(past, "AT_ONCE_TIMEOUT", 0.0)
    monkeypatch.setattr(past, "_PROGRESS_STEPS", steps)
    chance = random.Random(steps)

    async def main() -> None:
        async with opened(tmp_path) as collection:
            lists: list[list[dict[str, Any]]] = [[]]
            while len(lists) <= 40:
                id, payload = chance.randint(1, 12), Payload(f"{len(lists)}")
                if await replace(collection, id, payload) is None:
                    await create(collection, payload)
                lists.append(await stores(collection))
            threads = 0
            for version in chance.choices(range(len(lists)), k=40):
                after, limit, moment = chance.randint(0, 12), chance.randint(1, 12), Moment(version)
                found, one = collection.list(Query(None, after, limit, moment)), collection.get_at(limit, moment)
                threads += isinstance(found, asyncio.Future)
                assert await inside(found) == lists[version][after : after + limit]
                names = [store["name"] for store in lists[version][limit - 1 : limit]]
                assert [store.name for store in [await now(one)] if store] == names
            assert (threads == 40) == (steps == 1)

    run(main())


def test_a_long_read_gives_way_to_others_as_long_as_it_has_its_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = 0.01  # of an event loop that never rests
    turns = 0

    def give_way() -> None:
        nonlocal turns
        turns += 1
        time.sleep(turn)

    monkeypatch.setattr(past, "_give_way", give_way)

    async def main() -> None:
        async with endless(tmp_path) as collection:
            began = time.monotonic()
            with pytest.raises(Unavailable, match="took too long"):
                await endlessly(collection)
            assert 0 < turns * turn < 0.7 * (time.monotonic() - began)

    run(main())


def test_closing_ends_the_reads_under_way_and_refuses_further_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(past, "PAST_TIMEOUT", 20.0)

    async def main() -> None:
        async with endless(tmp_path) as collection:
            page = at_once(collection.list(Query(after=1, at=LOADED)))
            assert page.rest is None
            reading = [endlessly(collection) for _ in range(4)]
            await asyncio.sleep(0.05)
            began = time.monotonic()
            await collection.close()
            assert time.monotonic() - began < 5
            for one in reading:
                with pytest.raises(Unavailable, match="shutting down"):
                    await one
            for id in (1, 2):
                with pytest.raises(Unavailable, match="shutting down"):
                    await now(collection.get_at(id, LOADED))

    run(main())
    assert [file.name for file in tmp_path.iterdir()] == ["stores.db"]


def test_a_store_that_changed_very_often_is_found_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "PAST_TIMEOUT", 5.0)

    async def main() -> None:
        async with opened(tmp_path) as collection:
            await collection.load(numbered(2))
            for start in range(0, 20_000, 1000):
                await asyncio.gather(*(replace(collection, 1, Payload(f"{start + n}")) for n in range(1000)))
            for seq, name in (2, "Store 1"), (3, "0"), (10_003, "10000"), (20_002, "19999"):
                store = await now(collection.get_at(1, Moment(seq)))
                assert getattr(store, "name", None) == name
                assert (await inside(collection.list(Query(at=Moment(seq)))))[0]["name"] == name

    run(main())


def test_a_page_of_long_addresses_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "PAST_TIMEOUT", 5.0)

    async def main() -> None:
        async with opened(tmp_path) as collection:
            await asyncio.gather(*(collection.load([Payload(f"{n}", "x" * 2**20)] * 4) for n in range(3)))
            await asyncio.gather(*(replace(collection, id, Payload("Short")) for id in range(1, 13)))
            found = await now(collection.list(Query(at=Moment(12))))
            assert found.rest is not None
            parts = [found.first, *[part async for part in found.rest]]
            assert sum(part.count(b'"id"') for part in parts) == 12
            assert sum(map(len, parts)) > 12 * 2**20
            assert max(map(len, parts)) < 9 * 2**20

    run(main())
