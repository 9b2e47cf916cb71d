"""The index of Idempotency-Keys by itself; what follows the table is tested with each database."""

import random

from storekeeper import key_index
from storekeeper.key_index import KeyIndex


def _sizes(index: KeyIndex) -> list[int]:
    return [len(bucket) // key_index._ENTRY.size for bucket in index._buckets]


def test_each_key_is_found_in_its_row_and_hardly_any_other() -> None:
    index = KeyIndex()
    numbers = random.Random(1)
    rows = [[f"{numbers.getrandbits(64):x}" for _ in range(numbers.randrange(1, 30))] for _ in range(2000)]
    for n, keys in enumerate(rows[:1000], 1):
        index.add(keys, n, 1)
    index.load([(n, [(key, 0, 0) for key in keys]) for n, keys in enumerate(rows[1000:], 1001)], 1)
    for n, keys in enumerate(rows, 1):
        assert index.find(keys) == {n}
    others = [f"{numbers.getrandbits(64):x}" for _ in range(20_000)]
    assert len(index.find(others)) < 3, "40 bits of a hash may be the same"


def test_keys_that_follow_one_another_are_in_many_buckets() -> None:
    """In one, each costs as much time as there are others, and all other threads wait for it."""
    index = KeyIndex()
    index.add([f"order-{number:06}" for number in range(2**16)], 1, 1)
    assert max(_sizes(index)) < 20


def test_entries_of_deleted_rows_leave_the_index_while_others_come() -> None:
    index = KeyIndex()
    for n in range(1, 101):
        index.add([f"{n} {number}" for number in range(1000)], n, 1)
    for n in range(101, 1201):
        index.add([f"{n} {number}" for number in range(1000)], n, n - 1)
    assert index.find(["1199 5"]) == {1199}
    assert index.find(["1200 5"]) == {1200}
    assert index.find(["50 5"]) == set()
    assert sum(_sizes(index)) < 2**16 * key_index.TRIM_EVERY * 2
