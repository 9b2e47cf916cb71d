"""The checker finds each kind of wrong history, and nothing in a right one."""

from dataclasses import replace
from math import inf

import pytest

from tests.oracles.lincheck import Kind, Operation, Outcome, check

CREATE, REPLACE, READ, LIST, FILTER, TAG, REPLAY = Kind
NAMES = ("a", "b")


def name_of(value: int) -> str:
    return NAMES[value % 2]


# Each kind of wrong history. Times are the order of the lines; `made` is a store with two values.


def create(start: float, end: float, store: int, value: int) -> Operation:
    return Operation(CREATE, start, end, store, value, name_of(value))


def put(start: float, end: float, store: int, value: int) -> Operation:
    return Operation(REPLACE, start, end, store, value, name_of(value))


def read(start: float, end: float, store: int, value: int | None) -> Operation:
    return Operation(READ, start, end, store, value)


def listed(start: float, end: float, *values: int) -> Operation:
    return Operation(LIST, start, end, ids=range(1, len(values) + 1), values=values)


def filtered(start: float, end: float, name: str, **stores: int) -> Operation:
    ids = [int(id.removeprefix("s")) for id in stores]
    return Operation(FILTER, start, end, name=name, ids=ids, values=list(stores.values()))


def tag(start: float, end: float, store: int, version: int, if_match: int | None = None) -> Operation:
    """A 304, or with `if_match` a 412."""
    return Operation(TAG, start, end, store, version=version, if_match=if_match)


def replay(start: float, end: float, store: int, value: int, version: int | None = None) -> Operation:
    return Operation(REPLAY, start, end, store, value, version=version)


def after(op: Operation, if_match: int, version: int | None = None) -> Operation:
    return replace(op, if_match=if_match, version=version)


def unknown(op: Operation) -> Operation:
    return replace(op, outcome=Outcome.UNKNOWN, end=inf, store=0 if op.kind is CREATE else op.store)


TWO = [create(1, 2, 1, 1), create(3, 4, 2, 2)]
TWO_ORDER = [(1, 1), (2, 2)]
THEN = [*TWO, put(5, 6, 1, 3)]
THEN_ORDER = [*TWO_ORDER, (1, 3)]

WRONG: dict[str, tuple[str, list[Operation], list[tuple[int, int]]]] = {
    "a stale read": ("stale", [*THEN, read(7, 8, 1, 1)], THEN_ORDER),
    "an acknowledged write that is not in the database": ("lost", THEN, TWO_ORDER),
    "a write in the database that was never sent": ("phantom", TWO, THEN_ORDER),
    "a write that was done twice": ("phantom", THEN, [*THEN_ORDER, (1, 3)]),
    "a hole in the ids": ("gap", [TWO[0], unknown(TWO[1])], [(1, 1), (3, 2)]),
    "one id for two creates": ("duplicate", [TWO[0], unknown(TWO[1])], [(1, 1), (1, 2)]),
    "an order against real time": ("order", [*THEN, put(7, 8, 2, 4)], [*TWO_ORDER, (2, 4), (1, 3)]),
    "a list of two moments": (
        "torn",
        [*THEN, put(7, 8, 2, 4), listed(4.5, 9, 1, 4)],
        [*THEN_ORDER, (2, 4)],
    ),
    "two lists that saw two writes in different orders": (
        "torn",
        [*TWO, put(5, 20, 1, 3), put(5, 20, 2, 4), listed(7, 8, 3, 2), listed(9, 10, 1, 4)],
        [*THEN_ORDER, (2, 4)],
    ),
    "a conditional write over another version": (
        "overwrote",
        [*THEN, after(put(7, 8, 1, 5), 1)],
        [*THEN_ORDER, (1, 5)],
    ),
    "a refusal that names a version of another store": ("refused", [*THEN, tag(7, 8, 1, 2, if_match=1)], THEN_ORDER),
    "a refusal of what the store already is": (
        "refused",
        [*THEN, replace(tag(7, 8, 1, 3, if_match=1), value=3)],
        THEN_ORDER,
    ),
    "a refusal for a version that was over": ("stale", [*THEN, tag(7, 8, 1, 1, if_match=0)], THEN_ORDER),
    "a 304 before the write was sent": ("order", [*TWO, tag(4.5, 4.8, 0, 3), put(5, 6, 1, 3)], THEN_ORDER),
    "a replay with the present version": ("version", [*THEN, replay(7, 8, 1, 1, version=3)], THEN_ORDER),
    "the past as it is now": ("past", [*THEN, replace(listed(7, 8, 3, 2), at=2)], THEN_ORDER),
    "a past store as it was before": ("past", [*THEN, replace(read(7, 8, 1, 1), at=3)], THEN_ORDER),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_history_is_found(case: str) -> None:
    fault, history, order = WRONG[case]
    assert fault in {violation.fault for violation in check(history, order)}


def test_nothing_is_found_in_a_right_history() -> None:
    """Among it an unknown write that took effect late, one that never did, a refused one, replays, and the past."""
    history = [
        *THEN,
        unknown(put(7, 8, 1, 5)),
        read(9, 10, 1, 3),
        listed(9, 30, 5, 2),
        filtered(11, 12, "b", s1=3),
        read(13, 14, 1, 5),
        unknown(create(15, 16, 3, 7)),
        read(17, 18, 3, None),
        unknown(create(19, 20, 4, 9)),
        replace(put(21, 22, 1, 11), outcome=Outcome.FAILED),
        replace(read(23, 24, 3, 9), version=5),
        filtered(25, 26, "b", s1=5, s3=9),
        after(put(27, 30, 1, 13), 4, 6),
        replace(put(27, 30, 1, 15), if_match=4, outcome=Outcome.FAILED),
        replace(tag(27, 30, 1, 6, if_match=4), value=15),
        replay(31, 32, 1, 13, 6),
        replay(31, 32, 1, 3, 3),
        tag(31, 32, 0, 6),
        tag(31, 32, 3, 5),
        replace(listed(33, 34, 13, 2, 9), version=6),
        replace(listed(33, 34, 3, 2), at=3, version=3),
        replace(read(33, 34, 3, None), at=4),
        after(create(35, 36, 4, 17), 6, 7),
    ]
    assert check(history, [*THEN_ORDER, (1, 5), (3, 9), (1, 13), (4, 17)]) == []
