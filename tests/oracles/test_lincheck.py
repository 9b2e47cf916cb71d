"""The checker is right: it agrees with a search through all orders, and it finds each kind of
wrong history."""

import random
from dataclasses import replace
from math import inf

import pytest

from tests.oracles.lincheck import Kind, Operation, Order, Outcome, Violation, check

CREATE, REPLACE, READ, LIST, FILTER, TAG, REPLAY = Kind
PLAIN = (CREATE, REPLACE, READ, LIST, FILTER)
Log = tuple[tuple[int, int], ...]
"""Store and value of each write so far: write n made version n."""
NAMES = ("a", "b")
SEEDS = [0, 1]
HISTORIES = 300
"""For each seed."""


def name_of(value: int) -> str:
    return NAMES[value % 2]


# All orders, tried one after another (Wing and Gong 1993).


def search(history: list[Operation], order: Order) -> bool:
    """Return whether the operations have a legal sequence that respects real time and the order."""
    ops = [
        op
        for op in history
        if op.outcome is not Outcome.FAILED and (op.writes or op.outcome is Outcome.OK)
    ]
    dead = set()

    def extend(left: frozenset[int], log: Log) -> bool:
        if all(ops[at].outcome is Outcome.UNKNOWN for at in left) and len(log) == len(order):
            return True
        if (left, log) in dead:
            return False
        bound = min(ops[at].end for at in left) if left else inf
        for at in left:
            if ops[at].start <= bound:
                after = step(ops[at], log, order[len(log) : len(log) + 1])
                if after is not None and extend(left - {at}, after):
                    return True
        dead.add((left, log))
        return False

    return extend(frozenset(range(len(ops))), ())


def step(op: Operation, log: Log, due: Order | None) -> Log | None:
    """Return the log after an operation; None if the operation cannot have had its response."""
    if not op.writes:
        return log if is_true(op, log) else None
    assert op.value is not None
    versions = versions_of(log)
    store = len(versions) + 1 if op.kind is CREATE else op.store
    if op.store not in (0, store) or store > len(versions) + (op.kind is CREATE):
        return None
    if due is not None and list(due) != [(store, op.value)]:
        return None
    if op.version not in (None, len(log) + 1) or op.if_match not in (
        None,
        versions.get(store, len(log)),
    ):
        return None
    return (*log, (store, op.value))


def is_true(op: Operation, log: Log) -> bool:
    """Return whether the content that was read, or the reason of a refusal, is true after these
    writes."""
    if op.at is not None:
        return op.at <= len(log) and is_true(replace(op, at=None), log[: op.at])
    versions = versions_of(log)
    values = {store: log[version - 1][1] for store, version in versions.items()}
    match op.kind:
        case Kind.READ:
            is_current = op.version in (None, versions.get(op.store))
            is_asked = op.if_match in (None, op.version)
            return values.get(op.store) == op.value and is_current and is_asked
        case Kind.REPLAY:
            return (op.store, op.value) in log and op.version in (
                None,
                log.index((op.store, op.value)) + 1,
            )
        case Kind.TAG:
            present = versions.get(op.store, 0) if op.store else len(log)
            return present == op.version != op.if_match and (op.store == 0 or present > 0)
    if op.version not in (None, len(log)):
        return False
    name = op.name if op.kind is FILTER else None
    stores = [(id, value) for id, value in sorted(values.items()) if name in (None, name_of(value))]
    return stores == list(zip(op.ids, op.values, strict=True))


def versions_of(log: Log) -> dict[int, int]:
    """Return the latest version of each store."""
    return {store: version for version, (store, _) in enumerate(log, start=1)}


# Random histories: a correct one, then perhaps damaged.


def true_history(
    rng: random.Random, kinds: tuple[Kind, ...]
) -> tuple[list[Operation], list[tuple[int, int]]]:
    """Make operations with a moment each, within its interval, and execute them one by one at their
    moments."""
    spread = rng.choice((30, 100, 300))
    log: Log = ()
    history = []
    for value in range(1, rng.randint(4, 8)):
        start, end = (100 * value - spread * rng.random(), 100 * value + spread * rng.random())
        kind = rng.choice(kinds) if log else CREATE
        unknown = kind in (CREATE, REPLACE) and rng.random() < 0.15
        op = Operation(kind, start, end)
        if REPLAY in kinds and kind in (READ, LIST) and rng.random() < 0.2:
            op.at = rng.randint(0, len(log))
        op = happen(op, value, log[: op.at], rng)
        if REPLAY in kinds:
            add_versions(op, log[: op.at], rng)
        if unknown:
            op.outcome, op.end, op.version = Outcome.UNKNOWN, inf, None
            op.store *= kind is REPLACE
            if rng.random() < 0.5:
                history.append(op)
                continue
        if op.writes:
            log = step(op, log, None) or log
        history.append(op)
    return history, list(log)


def add_versions(op: Operation, log: Log, rng: random.Random) -> None:
    """Fill in the tag of a response, and now and then that of the request."""
    versions = versions_of(log)
    if op.kind in (LIST, FILTER):
        op.version = len(log)
    elif op.writes:
        op.version = len(log) + 1
        op.if_match = versions.get(op.store, len(log)) if rng.random() < 0.5 else None
    elif op.kind is READ:
        op.version = versions.get(op.store)
        if op.version is not None and rng.random() < 0.2:
            op.if_match = op.version


