"""The checker is right: it agrees with a search through all orders, and it finds each kind of wrong history."""

import random
from dataclasses import replace
from math import inf

import pytest

from tests.oracles.lincheck import Kind, Operation, Order, Outcome, Violation, check, check_order, check_registers

CREATE, REPLACE, READ, LIST, FILTER = Kind
NAMES = ("a", "b")
SEEDS = range(8)
HISTORIES = 500
"""Of each seed."""


def name_of(value: int) -> str:
    return NAMES[value % 2]


# All orders, tried one after another (Wing and Gong 1993).


def search(history: list[Operation], order: Order | None) -> bool:
    """Tell whether the operations have a legal sequence that respects real time, and `order` if there is one."""
    ops = [op for op in history if op.outcome is not Outcome.FAILED and (op.writes or op.outcome is Outcome.OK)]
    dead = set()

    def extend(left: frozenset[int], state: tuple[int, ...], written: int) -> bool:
        if all(ops[at].outcome is Outcome.UNKNOWN for at in left) and (order is None or written == len(order)):
            return True
        if (left, state, written) in dead:
            return False
        bound = min(ops[at].end for at in left) if left else inf
        for at in left:
            if ops[at].start <= bound:
                after = step(ops[at], state, order[written : written + 1] if order is not None else None)
                if after is not None and extend(left - {at}, after, written + ops[at].writes):
                    return True
        dead.add((left, state, written))
        return False

    return extend(frozenset(range(len(ops))), (), 0)


def step(op: Operation, state: tuple[int, ...], due: Order | None) -> tuple[int, ...] | None:
    """Return the state after an operation, None if it cannot have answered what it did."""
    match op.kind:
        case Kind.READ:
            return state if (state[op.store - 1] if op.store <= len(state) else None) == op.value else None
        case Kind.LIST:
            return state if (tuple(op.ids), tuple(op.values)) == (tuple(range(1, len(state) + 1)), state) else None
        case Kind.FILTER:
            stores = [(id, value) for id, value in enumerate(state, start=1) if name_of(value) == op.name]
            return state if stores == list(zip(op.ids, op.values, strict=True)) else None
    assert op.value is not None
    store = len(state) + 1 if op.kind is CREATE else op.store
    if op.store not in (0, store) or store > len(state) + (op.kind is CREATE):
        return None
    if due is not None and list(due) != [(store, op.value)]:
        return None
    return (*state[: store - 1], op.value, *state[store:])


# Random histories: a true one, then perhaps spoilt.


def true_history(rng: random.Random, kinds: tuple[Kind, ...]) -> tuple[list[Operation], list[tuple[int, int]]]:
    """Make operations with a moment each, in its interval, and let them happen at their moments, one by one."""
    spread = rng.choice((30, 100, 300))
    state: tuple[int, ...] = ()
    history, order = [], []
    for value in range(1, rng.randint(4, 8)):
        start, end = (100 * value - spread * rng.random(), 100 * value + spread * rng.random())
        kind = rng.choice(kinds) if state else CREATE
        unknown = kind in (CREATE, REPLACE) and rng.random() < 0.15
        op = happen(Operation(kind, start, end), value, state, rng)
        if unknown:
            op.outcome, op.end = Outcome.UNKNOWN, inf
            op.store *= kind is REPLACE
            if rng.random() < 0.5:
                history.append(op)
                continue
        if op.writes and (after := step(op, state, None)):
            state = after
            order.append((op.store or len(state), value))
        history.append(op)
    return history, order


def happen(op: Operation, value: int, state: tuple[int, ...], rng: random.Random) -> Operation:
    """Fill in what an operation answers in that state."""
    stores = list(enumerate(state, start=1))
    if op.kind in (LIST, FILTER):
        op.name = rng.choice(NAMES) if op.kind is FILTER else ""
        stores = [(id, value) for id, value in stores if op.kind is LIST or name_of(value) == op.name]
        return replace(op, ids=[id for id, _ in stores], values=[value for _, value in stores])
    if op.kind is CREATE:
        return replace(op, store=len(state) + 1, value=value, name=name_of(value))
    if op.kind is REPLACE:
        return replace(op, store=rng.randint(1, len(state)), value=value, name=name_of(value))
    id = rng.randint(1, len(state) + 1)
    return replace(op, store=id, value=dict(stores).get(id))


