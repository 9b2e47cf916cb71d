"""What is kept for slow clients: how much, who gives way, and who is refused."""

import gc

import pytest

from storekeeper.concurrency import slow_readers
from storekeeper.concurrency.slow_readers import Kept, SlowReaders
from storekeeper.domain.errors import Unavailable


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed, as a list of one number."""
    now = [0.0]
    monkeypatch.setattr(slow_readers, "monotonic", lambda: now[0])
    return now


def add(readers: SlowReaders[Kept], size: int = 1) -> Kept:
    kept = Kept(size)
    readers.add(kept)
    return kept


def test_where_there_is_no_room_the_one_without_progress_for_longest_gives_way(
    clock: list[float],
) -> None:
    readers = SlowReaders[Kept](3, 100, 10.0, "Too many")
    first, second, third = add(readers), add(readers), add(readers)
    clock[0] = 11.0
    first.note_progress()
    third.note_progress()
    fourth = add(readers)
    assert [one.gave_way for one in (first, second, third, fourth)] == [False, True, False, False]
    assert readers.refused == 1


def test_while_all_make_progress_a_new_one_is_refused(clock: list[float]) -> None:
    readers = SlowReaders[Kept](2, 100, 10.0, "Too many")
    both = add(readers), add(readers)
    clock[0] = 10.0
    with pytest.raises(Unavailable, match="Too many"):
        add(readers)
    assert not any(one.gave_way for one in both)
    assert readers.refused == 1


def test_bytes_count_and_one_alone_may_have_more(clock: list[float]) -> None:
    readers = SlowReaders[Kept](10, 100, 10.0, "Too many")
    large = add(readers, 1000)
    with pytest.raises(Unavailable):
        add(readers)
    clock[0] = 11.0
    small = [add(readers, 50) for _ in range(2)]
    assert large.gave_way
    with pytest.raises(Unavailable):
        add(readers)
    assert not any(one.gave_way for one in small)


def test_what_nobody_refers_to_any_more_is_not_counted() -> None:
    readers = SlowReaders[Kept](1, 100, 10.0, "Too many")
    gc.disable()
    try:
        for _ in range(3):
            add(readers)
    finally:
        gc.enable()
    assert readers.refused == 0
