"""PUTs of stores with addresses of 1 MiB that change nothing: neither the database nor the
service takes them in."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import uvloop

from storekeeper.domain.queries import Query
from storekeeper.domain.stores import Payload
from storekeeper.storage.sqlite import connections
from storekeeper.storage.sqlite.reads import Reader
from tests.harness import linux, weakened
from tests.harness.client import fill
from tests.harness.keep_alive import Client
from tests.harness.linux import peak_memory
from tests.harness.process import Running, serving

MIB = 2**20
STORES = 50
"""With as many MiB: more than the service may grow by."""

MAX_GROWTH = 32 * MIB
ADDRESS = "x" * (MIB - 100)
CLIENTS = 4
BODY = b'{"name":"Large","address":"%s"}' % ADDRESS.encode()
OTHER = b'{"name":"Other"}'
STALE = 'if-match: "0.aaaaaaaa"\r\n'


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database of large stores."""
    folder = tmp_path_factory.mktemp("large")
    fill(folder, (Payload("Large", ADDRESS) for _ in range(STORES)))
    return folder


def put_all(
    service: Running, count: int, clients: int, body: bytes, fields: str = ""
) -> Counter[tuple[int, str]]:
    """Replace the stores in turn; return how often which status came with which tag."""
    return uvloop.run(_put_all(service.port, count, clients, body, fields))


async def _put_all(
    port: int, count: int, clients: int, body: bytes, fields: str
) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    numbers: Iterator[int] = iter(range(count))

    async def use() -> None:
        client = await Client.connect(port)
        for number in numbers:
            reply = await client.exchange("PUT", f"/api/stores/{1 + number % STORES}", body, fields)
            found[reply.status, reply.tag.partition(".")[0]] += 1
        client.close()

    await asyncio.gather(*(use() for _ in range(clients)))
    return found


def each_store(status: int, count: int) -> Counter[tuple[int, str]]:
    """Return what `put_all` finds if every store is at the version that made it."""
    return Counter((status, f'"{1 + number % STORES}') for number in range(count))


def test_writes_that_large_stores_refuse_or_already_are_change_nothing_and_do_not_load_them(
    large: Path,
) -> None:
    with serving(large) as service:
        assert put_all(service, 10, 10, OTHER, STALE) == each_store(412, 10)
        rest = peak_memory(service)
        assert put_all(service, 150, 75, OTHER, STALE) == each_store(412, 150)
        assert peak_memory(service) - rest < MAX_GROWTH
        assert put_all(service, CLIENTS, CLIENTS, BODY) == each_store(200, CLIENTS)
        rest = peak_memory(service)
        assert put_all(service, 15, CLIENTS, BODY) == each_store(200, 15)
        assert peak_memory(service) - rest < MAX_GROWTH


@pytest.mark.thorough
def test_that_would_be_seen(large: Path) -> None:
    """The check itself: where the addresses of a batch are loaded, that takes more."""
    change = weakened.environment("loads_addresses")
    with serving(large, env=change, program=weakened.PROGRAM) as service:
        put_all(service, 10, 10, OTHER, STALE)
        rest = peak_memory(service)
        put_all(service, 150, 75, OTHER, STALE)
        assert peak_memory(service) - rest > MAX_GROWTH


def test_the_first_part_of_a_list_loads_no_more_large_addresses_than_it_has(large: Path) -> None:
    """Others wait while it is read, however many of them there are."""
    for query in (Query(), Query(limit=45), Query(name="Large"), Query(name="Large", limit=45)):
        with closing(connections.connect(large / "stores.db", reader=True)) as connection:
            before = linux.bytes_read(os.getpid())
            listing = Reader(connection).list(query)
            read = linux.bytes_read(os.getpid()) - before
            assert listing.rest is not None
            assert len(listing.first) <= read < 8 * MIB
