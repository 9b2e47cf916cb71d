"""The index of Idempotency-Keys by itself; what follows the table is tested with each database."""

import random

import pytest

from storekeeper import key_index
from storekeeper.key_index import KeyIndex


@pytest.mark.parametrize("shift", [0, 16], ids=["by their first bits", "by their last bits"])
def test_keys_that_a_client_chose_for_one_bucket_are_in_many(shift: int) -> None:
    """In one, each costs as much time as there are others, and all other threads wait for it."""
    index = KeyIndex()
    numbers = random.Random(1)
    chosen = [numbers.getrandbits(47) << shift for _ in range(3000)]
    index.add(chosen, range(1, 3001), 1)
    assert max(map(len, index._buckets)) < 20 * key_index._ENTRY.size
    assert index.find(chosen[:5]) == {1, 2, 3, 4, 5}
