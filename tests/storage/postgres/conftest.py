from collections.abc import Iterator

import pytest

from tests.harness.databases import Postgres, postgres


@pytest.fixture
def database() -> Iterator[Postgres]:
    """An empty database of the test's own."""
    with postgres().database() as url:
        yield Postgres(url)
