"""A database that is deleted or replaced under a running service: nothing is acknowledged that
no process will find."""

import os
import shutil
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from storekeeper.domain.errors import CannotStart, Missing, Unavailable
from storekeeper.domain.queries import Query
from storekeeper.domain.search import parse
from storekeeper.domain.stores import EXAMPLES, Payload
from storekeeper.storage.collection import completed
from storekeeper.storage.sqlite import SqliteCollection
from tests.harness import weakened
from tests.harness.cases import thorough
from tests.harness.client import create as store
from tests.harness.client import until
from tests.harness.collection import create
from tests.harness.command import run as run_command
from tests.harness.databases import Sqlite, make_file
from tests.harness.loading import add_all
from tests.harness.process import TIMEOUT, Running, serving
from tests.harness.stores import a_row

LOST, GONE = 74, 2
"""Exit statuses after the database failed: a service manager starts the service again, or must
not."""

Fault = Callable[[Path], None]


def deleted(path: Path) -> None:
    path.unlink()


def moved_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replaced(path: Path) -> None:
    """As a restore from a backup does while the service runs."""
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)


def without_its_log(path: Path) -> None:
    path.with_name("stores.db-wal").unlink()


def without_the_index_of_its_log(path: Path) -> None:
    path.with_name("stores.db-shm").unlink()


def with_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


