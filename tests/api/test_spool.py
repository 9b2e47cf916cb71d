"""Temporary files of imports and exports: how many there may be at once."""

import pytest

from storekeeper.api.spool import Spools
from storekeeper.errors import Unavailable


def test_a_file_that_nobody_uses_is_given_back_even_if_it_is_part_of_a_reference_cycle() -> None:
    spools = Spools(1, "Another one is running")
    cycle: list[object] = [spools.take()]
    with pytest.raises(Unavailable, match="Another one"):
        spools.take()
    cycle.append(cycle)
    del cycle
    spools.take()
