"""Any list, exported, edited by two people and a source, brought back in any order, also twice,
undone and redone: no edit is lost, except where two changed one field, which is a conflict.

A model in about thirty lines judges, on both databases.
"""

import io
from collections import Counter
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from storekeeper.domain.changes import Cursor, parse_cursor
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.intake import Import
from storekeeper.domain.reasons import Reason
from storekeeper.domain.undo import Undo, UndoPlan
from storekeeper.sheets import writing
from storekeeper.sheets.protocol import layout_of
from storekeeper.sheets.records import open_sheet
from storekeeper.sheets.rows import SheetRows
from storekeeper.storage import databases, intake
from storekeeper.storage.undo import undo
from storekeeper.storage.verification import verify
from tests.harness.databases import KINDS, Database, make

Content = tuple[str, str]
"""Name and address, as an export of them is read."""

IDS = st.integers(1, 2)
NAMES = st.sampled_from(["A", "B", " C "])
ADDRESSES = st.sampled_from(["", "1 Road", " 2\r\nRoad", "3"])
CONTENT = st.tuples(NAMES, ADDRESSES)
DIFFERENT = st.permutations(["", "1 Road", " 2\r\nRoad"]).map(
    lambda addresses: list(zip(["A", "B", " C "], addresses, strict=True))
)
"""Three contents that differ in both fields."""
UNKNOWN: Content = ("unlike", "any content")
"""The base of a row that began with another history."""


def read(content: tuple[str, str | None]) -> Content:
    """Return a content as an export of it is read."""
    name, address = ((text or "").replace("\r\n", "\n").strip() for text in content)
    return name, address


class Made(NamedTuple):
    """What an import, or an undo, made of its stores, and what it did to the source's memory."""

    stores: dict[int, tuple[Content, Content]]
    memory: dict[int, Content]


class Model:
    """What the list must be. It decides each field by itself."""

    def __init__(self, stores: dict[int, Content]) -> None:
        self.now, self.memory = dict(stores), dict(stores)

    def merge(
        self, rows: dict[int, Content], bases: dict[int, Content] | None, *, by_source: bool
    ) -> tuple[set[int], Made]:
        conflicts, made = set[int](), Made({}, {})
        for id, row in rows.items():
            old = self.now[id]
            base = old if bases is None else bases[id]
            pairs = list(zip(row, old, base, strict=True))
            if any(mine not in (theirs, was) and theirs != was for mine, theirs, was in pairs):
                conflicts.add(id)
                continue
            new = tuple(theirs if mine == was else mine for mine, theirs, was in pairs)
            if new != old:
                self.now[id] = (new[0], new[1])
                made.stores[id] = old, self.now[id]
                if by_source:
                    made.memory[id] = self.memory[id]
            if by_source:
                self.memory[id] = row
        return conflicts, made

    def undo(self, done: Made) -> Made:
        made = Made({}, {})
        for id, (before, after) in done.stores.items():
            now = self.now[id]
            fields = [0, 1]
            undone = [f for f in fields if now[f] == after[f] and before[f] != after[f]]
            if not undone:
                continue
            new = [before[f] if f in undone else now[f] for f in fields]
            self.now[id] = (new[0], new[1])
            made.stores[id] = now, self.now[id]
            if id in done.memory:
                made.memory[id] = self.memory[id]
                kept = self.memory[id]
                back = [done.memory[id][f] if f in undone else kept[f] for f in fields]
                self.memory[id] = (back[0], back[1])
        return made


class Sheet(NamedTuple):
    """An export, as a person edits it."""

    format: str
    version: str
    bases: dict[int, Content]
    rows: dict[int, tuple[str, str]]


