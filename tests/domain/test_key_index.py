"""The index of Idempotency-Keys by itself; what follows the table is tested with each database."""

import random

from storekeeper.key_index import KeyIndex


def test_each_key_is_found_in_its_row_and_hardly_any_other() -> None:
    index = KeyIndex()
    numbers = random.Random(1)
    rows = [[f"{numbers.getrandbits(64):x}" for _ in range(numbers.randrange(1, 30))] for _ in range(2000)]
    for n, keys in enumerate(rows[:1000], 1):
        index.add(keys, n, 1)
    index.load([(n, [(key, 0, 0) for key in keys]) for n, keys in enumerate(rows[1000:], 1001)], 1)
    for n, keys in enumerate(rows, 1):
        assert index.find(keys) == {n}
    assert index.find([f"{numbers.getrandbits(64):x}" for _ in range(20_000)]) == set()


def test_a_key_that_was_forgotten_and_came_again_is_found_in_both_of_its_rows() -> None:
    index = KeyIndex()
    index.add(["a", "b"], 2, 1)
    index.add(["c", "a"], 4, 1)
    assert index.find(["a"]) == {2, 4}
    assert index.find(["b", "c", "d"]) == {2, 4}


def test_keys_that_follow_one_another_are_in_many_lists() -> None:
    """In one, each costs as much time as there are others, and all other threads wait for it."""
    index = KeyIndex()
    index.add([f"order-{number:06}" for number in range(2**16)], 1, 1)
    assert sum(map(bool, index._heads)) > 2**16 * 0.9


def test_entries_of_deleted_rows_leave_the_index_while_others_come() -> None:
    index = KeyIndex()
    for n in range(1, 101):
        index.add([f"{n} {number}" for number in range(1000)], n, 1)
    for n in range(101, 1201):
        index.add([f"{n} {number}" for number in range(1000)], n, n - 1)
    assert index.find(["1199 5"]) == {1199}
    assert index.find(["1200 5"]) == {1200}
    assert index.find(["50 5"]) == set()
    assert len(index._entries) // 3 < 5000
