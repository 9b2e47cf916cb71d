"""The response cache: the same bytes of a request and the same database give the same response."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from storekeeper.domain.commands import Replace
from storekeeper.domain.stores import Payload
from storekeeper.http import cache as response_cache
from storekeeper.http.cache import Cached, ResponseCache
from storekeeper.storage import databases
from tests.harness.in_process import Inside, cached, exchange, inside, last_response, settled, until
from tests.harness.loading import add_all
from tests.harness.tokens import add_token
from tests.harness.wire import request, responses

ONE = request("GET", "/api/stores/1")
OTHER = request("GET", "/api/stores/2")
LIST = request("GET", "/api/stores")


@asynccontextmanager
async def two_stores(folder: Path, **settings: Any) -> AsyncIterator[tuple[Inside, Any]]:
    """Open a service with two stores, and another collection on its database, as another process
    has it."""
    async with inside(folder, **settings) as service:
        other = databases.database(f"sqlite:///{folder}/stores.db").open_collection(
            lambda error: pytest.fail(str(error))
        )
        try:
            await add_all(other, [Payload("First"), Payload("Second")])
            yield service, other
        finally:
            await other.close()


async def sizes(service: Inside, *asked: bytes) -> list[int]:
    """Return how many responses are cached after each of these requests."""
    connection, _ = service.connect()
    found = []
    for data in asked:
        connection.data_received(data)
        await settled(connection)
        found.append(cached(connection))
    return found


async def test_a_write_by_another_process_is_seen_by_the_next_request(tmp_path: Path) -> None:
    async with two_stores(tmp_path) as (service, other):
        for number in range(20):
            await other.write(Replace(1, Payload(f"Name {number}")))
            for _ in range(3):
                assert (await exchange(service, ONE)).json["name"] == f"Name {number}"
                assert (await exchange(service, LIST)).json[0]["name"] == f"Name {number}"
                assert (await exchange(service, OTHER)).json["name"] == "Second"


async def test_a_request_behind_another_in_one_read_misses_nothing(tmp_path: Path) -> None:
    async with two_stores(tmp_path) as (service, other):
        connection, line = service.connect()
        for number in range(5):
            connection.data_received(ONE)
            await other.write(Replace(1, Payload(f"Name {number}")))
            line._sent.clear()
            connection.data_received(OTHER + ONE)
            await settled(connection)
            assert responses(line.sent, "GET", "GET")[1].json["name"] == f"Name {number}"


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (ONE, 1),
        (LIST, 1),
        (request("GET", "/test"), 1),
        (request("GET", "/api/stores?at=1"), 1),
        (request("GET", "/api/stores/1?at=1"), 1),
        (request("GET", "/api/stores/1", None, 'If-None-Match: "other"'), 1),
        (request("GET", "/api/stores?at=2020-01-01T00:00:00Z"), 0),
        (request("GET", "/api/stores?%61t=2020-01-01T00:00:00Z"), 0),
        (request("GET", "/api/stores", None, "If-None-Match: *"), 0),
        (request("HEAD", "/api/stores"), 0),
        (request("GET", "/api/stores/3"), 0),
        (request("GET", "/api/stores?limit=0"), 0),
        (request("GET", "/health/live"), 0),
        (request("GET", "/openapi.json"), 0),
        (request("GET", "/docs"), 0),
        (request("GET", "/api/stores", None, "Connection: close"), 0),
        (LIST * 2, 0),
    ],
)
async def test_only_200s_of_gets_of_stores_are_cached(
    tmp_path: Path, data: bytes, count: int
) -> None:
    async with two_stores(tmp_path) as (service, _):
        assert await sizes(service, data) == [count]


@pytest.mark.parametrize(("mode", "count"), [("open", 1), ("writes", 0), ("all", 0)])
async def test_where_tokens_are_looked_at_no_response_to_a_request_with_one_is_cached(
    tmp_path: Path, mode: str, count: int
) -> None:
    token = add_token(f"sqlite:///{tmp_path}/stores.db", "one", "read")
    async with two_stores(tmp_path, auth=mode) as (service, _):
        fields = f"Authorization: Bearer {token}", "Authorization: Basic YTpi"
        asked = [request("GET", "/api/stores", None, field) for field in fields]
        assert (await sizes(service, *asked))[-1] == 2 * count
        assert (await sizes(service, LIST))[-1] == 2 * count + (mode != "all")


async def test_a_connection_that_drains_neither_gets_nor_gives_a_cached_response(
    tmp_path: Path,
) -> None:
    async with two_stores(tmp_path) as (service, _):
        assert await sizes(service, ONE) == [1]
        for data in (ONE, OTHER):
            connection, line = service.connect()
            connection.shutdown()
            connection.data_received(data)
            await until(line.is_closing)
            assert last_response(line).headers["connection"] == "close"
            assert cached(connection) == 1


async def test_a_response_that_is_read_later_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not of the transaction that the cache knows by then."""
    async with two_stores(tmp_path) as (service, _):
        read = service.collection.get

        def reads_later(id: int) -> asyncio.Future[Any]:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[Any] = loop.create_future()
            loop.call_soon(future.set_result, read(id))
            return future

        monkeypatch.setattr(service.collection, "get", reads_later)
        assert await sizes(service, ONE) == [0]


