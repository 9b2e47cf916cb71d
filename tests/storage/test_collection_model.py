"""Random programs of calls: both databases behave like a plain list."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from storekeeper.domain.commands import Patch
from storekeeper.domain.stores import Payload, PayloadPatch, Store
from storekeeper.storage.collection import Collection
from tests.harness.collection import create, get, replace, stores
from tests.harness.databases import Database, handle
from tests.harness.loading import add_all
from tests.harness.stores import a_store_with, content, shown_with

TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
# Few names, so that they collide; some of any kind.
NAMES = st.sampled_from(["A", "a", "A ", "é", "e\u0301"]) | st.text(TEXT, min_size=1, max_size=30)
PAYLOADS = st.builds(Payload, NAMES, st.none() | st.text(TEXT, max_size=50))
PATCHES = st.builds(
    PayloadPatch,
    NAMES | st.just(msgspec.UNSET),
    st.sampled_from([None, "", msgspec.UNSET]) | st.text(TEXT, max_size=50),
)
HANDLES = st.sampled_from([0, 1])
IDS = st.integers(0, 12) | st.integers(0, 2**70)


class Model(RuleBasedStateMachine):
    """Two handles on one database, compared with a plain list: `stores[i]` is the store i + 1."""

    new_database: Callable[[], Database]

    def __init__(self) -> None:
        super().__init__()
        self.database = self.new_database()
        self.stores: list[Store] = []
        self.changes: list[tuple[int, int, str, str | None]] = []
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.open: list[tuple[AsyncExitStack, Collection]] = [
            self.runner.run(self._open()) for _ in range(2)
        ]

    async def _open(self) -> tuple[AsyncExitStack, Collection]:
        stack = AsyncExitStack()
        return stack, await stack.enter_async_context(handle(self.database))

    def teardown(self) -> None:
        for stack, _ in self.open:
            self.runner.run(stack.aclose())
        self.runner.close()
        assert self.database.changes() == self.changes

    def ask(self, one: int, question: Callable[[Collection], Any]) -> Any:
        async def main() -> Any:
            response = question(self.open[one][1])
            return await response

        return self.runner.run(main())

    def expect(self, id: int, payload: Payload) -> Store | None:
        """Return what a write should answer, and remember it."""
        if id > len(self.stores) or id < 0:
            return None
        if id and content(self.stores[id - 1]) == content(payload):
            return self.stores[id - 1]  # decision 35
        store = a_store_with(id or len(self.stores) + 1, payload, len(self.changes) + 1)
        self.stores[store.id - 1 : store.id] = [store]
        self.changes.append((store.version, store.id, *content(store)))
        return store

    @rule(one=HANDLES, payload=PAYLOADS)
    def create(self, one: int, payload: Payload) -> None:
        assert self.ask(one, lambda collection: create(collection, payload)) == self.expect(
            0, payload
        )

    @rule(one=HANDLES, id=IDS, payload=PAYLOADS)
    def replace(self, one: int, id: int, payload: Payload) -> None:
        expected = self.expect(id, payload) if id else None
        assert self.ask(one, lambda collection: replace(collection, id, payload)) == expected

    @rule(one=HANDLES, id=IDS, patch=PATCHES)
    def patch(self, one: int, id: int, patch: PayloadPatch) -> None:
        expected = None
        if 0 < id <= len(self.stores):
            expected = self.expect(id, patch.applied_to(*content(self.stores[id - 1])))
        assert self.ask(one, lambda collection: collection.write(Patch(id, patch))) == expected

    @rule(
        one=HANDLES,
        writes=st.lists(st.tuples(st.integers(0, 5), PAYLOADS | st.just(Payload("x" * 31)))),
    )
    def write_together(self, one: int, writes: list[tuple[int, Payload]]) -> None:
        """What is sent in one turn of the loop takes effect in that order; only what is bad
        fails."""

        async def send(collection: Collection) -> list[Any]:
            futures = [
                replace(collection, id, payload) if id else create(collection, payload)
                for id, payload in writes
            ]
            return list(await asyncio.gather(*futures, return_exceptions=True))

        for (id, payload), response in zip(writes, self.ask(one, send), strict=True):
            if len(payload.name) > 30 and id <= len(self.stores):
                assert isinstance(response, Exception)
            else:
                assert response == self.expect(id, payload)

    @rule(one=HANDLES, payloads=st.lists(PAYLOADS), only_if_empty=st.booleans())
    def load(self, one: int, payloads: list[Payload], only_if_empty: bool) -> None:
        left_alone = only_if_empty and self.stores
        loaded = self.ask(
            one, lambda collection: add_all(collection, payloads, only_if_empty=only_if_empty)
        )
        first = len(self.stores) + 1
        assert loaded == range(first, first + (0 if left_alone else len(payloads)))
        for payload in [] if left_alone else payloads:
            self.expect(0, payload)

    @rule(one=HANDLES, payloads=st.lists(PAYLOADS))
    def load_from_a_source_that_fails(self, one: int, payloads: list[Payload]) -> None:
        def failing() -> Any:
            yield from payloads
            raise ZeroDivisionError

        async def main(collection: Collection) -> None:
            try:
                await add_all(collection, failing())
            except ZeroDivisionError:
                return
            raise AssertionError("the error was lost")

        self.ask(one, main)

    @rule(one=HANDLES)
    def reopen(self, one: int) -> None:
        self.runner.run(self.open[one][0].aclose())
        self.open[one] = self.runner.run(self._open())

    @rule(one=HANDLES, id=IDS)
    def get(self, one: int, id: int) -> None:
        expected = self.stores[id - 1] if 0 < id <= len(self.stores) else None
        assert self.ask(one, lambda collection: get(collection, id)) == expected

    @rule(one=HANDLES, name=NAMES)
    def filter(self, one: int, name: str) -> None:
        expected = [shown_with(store.id, store) for store in self.stores if store.name == name]
        assert self.ask(one, lambda collection: stores(collection, name)) == expected

    @invariant()
    def both_list_every_store(self) -> None:
        expected = [shown_with(store.id, store) for store in self.stores]
        for one in range(len(self.open)):
            assert self.ask(one, stores) == expected


@pytest.mark.parametrize("examples", [4, pytest.param(50, marks=pytest.mark.thorough)])
def test_the_collection_behaves_like_a_plain_list(
    new_database: Callable[[], Database], examples: int
) -> None:
    class Here(Model):
        pass

    Here.new_database = staticmethod(new_database)
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
