"""What lists cost, and that they are of the database as it is."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import apsw

from storekeeper.collection import Listing, Moment, Query
from storekeeper.sqlite import connections, reads, schema
from storekeeper.sqlite.bulk import RENEW_EPOCH
from storekeeper.stores import Payload
from tests.harness.imports import load

COUNT = 2500


async def whole(listing: Listing) -> list[int]:
    assert listing.rest is not None
    text = listing.first + b"".join([part async for part in listing.rest])
    return [store["id"] for store in json.loads(b"[%b]" % text)]


def test_no_page_holds_the_event_loop_for_many_long_addresses(tmp_path: Path) -> None:
    """However a list came to its stores: by range, by name, or as of a version."""
    path = tmp_path / "stores.db"
    schema.prepare(path)
    load(f"sqlite:///{path}", [Payload("Long", "x" * 2**20)] * 8, only_if_empty=True)
    with closing(connections.connect(path, reader=True)) as connection:
        reader = reads.Reader(connection)
        for query in (Query(), Query("Long"), Query(at=Moment(8))):
            listing = reader.list(query)
            assert len(listing.first) < 3 * 2**20
            assert asyncio.run(whole(listing)) == list(range(1, 9))


def test_lists_after_a_restore_beside_the_service_are_those_of_the_backup(tmp_path: Path) -> None:
    """The version goes backwards, and is reached again by other changes; only then the epoch is renewed."""
    path, backup = tmp_path / "stores.db", tmp_path / "backup.db"
    schema.prepare(path)
    load(f"sqlite:///{path}", [Payload(f"Store {number}") for number in range(1, COUNT + 1)], only_if_empty=True)

    def restore(source: Path, target: Path) -> None:
        with (
            closing(apsw.Connection(str(source))) as one,
            closing(apsw.Connection(str(target))) as other,
            other.backup("main", one, "main") as copying,
        ):
            copying.step()

    def replace(name: str) -> None:
        change = "SELECT max(seq) + 1, 7, ?, NULL, max(at), max(count), 0 FROM changes"
        latest = "(SELECT max(seq) FROM changes)"
        with closing(apsw.Connection(str(path))) as other, other:
            other.execute(f"INSERT INTO changes {change}", (name,))
            other.execute(f"UPDATE stores SET name = ?, version = {latest} WHERE id = 7", (name,))

    with closing(connections.connect(path, reader=True)) as connection:
        reader = reads.Reader(connection)

        def seventh(query: Query) -> str:
            name: str = json.loads(b"[%b]" % reader.list(query).first)[6]["name"]
            return name

        restore(path, backup)
        replace("Lost")
        assert (seventh(Query()), seventh(Query(at=Moment(COUNT + 1)))) == ("Lost", "Lost")
        restore(backup, path)
        assert seventh(Query()) == "Store 7"
        replace("Kept")
        with closing(apsw.Connection(str(path))) as other:
            other.execute(RENEW_EPOCH)
        assert (seventh(Query()), seventh(Query(at=Moment(COUNT + 1)))) == ("Kept", "Kept")
        assert seventh(Query(at=Moment(COUNT))) == "Store 7"
