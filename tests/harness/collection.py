"""What tests ask of any kind of collection, and the stores that they put into it. Quick to
import."""

import asyncio
import json
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar, cast

import uvloop

from storekeeper.domain.commands import Create, Replace
from storekeeper.domain.queries import Query, State
from storekeeper.domain.stores import Payload, Store
from storekeeper.storage.collection import Collection, Eventual, Listing

T = TypeVar("T")
MANY = 2500
"""More than two pages of a long list, whatever the size of a page (at most 1,000)."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine as the service would."""
    return uvloop.run(main)


def numbered(count: int, name: str = "") -> Iterator[Payload]:
    """Return different payloads, all with the same name if one is given."""
    for number in range(1, count + 1):
        yield Payload(name or f"Store {number}", f"{number} Road")


def create(collection: Collection, payload: Payload) -> asyncio.Future[Store]:
    """Add a store; a create always returns one."""
    return cast("asyncio.Future[Store]", collection.write(Create(payload)))


def replace(collection: Collection, id: int, payload: Payload) -> asyncio.Future[Store | None]:
    """Replace a store; return None if no store has that id."""
    return collection.write(Replace(id, payload))


async def get(collection: Collection, id: int) -> Store | None:
    """Read one store, whether the result is there now or later."""
    return await now(collection.get(id))


async def listing(collection: Collection, name: str | None = None) -> Listing:
    """Start to read a list, whether the result is there now or later."""
    return await now(collection.list(Query(name)))


async def state(collection: Collection) -> State:
    """Read the collection's numbers."""
    return await now(collection.state())


def numbers(collection: Collection) -> object | None:
    """Return what says whether the stores have changed, in a batch of its own."""
    collection.begin_reads()
    try:
        return collection.numbers()
    finally:
        collection.end_reads()


async def stores(collection: Collection, name: str | None = None) -> list[dict[str, Any]]:
    """Read a whole list."""
    found = await listing(collection, name)
    parts = [found.first]
    if found.rest is not None:
        parts += [part async for part in found.rest]
    decoded: list[dict[str, Any]] = json.loads(b"[" + b"".join(parts) + b"]")
    return decoded


async def now(value: Eventual[T]) -> T:
    """Return the result of a read, whether it is there now or later."""
    if asyncio.isfuture(value):
        result: T = await value
        return result
    return value
