"""An import during which others write single stores is as one that begins after them."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storekeeper.domain.commands import Create, Replace
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from tests.harness.collection import run
from tests.harness.databases import KINDS, Database, handle
from tests.harness.imports import import_into
from tests.harness.transfers import fill_with

NAMES = st.sampled_from(["A", "B", "C", " C "])
STORES = st.lists(NAMES, min_size=1, max_size=4)
MATCHES = ("id", "name", "Key", "attach", None)


class Row(NamedTuple):
    """A row of the file, with the cell `key` of whatever rows are matched by. `later` says by how
    much its version is later than the list's, None if it has none."""

    key: int
    name: str
    address: str = "1 Road"
    later: int | None = None


class Write(NamedTuple):
    """A write of another client: it replaces the store `id`, or adds one if this is 0."""

    id: int
    name: str


ROWS = st.lists(
    st.builds(
        Row,
        st.integers(0, 6),
        NAMES,
        st.sampled_from(["", "1 Road", "2 Road"]),
        st.sampled_from([None, 0, 1]),
    ),
    max_size=4,
)
WRITES = st.lists(st.builds(Write, st.integers(0, 4), NAMES), min_size=1, max_size=3)


class Case(NamedTuple):
    """A list, a file, and what others write meanwhile."""

    stores: list[str]
    match: str | None
    rows: list[Row]
    writes: list[Write]


CASES = st.builds(Case, STORES, st.sampled_from(MATCHES), ROWS, WRITES)

AB, ROW = ["A", "B"], [Row(1, "A"), Row(0, "C")]
UNTOUCHED = [Case(AB, match, ROW, [Write(0, "B"), Write(2, "B")]) for match in MATCHES]
TOUCHED = [
    *(Case(AB, match, ROW, [Write(1, "A"), Write(0, "C")]) for match in MATCHES if match),
    Case(AB, "name", ROW, [Write(1, "Other")]),
    Case(AB, "name", [Row(0, "C")], [Write(0, " C ")]),
    Case(AB, "id", [Row(1, "C", later=1)], [Write(2, "B")]),
    Case(AB, "id", [Row(3, "C")], [Write(0, "B")]),
]
"""What others write concerns a row."""


def table(database: Database, statement: str) -> list[Any]:
    with databases.database(database.url).snapshot() as snapshot:
        return list(snapshot.select(statement))


def sheet(case: Case, seq: int, epoch: str) -> str:
    """Return the file; keys of an outside system are like `k1`, names are their own keys."""
    column = case.match if case.match not in (None, "name", "attach") else "id"
    lines = [f"{column},name,address,version,Number"]
    for number, row in enumerate(case.rows):
        key = f"k{row.key}" if case.match == "Key" else str(row.key or "")
        version = "" if row.later is None else f"{seq + row.later}.{epoch}"
        lines.append(f"{key},{row.name},{row.address},{version},n{number}")
    return "\n".join([*lines, ""])


def write(database: Database, writes: list[Write]) -> None:
    """Write single stores, as other clients do."""

    async def main() -> None:
        async with handle(database) as collection:
            for each in writes:
                payload = Payload(each.name, "of others")
                if each.id:
                    await collection.write(Replace(each.id, payload))
                else:
                    await collection.write(Create(payload))

    run(main())


def outcome(database: Database, case: Case, *, meanwhile: bool) -> tuple[list[Any], int]:
    """Return all that an import leads to, and how many plans were made. Others write before it, or
    after its plan was made."""
    fill_with(database, [Payload(name) for name in case.stores])
    keys = "".join(f"{id},k{id},{name}\n" for id, name in enumerate(case.stores, 1))
    import_into(database, f"id,Key,name\n{keys}", "id", attach="Key")
    ((seq, epoch),) = table(database, "SELECT max(seq), max(epoch) FROM changes, collection")
    text = sheet(case, seq, epoch)
    plans = list[ImportPlan]()

    def review(plan: ImportPlan) -> None:
        plans.append(plan)
        if meanwhile and len(plans) == 1:
            write(database, case.writes)

    if not meanwhile:
        write(database, case.writes)
    options: dict[str, Any] = {"on_conflict": "skip", "skip_bad": True}
    if case.match == "attach":
        options |= {"match": "id", "attach": "Number"}
    else:
        options |= {"match": case.match, "add": case.match is None}
    report = import_into(database, text, review=review, **options).report
    stores = "SELECT id, version, name, address, folded, folded_name FROM stores ORDER BY id"
    changes = "SELECT seq, store_id, name, address, count FROM changes ORDER BY seq"
    keyed = """SELECT store_id, column_name, value, given_name, given_address FROM external_ids
      ORDER BY store_id, column_name"""
    undoable = "SELECT first_seq, last_seq, undoes FROM imports ORDER BY first_seq"
    found: list[Any] = [table(database, each) for each in (stores, changes, keyed, undoable)]
    cursors = [each and each.partition(".")[0] for each in (report.first, report.last)]
    found += [report.version.partition(".")[0], cursors, report.changes]
    found.append([(each.line, each.id, each.reason) for each in report.problems])
    counts = ("rows", "created", "replaced", "unchanged", "conflicts", "bad", "missing", "adopted")
    found.append({name: getattr(report, name) for name in counts})
    return found, len(plans)


def compare(kind: str, case: Case, factory: pytest.TempPathFactory) -> int:
    """Compare an import while others write with one after their writes; return how many plans were
    made."""
    with KINDS["sqlite"](factory.mktemp("after")) as database:
        after, _ = outcome(database, case, meanwhile=False)
    with KINDS[kind](factory.mktemp("meanwhile")) as database:
        meanwhile, plans = outcome(database, case, meanwhile=True)
    assert meanwhile == after
    return plans


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_others_touch_meanwhile_are_compared_again_and_only_then(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for case in UNTOUCHED:
        assert compare(kind, case, tmp_path_factory) == 1, case
    for case in TOUCHED:
        assert compare(kind, case, tmp_path_factory) == 2, case


def test_any_import_while_others_write_is_as_one_after_their_writes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    @settings(max_examples=25)
    @given(case=CASES)
    def check(case: Case) -> None:
        compare("sqlite", case, tmp_path_factory)

    check()
