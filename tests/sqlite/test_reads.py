"""What a long list costs its reader."""

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from storekeeper.collection import Listing, Query
from storekeeper.sqlite import load_all, reads, schema
from storekeeper.stores import Payload

COUNT = 2500


async def whole(listing: Listing) -> list[int]:
    assert listing.rest is not None
    text = listing.first + b"".join([part async for part in listing.rest])
    return [store["id"] for store in json.loads(b"[%b]" % text)]


@pytest.mark.parametrize(("order", "searches"), [((0, 3, 7, 0), 1), ((7, 3, 9, 0, 7), 2)])
def test_the_stores_of_a_name_are_searched_for_once_whatever_the_client_begins_after(
    tmp_path: Path, order: tuple[int, ...], searches: int
) -> None:
    path = tmp_path / "stores.db"
    schema.prepare(path)
    load_all(path, [Payload("Same")] * COUNT, only_if_empty=True)
    found: list[Any] = []

    def trace(_: object, statement: str, values: Any) -> bool:
        if statement == reads._NAMED_IDS and values[1] < COUNT:
            found.append(values)
        return True

    with closing(schema.connect(path, reader=True)) as connection:
        reader = reads.Reader(connection)
        connection.exec_trace = trace
        for after in order:
            listing = reader.list(Query("Same", after=after))
            assert asyncio.run(whole(listing)) == list(range(after + 1, COUNT + 1))
    assert len(found) == searches