def happen(op: Operation, value: int, log: Log, rng: random.Random) -> Operation:
    """Fill in the response to an operation after those writes."""
    versions = versions_of(log)
    state = [log[version - 1][1] for _, version in sorted(versions.items())]
    stores = list(enumerate(state, start=1))
    if op.kind is TAG:
        store = rng.choice([0, *versions])
        present = versions[store] if store else len(log)
        return replace(
            op, store=store, version=present, if_match=rng.choice([None, present - 1]), value=None
        )
    if op.kind is REPLAY:
        version = rng.randint(1, len(log))
        return replace(op, store=log[version - 1][0], value=log[version - 1][1], version=version)
    if op.kind in (LIST, FILTER):
        op.name = rng.choice(NAMES) if op.kind is FILTER else ""
        stores = [
            (id, value) for id, value in stores if op.kind is LIST or name_of(value) == op.name
        ]
        return replace(op, ids=[id for id, _ in stores], values=[value for _, value in stores])
    if op.kind is CREATE:
        return replace(op, store=len(state) + 1, value=value, name=name_of(value))
    if op.kind is REPLACE:
        return replace(op, store=rng.randint(1, len(state)), value=value, name=name_of(value))
    id = rng.randint(1, len(state) + 1)
    return replace(op, store=id, value=dict(stores).get(id))


def spoil(history: list[Operation], order: list[tuple[int, int]], rng: random.Random) -> None:
    """Change one thing; the result may be wrong or may still be right."""
    op = rng.choice(history)
    values = [value for _, value in order]
    what = rng.randrange(9 if any(op.version for op in history) else 6)
    if what == 0 and op.end != inf:
        later = rng.randint(-300, 300) + rng.random()
        op.start, op.end = op.start + later, op.end + later
    elif what == 1 and op.kind is READ:
        op.value = rng.choice([None, *values, 99])
    elif what == 2 and op.values:
        op.values = [rng.choice(values) if rng.random() < 0.5 else value for value in op.values]
    elif what == 3 and op.values:
        gone = rng.randrange(len(op.ids))
        op.ids = [id for at, id in enumerate(op.ids) if at != gone]
        op.values = [value for at, value in enumerate(op.values) if at != gone]
    elif what == 4 and len(order) > 1:
        at = rng.randrange(len(order) - 1)
        order[at : at + 2] = order[at + 1], order[at]
    elif what == 5 and op.writes and op.outcome is Outcome.OK and op.kind is CREATE:
        op.store = rng.randint(1, 4)
    elif what == 6 and op.version is not None:
        op.version = rng.randint(0, len(order) + 1)
    elif what == 7 and op.if_match is not None:
        op.if_match = rng.randint(0, len(order))
    elif what == 8 and op.at is not None:
        op.at = rng.randint(0, len(order) + 1)


def histories(seed: int, *kinds: Kind) -> list[tuple[list[Operation], list[tuple[int, int]]]]:
    rng = random.Random(seed)
    made = [true_history(rng, kinds) for _ in range(HISTORIES)]
    for history, order in made:
        for _ in range(rng.choice((0, 5, 9))):
            spoil(history, order, rng)
        rng.shuffle(history)
    return made


def tell(history: list[Operation], found: list[Violation]) -> str:
    return "\n".join(map(str, [*sorted(history, key=lambda op: op.start), *found]))


@pytest.mark.parametrize(
    "kinds", [(*PLAIN, READ), (*Kind, REPLACE)], ids=["plain", "with tags and keys"]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_check_agrees_with_the_search(seed: int, kinds: tuple[Kind, ...]) -> None:
    """Everything, with the database's order of the writes: the same verdict, both ways."""
    verdicts = []
    for history, order in histories(seed, *kinds):
        found = check(history, order)
        assert search(history, order) == (not found), tell(history, found)
        verdicts.append(not found)
    assert 0.2 < sum(verdicts) / HISTORIES < 0.8


# Each kind of wrong history. The times are the order of the lines; `made` is a store with two
# values.


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


def tag(
    start: float, end: float, store: int, version: int, if_match: int | None = None
) -> Operation:
    """A 304, or with `if_match` a 412."""
    return Operation(TAG, start, end, store, version=version, if_match=if_match)


def replay(
    start: float, end: float, store: int, value: int, version: int | None = None
) -> Operation:
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
    "a gap in the ids": ("gap", [TWO[0], unknown(TWO[1])], [(1, 1), (3, 2)]),
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
    "a refusal that names a version of another store": (
        "refused",
        [*THEN, tag(7, 8, 1, 2, if_match=1)],
        THEN_ORDER,
    ),
    "a write of what the store already is over another version": (
        "overwrote",
        [*THEN, replace(read(7, 8, 1, 3), version=3, if_match=1)],
        THEN_ORDER,
    ),
    "a refusal for a version that was over": (
        "stale",
        [*THEN, tag(7, 8, 1, 1, if_match=0)],
        THEN_ORDER,
    ),
    "a 304 before the write was sent": (
        "order",
        [*TWO, tag(4.5, 4.8, 0, 3), put(5, 6, 1, 3)],
        THEN_ORDER,
    ),
    "a replay with the current version": (
        "version",
        [*THEN, replay(7, 8, 1, 1, version=3)],
        THEN_ORDER,
    ),
    "the past as it is now": ("past", [*THEN, replace(listed(7, 8, 3, 2), at=2)], THEN_ORDER),
    "a past store as it was before": ("past", [*THEN, replace(read(7, 8, 1, 1), at=3)], THEN_ORDER),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_history_is_found(case: str) -> None:
    fault, history, order = WRONG[case]
    assert fault in {violation.fault for violation in check(history, order)}


def test_nothing_is_found_in_a_right_history() -> None:
    """The history contains an unknown write that took effect late, one that never did, a refused
    one, replays, and the past."""
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
        replace(tag(31, 32, 1, 6, if_match=4), value=13),
        replace(read(31, 32, 1, 13), version=6, if_match=6),
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
