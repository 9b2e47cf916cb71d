"""What concurrent clients saw was possible one after another, also across a kill; and if it was not, we notice."""

from functools import partial
from pathlib import Path

import pytest

import weakened
from aftermath import judge
from black_box import kill_group, run, serving
from history import Recorder, csv
from lincheck import Outcome

OPERATIONS = 20_000
FEW = 4_000
"""Enough for a weakened build to be caught many times over."""

BUILDS = {"1 worker": (), "4 workers": ("--workers=4",), "ASGI": ("--no-fast-lane",)}


def faults(recorder: Recorder, folder: Path) -> set[str]:
    return {violation.fault for violation in judge(recorder.history, f"sqlite:///{folder}/stores.db")}


@pytest.mark.parametrize("build", BUILDS)
def test_histories_are_linearizable(build: str, tmp_path: Path) -> None:
    recorder = Recorder()
    with serving(tmp_path, *BUILDS[build]) as service:
        recorder.run(service.port, OPERATIONS)
        recorder.settle(service.port)
    assert judge(recorder.history, f"sqlite:///{tmp_path}/stores.db") == []
    assert recorder.odd == []
    assert set(recorder.statuses) == {200, 404}


@pytest.mark.parametrize("build", BUILDS)
def test_histories_are_linearizable_across_a_kill(build: str, tmp_path: Path) -> None:
    """Whatever was acknowledged is there afterwards; whatever was not is there whole, or not at all."""
    recorder = Recorder()
    with serving(tmp_path, *BUILDS[build]) as service:
        recorder.run(service.port, OPERATIONS, when=OPERATIONS // 4, then=partial(kill_group, service.process))
    assert any(op.outcome is Outcome.UNKNOWN for op in recorder.history)
    with serving(tmp_path, *BUILDS[build]) as service:
        recorder.run(service.port, OPERATIONS // 4)
        recorder.settle(service.port)
    assert judge(recorder.history, f"sqlite:///{tmp_path}/stores.db") == []
    assert recorder.odd == []


@pytest.mark.parametrize("build", ["1 worker", "ASGI"])
def test_long_lists_are_of_one_moment(build: str, tmp_path: Path) -> None:
    """A list of several pages is as true as a short one while others write."""
    recorder = with_many_stores(tmp_path)
    with serving(tmp_path, *BUILDS[build]) as service:
        recorder.run(service.port, FEW)
    assert judge(recorder.history, f"sqlite:///{tmp_path}/stores.db") == []
    assert recorder.odd == []


def with_many_stores(folder: Path) -> Recorder:
    recorder = Recorder(most_stores=3000)
    rows = recorder.rows(2500)
    done = run("import", "/dev/stdin", f"--database=sqlite:///{folder}/stores.db", stdin=csv(rows))
    assert done.returncode == 0, done.stderr
    recorder.acknowledge(rows)
    return recorder


@pytest.mark.parametrize(
    ("change", "build", "fault"),
    [
        ("keeps_answers_for_ever", "1 worker", "stale"),
        ("sees_own_writes_only", "4 workers", "stale"),
        ("acknowledges_before_commit", "1 worker", "stale"),
        ("acknowledges_before_commit", "4 workers", "stale"),
        ("acknowledges_before_commit", "ASGI", "stale"),
        ("counts_ids_in_memory", "4 workers", "duplicate"),
    ],
)
def test_a_weakened_build_is_found(change: str, build: str, fault: str, tmp_path: Path) -> None:
    recorder = Recorder()
    with serving(tmp_path, *BUILDS[build], env=weakened.environment(change), program=weakened.PROGRAM) as service:
        recorder.run(service.port, FEW)
    assert fault in faults(recorder, tmp_path)


def test_a_torn_list_is_found(tmp_path: Path) -> None:
    recorder = with_many_stores(tmp_path)
    change = weakened.environment("reads_pages_as_they_are")
    with serving(tmp_path, env=change, program=weakened.PROGRAM) as service:
        recorder.run(service.port, FEW)
    assert "torn" in faults(recorder, tmp_path)


@pytest.mark.parametrize("build", BUILDS)
def test_a_write_lost_by_a_kill_is_found(build: str, tmp_path: Path) -> None:
    recorder = Recorder()
    change = weakened.environment("acknowledges_before_commit")
    with serving(tmp_path, *BUILDS[build], env=change, program=weakened.PROGRAM) as service:
        recorder.run(service.port, FEW, when=FEW // 2, then=partial(kill_group, service.process))
    assert "lost" in faults(recorder, tmp_path)


def test_the_wrapper_weakens_nothing_by_itself(tmp_path: Path) -> None:
    """So that what the tests above find is the weakness."""
    recorder = Recorder()
    with serving(tmp_path, "--workers=4", program=weakened.PROGRAM) as service:
        recorder.run(service.port, FEW)
    assert faults(recorder, tmp_path) == set()
