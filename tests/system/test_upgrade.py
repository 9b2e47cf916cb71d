"""An upgrade to a later schema under load: the old and the new version next to each other."""

import shutil
from pathlib import Path

import pytest

from tests import ROOT
from tests.campaigns.upgrading import upgrade_under_load
from tests.harness.databases import Database

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


@pytest.mark.thorough
def test_an_upgrade_under_load_loses_no_write_while_both_versions_run(
    database: Database, next_release: Path, tmp_path: Path
) -> None:
    done = upgrade_under_load(database, tmp_path, {}, {"PYTHONPATH": str(next_release)})
    assert done.reads_on
