from collections.abc import Iterator

import pytest

from storekeeper import postgres as storekeeper_postgres
from tests.harness.databases import Postgres, postgres


@pytest.fixture
def database() -> Iterator[Postgres]:
    """An empty database of the test's own."""
    with postgres().database() as url:
        yield Postgres(url)


@pytest.fixture(autouse=True)
def no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection of this process says nothing to the server unless it is asked."""
    monkeypatch.setattr(storekeeper_postgres, "FIRST_LOOK", 3600.0)
