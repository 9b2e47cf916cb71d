"""The coverage counts what it should."""

from pathlib import Path

import pytest
from coverage import CoverageData

from tests import ROOT
from tests.harness.counting import UNCOUNTED, forget_unfinished


@pytest.mark.parametrize("name", UNCOUNTED)
def test_what_does_not_count_is_there(name: str) -> None:
    path, _, begin = name.partition("::")
    place = ROOT / "tests" / path
    assert place.is_dir() or f"def {begin}" in place.read_text()


def test_what_a_process_saved_that_was_killed_meanwhile_is_forgotten(tmp_path: Path) -> None:
    whole = tmp_path / ".coverage.here.pid1.abc"
    data = CoverageData(str(whole))
    data.add_lines({f"{number}.py": {1, 2} for number in range(200)})
    data.write()
    content = whole.read_bytes()
    for number, end in enumerate((0, 4096, len(content) // 2), 2):
        (tmp_path / f".coverage.here.pid{number}.abc").write_bytes(content[:end])
    forget_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == [whole]
