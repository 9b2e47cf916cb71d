"""Whatever is killed, and at whatever moment: the next start works, and nothing acknowledged is
gone.

`make soak` does the same at every call, and hundreds of times.
"""

from pathlib import Path

import pytest

from tests.campaigns import crash, restoring
from tests.harness.cases import thorough

pytestmark = pytest.mark.usefixtures("strace")

TWO = ("--workers=2",)


def test_a_killed_first_start_can_be_repeated(tmp_path: Path) -> None:
    """Before the file is in WAL mode it has a rollback journal, which the next start must
    undo."""
    moments = [("pwrite64", 1), ("fdatasync", 4), ("unlink", 1)]
    row = crash.kill_first_start(tmp_path, moments)
    assert row.violations == []
    assert row.figures["kills"] == len(moments)


def test_a_killed_migration_can_be_repeated(tmp_path: Path) -> None:
    """All data is as it was; the program that knows only the older schema refuses the newer
    file."""
    moments = [("pwrite64", 12), ("fdatasync", 2)]
    row = crash.kill_migration(tmp_path, moments, 800)
    assert row.violations == []
    assert row.figures["kills"] == len(moments)


def test_a_service_killed_while_it_writes_loses_nothing(tmp_path: Path) -> None:
    row = crash.kill_service_at_calls(tmp_path, 2)
    assert row.violations == []
    assert row.figures["kills"] == 2


def test_a_killed_import_leaves_all_or_nothing(tmp_path: Path) -> None:
    row = crash.kill_import(tmp_path, 1, TWO, 2000)
    assert row.violations == []
    assert row.figures["kills"] == 1


def test_a_copy_under_load_is_a_state_that_was(tmp_path: Path) -> None:
    row = crash.kill_copy(tmp_path, 1, TWO, 2000)
    assert row.violations == []
    assert (row.figures["copies"], row.figures["kills"]) == (1, 1)


@pytest.mark.parametrize("moments", [[("rename", 2), ("rename", 3)], *thorough(restoring.CALLS)])
def test_a_killed_restore_leaves_a_list_or_can_be_repeated_while_others_wait(
    tmp_path: Path, moments: crash.Moments
) -> None:
    """The second renaming puts the mark into the place, the third moves the old log."""
    row = restoring.kill_restore(tmp_path, moments)
    assert row.violations == []
    assert row.figures["kills"] == row.figures["stops"] >= 2