FAULTS = [
    deleted,
    *thorough(moved_away),
    replaced,
    without_its_log,
    without_the_index_of_its_log,
    with_its_folder,
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder / "stores.db"


def assert_ends(service: Running, place: Path) -> None:
    assert service.process.wait(TIMEOUT) == (LOST if place.exists() else GONE)
    assert service.log.count("database failed, ending this process") == 1
    assert "Traceback" not in service.log


def test_the_process_says_so_and_ends(tmp_path: Path, place: Path) -> None:
    """No request is needed."""
    with serving(tmp_path, database=f"sqlite:///{place}") as service:
        store(service, "Before")
        replaced(place)
        assert_ends(service, place)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_write_is_acknowledged_from_then_on(tmp_path: Path, place: Path, fault: Fault) -> None:
    """Not even before the service has looked by itself, which it does four times a second."""
    with serving(tmp_path, database=f"sqlite:///{place}") as service:
        store(service, "Before")
        fault(place)
        assert statuses_of_writes(service) <= {503, 0}
        assert_ends(service, place)


def test_an_import_beside_it_is_not_written_over(tmp_path: Path, place: Path) -> None:
    """Without the index of the log, the service and the command do not see each other's locks."""
    file = tmp_path / "stores.csv"
    file.write_text("name,address\n" + "Imported,\n" * 50)
    with serving(tmp_path, database=f"sqlite:///{place}") as service:
        store(service, "Before")
        without_the_index_of_its_log(place)
        done = run_command(
            "import", "--add", "--yes", "--database", f"sqlite:///{place}", str(file)
        )
        assert statuses_of_writes(service) <= {503, 0}
        assert service.process.wait(TIMEOUT) == LOST
    assert done.returncode == 0
    assert [row[1] for row in Sqlite(place.parent).changes()] == list(range(1, 52))


def statuses_of_writes(service: Running) -> set[int]:
    """Write until the service is gone, and give all statuses, 0 for a response that did not
    come."""
    statuses: set[int] = set()
    while service.process.poll() is None and statuses != {200}:
        try:
            statuses.add(service.request("POST", "/api/stores", {"name": "After"}).status)
        except OSError:
            statuses.add(0)
        time.sleep(0.005)  # the service needs the processor too
    return statuses


def test_that_would_be_seen(tmp_path: Path, place: Path) -> None:
    """The same with a build that does not look."""
    environment = weakened.environment("does_not_look_for_its_file")
    database = f"sqlite:///{place}"
    with serving(tmp_path, database=database, env=environment, program=weakened.PROGRAM) as service:
        store(service, "Before")
        deleted(place)
        assert statuses_of_writes(service) == {200}
        assert service.request("GET", "/health/ready").status == 200


def test_its_successor_refuses_with_the_way_out(tmp_path: Path, place: Path) -> None:
    """The log is there, so the file must be there: it does not begin with number 1 again."""
    with serving(tmp_path, database=f"sqlite:///{place}") as service:
        store(service, "Before")
        place.rename(place.with_name("kept.db"))
        assert_ends(service, place)
    with pytest.raises(
        CannotStart,
        match=r"gone, but its log stores\.db-wal is there: restore the file from a backup",
    ):
        make_file(place)
    place.with_name("kept.db").rename(place)
    assert Sqlite(place.parent).changes() == [a_row(1, 1, "Before")]


@pytest.mark.parametrize("fault", [deleted, *thorough(with_its_folder)])
def test_a_supervisor_starts_no_worker_on_a_new_database(
    tmp_path: Path, place: Path, fault: Fault
) -> None:
    """Also when nothing is left of the old one: the service ends, and says why."""
    with serving(tmp_path, "--workers=2", database=f"sqlite:///{place}") as service:
        store(service, "Before")
        for name in ("stores.db-wal", "stores.db-shm"):
            place.with_name(name).unlink()
        fault(place)
        until(lambda: service.process.poll() is not None)
        assert service.process.returncode == GONE
        assert f"\nstorekeeper: {Missing(str(place))}\n" in service.log
    assert not place.exists()


def mark(collection: SqliteCollection) -> Coroutine[Any, Any, object]:
    return collection.mark_used([1], 0)


def load(collection: SqliteCollection) -> Coroutine[Any, Any, object]:
    return add_all(collection, EXAMPLES)


@pytest.mark.parametrize("work", [mark, load])
async def test_work_on_a_thread_begins_no_empty_file_in_place_of_one_that_is_gone(
    tmp_path: Path, work: Callable[[SqliteCollection], Coroutine[Any, Any, object]]
) -> None:
    """It opens a connection of its own; a worker that came next would take such a file for a new
    database."""
    path, log = tmp_path / "stores.db", tmp_path / "stores.db-wal"
    make_file(path)
    collection = SqliteCollection(path, lambda _reason: None)
    path.unlink()
    with pytest.raises(Unavailable, match="is gone"):
        await work(collection)
    assert (path.exists(), log.exists()) == (False, True)
    await collection.close()


def search(collection: SqliteCollection) -> Coroutine[Any, Any, object]:
    return completed(collection.list(Query(limit=50, search=parse("Store"))))


@pytest.mark.parametrize("work", [mark, load, search])
async def test_work_on_a_thread_changes_nothing_in_another_file_that_has_come_in_its_place(
    tmp_path: Path, work: Callable[[SqliteCollection], Coroutine[Any, Any, object]]
) -> None:
    path, log_path, failures = tmp_path / "stores.db", tmp_path / "stores.db-wal", list[object]()
    make_file(path)
    collection = SqliteCollection(path, failures.append)
    await create(collection, Payload("In the log"))
    replaced(path)
    before, log = path.read_bytes(), log_path.read_bytes()
    with pytest.raises(Unavailable, match="was replaced"):
        await work(collection)
    assert (path.read_bytes(), log_path.read_bytes()) == (before, log)
    await collection.close()
    assert len(failures) == 1


def test_a_link_to_the_file_may_be_what_its_path_names(tmp_path: Path, place: Path) -> None:
    """The log is next to the file, and a link that points elsewhere is another database."""
    link = tmp_path / "link.db"
    make_file(place)
    link.symlink_to(place)
    with serving(tmp_path, database=f"sqlite:///{link}") as service:
        store(service, "Through the link")
        assert service.request("GET", "/health/ready").status == 200
        other = tmp_path / "other.db"
        os.link(place, other)  # the same file by another name is the same file
        store(service, "Still there")
        link.unlink()
        assert service.process.wait(TIMEOUT) == GONE
