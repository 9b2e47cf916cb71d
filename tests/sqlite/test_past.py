"""Reads of the past: on threads, two at once, for a second each; the event loop goes on."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from storekeeper.collection import Moment, Query
from storekeeper.errors import Outcome, Unavailable
from storekeeper.sqlite import SqliteCollection, past
from storekeeper.sqlite.past import PastReader, Walk
from storekeeper.stores import Payload
from tests.harness.collection import numbered, replace, run
from tests.harness.databases import Sqlite, handle

_ENDLESS = "WITH RECURSIVE endless (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM endless) SELECT max(n) FROM endless"


async def _now(collection: SqliteCollection, id: int, at: Moment) -> object:
    found = collection.get_at(id, at)
    assert isinstance(found, asyncio.Future)
    return await found


def endlessly(execute: Callable[..., apsw.Cursor], _walk: Walk) -> object:
    return execute(_ENDLESS).get


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PastReader:
    monkeypatch.setattr(past, "PAST_TIMEOUT", 0.2)

    async def main() -> PastReader:
        async with handle(Sqlite(tmp_path)) as collection:
            await collection.load(numbered(3))
        return PastReader(tmp_path / "stores.db", "closed")

    return run(main())


def test_a_read_that_takes_too_long_ends_and_the_next_one_is_served(reader: PastReader) -> None:
    async def main() -> None:
        ticks = 0
        reading = asyncio.ensure_future(reader._read(endlessly))
        while not reading.done():
            await asyncio.sleep(0.005)
            ticks += 1
        with pytest.raises(Unavailable, match="took too long") as refused:
            await reading
        assert refused.value.outcome is Outcome.NONE
        assert ticks > 5, "the event loop was blocked"
        store = await reader.get(2, Moment(2))
        assert store is not None
        assert store.name == "Store 2"
        await reader.close()

    run(main())


def test_two_are_read_at_once_and_the_others_wait_only_so_long(reader: PastReader) -> None:
    async def main() -> None:
        began = time.monotonic()
        both = [asyncio.ensure_future(reader._read(endlessly)) for _ in range(2)]
        later = [asyncio.ensure_future(reader._read(lambda execute, _: execute("SELECT 7").get)) for _ in range(2)]
        crowd = [asyncio.ensure_future(reader._read(endlessly)) for _ in range(8)]
        found = await asyncio.gather(*both, *later, *crowd, return_exceptions=True)
        assert [str(one) for one in found[:2]] == ["The read of the past took too long"] * 2
        waited = {str(one) for one in found[2:]}
        assert waited <= {"7", "Too many reads of the past are waiting", "The read of the past took too long"}
        assert "Too many reads of the past are waiting" in waited
        assert time.monotonic() - began < 3
        assert len(reader._idle) <= 2
        await reader.close()

    run(main())


def test_a_long_read_gives_way_to_others_as_long_as_it_has_its_share_of_the_time(
    reader: PastReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = 0.01  # of an event loop that never rests
    turns = 0

    def give_way() -> None:
        nonlocal turns
        turns += 1
        time.sleep(turn)

    monkeypatch.setattr(past, "_give_way", give_way)

    async def main() -> None:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="took too long"):
            await reader._read(endlessly)
        assert 0 < turns * turn < 0.7 * (time.monotonic() - began)
        await reader.close()

    run(main())


def test_closing_ends_the_reads_under_way_and_refuses_further_ones(
    reader: PastReader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(past, "PAST_TIMEOUT", 20.0)

    async def main() -> None:
        reading = [asyncio.ensure_future(reader._read(endlessly)) for _ in range(4)]
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await reader.close()
        assert time.monotonic() - began < 5
        for one in reading:
            with pytest.raises(Unavailable, match="closed"):
                await one
        with pytest.raises(Unavailable, match="closed"):
            await reader.get(1, Moment(1))

    run(main())
    assert [file.name for file in tmp_path.iterdir()] == ["stores.db"]


def test_a_store_that_changed_very_often_is_found_as_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            assert isinstance(collection, SqliteCollection)
            await collection.load(numbered(2))
            for start in range(0, 20_000, 1000):
                await asyncio.gather(*(replace(collection, 1, Payload(f"{start + n}")) for n in range(1000)))
            for seq, name in (2, "Store 1"), (3, "0"), (10_003, "10000"), (20_002, "19999"):
                store = await _now(collection, 1, Moment(seq))
                assert getattr(store, "name", None) == name
                listed = collection.list(Query(at=Moment(seq)))
                assert isinstance(listed, asyncio.Future)
                assert f'"name":"{name}"'.encode() in (await listed).first

    run(main())


def test_a_page_of_long_addresses_comes_in_pieces(tmp_path: Path) -> None:
    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            await asyncio.gather(*(collection.load([Payload(f"{n}", "x" * 2**20)] * 4) for n in range(3)))
            await asyncio.gather(*(replace(collection, id, Payload("Short")) for id in range(1, 13)))
            listed = collection.list(Query(at=Moment(12)))
            assert isinstance(listed, asyncio.Future)
            found = await listed
            assert found.rest is not None
            parts = [found.first, *[part async for part in found.rest]]
            assert sum(part.count(b'"id"') for part in parts) == 12
            assert sum(map(len, parts)) > 12 * 2**20
            assert max(map(len, parts)) < 9 * 2**20

    run(main())
