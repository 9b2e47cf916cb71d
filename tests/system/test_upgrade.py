"""An upgrade to a later schema under load: the old and the new version next to each other."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests import ROOT
from tests.harness.client import until
from tests.harness.databases import Database
from tests.harness.process import Running, run, serving

COLUMNS = "one, count, version, at, epoch, backed_up, folding, memory"
VIEW_OF_CHANGES = "CREATE VIEW changes_11 AS SELECT * FROM changes_12"
VIEW_OF_COLLECTION = (
    f"CREATE VIEW collection_11 AS SELECT {COLUMNS} FROM collection_12 GROUP BY {COLUMNS}"
)
EDITS = {
    "sqlite/migrations.py": (
        'CHANGES_TABLE = "changes_11"',
        'CHANGES_TABLE = "changes_12"',
        "ALTER TABLE changes_11 RENAME TO changes_12; " + VIEW_OF_CHANGES,
    ),
    "postgres/schema.py": (
        'COLLECTION_TABLE = "collection_11"',
        'COLLECTION_TABLE = "collection_12"',
        "ALTER TABLE collection_11 RENAME TO collection_12; " + VIEW_OF_COLLECTION,
    ),
}
"""What a release with a next schema changes: the name of the table that writers use, and a
migration that renames it."""

CLIENTS = 3


@pytest.fixture(scope="module")
def next_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a copy of the source that has one more migration on both databases."""
    folder = tmp_path_factory.mktemp("next")
    shutil.copytree(ROOT / "src/storekeeper", folder / "storekeeper")
    for name, (old, new, migration) in EDITS.items():
        module = folder / "storekeeper/storage" / name
        text = module.read_text()
        last = "MIGRATIONS: tuple[str, ...] = (_TO_10, _TO_11)"
        assert text.count(old) == text.count(last) == 1
        more = f"_TO_12 = {migration!r}\n\n{last.removesuffix(')')}, _TO_12)"
        module.write_text(text.replace(old, new).replace(last, more))
    return folder


class Load:
    """Clients that create stores at the service that takes them, and the ids that they got."""

    def __init__(self, *services: Running) -> None:
        self.services = list(services)
        self.acknowledged: dict[int, str] = {}
        self.over = threading.Event()

    def client(self, name: str) -> None:
        number = 0
        while not self.over.is_set():
            number += 1
            stored = f"{name} {number}"
            for service in self.services:
                with suppress(OSError, HTTPException):
                    done = service.request("POST", "/api/stores", {"name": stored})
                    if done.status == 200:
                        self.acknowledged[done.json["id"]] = stored
                        break
                    assert done.json["outcome"] == "none", "its write may have happened"

    def grows(self) -> None:
        """Wait until more was written."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) >= before + 20)


@pytest.mark.thorough
def test_an_upgrade_under_load_loses_no_write_while_both_versions_run(
    database: Database, next_release: Path, tmp_path: Path
) -> None:
    environment = {"PYTHONPATH": str(next_release)}
    backup = tmp_path / "before.db"
    with serving(tmp_path, database=database.url) as old, ThreadPoolExecutor(CLIENTS) as pool:
        load = Load(old)
        clients = [pool.submit(load.client, f"Client {number}") for number in range(CLIENTS)]
        try:
            load.grows()
            done = run("backup", str(backup), "--database", database.url)
            assert done.returncode == 0, done.stderr
            with serving(tmp_path, database=database.url, create=False, env=environment) as new:
                load.services.append(new)
                load.grows()
                refused = old.request("POST", "/api/stores", {"name": "By the old one"})
                assert (refused.status, refused.json["outcome"]) == (503, "none")
                assert old.request("GET", "/api/stores/1").status == 200
                load.over.set()
                for client in clients:
                    client.result()
                stores = new.request("GET", "/api/stores").json
        finally:
            load.over.set()
    names = {store["id"]: store["name"] for store in stores}
    assert load.acknowledged.items() <= names.items()
    assert list(names) == list(range(1, len(names) + 1))
    assert len(names) == len(load.acknowledged)
    # The morning after, with the newer version.
    restored = f"sqlite:///{tmp_path}/restored.db"
    for command in (["verify", str(backup)], ["restore", str(backup), "--database", restored]):
        done = run(*command, env=environment)
        assert done.returncode == 0, done.stderr
