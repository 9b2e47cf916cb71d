"""What every test may use."""

import asyncio
import gc
import inspect
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests.harness import forks
from tests.harness.databases import KINDS, Database, postgres
from tests.harness.machine import need
from tests.harness.postgres_server import stop_shared
from tests.harness.process import Running, serving
from tests.harness.tracing import let_interrupts_pass, let_threads_set_traces

pytest.register_assert_rewrite("tests.harness.wire")
let_threads_set_traces()
let_interrupts_pass()
# A tenth of the time to collect tests would be for garbage, although there is none.
gc.set_threshold(500_000, 20, 50)

TEST_TIMEOUT = 300.0
"""Seconds after which a test that is a coroutine hangs."""

LONG = ("tests/process", "tests/storage/postgres", "tests/system")
"""Where most tests wait for something."""

# No test is timed, and all runs of one commit do the same.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("suite"), max_examples=10)
settings.register_profile("thorough", settings.get_profile("suite"), max_examples=300)
settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that no process is left with it: first what needs a machine.

    The first process gets the first 16 tests, so those of the operator's pages, whose machine takes
    a minute, come before those of units.
    """
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, bool]:
    needs_machine = "machine" in getattr(item, "fixturenames", ())
    return not needs_machine, not needs_machine and not item.nodeid.startswith(LONG)


def pytest_collection_finish() -> None:
    """Keep the collector from looking at all tests again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_configure() -> None:
    """Have what tests start take signals, even where this process was told to ignore them, as in
    the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own, as the service would."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    uvloop.run(asyncio.wait_for(test, TEST_TIMEOUT))
    return True


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a process without rights can reach too: those of pytest are closed to it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@pytest.fixture
def strace() -> None:
    """What a test needs that looks at system calls, or interrupts them."""
    if (
        shutil.which("strace") is None
        or subprocess.run(["strace", "true"], capture_output=True, check=False).returncode
    ):
        need("strace", "strace is not installed, or cannot trace here")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without examples, for all the tests of a module; they add stores and never count
    them all."""
    with serving(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Running]:
    """A service of the test's own, without stores."""
    with serving(tmp_path) as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def _stop_what_tests_share() -> Iterator[None]:
    """Stop the PostgreSQL that the tests of this process share, and what forks services, if any
    was started."""
    yield
    stop_shared()
    forks.stop()


@pytest.fixture(params=KINDS)
def new_database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[], Database]]:
    """Makes empty databases: the test runs once with each kind."""
    kind = KINDS[request.param]
    with ExitStack() as stack:
        count = 0

        def new() -> Database:
            nonlocal count
            count += 1
            folder = tmp_path / f"database-{count}"
            folder.mkdir()
            return stack.enter_context(kind(folder))

        if request.param == "postgres":
            postgres()
        yield new


@pytest.fixture
def database(new_database: Callable[[], Database]) -> Database:
    """An empty database of the test's own."""
    return new_database()
