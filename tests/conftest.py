"""What every test may use."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from black_box import Running, serving
from databases import KINDS, Database
from postgres_server import Missing, stop_shared

pytest.register_assert_rewrite("wire")

REQUIRED = {name for name in os.environ.get("STOREKEEPER_REQUIRE", "").split(",") if name}


def need(program: str, reason: str) -> None:
    """Skip a test that lacks a program; fail it where STOREKEEPER_REQUIRE says that it has to be there."""
    if program in REQUIRED:
        pytest.fail(f"{program} is required: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module", params=["fast lane", "ASGI"])
def adapter(request: pytest.FixtureRequest) -> str:
    """The option that chooses an HTTP adapter: whatever goes over a socket is tested through both."""
    return "--fast-lane" if request.param == "fast lane" else "--no-fast-lane"


@pytest.fixture(scope="module")
def service(adapter: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without examples, for all the tests of a module; they add stores and never count them all."""
    with serving(tmp_path_factory.mktemp("service"), adapter) as running:
        yield running


@pytest.fixture
def fresh(adapter: str, tmp_path: Path) -> Iterator[Running]:
    """A service of the test's own, without stores."""
    with serving(tmp_path, adapter) as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def _stop_postgres() -> Iterator[None]:
    """Stop the PostgreSQL that the tests of this process share, if any of them has started it."""
    yield
    stop_shared()


@pytest.fixture(params=KINDS)
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Database]]:
    """Makes empty databases: the test runs once with each kind."""
    kind = KINDS[request.param]
    with ExitStack() as stack:
        count = 0

        def new() -> Database:
            nonlocal count
            count += 1
            folder = tmp_path / f"database-{count}"
            folder.mkdir()
            try:
                return stack.enter_context(kind(folder))
            except Missing as error:
                need(request.param, str(error))
                raise

        yield new


@pytest.fixture
def database(new_database: Callable[[], Database]) -> Database:
    """An empty database of the test's own."""
    return new_database()
