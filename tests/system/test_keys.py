"""A create that is repeated with its Idempotency-Key until it is answered has happened once, whatever was killed."""

from pathlib import Path

import pytest

from tests.campaigns.keyed import kill_creates
from tests.harness.databases import Database


def test_keyed_creates_that_are_repeated_across_kills_happen_once(database: Database, tmp_path: Path) -> None:
    row = kill_creates(tmp_path, 40, 1, database.url)
    assert row.violations == []
    assert row.figures["kills"] == 1
    assert row.figures["stores"] == 40 < row.figures["tries"]


@pytest.mark.thorough
def test_that_would_be_seen(tmp_path: Path) -> None:
    """The check itself: where a key is known to one process only, its repeat elsewhere is no replay."""
    row = kill_creates(tmp_path, 40, 1, change="remembers_only_its_own_keys")
    assert row.violations
