"""Who reads slowly is served to the end, who reads nothing is dropped: through the real kernel, which hides much.

Our kernel takes megabytes, and takes more only when a third of them is free again; the client's kernel takes a part.
"""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from storekeeper.stores import Payload
from tests.harness import weakened
from tests.harness.client import fill, until
from tests.harness.linux import connections
from tests.harness.process import TIMEOUT, Running, serving
from tests.harness.wire import CutShort, Wire, request

STORES = 15_000
"""A list of 15 MB."""

EARLY = 0.5
"""Seconds without a byte after which a client is dropped here."""


@dataclass
class Reader:
    """A client that reads so many bytes a second, with a receive buffer and segments of a size (None: the usual)."""

    rate: int
    buffer: int | None = None
    segment: int | None = None

    def ask(self, service: Running, target: str = "/api/stores") -> socket.socket:
        client = socket.socket()
        client.settimeout(TIMEOUT)
        if self.buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
        if self.segment is not None:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, self.segment)
        client.connect(("127.0.0.1", service.port))
        client.sendall(request("GET", target))
        return client

    def read_slowly(self, client: socket.socket, seconds: float) -> bytes:
        """Read steadily for so long, with no pause of more than a tenth of a second."""
        received = bytearray()
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            if (due := int(self.rate * passed) - len(received)) > 0:
                received += client.recv(due)
            time.sleep(0.02)
        return bytes(received)


USUAL = [Reader(500_000), Reader(1_000_000)]
SMALL = [Reader(rate, buffer, segment) for rate, buffer, segment in ((250_000, 16_384, None), (500_000, None, 536))]


def served(service: Running, reader: Reader, seconds: float) -> int:
    """Return how many stores a client gets that reads slowly for a while and then the rest."""
    with reader.ask(service) as client:
        wire = Wire(client, reader.read_slowly(client, seconds))
        return wire.response().body.count(b'"id"')


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that drops early who reads nothing."""
    folder = tmp_path_factory.mktemp("hasty")
    with serving(
        folder, env=weakened.environment("drops_who_reads_nothing_early"), program=weakened.PROGRAM
    ) as service:
        fill(folder, (Payload(f"Store {number}", "x" * 950) for number in range(STORES)))
        yield service


def test_who_reads_steadily_is_served_to_the_end_however_slowly(hasty: Running) -> None:
    readers = USUAL + SMALL
    with ThreadPoolExecutor(len(readers)) as pool:
        found = list(pool.map(lambda reader: served(hasty, reader, 3 * EARLY), readers))
    assert found == [STORES] * len(readers)


def test_who_reads_nothing_is_dropped(hasty: Running) -> None:
    readers = USUAL + SMALL
    clients = [reader.ask(hasty) for reader in readers]
    for client in clients:
        assert client.recv(1, socket.MSG_PEEK) == b"H"  # a response has begun, and nothing of it is read
    until(lambda: not connections(hasty.process.pid))
    for client in clients:
        with pytest.raises((CutShort, ConnectionResetError)), Wire(client) as wire:
            wire.response()


@pytest.mark.thorough
def test_a_build_that_goes_by_what_our_kernel_took_would_be_seen(tmp_path: Path) -> None:
    change = weakened.environment("drops_who_reads_nothing_early", "goes_by_what_the_kernel_took")
    with serving(tmp_path, env=change, program=weakened.PROGRAM) as service:
        fill(tmp_path, (Payload(f"Store {number}", "x" * 950) for number in range(STORES)))
        with pytest.raises((CutShort, ConnectionResetError)):
            served(service, Reader(500_000), 3 * EARLY)
