"""What a batch of commands writes: one pure function for both databases."""

from hypothesis import given
from hypothesis import strategies as st

from storekeeper.commands import Change, Command, Create, Present, Replace, apply, touched
from storekeeper.stores import Payload, Store
from tests.harness.collection import a_store

NOW = 1_000_000

A, B = Payload("A", "1 Road"), Payload("B")

PAYLOADS = st.builds(Payload, st.sampled_from("ABC"), st.none() | st.just("x"))
COMMANDS = st.lists(st.builds(Create, PAYLOADS) | st.builds(Replace, st.integers(0, 8), PAYLOADS))


def _store(change: Change) -> Store:
    seq, id, name, address, *_ = change
    return a_store(id, name, address, seq)


def test_creates_count_on_from_the_stores_and_versions_that_there_are() -> None:
    batch = apply([Create(A), Create(B)], Present(count=7, version=20), NOW)
    assert batch.results == [a_store(8, "A", "1 Road", 21), a_store(9, "B", None, 22)]
    assert batch.created == batch.changes == [(21, 8, "A", "1 Road", NOW, 0, 8), (22, 9, "B", None, NOW, 0, 9)]
    assert (batch.count, batch.version, batch.at, batch.replaced) == (9, 22, NOW, [])


def test_a_replace_of_no_store_changes_nothing() -> None:
    batch = apply([Replace(8, A), Replace(0, A), Replace(2**63, A)], Present(count=7, version=20), NOW)
    assert batch.results == [None, None, None]
    assert (batch.count, batch.version, batch.created, batch.replaced, batch.changes) == (7, 20, [], [], [])


def test_a_store_of_the_same_batch_can_be_replaced() -> None:
    batch = apply([Create(A), Replace(8, B)], Present(count=7, version=20), NOW)
    assert batch.created == [(22, 8, "B", None, NOW, 21, 8)]
    assert batch.replaced == []
    assert [seq for seq, *_ in batch.changes] == [21, 22]


def test_each_change_names_the_previous_one_of_its_store() -> None:
    batch = apply([Replace(3, A), Create(B), Replace(3, B)], Present(7, 20, versions={3: 11}), NOW)
    assert [(seq, id, previous) for seq, id, *_, previous, _ in batch.changes] == [
        (21, 3, 11),
        (22, 8, 0),
        (23, 3, 21),
    ]


def test_no_change_is_earlier_than_the_one_before_it() -> None:
    batch = apply([Create(A)], Present(count=7, version=20, at=NOW + 5), NOW)
    assert (batch.at, batch.changes[0][4]) == (NOW + 5, NOW + 5)


def test_the_stores_that_a_batch_touches_are_those_that_it_replaces() -> None:
    assert touched([Create(A), Replace(3, A), Replace(9, B), Replace(3, B)]) == {3, 9}


@given(COMMANDS, st.integers(0, 5), st.integers(5, 9))
def test_any_batch_is_what_its_commands_do_one_after_another(
    commands: list[Command], count: int, version: int
) -> None:
    stores: dict[int, Store | None] = dict.fromkeys(range(1, count + 1))
    results: list[Store | None] = []
    for command in commands:
        id = len(stores) + 1 if isinstance(command, Create) else command.id
        known = isinstance(command, Create) or id in stores
        number = version + 1 + sum(result is not None for result in results)
        results.append(a_store(id, command.payload.name, command.payload.address, number) if known else None)
        if known:
            stores[id] = results[-1]
    batch = apply(commands, Present(count, version, versions=dict.fromkeys(range(1, count + 1), 1)), NOW)
    assert batch.results == results
    assert list(map(_store, batch.changes)) == [result for result in results if result is not None]
    assert sorted(map(_store, batch.created), key=lambda store: store.id) == [
        stores[id] for id in range(count + 1, len(stores) + 1)
    ]
    assert {change[1]: _store(change) for change in batch.replaced} == {
        id: store for id, store in stores.items() if id <= count and store is not None
    }
    assert (batch.count, batch.version) == (len(stores), version + len(batch.changes))