class Merging(RuleBasedStateMachine):
    """Does to a list what people do."""

    database: Database
    met: ClassVar[Counter[str]]
    """How often something was met, in all examples."""

    @initialize(other=CONTENT, contents=DIFFERENT)
    def begin(self, other: tuple[str, str], contents: list[tuple[str, str]]) -> None:
        """Make a list of two stores; do to the first, in each example, what is rare by chance."""
        one, two, three = contents
        self.folder = self.new_database()
        self.database = self.folder.__enter__()
        make(self.database.url)
        self.source = {1: one, 2: other}
        self._import("csv", self._keyed(), Import("Key"))
        self.model = Model({id: read(each) for id, each in self.source.items()})
        self.sheets: list[Sheet] = []
        self.done: list[tuple[str, str, Made]] = []
        self.edit_one_store_twice(1, two, three)
        self.bring_a_sheet_of_another_history(1, two)
        self.undo_what_was_edited_since(1, two, one)
        self.undo_what_the_source_gave(1, two)

    def new_database(self) -> Any:
        raise NotImplementedError

    @rule(id=IDS, content=CONTENT)
    def edit_the_list(self, id: int, content: tuple[str, str]) -> None:
        """A person saves a store."""
        rows = [("id", "name", "address"), (id, *content)]
        plan = self._import("csv", rows, Import("id"))
        _, made = self.model.merge({id: read(content)}, None, by_source=False)
        self._keep(plan, made)

    @rule(format=st.sampled_from(["csv", "xlsx", "jsonl"]))
    def export(self, format: str) -> None:
        version = self._state()
        with databases.database(self.database.url).snapshot() as snapshot:
            stores = {row[0]: (row[1], row[2] or "") for row in self._rows(snapshot)}
        self.sheets.append(Sheet(format, version, dict(self.model.now), dict(stores)))

    @rule(id=IDS, one=CONTENT, other=CONTENT)
    def edit_one_store_twice(self, id: int, one: tuple[str, str], other: tuple[str, str]) -> None:
        """One person in a sheet, the other in the list, since the export of it."""
        self.export("csv")
        self.sheets[-1].rows[id] = one
        self.edit_the_list(id, other)
        self.bring_a_sheet_back(len(self.sheets) - 1)

    @rule(id=IDS, name=NAMES, number=st.integers(0, 9))
    def edit_a_name_of_a_sheet(self, id: int, name: str, number: int) -> None:
        if self.sheets:
            rows = self.sheets[number % len(self.sheets)].rows
            rows[id] = name, rows[id][1]

    @rule(id=IDS, address=ADDRESSES, number=st.integers(0, 9))
    def edit_an_address_of_a_sheet(self, id: int, address: str, number: int) -> None:
        if self.sheets:
            rows = self.sheets[number % len(self.sheets)].rows
            rows[id] = rows[id][0], address

    @rule(number=st.integers(0, 9))
    def bring_a_sheet_back(self, number: int) -> None:
        if not self.sheets:
            return
        sheet = self.sheets[number % len(self.sheets)]
        rows = [(id, *texts, sheet.version) for id, texts in sheet.rows.items()]
        header = ("id", "name", "address", "version")
        plan = self._import(sheet.format, [header, *rows], Import("id", on_conflict="skip"))
        contents = {id: read(texts) for id, texts in sheet.rows.items()}
        conflicts, made = self.model.merge(contents, sheet.bases, by_source=False)
        assert self._in_conflict(plan) == conflicts
        self._keep(plan, made)

    @rule(id=IDS, content=CONTENT)
    def bring_a_sheet_of_another_history(self, id: int, content: tuple[str, str]) -> None:
        """Its version has a number of this list, but not its epoch."""
        self.export("csv")
        sheet = self.sheets[-1]
        sheet.rows[id] = content
        number = sheet.version.partition(".")[0]
        unknown = dict.fromkeys(sheet.bases, UNKNOWN)
        self.sheets[-1] = sheet._replace(version=f"{number}.another2", bases=unknown)
        before = self.met["conflict"]
        self.bring_a_sheet_back(len(self.sheets) - 1)
        self.met["other history"] += self.met["conflict"] - before

    @rule(id=IDS, content=CONTENT)
    def change_the_source(self, id: int, content: tuple[str, str]) -> None:
        self.source[id] = content

    @rule()
    def import_the_source(self) -> None:
        plan = self._import("csv", self._keyed(), Import("Key", on_conflict="skip"))
        contents = {id: read(each) for id, each in self.source.items()}
        conflicts, made = self.model.merge(contents, dict(self.model.memory), by_source=True)
        assert self._in_conflict(plan) == conflicts
        self._keep(plan, made)

    @rule(number=st.integers(0, 9))
    def undo_an_import_or_an_undo(self, number: int) -> None:
        if not self.done:
            return
        first, last, made = self.done[-1 - number % len(self.done)]
        with databases.database(self.database.url).session() as session:
            plan = undo(session, Undo(self._cursor(first), self._cursor(last)))
        assert isinstance(plan, UndoPlan)
        self._keep(plan, self.model.undo(made))

    @rule(id=IDS, content=CONTENT)
    def undo_what_the_source_gave(self, id: int, content: tuple[str, str]) -> None:
        self.edit_the_list(id, self.source[id])
        self.import_the_source()  # so that it is what the source gave
        self.change_the_source(id, content)
        memory = dict(self.model.memory)
        self.import_the_source()
        given = self.model.memory != memory
        self.undo_an_import_or_an_undo(0)
        self.met["memory returned"] += given and self.model.memory == memory

    @rule(id=IDS, one=CONTENT, other=CONTENT)
    def undo_what_was_edited_since(
        self, id: int, one: tuple[str, str], other: tuple[str, str]
    ) -> None:
        before = len(self.done)
        self.edit_the_list(id, one)
        edited = len(self.done)
        self.edit_the_list(id, other)
        if before < edited < len(self.done):
            self.undo_an_import_or_an_undo(1)
            self.met["edit kept"] += self.model.now[id] == read(other)

    def _keyed(self) -> list[tuple[object, ...]]:
        return [
            ("Key", "name", "address"),
            *((f"k{id}", *each) for id, each in self.source.items()),
        ]

    def _import(self, format: str, rows: list[tuple[Any, ...]], options: Import) -> ImportPlan:
        header, *lines = rows
        file = io.BytesIO()
        writing.write(file, format, header, iter(lines))
        layout = layout_of(options)
        read_rows = SheetRows(open_sheet(io.BytesIO(file.getvalue()), layout), layout)
        matched = msgspec.structs.replace(options, match=read_rows.match)
        with databases.database(self.database.url).session() as session:
            plan = intake.import_rows(session, read_rows, matched)
        assert isinstance(plan, ImportPlan)
        return plan

    def _keep(self, plan: Any, made: Made) -> None:
        """Remember what can be undone, and compare the list with the model."""
        report = plan.report
        assert (report.first is not None) == bool(made.stores)
        if report.first is not None:
            self.done.append((report.first, report.last, made))
        with databases.database(self.database.url).snapshot() as snapshot:
            found = {row[0]: read(row[1:3]) for row in self._rows(snapshot)}
            memory = list(snapshot.select(_MEMORY))
        assert found == self.model.now
        assert {id: read(content) for id, *content in memory} == self.model.memory  # type: ignore[arg-type]  # two texts

    def _in_conflict(self, plan: ImportPlan) -> set[int | None]:
        found = {each.id for each in plan.report.problems if each.reason is Reason.CONFLICT}
        self.met["conflict"] += len(found)
        return found

    def _state(self) -> str:
        with databases.database(self.database.url).snapshot() as snapshot:
            _, version, epoch = snapshot.state()
        return f"{version}.{epoch}"

    def _rows(self, snapshot: Any) -> list[Any]:
        return list(snapshot.select("SELECT id, name, address FROM stores ORDER BY id"))

    def _cursor(self, text: str) -> Cursor:
        found = parse_cursor(text.encode())
        assert found is not None
        return found

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            problems = verify(self.database.url)
            self.folder.__exit__(None, None, None)
            assert problems == []


_MEMORY = "SELECT store_id, given_name, given_address FROM external_ids ORDER BY store_id"


@pytest.mark.parametrize("kind", KINDS)
def test_no_edit_is_lost_but_where_two_changed_one_field(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    class OfKind(Merging):
        met: ClassVar[Counter[str]] = Counter()

        def new_database(self) -> Any:
            return KINDS[kind](tmp_path_factory.mktemp("merging"))

    examples = 6 if kind == "sqlite" else 3
    run_state_machine_as_test(
        OfKind, settings=settings(max_examples=examples, stateful_step_count=12)
    )
    for event in ("conflict", "other history", "memory returned", "edit kept"):
        assert OfKind.met[event] >= examples, event
