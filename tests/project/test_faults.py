"""The table of faults in docs/evidence/faults.md names tests that there are."""

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
