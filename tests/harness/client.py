"""What tests of the API do often: create stores, check for success, check that nothing changed."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from tests.harness.databases import make
from tests.harness.loading import load_into
from tests.harness.process import TIMEOUT, Response, Running


def assert_success(response: Response) -> None:
    """Check for status 200 with the two headers of the contract."""
    assert response.status == 200, response
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"


def create(service: Running, name: str, address: str | None = None) -> int:
    body = {"name": name} if address is None else {"name": name, "address": address}
    response = service.request("POST", "/api/stores", body)
    assert_success(response)
    id: int = response.json["id"]
    return id


@contextmanager
def nothing_changes(service: Running) -> Iterator[None]:
    """Check that every store, and there must be one, is the same after the block as before."""
    before = service.request("GET", "/api/stores").body
    assert len(before) > 2
    yield
    assert service.request("GET", "/api/stores").body == before


def fill(folder: Path, payloads: Iterable[Payload]) -> None:
    """Create many stores at once in the database that `serving` has in a folder; a service may be
    running on it."""
    load(f"sqlite:///{folder}/stores.db", payloads)


def load(url: str, payloads: Iterable[Payload], **options: Any) -> range:
    """Create stores in a database, by an import; return their ids."""
    make(url)
    database = databases.database(url)
    with database.session() as session:
        return load_into(session, payloads, **options)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Block every write to the database in a folder, as a long write of another process would."""
    other = apsw.Connection(str(folder / "stores.db"))
    other.set_busy_timeout(int(1000 * TIMEOUT))  # others may be writing at this moment
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def until(done: Callable[[], object], timeout: float = TIMEOUT) -> None:
    """Wait until a condition outside this process is true, which can only be polled."""
    give_up = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.01)
