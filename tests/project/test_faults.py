"""The table of faults in docs/evidence/faults.md names tests that there are."""

from collections import Counter
from pathlib import Path

import pytest

from tests.campaigns import faults


def test_every_row_names_tests_that_there_are() -> None:
    rows = faults.rows()
    assert len(rows) >= 60
    assert [row.name for row in rows if not row.tests] == []
    assert len({row.name for row in rows}) == len(rows)
    page = faults.PAGE.read_text()
    for row in rows:
        line = next(line for line in page.splitlines() if line.startswith(f"| {row.name} |"))
        for file, word in faults.named(line):
            assert any(test.startswith(f"{file}::") and word in test for test in row.tests), (
                f"{row.name}: {file} {word}"
            )


def test_a_row_whose_tests_are_all_skipped_keeps_its_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "faults.md"
    line = "| {} | a fault | expected | {} | `api/test_cache.py` |"
    page.write_text("\n".join([line.format("A1", "1/1"), line.format("A2", "1/1")]))
    monkeypatch.setattr(faults, "PAGE", page)
    skipped, failed = faults.rows()
    skipped.outcomes, failed.outcomes = Counter(skipped=1), Counter(skipped=1, failed=1)
    faults.write([skipped, failed])
    assert [row.split(" | ")[3] for row in page.read_text().splitlines()] == ["1/1", "0/2"]
