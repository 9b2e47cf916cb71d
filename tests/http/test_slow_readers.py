"""Who reads slowly is served to the end, who reads nothing is dropped: through the real kernel,
which hides much.

Our kernel takes megabytes, and takes more only when a third of them is free again; the client's
kernel takes a part.
"""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from storekeeper.domain.stores import Payload
from tests.harness import weakened
from tests.harness.client import fill, until
from tests.harness.linux import connections
from tests.harness.process import TIMEOUT, Running, serving
from tests.harness.wire import CutShort, Wire, request

LIST = [Payload(f"Store {number}", "x" * 950) for number in range(15_000)]
"""15 MB."""

EARLY = "drops_who_reads_nothing_early"
"""After half a second without a byte."""

SLOW = 1.5
"""Seconds of slow reading, with no pause of more than a tenth of a second."""


@dataclass
class Reader:
    """A client that reads slowly, with a receive buffer and segments of a size
    (None: the usual)."""

    rate: int
    buffer: int | None = None
    segment: int | None = None

    def ask(self, service: Running) -> socket.socket:
        client = socket.socket()
        client.settimeout(TIMEOUT)
        if self.buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
        if self.segment is not None:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, self.segment)
        client.connect(("127.0.0.1", service.port))
        client.sendall(request("GET", "/api/stores"))
        return client

    def read_slowly(self, client: socket.socket) -> bytes:
        received = bytearray()
        began = time.monotonic()
        while (passed := time.monotonic() - began) < SLOW:
            if (due := int(self.rate * passed) - len(received)) > 0:
                received += client.recv(due)
            time.sleep(0.02)
        return bytes(received)


READERS = [
    Reader(500_000),
    Reader(1_000_000),
    Reader(250_000, 16_384),
    Reader(500_000, segment=536),
]


def served(service: Running, reader: Reader) -> int:
    """Return how many stores a client gets that reads slowly for a while and then the rest."""
    with reader.ask(service) as client:
        wire = Wire(client, reader.read_slowly(client))
        return wire.response().body.count(b'"id"')


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that drops early who reads nothing."""
    folder = tmp_path_factory.mktemp("hasty")
    fill(folder, LIST)
    with serving(folder, env=weakened.environment(EARLY), program=weakened.PROGRAM) as service:
        yield service


def test_who_reads_steadily_is_served_to_the_end_however_slowly(hasty: Running) -> None:
    def all_are_served(_attempt: int) -> bool:
        try:
            with ThreadPoolExecutor(len(READERS)) as pool:
                return list(pool.map(partial(served, hasty), READERS)) == [len(LIST)] * len(READERS)
        except (CutShort, ConnectionResetError):
            return False

    # On a busy machine a reader may stand still for half a second, and is dropped rightly.
    assert any(map(all_are_served, range(9)))


def test_who_reads_nothing_is_dropped(hasty: Running) -> None:
    clients = [reader.ask(hasty) for reader in READERS]
    for client in clients:
        with suppress(ConnectionResetError):  # a busy machine may come to this after half a second
            assert (
                client.recv(1, socket.MSG_PEEK) == b"H"
            )  # a response has begun, and nothing of it is read
    until(lambda: not connections(hasty.process.pid))
    for client in clients:
        with pytest.raises((CutShort, ConnectionResetError)), Wire(client) as wire:
            wire.response()


@pytest.mark.thorough
def test_a_build_that_goes_by_what_our_kernel_took_would_be_seen(tmp_path: Path) -> None:
    fill(tmp_path, LIST)
    change = weakened.environment(EARLY, "goes_by_what_the_kernel_took")
    with (
        serving(tmp_path, env=change, program=weakened.PROGRAM) as service,
        pytest.raises((CutShort, ConnectionResetError)),
    ):
        served(service, Reader(500_000))
