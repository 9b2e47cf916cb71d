"""What a batch of commands does: one pure function for both databases."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from storekeeper.domain.commands import (
    ANY,
    Batch,
    Before,
    ChangeRow,
    Command,
    Create,
    Patch,
    Remembered,
    Replace,
    Result,
    Tags,
    apply,
    keys_of,
    keys_of_patches,
    memory_size,
    patches,
    replacements,
    tag,
)
from storekeeper.domain.errors import KeyReused, PreconditionFailed
from storekeeper.domain.stores import Payload, PayloadPatch, Replay, Store
from tests.harness.stores import a_change, a_store_with, content

NOW = 1_000_000_000
EPOCH = "abcdefgh"
OTHER = "zzzzzzzz"

A, B = Payload("A", "1 Road"), Payload("B")
KEY, SAME_KEY = ("77", 1), ("77", 2)
"""One Idempotency-Key with two requests."""


def _store(id: int, of: Payload, version: int) -> Store:
    return a_store_with(id, of, version, EPOCH)


THEN = _store(2, A, 9)
"""The response that a key is remembered with."""


def _tags(*versions: int, epoch: str = EPOCH) -> Tags:
    return frozenset(tag(version, epoch) for version in versions)


def _present(
    equal: tuple[int, ...] = (), remembered: dict[str, Remembered] | None = None
) -> Before:
    """Seven stores and twenty changes; the store 3 is of the eleventh."""
    return Before(7, 20, NOW - 5, EPOCH, {3: 11}, equal, remembered or {})


def _remembered() -> dict[str, Remembered]:
    return {"77": Remembered(1, THEN.id, THEN.version)}


def test_creates_count_on_from_the_stores_and_versions_that_there_are() -> None:
    batch = apply([Create(A), Create(B)], _present(), NOW)
    assert batch.results == [_store(8, A, 21), _store(9, B, 22)]
    assert (
        list(batch.created.values())
        == batch.changes
        == [a_change(21, 8, A, NOW, 8), a_change(22, 9, B, NOW, 9)]
    )
    assert (batch.count, batch.version, batch.at, batch.replaced) == (9, 22, NOW, {})


def test_a_command_counts_with_the_tags_of_all_its_conditions() -> None:
    tags = frozenset(tag(version, "abcdefgh") for version in range(100))
    payload = Payload("A")
    plain = memory_size(Replace(1, payload))
    assert memory_size(Create(payload)) == plain
    sizes = {
        memory_size(each) for each in (Replace(1, payload, tags), Replace(1, payload, None, tags))
    }
    assert sizes == {memory_size(Create(payload, tags))}
    assert memory_size(Replace(1, payload, tags)) > plain + 100 * len('"1.abcdefgh"')
    assert (
        memory_size(Replace(1, payload, tags, tags))
        == 2 * memory_size(Replace(1, payload, tags)) - plain
    )


@pytest.mark.parametrize(("character", "width"), [("x", 1), ("é", 1), ("店", 2), ("😀", 4)])
def test_a_command_counts_with_the_bytes_of_its_texts_whatever_they_contain(
    character: str, width: int
) -> None:
    short, long = (Create(Payload("A", character * length)) for length in (1000, 3000))
    assert memory_size(long) - memory_size(short) == 2000 * width


def test_each_change_has_the_token_that_wrote_it() -> None:
    batch = apply(
        [Create(A, token_number=5), Replace(3, B), Replace(8, B, token_number=6)], _present(), NOW
    )
    assert [(seq, by) for seq, *_, by, _user in batch.changes] == [(21, 5), (22, 0), (23, 6)]


def test_a_replace_of_no_store_changes_nothing() -> None:
    batch = apply([Replace(8, A), Replace(0, A), Replace(2**63, A)], _present(), NOW)
    assert batch.results == [None, None, None]
    assert (batch.count, batch.version, batch.created, batch.replaced, batch.writes) == (
        7,
        20,
        {},
        {},
        False,
    )


def test_a_store_of_the_same_batch_can_be_replaced() -> None:
    batch = apply([Create(A), Replace(8, B)], _present(), NOW)
    assert batch.created == {8: a_change(22, 8, B, NOW, 8)}
    assert batch.replaced == {}
    assert [seq for seq, *_ in batch.changes] == [21, 22]


def test_no_change_is_earlier_than_the_one_before_it() -> None:
    batch = apply([Create(A, key=KEY)], Before(count=7, version=20, at=NOW + 5), NOW)
    assert (batch.at, batch.changes[0][-4]) == (NOW + 5, NOW + 5)


def test_what_a_batch_touches_is_each_store_that_it_replaces_with_what_it_is_to_become() -> None:
    assert replacements([Create(A), Replace(3, A), Replace(9, B), Replace(3, B)]) == [
        (1, 3, *content(A)),
        (2, 9, *content(B)),
        (3, 3, *content(B)),
    ]


def test_the_keys_of_a_batch_are_asked_for() -> None:
    batch: list[Command] = [
        Create(A),
        Create(A, key=KEY),
        Replace(3, A, key=SAME_KEY),
        Create(B, key=KEY),
        Create(A, key=("0", 0)),
    ]
    assert keys_of(batch) == ["77", "77", "77", "0"]


STORED, UNCHANGED = _store(3, A, 21), _store(3, A, 11)
REFUSED = '"11.abcdefgh"'

CONDITIONS = [
    # if_match, if_none_match, whether the store is already as the payload says, what it leads to
    (None, None, False, STORED),
    (None, None, True, UNCHANGED),
    (_tags(11), None, False, STORED),
    (_tags(11), None, True, UNCHANGED),
    (_tags(4, 11, 20), None, False, STORED),
    (ANY, None, False, STORED),
    (_tags(10), None, False, REFUSED),
    (_tags(20), None, False, REFUSED),
    (_tags(11, epoch=OTHER), None, False, REFUSED),
    (frozenset(), None, False, REFUSED),
    (ANY, None, True, UNCHANGED),
    (_tags(10), None, True, REFUSED),
    (_tags(20), None, True, REFUSED),
    (_tags(11, epoch=OTHER), None, True, REFUSED),
    (frozenset(), None, True, REFUSED),
    (None, _tags(11), False, REFUSED),
    (None, _tags(4, 11), False, REFUSED),
    (None, ANY, False, REFUSED),
    (None, _tags(10), False, STORED),
    (None, _tags(11, epoch=OTHER), False, STORED),
    (None, _tags(11), True, REFUSED),
    (None, ANY, True, REFUSED),
    (_tags(11), _tags(10), False, STORED),
    (_tags(11), _tags(11), False, REFUSED),
    (_tags(10), _tags(10), False, REFUSED),
    (_tags(10), _tags(11), True, REFUSED),
]


@pytest.mark.parametrize(("if_match", "if_none_match", "equal", "expected"), CONDITIONS)
def test_a_replace_is_decided_by_its_conditions_and_by_what_the_store_is(
    if_match: Tags | None, if_none_match: Tags | None, expected: Store | str, *, equal: bool
) -> None:
    batch = apply([Replace(3, A, if_match, if_none_match)], _present(equal=(0,) * equal), NOW)
    [result] = batch.results
    if isinstance(result, PreconditionFailed):
        assert result.tag == expected
        why = (
            "matches If-None-Match" if {"*", REFUSED} & (if_none_match or set()) else "has changed"
        )
        assert str(result) == f"Store 3 {why}: its version is 11 now"
    else:
        assert result == expected
    assert batch.writes == (expected is STORED)
    assert len(batch.changes) == len(batch.replaced) == (expected is STORED)


@pytest.mark.parametrize(
    ("if_match", "creates"),
    [
        (None, True),
        (ANY, True),
        (_tags(20), True),
        (_tags(1, 20), True),
        (_tags(19), False),
        (_tags(20, epoch=OTHER), False),
        (frozenset(), False),
    ],
)
def test_a_create_is_decided_by_the_tag_of_the_list(
    if_match: Tags | None, *, creates: bool
) -> None:
    batch = apply([Create(A, if_match)], _present(), NOW)
    [result] = batch.results
    if creates:
        assert result == _store(8, A, 21)
    else:
        assert isinstance(result, PreconditionFailed)
        assert result.tag == '"20.abcdefgh"'
        assert str(result) == "The list has changed: its version is 20 now"
    assert batch.writes == creates


def test_of_equal_conditions_in_one_batch_only_the_first_holds() -> None:
    commands: list[Command] = [Replace(3, Payload(str(number)), _tags(11)) for number in range(5)]
    batch = apply(commands, _present(), NOW)
    assert [type(result) for result in batch.results] == [Store] + [PreconditionFailed] * 4
    assert {result.tag for result in batch.results if isinstance(result, PreconditionFailed)} == {
        '"21.abcdefgh"'
    }
    batch = apply(
        [Create(A, _tags(20)), Create(A, _tags(20)), Create(B, _tags(21))], _present(), NOW
    )
    assert [type(result) for result in batch.results] == [Store, PreconditionFailed, Store]


def test_what_is_equal_was_so_before_the_batch_and_counts_until_the_store_is_changed() -> None:
    commands = [Replace(3, A), Replace(3, B), Replace(3, A), Replace(3, A)]
    batch = apply(commands, _present(equal=(0, 2, 3)), NOW)
    assert [result.version for result in batch.results if isinstance(result, Store)] == [
        11,
        21,
        22,
        22,
    ]


def test_a_replay_is_the_response_of_then_whatever_the_store_is_now() -> None:
    batch = apply([Create(A, key=KEY)], _present(remembered=_remembered()), NOW)
    assert batch.results == [Replay(*astuple(THEN))]
    assert not batch.writes


ORDER = [
    # of the refusals, inside the transaction (decision 31): 422, 404, 412; a replay comes before
    # all others
    (Create(A, _tags(1), SAME_KEY), KeyReused),
    (Replace(99, A, _tags(1), key=SAME_KEY), KeyReused),
    (Replace(3, A, _tags(1), key=SAME_KEY), KeyReused),
    (Create(A, _tags(1), KEY), Replay),
    (Replace(99, A, _tags(1), ANY, KEY), Replay),
    (Replace(3, A, _tags(1), ANY, KEY), Replay),
    (Replace(99, A, _tags(1)), type(None)),
    (Replace(99, A, ANY), type(None)),
    (Replace(99, A, None, ANY), type(None)),
    (Replace(99, A, _tags(1), key=("78", 1)), type(None)),
    (Replace(3, A, _tags(1), key=("78", 1)), PreconditionFailed),
    (Create(A, _tags(1), ("78", 1)), PreconditionFailed),
]


@pytest.mark.parametrize(("command", "expected"), ORDER)
def test_of_several_reasons_to_refuse_the_first_one_is_given(
    command: Command, expected: type[Result]
) -> None:
    batch = apply([command], _present(remembered=_remembered()), NOW)
    assert [type(result) for result in batch.results] == [expected]
    assert not batch.writes


KEYS_OF_ONE_BATCH = [
    # commands, the types of their results, how many changes
    (
        [Create(A, key=KEY), Create(A, key=KEY), Create(B, key=SAME_KEY)],
        [Store, Replay, KeyReused],
        1,
    ),
    ([Replace(3, A, key=KEY), Replace(3, B), Replace(3, A, key=KEY)], [Store, Store, Replay], 2),
    ([Replace(99, A, key=KEY), Create(B, key=SAME_KEY)], [type(None), Store], 1),
    ([Create(A, _tags(1), KEY), Create(B, key=SAME_KEY)], [PreconditionFailed, Store], 1),
    ([Create(A, _tags(20), KEY), Create(A, _tags(20), KEY)], [Store, Replay], 1),
    (
        [Create(A, key=KEY), Create(B, key=SAME_KEY), Create(A, key=KEY)],
        [Store, KeyReused, Replay],
        1,
    ),
]


@pytest.mark.parametrize(("commands", "types", "changes"), KEYS_OF_ONE_BATCH)
def test_a_key_counts_from_its_first_success_on_in_the_same_batch_too(
    commands: list[Command], types: list[type], changes: int
) -> None:
    batch = apply(commands, _present(), NOW)
    assert [type(result) for result in batch.results] == types
    assert len(batch.changes) == changes
    assert [key for key, *_ in batch.keys] == ["77"]
    succeeded = [result for result in batch.results if type(result) is Store]
    for result in batch.results:
        if isinstance(result, Replay):
            assert (result.id, result.version) == (succeeded[0].id, succeeded[0].version)


def test_the_key_of_a_write_that_changed_nothing_is_remembered_with_the_version_that_stands() -> (
    None
):
    batch = apply([Replace(3, A, key=KEY)], _present(equal=(0,)), NOW)
    assert (batch.results, batch.changes, batch.keys) == ([UNCHANGED], [], [("77", 1, 11)])
    assert batch.writes


# Any batches, one after another, against a model that knows no batches.


class Refused(NamedTuple):
    """A 412 with that tag."""

    tag: str


REUSED = "the key belongs to another request"


@dataclass
class Model:
    """The collection as the decisions describe it: it does one command at a time, and remembers
    everything."""

    history: list[tuple[int, Payload, int]] = field(default_factory=list)
    """Of each change its store, the content and the time."""

    responses: list[tuple[str, int, int]] = field(default_factory=list)
    """Key, request and change of each first success."""

    def version(self, id: int) -> int:
        """Return the number of a store's latest change, 0 if there is none."""
        return max(
            (seq for seq, change in enumerate(self.history, 1) if change[0] == id), default=0
        )

    @property
    def count(self) -> int:
        """How many stores there are."""
        return len({change[0] for change in self.history})

    def changes(self) -> Iterator[ChangeRow]:
        """Yield the rows of the history."""
        for seq, change in enumerate(self.history, 1):
            yield a_change(seq, *change, len({id for id, *_ in self.history[:seq]}))

    def content(self, version: int) -> tuple[int, Payload, int]:
        """Return the store that a change left."""
        id, payload, *_ = self.history[version - 1]
        return id, payload, version

    def do(self, command: Command, now: int) -> object:
        """Carry out one command."""
        if command.key is not None:
            for key, request, seq in self.responses:
                if key == command.key[0]:
                    return (*self.content(seq), "again") if request == command.key[1] else REUSED
        done = self._decide(command, max([now, *(change[2] for change in self.history[-1:])]))
        if command.key is not None and isinstance(done, tuple) and not isinstance(done, Refused):
            self.responses.append((*command.key, done[2]))
        return done

    def _decide(self, command: Command, now: int) -> object:
        new = isinstance(command, Create)
        id = self.count + 1 if isinstance(command, Create) else command.id
        if not new and not self.version(id):
            return None
        held = len(self.history) if new else self.version(id)
        wanted = (id, self._wanted(command, held))
        same = not new and self.content(held)[:2] == wanted
        current = f'"{held}.{EPOCH}"'
        allowed = (
            command.if_match is None or command.if_match == {"*"} or current in command.if_match
        )
        forbidden = None if isinstance(command, Create) else command.if_none_match
        if not allowed or (forbidden is not None and (forbidden == {"*"} or current in forbidden)):
            return Refused(current)
        if same:
            return self.content(held)
        self.history.append((*wanted, now))
        return self.content(len(self.history))

    def _wanted(self, command: Command, held: int) -> Payload:
        if not isinstance(command, Patch):
            return command.payload
        present = self.content(held)[1]
        sent = msgspec.to_builtins(command.patch)
        return Payload(sent.get("name", present.name), sent.get("address", present.address))


