"""The programs that break a promise on purpose still change what they mean to change."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.harness import weakened

CHANGES = set(
    re.findall(r"^def ([a-z]\w+)\(\) -> None:", Path(weakened.__file__).read_text(), re.MULTILINE)
)


def test_every_change_finds_what_it_changes() -> None:
    """Otherwise a control would break nothing, and the test of its promise would show nothing."""
    assert len(CHANGES) > 30
    done = subprocess.run(
        [*weakened.PROGRAM, "--version"],
        env=os.environ | {"WEAKENED": " ".join(sorted(CHANGES)), "FAILS_AT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_change_of_what_is_not_there_is_an_error() -> None:
    program = "from tests.harness.weakened import vars_of\nvars_of(int).renamed = None"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "has no attribute 'renamed'" in done.stderr
