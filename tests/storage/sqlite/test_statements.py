"""The statements of a batch: SQLite finds the stores that they are about, and reads no others."""

from pathlib import Path

import apsw
import pytest

from storekeeper.domain.stores import Payload
from storekeeper.storage.sqlite import statements
from tests.harness.client import load
from tests.harness.databases import make_file


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        pytest.param(statements.UPDATE, ('[[1, "a"]]',), id="update"),
        pytest.param(statements.INSERT, ('[[1, "a"]]',), id="insert"),
        pytest.param(statements.COMPARE, ('[[0, 1, "A", null]]',), id="compare"),
        pytest.param(statements.FIND_KEYS, ('["key"]',), id="find keys"),
    ],
)
def test_a_statement_of_a_batch_never_reads_all(
    tmp_path: Path, statement: str, values: tuple[object, ...]
) -> None:
    make_file(tmp_path / "stores.db")
    connection = apsw.Connection(str(tmp_path / "stores.db"))
    plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    connection.close()
    searched = {step.split()[1] for step in plan if step.startswith("SEARCH")}
    made = {step.split()[1] for step in plan if step.startswith(("MATERIALIZE", "CO-ROUTINE"))}
    scanned = {step.split()[1] for step in plan if step.startswith("SCAN")}
    assert searched
    assert (
        scanned <= {"jsonb_each", "json_each", "new", "wanted", "2"} | made
    )  # 2: a row that is CONSTANT


def test_a_bulk_load_is_none_the_worse_for_a_column_behind_those_that_it_knows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "stores.db"
    make_file(path)
    connection = apsw.Connection(str(path))
    connection.execute("ALTER TABLE stores ADD COLUMN behind TEXT")
    payloads = [Payload("First", "1 Road"), Payload("Second")]
    assert load(f"sqlite:///{path}", payloads, only_if_empty=True) == range(1, 3)
    rows = [(1, "First", "1 Road", 1), (2, "Second", None, 2)]
    assert (
        list(connection.execute("SELECT id, name, address, version FROM stores ORDER BY id"))
        == rows
    )
    connection.close()
