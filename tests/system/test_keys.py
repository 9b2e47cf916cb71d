"""A create that is repeated with its Idempotency-Key until it is answered has happened once,
whatever was killed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaigns.keyed import kill_creates
from tests.harness.databases import Database


def test_keyed_creates_that_are_repeated_across_kills_happen_once(
    new_database: Callable[[], Database], tmp_path: Path
) -> None:
    def repeats_some(number: int) -> bool:
        row = kill_creates(tmp_path / f"{number}", 40, 1, new_database().url)
        assert row.violations == []
        assert (row.figures["kills"], row.figures["stores"]) == (1, 40)
        return row.figures["tries"] > 40

    # If the machine holds the clients up just then, the kill meets no request.
    assert any(map(repeats_some, range(5)))


@pytest.mark.thorough
def test_that_would_be_seen(tmp_path: Path) -> None:
    """The check itself: where a key is known to one process only, its repeat elsewhere is not a
    replay."""
    row = kill_creates(tmp_path, 40, 1, change="remembers_only_its_own_keys")
    assert row.violations
