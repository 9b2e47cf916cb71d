"""The past stays as it was while others write."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storekeeper import databases
from tests.campaigns import past
from tests.harness.collection import run
from tests.harness.databases import Database
from tests.harness.process import Running, serving

STORES = 3000
PAGE = 400


@contextmanager
def filled(database: Database, folder: Path) -> Iterator[Running]:
    async def load() -> None:
        collection = databases.database(database.url).open_collection(lambda _: None)
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
