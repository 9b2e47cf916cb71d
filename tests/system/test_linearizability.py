"""What concurrent clients saw was possible one after another, also across a kill; and if it was
not, we notice."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from storekeeper.domain.stores import Payload
from tests.harness import weakened
from tests.harness.client import load
from tests.harness.databases import postgres
from tests.harness.process import Running, kill_group, serving
from tests.oracles.aftermath import judge
from tests.oracles.history import Recorder
from tests.oracles.lincheck import Kind, Outcome

OPERATIONS = 600
FEW = 200
"""Often enough for a weakened build to be caught; if not, the next ones do."""

TRIES = 100
"""Now and then one of several workers takes every connection, and a weakness that needs two of
them sleeps."""

MANY_READS = {Kind.CREATE: 6, Kind.REPLACE: 10, Kind.READ: 84}
MANY_LISTS = {Kind.CREATE: 5, Kind.REPLACE: 77, Kind.LIST: 10, Kind.FILTER: 8}

KILLS = 10
"""Not each of them comes between a response and its commit."""

BUILDS = {"1 worker": (), "2 workers": ("--workers=2",)}
PLACES = {**{build: (build, "sqlite") for build in BUILDS}, "PostgreSQL": ("2 workers", "postgres")}


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database of the kind that the test's parameter names; by default, a
    file."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield f"sqlite:///{tmp_path}/stores.db"
        return
    with postgres().database() as url:
        yield url


def in_places(*places: str) -> pytest.MarkDecorator:
    """Run a test in these of PLACES; in the others it is more of the same."""
    marks = {place: () if place in places else pytest.mark.thorough for place in PLACES}
    chosen = [pytest.param(*PLACES[place], id=place, marks=marks[place]) for place in PLACES]
    return pytest.mark.parametrize(("build", "database"), chosen, indirect=["database"])


def faults(recorder: Recorder, database: str) -> set[str]:
    return {violation.fault for violation in judge(recorder.history, database)}


@in_places("2 workers", "PostgreSQL")
def test_histories_are_linearizable(build: str, database: str, tmp_path: Path) -> None:
    recorder = Recorder()
    with serving(tmp_path, *BUILDS[build], database=database) as service:
        recorder.run(service.port, OPERATIONS)
        recorder.settle(service.port)
    assert judge(recorder.history, database) == []
    assert recorder.odd == []
    assert set(recorder.statuses) == {200, 304, 404, 412}
    assert {op.kind for op in recorder.history} == set(Kind)
    assert any(op.at is not None for op in recorder.history)
    done = (op for op in recorder.history if op.if_match is not None and op.outcome is Outcome.OK)
    assert {op.kind for op in done} >= {Kind.REPLACE, Kind.TAG}


@in_places("2 workers", "PostgreSQL")
def test_histories_are_linearizable_across_a_kill(
    build: str, database: str, tmp_path: Path
) -> None:
    """Whatever was acknowledged is there afterwards; whatever was not is there whole, or not at
    all."""
    recorder = Recorder()
    with serving(tmp_path, *BUILDS[build], database=database) as service:
        recorder.run(
            service.port,
            OPERATIONS // 2,
            when=OPERATIONS // 5,
            then=partial(kill_group, service.process),
        )
    assert any(op.outcome is Outcome.UNKNOWN for op in recorder.history)
    with serving(tmp_path, *BUILDS[build], database=database) as service:
        recorder.run(service.port, OPERATIONS // 5)
        recorder.settle(service.port)
    assert judge(recorder.history, database) == []
    assert recorder.odd == []


@in_places("1 worker", "PostgreSQL")
def test_long_lists_are_of_one_moment(build: str, database: str, tmp_path: Path) -> None:
    """A list of several pages is as true as a short one while others write."""
    with serving(tmp_path, *BUILDS[build], database=database) as service:
        recorder = with_many_stores(database)
        recorder.run(service.port, 2 * FEW)
    assert judge(recorder.history, database) == []
    assert recorder.odd == []


def with_many_stores(database: str) -> Recorder:
    recorder = Recorder(most_stores=3000, mix=MANY_LISTS)
    rows = recorder.rows(2500)
    load(database, (Payload(op.name, str(op.value)) for op in rows))
    recorder.acknowledge(rows)
    return recorder


def assert_finds(fault: str, recorder: Recorder, service: Running, database: str) -> None:
    """Use a weakened build until it shows."""
    for _ in range(TRIES):
        recorder.run(service.port, FEW)
        if fault in faults(recorder, database):
            return
    pytest.fail(f"{TRIES * FEW} operations met no {fault} response")


@pytest.mark.parametrize(
    ("change", "build", "fault"),
    [
        pytest.param("keeps_responses_for_ever", "1 worker", "stale", marks=pytest.mark.thorough),
        pytest.param("sees_own_writes_only", "2 workers", "stale", marks=pytest.mark.thorough),
        ("acknowledges_before_commit", "1 worker", "stale"),
        ("begins_reads_before_the_requests_arrive", "2 workers", "stale"),
        pytest.param("counts_ids_in_memory", "2 workers", "duplicate", marks=pytest.mark.thorough),
        pytest.param("ignores_if_match", "1 worker", "phantom", marks=pytest.mark.thorough),
        pytest.param(
            "takes_same_content_for_a_match", "1 worker", "overwrote", marks=pytest.mark.thorough
        ),
        pytest.param(
            "remembers_only_its_own_keys", "2 workers", "phantom", marks=pytest.mark.thorough
        ),
        pytest.param("counts_unchanged_writes", "1 worker", "phantom", marks=pytest.mark.thorough),
    ],
)
def test_a_weakened_build_is_found(
    change: str, build: str, fault: str, database: str, tmp_path: Path
) -> None:
    recorder = Recorder(mix=MANY_READS) if change == "sees_own_writes_only" else Recorder()
    with serving(
        tmp_path, *BUILDS[build], env=weakened.environment(change), program=weakened.PROGRAM
    ) as service:
        assert_finds(fault, recorder, service, database)


@pytest.mark.thorough
def test_a_torn_list_is_found(database: str, tmp_path: Path) -> None:
    change = weakened.environment("reads_pages_as_they_are")
    with serving(tmp_path, env=change, program=weakened.PROGRAM) as service:
        assert_finds("torn", with_many_stores(database), service, database)


@pytest.mark.thorough
def test_a_write_lost_by_a_kill_is_found(database: str, tmp_path: Path) -> None:
    recorder = Recorder()
    change = weakened.environment("acknowledges_before_commit")
    for _ in range(KILLS):
        with serving(tmp_path, env=change, program=weakened.PROGRAM) as service:
            recorder.run(
                service.port, FEW, when=FEW // 2, then=partial(kill_group, service.process)
            )
        if "lost" in faults(recorder, database):
            return
    pytest.fail(f"{KILLS} kills lost nothing")