def spoil(history: list[Operation], order: list[tuple[int, int]], rng: random.Random) -> None:
    """Change one thing; what comes out may be wrong or may still be right."""
    op = rng.choice(history)
    values = [value for _, value in order]
    what = rng.randrange(6)
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


@pytest.mark.parametrize("seed", SEEDS)
def test_register_check_agrees_with_the_search(seed: int) -> None:
    """Creates, replaces and reads, no order known: the same verdict, both ways."""
    verdicts = []
    for history, _ in histories(seed, CREATE, REPLACE, READ, READ):
        found = check_registers(history)
        assert search(history, None) == (not found), tell(history, found)
        verdicts.append(not found)
    assert 0.2 < sum(verdicts) / HISTORIES < 0.8


@pytest.mark.parametrize("seed", SEEDS)
def test_order_check_agrees_with_the_search(seed: int) -> None:
    """Everything, with the database's order of the writes: the same verdict, both ways."""
    verdicts = []
    for history, order in histories(seed, *Kind, READ):
        found = check_order(history, order)
        assert search(history, order) == (not found), tell(history, found)
        verdicts.append(not found)
    assert 0.2 < sum(verdicts) / HISTORIES < 0.8


@pytest.mark.parametrize("seed", SEEDS)
def test_no_false_alarm(seed: int) -> None:
    """Lists and filters without an order: whatever is linearizable passes, and much that is not is found."""
    missed = 0
    for history, _ in histories(seed, *Kind, LIST):
        found = check_registers(history)
        if search(history, None):
            assert not found, tell(history, found)
        else:
            missed += not found
    assert missed < HISTORIES / 5


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


def unknown(op: Operation) -> Operation:
    return replace(op, outcome=Outcome.UNKNOWN, end=inf, store=0 if op.kind is CREATE else op.store)


TWO = [create(1, 2, 1, 1), create(3, 4, 2, 2)]
TWO_ORDER = [(1, 1), (2, 2)]
THEN = [*TWO, put(5, 6, 1, 3)]
THEN_ORDER = [*TWO_ORDER, (1, 3)]

WRONG_BY_ITSELF: dict[str, tuple[str, list[Operation]]] = {
    "a stale read": ("stale", [*THEN, read(7, 8, 1, 1)]),
    "a read that goes back": ("stale", [*TWO, put(5, 20, 1, 3), read(7, 8, 1, 3), read(9, 10, 1, 1)]),
    "a value that comes back after another": (
        "stale",
        [*THEN, put(7, 8, 1, 5), read(9, 10, 1, 5), read(11, 12, 1, 3)],
    ),
    "an acknowledged replace that nobody ever sees": ("stale", [*THEN, read(3, 4, 1, 1), read(7, 8, 1, 1)]),
    "a list without an acknowledged create": ("order", [*TWO, listed(5, 6, 1)]),
    "a store that is gone": ("order", [*TWO, read(5, 6, 2, None)]),
    "a store that comes, goes and stays": ("order", [*TWO, read(2.5, 3.5, 2, 2), read(3.7, 3.8, 2, None)]),
    "a read before the write was sent": ("phantom", [*TWO, read(5, 6, 1, 3), put(7, 8, 1, 3)]),
    "a value that nobody wrote": ("phantom", [*TWO, read(5, 6, 1, 77)]),
    "a refused write that is seen": (
        "phantom",
        [*TWO, replace(put(5, 6, 1, 3), outcome=Outcome.FAILED), read(7, 8, 1, 3)],
    ),
    "one id for two creates": ("duplicate", [*TWO, create(5, 6, 2, 3)]),
    "one value in two stores": ("duplicate", [*TWO, read(5, 6, 2, 1)]),
    "a hole in the ids": ("gap", [*TWO, create(5, 6, 4, 3)]),
    "a hole in a list": ("gap", [*TWO, Operation(LIST, 5, 6, ids=(2,), values=(2,))]),
    "ids against real time": ("order", [create(1, 2, 2, 1), create(3, 4, 1, 2)]),
    "a list with an old value beside a new one": ("stale", [*THEN, listed(7, 8, 1, 2)]),
    "an unknown create whose store was seen and is gone": (
        "order",
        [unknown(create(1, 2, 1, 1)), read(3, 4, 1, 1), read(5, 6, 1, None)],
    ),
}


