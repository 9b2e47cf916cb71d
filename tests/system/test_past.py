"""The past stays as it was while others write, and reading it leaves the others their time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storekeeper.databases import open_collection
from tests.campaigns import past
from tests.harness.collection import run
from tests.harness.databases import Database
from tests.harness.process import Running, serving

STORES = 3000
PAGE = 400
TIMES = 3000


@contextmanager
def filled(database: Database, folder: Path) -> Iterator[Running]:
    async def load() -> None:
        collection = open_collection(database.url, lambda _: None)
        await collection.load(past.numbered(STORES))
        await collection.close()

    with serving(folder, database=database.url) as service:
        run(load())
        yield service


def test_a_walk_through_one_moment_while_others_write_finds_that_moment(database: Database, tmp_path: Path) -> None:
    with filled(database, tmp_path) as service:
        walk = past.walk(service, STORES, 500, PAGE)
    assert walk.odd == []
    assert walk.writes.keys() == {200}
    changes = database.changes()
    version = int(walk.tag.strip('"').partition(".")[0])
    assert STORES < version < len(changes)
    assert walk.found == past.as_of(changes, version) != past.as_of(changes, len(changes))
    assert walk.total == {str(len(walk.found))}


def test_what_was_changed_very_often_is_read_as_it_was_beside_others(database: Database, tmp_path: Path) -> None:
    """How long the others wait is what `make load` measures."""
    with filled(database, tmp_path) as service:
        past.change_often(database.url, 1, TIMES)
        others = [f"/api/stores/{id}" for id in range(2, 100)]
        ancient = [f"/api/stores/1?at={STORES}", f"/api/stores?at={STORES}&limit=10"]
        responses = past.read(service.port, 0.5, others + ancient * 20)
        assert responses.statuses.keys() == {200}
        for at, name in ((STORES, "Store 1"), (STORES + 1, "Often 0"), (STORES + TIMES, f"Often {TIMES - 1}")):
            assert service.request("GET", f"/api/stores/1?at={at}").json["name"] == name
            assert service.request("GET", f"/api/stores?at={at}&limit=1").json[0]["name"] == name
