"""What many, slow and greedy clients do to the others: `make load` in small, without its ratios
of times."""

from pathlib import Path

import pytest

from tests.campaigns import load


@pytest.mark.thorough
@pytest.mark.parametrize("row", [load.idle, load.slow, load.greedy, load.listening])
def test_others_are_served_and_whoever_only_takes_place_is_closed(
    tmp_path: Path, row: object
) -> None:
    assert callable(row)
    assert row(tmp_path, load.SMALL).violations == []
