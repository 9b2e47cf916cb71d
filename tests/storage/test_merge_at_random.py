"""Imports of any kind, of stores in any state, while others write: each tells all that it does,
does it once, and is undone exactly, whichever database holds the list."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple, get_args

import pytest

from storekeeper.domain.commands import Create, Replace
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.intake import Counts, FieldName, Refused, Report, Resolution
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from storekeeper.storage.verification import verify
from tests.harness.collection import run
from tests.harness.databases import Database, handle
from tests.harness.imports import import_into, import_or_replay, undo_range
from tests.harness.transfers import fill_with

NAMES = ("A", "a", "B", " B", "C")
ADDRESSES = ("", "x", "X", "y")
KEYS = ("1", "2", "3")
COLUMNS = ("Key", "Key", "Other")
POLICIES = ("refuse", "skip", "skip", "overwrite", "ignore-version")
COUNTS = ("rows", "missing", "created", "replaced", "unchanged", "conflicts", "bad", "repeated")

Stores = dict[int, tuple[str, str | None]]
Keys = dict[tuple[str, str], int]


class State(NamedTuple):
    """The stores of a list, and which of them the keys name, by column and value."""

    stores: Stores
    keys: Keys


class Sent(NamedTuple):
    """A file, and how it is imported."""

    text: str
    match: str
    options: dict[str, Any]


class People:
    """Does to a list what people, programs and sources may do, at random, and judges it."""

    def __init__(self, database: Database, random: Random) -> None:
        self.database, self.random = database, random
        self.exports: list[list[tuple[object, ...]]] = []
        self.done: dict[tuple[str, str], tuple[State, State]] = {}
        """The list before and after each import and each undo, by its cursors."""
        self.met: Counter[str] = Counter()
        fill_with(database, [Payload("A", "x"), Payload("B", " y"), Payload("C")])

    def act(self) -> None:
        """Do something."""
        actions = (self.save, self.export, self.send, self.send, self.send, self.undo_any)
        self.random.choice(actions)()

    def state(self) -> State:
        with databases.database(self.database.url).snapshot() as snapshot:
            stores = snapshot.select("SELECT id, name, address FROM stores ORDER BY id")
            keys = snapshot.select("SELECT column_name, value, store_id FROM external_ids")
            return State(
                {id: tuple(each) for id, *each in stores}, {(c, v): id for c, v, id in keys}
            )

    def save(self) -> None:
        """Create or replace a store, as a request does."""
        payload = Payload(self.random.choice(NAMES), self.random.choice((None, *ADDRESSES)))
        replace = Replace(self.random.choice(list(self.state().stores)), payload)
        command = self.random.choice((Create(payload), replace, replace))

        async def write() -> None:
            async with handle(self.database) as collection:
                await collection.write(command)

        run(write())

    def export(self) -> None:
        with databases.database(self.database.url).snapshot() as snapshot:
            _, version, epoch = snapshot.state()
        stores, keys = self.state()
        own = {id: value for (column, value), id in keys.items() if column == "Key"}
        self.exports.append(
            [
                (id, name, address or "", own.get(id, ""), f"{version}.{epoch}")
                for id, (name, address) in stores.items()
            ]
        )

    # Imports

    def send(self) -> None:
        """Import something, while others write."""
        sent = self.file()
        self.met["sent"] += 1
        options = sent.options | {"idempotency_key": (f"key {self.met['sent']}", 1)}
        before: list[State] = []
        expected: list[int] = []

        def others(_: ImportPlan) -> None:
            if before:  # the plan is made again
                return
            if self.random.random() < 0.5:
                self.random.choice((self.save, self.save, self.undo_any))()
            before.append(self.state())
            expected.extend(self.expected(sent))
            assert self.state() == before[0], "a dry run wrote"

        try:
            done = import_into(self.database, sent.text, sent.match, review=others, **options)
        except Refused:
            assert self.state() == before[0]
            self.decide(sent)
            return
        after = self.state()
        assert counts_of(done.report) == expected
        self.judge(done.report, before[0], after)
        replay = import_or_replay(self.database, sent.text, sent.match, **options)
        assert type(replay) is Counts
        assert (replay.version, self.state()) == (done.report.version, after)

    def file(self) -> Sent:
        """Return an export, edited perhaps, or another file."""
        choice, column = self.random.choice, self.random.choice(COLUMNS)
        options = {"on_conflict": choice(POLICIES), "skip_bad": self.random.random() < 0.8}
        stores = list(self.state().stores)
        if self.exports and self.random.random() < 0.5:
            rows = [self.edited(row) for row in choice(self.exports)]
            self.random.shuffle(rows)
            match = choice(("id", "id", "name", "Key"))
            return Sent(_csv("id,name,address,Key,version", rows), match, options)
        count = self.random.randint(1, 3)
        contents = [(choice(NAMES), choice(ADDRESSES)) for _ in range(count)]
        keyed = [(choice(KEYS), *each) for each in contents]
        match choice(("key", "adopt", "id", "name", "attach")):
            case "key":
                return Sent(_csv(f"{column},name,address", keyed), column, options)
            case "adopt":
                options["adopt"] = True
                return Sent(_csv(f"{column},name,address", keyed), column, options)
            case "name":
                return Sent(_csv("name,address", contents), "name", options)
            case "attach":
                options["attach"] = column
        rows = [(choice(stores), *row) for row in keyed]
        return Sent(_csv(f"id,{column},name,address", rows), "id", options)

    def edited(self, row: tuple[object, ...]) -> tuple[object, ...]:
        id, name, address, *rest = row
        what = self.random.choice(("nothing", "name", "address"))
        if what == "name":
            name = self.random.choice(NAMES)
        if what == "address":
            address = self.random.choice(ADDRESSES)
        return id, name, address, *rest

    def expected(self, sent: Sent) -> list[int]:
        """Return the counts that an import would have now, none if it would be refused."""
        plan = import_into(self.database, sent.text, sent.match, dry_run=True, **sent.options)
        return [] if plan.refuses else counts_of(plan.report)

    def decide(self, sent: Sent) -> None:
        """Decide each field in conflict, and import the file again."""
        plan = import_into(self.database, sent.text, sent.match, dry_run=True, **sent.options)
        decisions = []
        for problem in plan.report.problems:
            if conflict := problem.conflict:
                sides: dict[bool, list[FieldName]] = {True: [], False: []}
                for field in get_args(FieldName):
                    if field in conflict.fields:
                        sides[self.random.random() < 0.5].append(field)
                present, row = tuple(sides[True]), tuple(sides[False])
                decisions.append(Resolution(problem.line, conflict.seen, present=present, row=row))
        if not decisions:
            return
        options = sent.options | {"decisions": tuple(decisions), "skip_bad": True}
        before = self.state()
        done = import_into(self.database, sent.text, sent.match, **options)
        assert done.report.conflicts == 0
        self.met["decided"] += 1
        self.judge(done.report, before, self.state())

    def judge(self, report: Report, before: State, after: State) -> None:
        """Check that an import told each change, and lost no key."""
        told = {each.id: each for each in report.changes}
        changed = {id for id in after.stores if after.stores[id] != before.stores.get(id)}
        assert changed <= told.keys(), "changed in silence"
        assert len(told) == report.created + report.replaced
        assert len(after.stores) == len(before.stores) + report.created
        for id, each in told.items():
            assert tuple(each.new.values()) == after.stores[id]
            assert each.old is None or tuple(each.old.values()) == before.stores[id]
        assert before.keys.items() <= after.keys.items(), "a key was lost"
        rows, missing, *parts = counts_of(report)
        assert rows == sum(parts)
        assert missing >= 0
        if report.first is not None and report.last is not None:
            self.done[report.first, report.last] = before, after

    # Undo

    def undo_any(self) -> None:
        """Undo an import or an undo, and compare the list with what it must be then."""
        if not self.done:
            return
        first, last = self.random.choice(list(self.done))
        made, before = self.done[first, last], self.state()
        undo_range(self.database, first, last, dry_run=True)
        assert self.state() == before, "a dry run undid"
        report: Any = undo_range(self.database, first, last).report  # type: ignore[union-attr]  # no replay
        after = self.state()
        assert after == _undone(before, *made)
        self.met["undone"] += 1
        if report.first is not None:
            self.done[report.first, report.last] = before, after


def counts_of(report: Counts) -> list[int]:
    return [getattr(report, name) for name in COUNTS]


def _csv(header: str, rows: Sequence[Sequence[object]]) -> str:
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    return "\n".join([header, *lines, ""])


def _undone(now: State, was: State, made: State) -> State:
    """Return a list after the undo of what made one list of another."""
    stores = dict(now.stores)
    for id, old in was.stores.items():
        new, present = made.stores[id], now.stores[id]
        name, address = (
            old[place] if old[place] != new[place] == present[place] else present[place]
            for place in (0, 1)
        )
        stores[id] = str(name), address
    keys = dict(now.keys)
    for key, id in made.keys.items() - was.keys.items():
        if id in was.stores and keys.get(key) == id:
            del keys[key]
    for key, id in was.keys.items() - made.keys.items():
        has_one = any(of == id and column == key[0] for (column, _), of in now.keys.items())
        if key not in now.keys and not has_one:
            keys[key] = id
    return State(stores, keys)


class TestImportsAtRandom:
    """On both databases."""

    @pytest.mark.parametrize(
        ("seed", "steps"),
        [(1, 15), *(pytest.param(n, 40, marks=pytest.mark.thorough) for n in range(2, 12))],
    )
    def test_all_that_happens_is_told_done_once_and_undone_exactly(
        self, database: Database, seed: int, steps: int
    ) -> None:
        people = People(database, Random(seed))
        for _ in range(steps):
            people.act()
        assert verify(database.url) == []
        assert people.met["sent"]
        assert people.met["undone"]
