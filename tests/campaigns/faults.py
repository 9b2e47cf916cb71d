"""Every fault that a test injects, one line each (`make faults`). The status is 1 if one of them
does harm.

The rows are those of docs/evidence/faults.md: this runs the tests in its last column, and writes
the outcomes.
"""

import contextlib
import io
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import pytest

from tests import ROOT

TESTS = ROOT / "tests"
PAGE = ROOT / "docs/evidence/faults.md"

_ROW = re.compile(r"\| (\w+) \| (.+?) \| .+? \| (.*?) ?\| (`[\w/]+/test_.+) \|")
_BEGINNING = re.compile(r"( {4})?(class|(?:async )?def) (\w+)")
_TESTS = re.compile(r"`([\w/]+/test_\w+)\.py(?: -k (\w+|\"[^\"]+\"))?`")


@dataclass
class Row:
    """One fault; `tests` has the `room/file::function`, or `::Class::function`, that show it."""

    name: str
    fault: str
    tests: frozenset[str]
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def measured(self) -> str:
        """Return how many passed of how many."""
        return f"{self.outcomes['passed']}/{self.outcomes.total()}"


def rows() -> list[Row]:
    """Read the rows of the page."""
    found = [_ROW.fullmatch(line) for line in PAGE.read_text().splitlines()]
    return [Row(row[1], row[2], _named(row[4])) for row in found if row]


def _named(cell: str) -> frozenset[str]:
    return frozenset(
        f"{file}::{name}" for file, word in named(cell) for name in _functions(file) if word in name
    )


def named(cell: str) -> list[tuple[str, str]]:
    """Return each file that a cell names, with each word that pytest looks for in the names of its
    tests."""
    return [
        (file, word)
        for file, words in _TESTS.findall(cell)
        for word in words.strip('"').split(" or ")
    ]


@cache
def _functions(file: str) -> list[str]:
    """Return the names of all tests of a file, as pytest has them: after that of their class."""
    within, found = "", list[str]()
    for line in (TESTS / f"{file}.py").read_text().splitlines():
        if beginning := _BEGINNING.match(line):
            indented, kind, name = beginning.groups()
            if kind == "class":
                within = f"{name}::"
            elif name.startswith("test_"):
                found.append(f"{within if indented else ''}{name}")
    return found


class Report:
    """Counts, for pytest, the outcomes of each row's tests."""

    def __init__(self, chosen: list[Row]) -> None:
        self._rows = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        test = report.nodeid.partition("[")[0].removeprefix("tests/").replace(".py", "")
        for row in self._rows:
            row.outcomes[report.outcome] += test in row.tests


def write(chosen: list[Row]) -> None:
    """Write the outcomes into the page; a row whose tests could not run keeps its outcome."""
    ran = [row for row in chosen if row.outcomes["skipped"] < row.outcomes.total()]
    measured = {row.name: row.measured for row in ran}

    def renewed(line: str) -> str:
        row = _ROW.fullmatch(line)
        if row is None or row[1] not in measured:
            return line
        return f"{line[: row.start(3)]}{measured[row[1]]} {line[row.end(3) :].lstrip()}"

    PAGE.write_text("".join(renewed(line) + "\n" for line in PAGE.read_text().splitlines()))


def main() -> int:
    """Run the tests of all rows, or of the named ones, and print a line for each; then the
    failures."""
    wanted = sys.argv[1:]
    chosen = [row for row in rows() if not wanted or row.name in wanted]
    if unknown := set(wanted) - {row.name for row in chosen}:
        print(f"there is no row {', '.join(sorted(unknown))} in {PAGE.name}", file=sys.stderr)
        return 2
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        # By their subject, so that the tests of one file run together.
        names = sorted(set().union(*(row.tests for row in chosen)))
        tests = [f"{TESTS}/{name.replace('::', '.py::', 1)}" for name in names]
        status = pytest.main(
            [*tests, "-m", "", "--tb=short", "--numprocesses=4"], plugins=[Report(chosen)]
        )
    for row in chosen:
        print(f"{row.name:8}{row.measured:>12}  {row.fault}")
    if status:
        print(said.getvalue())
    else:
        write(chosen)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
