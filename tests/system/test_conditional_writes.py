"""Many clients that saw one version and write at once: one of them wins, and every other one is told."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.collisions import CLIENTS, collide
from tests.harness import weakened
from tests.harness.client import create
from tests.harness.databases import EVERY_KIND
from tests.harness.process import Running, serving

ROUNDS = 2


@pytest.fixture(scope="module")
def two_workers(stored_in: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:  # noqa: ARG001 - services end before their databases
    with serving(tmp_path_factory.mktemp("two"), "--workers=2") as service:
        create(service, "Wanted")
        yield service


@EVERY_KIND
@pytest.mark.parametrize(("method", "target"), [("PUT", "/api/stores/1"), ("POST", "/api/stores")])
def test_of_a_hundred_clients_that_saw_one_version_one_writes(two_workers: Running, method: str, target: str) -> None:
    found = collide(two_workers.port, method, target, ROUNDS)
    assert [each.statuses for each in found] == [Counter({200: 1, 412: CLIENTS - 1})] * ROUNDS
    assert all(each.is_right for each in found)


@pytest.mark.thorough
def test_that_would_be_seen(tmp_path: Path) -> None:
    """The check itself: where every tag matches, more than one of them is done."""
    change = weakened.environment("ignores_if_match")
    with serving(tmp_path, "--workers=2", env=change, program=weakened.PROGRAM) as service:
        create(service, "Wanted")
        for method, target in (("PUT", "/api/stores/1"), ("POST", "/api/stores")):
            assert not any(each.is_right for each in collide(service.port, method, target, 1))
