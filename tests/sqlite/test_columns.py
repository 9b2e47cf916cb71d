"""The statements of a batch: SQLite finds the stores that they are about, and reads no others."""

from pathlib import Path

import apsw
import pytest

from storekeeper import sqlite
from storekeeper.sqlite import columns


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        pytest.param(columns.UPDATE, ("[1]",), id="update"),
        pytest.param(columns.INSERT, ("[1]",), id="insert"),
        pytest.param(columns.VERSIONS.format(rows="(?, ?, ?, ?), (?, ?, ?, ?)"), (0,) * 8, id="versions"),
    ],
)
def test_a_statement_of_a_batch_never_reads_all_stores(
    tmp_path: Path, statement: str, values: tuple[object, ...]
) -> None:
    sqlite.prepare(tmp_path / "stores.db")
    connection = apsw.Connection(str(tmp_path / "stores.db"))
    plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    connection.close()
    searched = {step.split()[1] for step in plan if "USING INTEGER PRIMARY KEY" in step}
    made = {step.split()[1] for step in plan if step.startswith(("MATERIALIZE", "CO-ROUTINE"))}
    scanned = {step.split()[1] for step in plan if step.startswith("SCAN")}
    assert searched
    assert scanned <= {"json_each", "touched", "2"} | made  # 2: a row that is CONSTANT