@dataclass
class Rows:
    """A database: it keeps the rows that a batch gives it, and finds in them what a batch must
    know."""

    stores: dict[int, ChangeRow] = field(default_factory=dict)
    changes: dict[int, ChangeRow] = field(default_factory=dict)
    keys: list[tuple[str, int, int]] = field(default_factory=list)

    def before(self, commands: list[Command]) -> Before:
        """Return what the database says before a batch."""
        places = replacements(commands)
        patched = [row for row in patches(commands) if row[1] in self.stores]
        asked, of_patches = {*keys_of(commands)}, {*keys_of_patches(commands)}
        return Before(
            len(self.stores),
            len(self.changes),
            self.changes[len(self.changes)][4] if self.changes else 0,
            EPOCH,
            {id: self.stores[id][0] for _, id, *_ in (*places, *patched) if id in self.stores},
            {
                place
                for place, id, *sent in places
                if id in self.stores and [*self.stores[id][2:4]] == sent
            }
            | {row[0] for row in patched if self._is_equal(*row)},
            {
                key: Remembered(
                    request,
                    self.changes[seq][1],
                    seq,
                    Payload(*self.changes[seq][2:4]) if key in of_patches else None,
                )
                for key, request, seq in self.keys
                if key in asked
            },
            {
                place: (
                    self.stores[id][2] if keeps_name else "",
                    self.stores[id][3] if keeps_address else None,
                )
                for place, id, _, _, keeps_name, keeps_address in patched
            },
        )

    def _is_equal(self, _: int, id: int, name: str, address: str | None, *keeps: int) -> bool:
        present, (keeps_name, keeps_address) = self.stores[id], keeps
        is_same_name = bool(keeps_name) or present[2] == name
        return is_same_name and (bool(keeps_address) or present[3] == address)

    def keep(self, batch: Batch) -> None:
        """Write the rows of a batch."""
        assert all(
            id == change[1] for id, change in (*batch.created.items(), *batch.replaced.items())
        )
        assert batch.created.keys().isdisjoint(self.stores)
        assert batch.replaced.keys() <= self.stores.keys()
        self.stores |= batch.created | batch.replaced
        self.changes |= {change[0]: change for change in batch.changes}
        self.keys += batch.keys
        assert (batch.count, batch.version) == (len(self.stores), len(self.changes))