async def test_nothing_is_cached_while_the_numbers_of_the_collection_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_stores(tmp_path) as (service, _):
        assert await sizes(service, ONE) == [1]

        def unavailable() -> object:
            raise apsw.BusyError("it is locked")

        monkeypatch.setattr(service.collection._reader, "numbers", unavailable)
        assert await sizes(service, ONE, OTHER) == [0, 0]
        monkeypatch.undo()
        assert await sizes(service, ONE, OTHER) == [1, 2]


class Database:
    """What tells the cache the numbers of the collection."""

    now: object | None = 1

    def numbers(self) -> object | None:
        return self.now


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "MAX_CACHED_BYTES", 1000)
    monkeypatch.setattr(response_cache, "MAX_RESPONSE_BYTES", 300)
    cache = ResponseCache(Database().numbers)
    for number in range(100):
        key = b"%d" % number
        assert cache.get(key) is None
        cache.put(key, Cached(b"x" * (200 + 200 * (number % 2)), "stores"))
        assert sum(len(each.rest) for each in cache._responses.values()) <= 1000
        assert (cache.get(key) is not None) == (number % 2 == 0)


def test_whatever_changes_the_numbers_drops_everything() -> None:
    """Also numbers that were there before: after a restore a version goes backwards."""
    database = Database()
    cache = ResponseCache(database.numbers)
    for numbers in (1, 2, 1, None, 1, (1, "epoch"), (1, "other")):
        database.now = numbers
        assert cache.get(b"a") is None
        cache.put(b"a", Cached(b"response", "stores"))
        cache.put(b"b", Cached(b"response", "stores"))
        assert (cache.get(b"a") is not None) == (numbers is not None)


def test_outside_a_batch_nothing_enters_or_leaves_the_cache() -> None:
    database = Database()
    cache = ResponseCache(database.numbers)
    cache.put(b"a", Cached(b"response", "stores"))
    database.now = None
    assert cache.get(b"a") is None
    cache.put(b"a", Cached(b"response", "stores"))
    database.now = 1
    assert cache.get(b"a") is None


def test_a_response_that_is_put_after_the_numbers_changed_is_alone_in_the_cache() -> None:
    database = Database()
    cache = ResponseCache(database.numbers)
    cache.put(b"a", Cached(b"old", "stores"))
    database.now = 2
    cache.put(b"b", Cached(b"new", "stores"))
    assert cache.get(b"a") is None
    assert cache.get(b"b") is not None
