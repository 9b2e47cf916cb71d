"""The index of Idempotency-Keys by itself; what follows the table is tested with each database."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storekeeper import key_index
from storekeeper.key_index import KeyIndex


def add(index: KeyIndex, keys: list[str], row: int, oldest: int, *, load: bool) -> None:
    """Add the keys of a row of this process, or load one of another."""
    if load:
        index.load([(row, [(key, 0, 0) for key in keys])], oldest)
    else:
        index.add(keys, row, oldest)


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


KEYS = [f"order-{number}" for number in range(12)]
ROWS = st.lists(
    st.tuples(st.lists(st.sampled_from(KEYS), min_size=1, unique=True), st.integers(0, 12), st.booleans())
)


@given(ROWS, st.sampled_from([0, 2**32, 2**62]))
def test_a_key_is_found_in_each_of_its_rows_that_was_not_deleted(
    rows: list[tuple[list[str], int, bool]], ever: int
) -> None:
    """However many came and went before, though others share its list, and whatever was looked for last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "LISTS", 4)
        index, added = KeyIndex(), list[tuple[int, list[str]]]()
        index._gone = last = oldest = ever
        for keys, deleted, load in rows:
            last += len(keys)
            oldest = min(oldest + deleted, last)  # the newest row is never deleted
            add(index, keys, last, oldest, load=load)
            added.append((last, keys))
            for wanted in (*([key] for key in KEYS), KEYS):
                had = {n for n, keys in added if {*keys} & {*wanted}}
                assert {n for n in had if n >= oldest} <= index.find(wanted) <= had


def test_keys_that_follow_one_another_are_in_many_lists() -> None:
    """In one, each costs as much time as there are others, and all other threads wait for it."""
    index = KeyIndex()
    index.add([f"order-{number:06}" for number in range(2**16)], 1, 1)
    assert sum(map(bool, index._heads)) > 2**16 * 0.96


@pytest.mark.parametrize("load", [False, True])
def test_entries_of_deleted_rows_leave_the_index_while_others_come(load: bool) -> None:
    index = KeyIndex()
    for n in range(1, 101):
        add(index, [f"{n} {number}" for number in range(100)], n, 1, load=load)
    for n in range(101, 1201):
        add(index, [f"{n} {number}" for number in range(100)], n, n - 1, load=load)
    assert index.find(["1199 5"]) == {1199}
    assert index.find(["1200 5"]) == {1200}
    assert index.find(["50 5"]) == set()
    assert len(index._entries) // 3 < 500


def test_no_key_is_lost_if_memory_runs_out_while_others_are_added() -> None:
    def rows() -> Iterator[int]:
        yield 3
        raise MemoryError

    index = KeyIndex()
    index.add(["a", "b"], 2, 1)
    with pytest.raises(MemoryError):
        index._add(["a", "b", "c"], rows(), 1)
    assert index.find(["a", "b", "c"]) == {2}
    index.add(["c", "b", "d"], 5, 1)
    assert [index.find([key]) for key in "abcd"] == [{2}, {2, 5}, {5}, {5}]