def _as_modelled(result: Result) -> object:
    if isinstance(result, PreconditionFailed):
        return Refused(result.tag)
    if isinstance(result, KeyReused):
        return REUSED
    if result is None:
        return None
    assert result.epoch == EPOCH
    store = (result.id, Payload(*content(result)), result.version)
    return (*store, "again") if isinstance(result, Replay) else store


IDS = st.integers(0, 5)
PAYLOADS = st.builds(Payload, st.sampled_from("AB"), st.none() | st.just("x"))
PATCHES = st.builds(
    PayloadPatch,
    st.sampled_from(["A", "B", msgspec.UNSET]),
    st.sampled_from([None, "", "x", msgspec.UNSET]),
)
TAGS = st.just(ANY) | st.frozensets(
    st.builds(tag, st.integers(0, 9), st.sampled_from([EPOCH] * 4 + [OTHER]))
)
KEYS = st.none() | st.sampled_from("012")


def _keyed(command: Command, key: str | None) -> Command:
    """Return the command with a key and a number for its request, which depends on all of it."""
    return command if key is None else replace(command, key=(key, crc32(repr(command).encode())))


COMMANDS = st.builds(
    _keyed,
    st.builds(Create, PAYLOADS, st.none() | TAGS)
    | st.builds(Replace, IDS, PAYLOADS, st.none() | TAGS, st.none() | TAGS)
    | st.builds(Patch, IDS, PATCHES, st.none() | TAGS, st.none() | TAGS),
    KEYS,
)
STEPS = st.sampled_from([1, -1, 1_000_000_000])
BATCHES = st.lists(st.tuples(STEPS, st.lists(COMMANDS, max_size=5)), max_size=4)


