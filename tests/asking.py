"""What tests ask of a collection, of whatever kind, and the stores that they put into it. Quick to import."""

import asyncio
import json
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import uvloop

from storekeeper.collection import Answer, Collection, Listing
from storekeeper.stores import Payload, Store

T = TypeVar("T")
MANY = 2500
"""More than two pages of a long list, whatever a page is (at most 1,000)."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine as the service would."""
    return uvloop.run(main)


def numbered(count: int, name: str = "") -> Iterator[Payload]:
    """Give payloads that differ, but for the name if one is given."""
    for number in range(1, count + 1):
        yield Payload(name or f"Store {number}", f"{number} Road")


async def get(collection: Collection, id: int) -> Store | None:
    """Read one store, whether the answer is there now or later."""
    return await _now(collection.get(id))


async def listing(collection: Collection, name: str | None = None) -> Listing:
    """Begin to read a list, whether the answer is there now or later."""
    return await _now(collection.list(name))


async def stores(collection: Collection, name: str | None = None) -> list[dict[str, Any]]:
    """Read a list to its end."""
    found = await listing(collection, name)
    parts = [found.first]
    if found.rest is not None:
        parts += [part async for part in found.rest]
    decoded: list[dict[str, Any]] = json.loads(b"[" + b"".join(parts) + b"]")
    return decoded


async def _now(answer: Answer[T]) -> T:
    if asyncio.isfuture(answer):
        result: T = await answer
        return result
    return answer
