"""What lists cost, and that they are of the database as it is."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from storekeeper.domain.errors import Unavailable
from storekeeper.domain.queries import Moment, Query
from storekeeper.domain.stores import Payload
from storekeeper.storage.collection import Listing
from storekeeper.storage.sqlite import connections, reads
from storekeeper.storage.sqlite.migrations import CHANGES_TABLE
from storekeeper.storage.sqlite.snapshot import RENEW_EPOCH
from tests.harness.client import load
from tests.harness.databases import make_file

COUNT = 2500


async def whole(listing: Listing) -> list[int]:
    assert listing.rest is not None
    text = listing.first + b"".join([part async for part in listing.rest])
    return [store["id"] for store in json.loads(b"[%b]" % text)]


def test_no_page_holds_the_event_loop_for_many_long_addresses(tmp_path: Path) -> None:
    """However a list came to its stores: by range, by name, or as of a version."""
    path = tmp_path / "stores.db"
    make_file(path)
    load(f"sqlite:///{path}", [Payload("Long", "x" * 2**20)] * 8, only_if_empty=True)
    with closing(connections.connect(path, reader=True)) as connection:
        reader = reads.Reader(connection)
        for query in (Query(), Query("Long"), Query(at=Moment(8))):
            listing = reader.read(reader.list, query)
            assert len(listing.first) < 3 * 2**20
            assert asyncio.run(whole(listing)) == list(range(1, 9))


def restore(source: Path, target: Path) -> None:
    with (
        closing(apsw.Connection(str(source))) as one,
        closing(apsw.Connection(str(target))) as other,
        other.backup("main", one, "main") as copying,
    ):
        copying.step()


def replace(path: Path, name: str, id: int = 7) -> None:
    change = (
        "SELECT max(seq) + 1, ?, ?, NULL, max(at) + 1 + (? = 'Lost'), max(count), 0, NULL"
        " FROM changes"
    )
    latest = "(SELECT max(seq) FROM changes)"
    with closing(apsw.Connection(str(path))) as other, other:
        other.execute(f"INSERT INTO {CHANGES_TABLE} {change}", (id, name, name))
        other.execute(f"UPDATE stores SET name = ?, version = {latest} WHERE id = ?", (name, id))


def test_lists_after_a_restore_beside_the_service_are_those_of_the_backup(tmp_path: Path) -> None:
    """The version goes backwards, and is reached again by other changes; only then the epoch is
    renewed."""
    path, backup = tmp_path / "stores.db", tmp_path / "backup.db"
    make_file(path)
    load(
        f"sqlite:///{path}",
        [Payload(f"Store {number}") for number in range(1, COUNT + 1)],
        only_if_empty=True,
    )

    with closing(connections.connect(path, reader=True)) as connection:
        reader = reads.Reader(connection)

        def seventh(query: Query) -> str:
            name: str = json.loads(b"[%b]" % reader.read(reader.list, query).first)[6]["name"]
            return name

        restore(path, backup)
        replace(path, "Lost")
        assert (seventh(Query()), seventh(Query(at=Moment(COUNT + 1)))) == ("Lost", "Lost")
        restore(backup, path)
        assert seventh(Query()) == "Store 7"
        replace(path, "Kept")
        with closing(apsw.Connection(str(path))) as other:
            other.execute(RENEW_EPOCH)
        assert (seventh(Query()), seventh(Query(at=Moment(COUNT + 1)))) == ("Kept", "Kept")
        assert seventh(Query(at=Moment(COUNT))) == "Store 7"


def test_a_long_list_ends_when_the_version_goes_backwards(tmp_path: Path) -> None:
    path, backup = tmp_path / "stores.db", tmp_path / "backup.db"
    make_file(path)
    load(f"sqlite:///{path}", [Payload("One")], only_if_empty=True)
    restore(path, backup)
    load(f"sqlite:///{path}", [Payload("Many")] * COUNT)
    with closing(connections.connect(path, reader=True)) as connection:
        reader = reads.Reader(connection)
        listing = reader.read(reader.list, Query())
        restore(backup, path)
        with pytest.raises(Unavailable, match="restored while the list was read"):
            asyncio.run(whole(listing))


def test_a_read_that_breaks_off_in_a_statement_leaves_no_old_transaction(tmp_path: Path) -> None:
    """Whatever ended it: the next read would see what was there then."""
    path = tmp_path / "stores.db"
    make_file(path)
    load(f"sqlite:///{path}", [Payload("A")] * 3)
    with closing(connections.connect(path, reader=True)) as connection:
        reader = reads.Reader(connection)
        reader.in_batch = True

        def breaks_off() -> None:
            reader.numbers()
            next(reader._execute("SELECT id FROM stores"))
            raise MemoryError

        for total in (3, 4, 5):
            with pytest.raises(MemoryError):
                reader.read(breaks_off)
            assert reader.read(reader.state).total == total
            reader.end()
            load(f"sqlite:///{path}", [Payload("B")])