@given(BATCHES)
def test_any_batches_are_what_their_commands_do_one_after_another(
    batches: list[tuple[int, list[Command]]],
) -> None:
    _compare(batches)


def test_batches_of_every_kind_are_what_their_commands_do_one_after_another() -> None:
    first, other = Payload("A", None), Payload("B", "x")
    later: list[Command] = [
        Create(first, key=("0", 1)),
        Create(other, key=("0", 2)),
        Replace(1, first),
        Replace(1, other),
        Patch(2, PayloadPatch("A", None)),
        Replace(1, first, if_match=frozenset({tag(1, EPOCH)})),
        Replace(9, first),
    ]
    seen = _compare([(1, [Create(first, key=("0", 1)), Create(first)]), (1, later)])
    assert seen == {"a store", "again", "unchanged", "412", "422", "none"}


def _compare(batches: list[tuple[int, list[Command]]]) -> set[str]:
    model, rows, now, seen = Model(), Rows(), NOW, set[str]()
    for step, commands in batches:
        now += step
        before = len(model.history), len(model.responses)
        expected = [model.do(command, now) for command in commands]
        batch = apply(commands, rows.before(commands), now)
        assert [_as_modelled(result) for result in batch.results] == expected
        assert batch.writes == ((len(model.history), len(model.responses)) != before)
        rows.keep(batch)
        assert list(rows.changes.values()) == list(model.changes())
        assert rows.keys == model.responses
        seen |= {_kind(result, batch) for result in batch.results}
    return seen


def _kind(result: Result, batch: Batch) -> str:
    if isinstance(result, Store):
        if isinstance(result, Replay):
            return "again"
        return (
            "a store" if result.version in {change[0] for change in batch.changes} else "unchanged"
        )
    return "none" if result is None else "412" if isinstance(result, PreconditionFailed) else "422"
