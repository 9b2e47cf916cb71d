"""A service that may use only so much memory (fault table, row A18): clients cannot make the
kernel kill it."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from storekeeper.domain.stores import Payload
from tests.harness import weakened
from tests.harness.client import create as store
from tests.harness.client import fill
from tests.harness.machine import need
from tests.harness.process import TIMEOUT, Running, serving
from tests.harness.wire import HOST, request

MIB = 2**20
LIMIT = 256 * MIB
"""Four times what it takes without clients."""

GROUPS = Path("/sys/fs/cgroup")
KILLED = -9
LARGE = request(
    "POST", "/api/stores", json.dumps({"name": "Large", "address": "x" * 1_000_000}).encode()
)


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group of the kernel's, with the limit; processes that write themselves into it
    have it."""
    second = (GROUPS / "cgroup.controllers").exists()
    group = (GROUPS if second else GROUPS / "memory") / f"storekeeper-{os.getpid()}"
    try:
        group.mkdir()
        limit = group / ("memory.max" if second else "memory.limit_in_bytes")
        limit.write_text(str(LIMIT))
        with suppress(OSError):
            (group / ("memory.swap.max" if second else "memory.swappiness")).write_text("0")
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        need("cgroup", f"memory cannot be limited here: {error}")
    yield group
    group.rmdir()


def within(group: Path) -> tuple[str, ...]:
    """Return the command that runs another with the limit."""
    return ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group))


@contextmanager
def greed(service: Running) -> Iterator[None]:
    """Clients that send much and finish nothing, and clients that ask for much and read nothing."""
    clients: list[socket.socket] = []

    def add(data: bytes) -> None:
        client = service.socket()
        clients.append(client)
        client.settimeout(1)
        with suppress(OSError):  # refused while it sends
            client.sendall(data)

    try:
        for _ in range(300):
            add(LARGE[:-1])
        for _ in range(300):
            add(b"GET /test HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 15_000)
        for _ in range(50):
            add(request("GET", "/api/stores") * 50)
        yield
    finally:
        for client in clients:
            client.close()


def test_greedy_clients_cannot_take_all_memory(limited: Path, tmp_path: Path) -> None:
    with serving(tmp_path, within=within(limited)) as service:
        fill(tmp_path, (Payload(f"Store {number}", "x" * 100) for number in range(5000)))
        with greed(service):
            ids = [store(service, "Meanwhile") for _ in range(50)]
        assert ids == list(range(5001, 5051))
        assert service.process.poll() is None
        assert service.stop() == 0


@pytest.mark.thorough
def test_that_would_be_seen(limited: Path, tmp_path: Path) -> None:
    """And what was acknowledged before the kernel kills it is there."""
    acknowledged = []
    change = weakened.environment("takes_all_bodies")
    with serving(tmp_path, env=change, program=weakened.PROGRAM, within=within(limited)) as service:
        with suppress(OSError), greed(service):
            while True:
                acknowledged.append(store(service, "Meanwhile"))
                assert len(acknowledged) < 5000, "it was not killed"
        assert service.process.wait(TIMEOUT) == KILLED
    with serving(tmp_path) as service:
        found = [each["id"] for each in service.request("GET", "/api/stores").json]
        assert found[: len(acknowledged)] == acknowledged
