"""What every test may use."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from black_box import Running, serving

REQUIRED = {name for name in os.environ.get("STOREKEEPER_REQUIRE", "").split(",") if name}


def need(program: str, reason: str) -> None:
    """Skip a test that lacks a program; fail it where STOREKEEPER_REQUIRE says that it has to be there."""
    if program in REQUIRED:
        pytest.fail(f"{program} is required: {reason}")
    pytest.skip(reason)


@pytest.fixture
def strace() -> None:
    """What a test needs that looks at system calls, or interrupts them."""
    if (
        shutil.which("strace") is None
        or subprocess.run(["strace", "true"], capture_output=True, check=False).returncode
    ):
        need("strace", "strace is not installed, or may not trace here")


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
