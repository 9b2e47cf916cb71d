"""A clock that is wrong by over a day: the changes that it dates are counted, and the first is
logged."""

import time
from typing import NamedTuple

import pytest

from storekeeper.domain.commands import Create
from storekeeper.domain.stores import Payload
from storekeeper.log.events import Event
from storekeeper.storage import clock, verification
from storekeeper.storage.clock import MAX_ERROR, MAX_JUMP, ClockWatch
from tests.harness.collection import create
from tests.harness.databases import Database, handle
from tests.harness.loading import add_all

DAY_AND_A_BIT = MAX_ERROR + 60_000
LESS_THAN_A_DAY = MAX_ERROR - 60_000


class Times(NamedTuple):
    """Milliseconds since the process started: by the clock, since boot, and of the latest
    change."""

    clock: int
    since_boot: int
    latest: int


FINE = {
    "all as it is": Times(5, 5, 0),
    "no change yet": Times(5, 5, -clock.now()),
    "less than a day before the latest change": Times(5, 5, LESS_THAN_A_DAY),
    "less than a day ahead": Times(LESS_THAN_A_DAY, 5, 0),
    "the machine slept": Times(DAY_AND_A_BIT, DAY_AND_A_BIT, 0),
    "set back, but not before the latest change": Times(-DAY_AND_A_BIT, 5, -DAY_AND_A_BIT),
}
BEHIND = {"reason", "clock", "latest_change"}
AHEAD = {"reason", "clock", "expected"}
WRONG = {
    "before the latest change": (Times(5, 5, DAY_AND_A_BIT), BEHIND),
    "set back": (Times(-DAY_AND_A_BIT, 5, 0), BEHIND),
    "ahead": (Times(DAY_AND_A_BIT, 5, 0), AHEAD),
    "both wrong": (Times(DAY_AND_A_BIT, 5, 3 * MAX_ERROR), BEHIND),
    "at the end of time": (Times(2**62, 5, 0), AHEAD),
}


SEEN = {
    "nothing happens": (Times(5, 5, 0), []),
    "less than a minute": (Times(MAX_JUMP - 1000, 0, 0), []),
    "the machine slept": (Times(DAY_AND_A_BIT, DAY_AND_A_BIT, 0), []),
    "set ahead": (Times(MAX_JUMP + 5000, 0, 0), [65]),
    "set back": (Times(-MAX_JUMP - 5000, 0, 0), [-65]),
    "set back while the machine slept": (Times(0, 2 * MAX_JUMP, 0), [-120]),
}


@pytest.mark.parametrize("case", SEEN)
def test_a_clock_that_is_set_is_counted_and_logged_once_each_time(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, expected = SEEN[case]
    start, boot, logged = clock.now(), 0, []

    def emit(event: Event, seconds: int) -> None:
        assert event is Event.CLOCK_JUMPED
        logged.append(seconds)

    monkeypatch.setattr(clock, "emit", emit)
    monkeypatch.setattr(clock, "now", lambda: start)
    watch = ClockWatch(lambda: boot)
    watch.look()
    monkeypatch.setattr(clock, "now", lambda: start + times.clock)
    boot = times.since_boot
    for _ in range(3):
        watch.look()
    assert logged == expected
    assert watch.jumps == len(expected)


def test_a_process_that_stands_still_between_its_looks_at_two_clocks_sees_no_jump(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "emit", pytest.fail)
    monkeypatch.setattr(clock, "now", lambda: 100 * MAX_JUMP)
    since_boot = iter([0, 0, 5 * MAX_JUMP, 5 * MAX_JUMP, 5 * MAX_JUMP])
    watch = ClockWatch(lambda: next(since_boot))
    monkeypatch.setattr(clock, "now", lambda: 105 * MAX_JUMP)
    watch.look()  # it began before the standstill, and saw the clock after it
    watch.look()
    assert watch.jumps == 0


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The names of the times of each line that is logged."""
    lines: list[set[str]] = []

    def emit(event: Event, **fields: str) -> None:
        assert event is Event.CLOCK_WRONG
        lines.append(set(fields))

    monkeypatch.setattr(clock, "emit", emit)
    return lines


class Watched:
    """A watch of a process that starts now, which sees commits at made-up times."""

    def __init__(self) -> None:
        self._start, self._boot = clock.now(), 0
        self.watch = ClockWatch(lambda: self._boot)

    def commit(self, times: Times) -> None:
        self._boot = times.since_boot
        self.watch.committed(self._start + times.clock, self._start + times.latest)


@pytest.mark.parametrize("case", FINE)
def test_a_clock_that_may_be_right_is_not_reported(case: str, logged: list[set[str]]) -> None:
    watched = Watched()
    watched.commit(FINE[case])
    assert (watched.watch.wrong_commits, logged) == (0, [])


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_clock_is_counted_each_time_and_logged_once(
    case: str, logged: list[set[str]]
) -> None:
    times, fields = WRONG[case]
    watched = Watched()
    for _ in range(3):
        watched.commit(times)
    assert (watched.watch.wrong_commits, logged) == (3, [fields])
    watched.commit(FINE["all as it is"])
    watched.commit(times)
    assert (watched.watch.wrong_commits, logged) == (4, [fields, fields])


async def test_every_way_to_change_the_list_is_watched(
    database: Database, monkeypatch: pytest.MonkeyPatch, logged: list[set[str]]
) -> None:
    """A write and an import, by a clock ten years ahead, then by the right one."""
    watch = ClockWatch()
    monkeypatch.setattr(clock, "WATCH", watch)
    right, ten_years = time.time_ns, 3650 * MAX_ERROR * 1_000_000
    async with handle(database) as collection:
        await create(collection, Payload("Before"))
        assert watch.wrong_commits == 0
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: right() + ten_years)
            await collection.write(Create(Payload("Ahead"), key=("a", 1)))
            await add_all(collection, [Payload("Imported ahead")])
        await collection.write(Create(Payload("Ahead"), key=("a", 1)))  # a replay dates nothing
        assert (watch.wrong_commits, logged) == (2, [AHEAD])
        await create(collection, Payload("Behind"))
        await add_all(collection, [Payload("Imported behind")])
        assert (watch.wrong_commits, logged) == (4, [AHEAD, BEHIND])
    assert verification.verify(database.url) == []
    [remark] = verification.remarks(database.url)
    assert remark.startswith("4 changes are dated after now, from number 2 on and up to 20")


async def test_changes_of_a_right_clock_need_no_remark(database: Database) -> None:
    async with handle(database) as collection:
        await create(collection, Payload("A"))
    assert verification.remarks(database.url) == []
