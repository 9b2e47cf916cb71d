"""What the caches keep: what is asked for again, and not more than they may."""

import asyncio
from pathlib import Path

import pytest

from storekeeper.api.fastlane import FastLane
from storekeeper.http.generations import Generations
from tests.harness.in_process import cached, inside, settled
from tests.harness.wire import create, request, responses


def cache(size: int = 20) -> Generations[int]:
    """Give a cache of so many values of one byte."""
    return Generations(size, lambda _key, _value: 1)


def key(number: int) -> bytes:
    return b"%d" % number


def test_a_key_is_admitted_at_its_second_sighting() -> None:
    kept = cache()
    assert [kept.seen(b"a"), kept.seen(b"b"), kept.seen(b"a"), kept.seen(b"b")] == [
        False,
        False,
        True,
        True,
    ]


def test_a_key_that_was_seen_long_ago_is_seen_for_the_first_time_again() -> None:
    kept = cache()
    kept.seen(b"a")
    assert not any(kept.seen(key(number)) for number in range(200_000))
    assert not kept.seen(b"a")


def test_what_is_asked_for_outlives_what_is_not_within_the_limit() -> None:
    kept = cache(20)
    kept.put(b"asked for", 0)
    for number in range(200):
        kept.put(key(number), number)
        assert kept.get(b"asked for") == 0
        assert len(kept.young.keys() | kept.old.keys()) <= 20
    assert kept.get(key(199)) == 199
    assert kept.get(key(100)) is None


@pytest.mark.parametrize("younger", range(20))
def test_what_is_forgotten_is_gone_however_old_it_is(younger: int) -> None:
    kept = cache(20)
    kept.put(b"changed", 0)
    for number in range(younger):
        kept.put(key(number), number)
    kept.forget(b"changed")
    assert kept.get(b"changed") is None


def test_what_is_forgotten_takes_no_room() -> None:
    kept = cache(20)
    kept.put(b"stays", 0)
    for _ in range(100):
        kept.put(b"changed", 0)
        kept.forget(b"changed")
    assert kept.get(b"stays") == 0


def test_requests_that_do_not_repeat_leave_nothing_in_the_caches(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect()
            assert isinstance(connection, FastLane)
            for number in range(50):
                connection.data_received(
                    request("GET", f"/api/stores?name={number}", None, f"X-Request-Id: {number}")
                )
            assert len(responses(line.sent, *["GET"] * 50)) == 50
            assert cached(connection) == (0, 0)
            for number in range(3):
                connection.data_received(request("GET", "/api/stores?name=0", None, f"X-Request-Id: again {number}"))
            assert cached(connection) == (0, 1), "a response whatever the other fields of its requests"

    asyncio.run(scenario())


def test_with_a_sqlite_that_shares_no_known_memory_nothing_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storekeeper.sqlite.read_transaction._FORMAT", b"\0\0\0\0")

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            connection, line = service.connect()
            assert isinstance(connection, FastLane)
            for data in (create("A"), *[request("GET", "/api/stores/1")] * 3):
                connection.data_received(data)
                await settled(connection)
            assert [response.status for response in responses(line.sent, "POST", *["GET"] * 3)] == [200] * 4
            assert cached(connection)[1] == 0

    asyncio.run(scenario())