@pytest.mark.parametrize("case", WRONG_BY_ITSELF)
def test_found_without_an_order(case: str) -> None:
    fault, history = WRONG_BY_ITSELF[case]
    assert fault in {violation.fault for violation in check(history)}


WRONG_WITH_ORDER: dict[str, tuple[str, list[Operation], list[tuple[int, int]]]] = {
    "a stale read": ("stale", [*THEN, read(7, 8, 1, 1)], THEN_ORDER),
    "an acknowledged write that is not in the database": ("lost", THEN, TWO_ORDER),
    "an acknowledged create that is not in the database": ("lost", TWO, [(1, 1)]),
    "a write in the database that was never sent": ("phantom", TWO, THEN_ORDER),
    "a refused write in the database": (
        "phantom",
        [*TWO, replace(put(5, 6, 1, 3), outcome=Outcome.FAILED)],
        THEN_ORDER,
    ),
    "a write that was done twice": ("phantom", THEN, [*THEN_ORDER, (1, 3)]),
    "a replace of another store": ("phantom", THEN, [*TWO_ORDER, (2, 3)]),
    "a hole in the ids": ("gap", [TWO[0], unknown(TWO[1])], [(1, 1), (3, 2)]),
    "one id for two creates": ("duplicate", [TWO[0], unknown(TWO[1])], [(1, 1), (1, 2)]),
    "an order against real time": ("order", [*THEN, put(7, 8, 2, 4)], [*TWO_ORDER, (2, 4), (1, 3)]),
    "a list of two moments": (
        "torn",
        [*THEN, put(7, 8, 2, 4), listed(4.5, 9, 1, 4)],
        [*THEN_ORDER, (2, 4)],
    ),
    "a list with a replace and without an earlier create": (
        "torn",
        [TWO[0], create(3, 20, 2, 2), put(5, 6, 1, 3), listed(3, 20, 3)],
        THEN_ORDER,
    ),
    "two lists that saw two writes in different orders": (
        "torn",
        [*TWO, put(5, 20, 1, 3), put(5, 20, 2, 4), listed(7, 8, 3, 2), listed(9, 10, 1, 4)],
        [*THEN_ORDER, (2, 4)],
    ),
    "a filter without a store": ("torn", [*TWO, create(5, 6, 3, 3), filtered(7, 8, "b", s1=1)], [*TWO_ORDER, (3, 3)]),
    "a filter that finds nothing": ("torn", [*TWO, filtered(7, 8, "a")], TWO_ORDER),
    "a filter with a store too many": ("phantom", [*TWO, filtered(7, 8, "a", s1=1, s2=2)], TWO_ORDER),
    "a filter with what a store was before": (
        "torn",
        [*TWO, put(5, 6, 1, 4), filtered(7, 8, "b", s1=1)],
        [*TWO_ORDER, (1, 4)],
    ),
    "a filter with one store twice": (
        "phantom",
        [*TWO, Operation(FILTER, 7, 8, name="a", ids=(2, 2), values=(2, 2))],
        TWO_ORDER,
    ),
    "a filter of two moments": (
        "torn",
        [*TWO, put(5, 6, 1, 4), put(7, 8, 2, 6), filtered(4.5, 9, "a", s1=4)],
        [*TWO_ORDER, (1, 4), (2, 6)],
    ),
    "a version that is not the write's": ("version", [*TWO, replace(read(5, 6, 2, 2), version=1)], TWO_ORDER),
}


@pytest.mark.parametrize("case", WRONG_WITH_ORDER)
def test_found_with_the_order(case: str) -> None:
    fault, history, order = WRONG_WITH_ORDER[case]
    assert fault in {violation.fault for violation in check_order(history, order)}


def test_nothing_is_found_in_a_right_history() -> None:
    """Among it an unknown write that took effect late, one that never did, and a refused one."""
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
    ]
    assert check(history, [*THEN_ORDER, (1, 5), (3, 9)]) == []
