"""A million damaged requests, to the service inside this process and over sockets (`make
fuzz-http`).

`fuzz_judge.py` says what must be true after each case; the first case that breaks it is printed
with its bytes, and ends the run with status 1. `--seed` and the number of a case identify its
bytes; `--first` begins with that case.
"""

import argparse
import asyncio
import gc
import socket
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import uvloop

from tests.campaigns.mutations import Case, Cases, End
from tests.harness import weakened  # noqa: F401 - WEAKENED names a broken build, here too
from tests.harness.corpus import CORPUS
from tests.harness.in_process import Inside, inside
from tests.harness.process import Response, Running, serving
from tests.harness.wire import CLOSE, HOST, PAYLOAD, SLOW, chunked, create, dial, request, responses
from tests.oracles.fuzz_judge import Growth, Ledger, judge

ROUND = 1500
"""Cases on one database; the last LEAVING of them come from clients that leave without waiting."""

LEAVING = 60
OVER_SOCKETS = 50
"""One request in this many goes over a socket, to a service with two workers."""

MAX_TICKS = 8_000
"""Iterations of the loop that a connection may take to settle; after the first few, each takes a
millisecond."""

COMMON = [
    *(
        create("A"),
        create("\u00fc", "X-Field: value"),
        create("Expected", "Expect: 100-continue"),
        chunked(PAYLOAD),
    ),
    request("POST", "/api/stores", PAYLOAD, "Connection: Upgrade", "Upgrade: h2c"),
    *(
        request("PUT", f"/api/stores/{id}", body)
        for id in (1, 2, 3)
        for body in (PAYLOAD, b'{"name":"Other"}')
    ),
    *(create("Again", "Idempotency-Key: again"), create("Again", 'Idempotency-Key: "again"')),
    chunked(
        PAYLOAD[:10],
        PAYLOAD[10:],
        method="PUT",
        target="/api/stores/2",
        fields=b"Connection: keep-alive\r\n",
    ),
    *(
        request(method, target)
        for method in ("GET", "HEAD")
        for target in ("/api/stores/1", "/api/stores?name=A", SLOW)
    ),
]
"""The requests that the hostile ones must not harm; they are as many as all of those."""

LAST = b"GET /api/stores/1 HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A folder for databases, which need not outlive this process."""


class Found(Exception):
    """A case that breaks something."""

    def __init__(self, case: Case, where: str, error: BaseException) -> None:
        shown = [
            piece if len(piece) < 4096 else piece[:2048] + b" ... " + piece[-2048:]
            for piece in case.pieces
        ]
        at = traceback.extract_tb(error.__traceback__)[-1:]
        what = f"{type(error).__name__}: {error} ({at[0].line})" if at else str(error)
        super().__init__(
            f"case {case.name}, {where}, whose client {case.end.value}: {what}\nsent: {shown!r}"
        )


# Inside this process.


class Inner:
    """A service with its database, inside this process."""

    def __init__(self, service: Inside, path: Path, figures: Counter[str]) -> None:
        self._service = service
        self.ledger = Ledger(path)
        self._figures = figures

    async def take(self, case: Case) -> bytes:
        """Send a case, judge the outcome, and check that the next client is served."""
        received = await self._converse(case)
        if case.end is End.LEAVES:
            last = await self._good(
                "PUT", b'{"name":"Left %d"}' % self.ledger.changes
            )  # a change in any case
            assert last.status == 200, last  # all that it wrote came before that
            judge(case, received, self.ledger, self._figures, cut_off=True, barrier=last)
        else:
            judge(case, received, self.ledger, self._figures)
        good = await self._good("GET")
        assert good.status == 200, good
        self.ledger.check(1, good)
        return received

    async def _good(self, method: str, body: bytes | None = None) -> Response:
        data = request(method, "/api/stores/1", body)
        return responses(await self._converse(Case("good", 1, [data], End.WAITS)), method)[0]

    async def _converse(self, case: Case) -> bytes:
        connection, line = self._service.connect()
        for at, piece in enumerate(case.pieces):
            await quiet(lambda: line.reading or line.is_closing())
            if line.is_closing():
                break
            connection.data_received(piece)
            if at % 2:
                await asyncio.sleep(0)
        if case.end is End.LEAVES:
            line.abort()
            await quiet(
                lambda: (
                    connection not in connection.server_state.connections
                    and not connection.server_state.tasks
                )
            )
            return line.sent
        if case.end is End.HALF_CLOSES:
            await quiet(lambda: line.reading or line.is_closing())
        if case.end is End.HALF_CLOSES and not line.is_closing() and not connection.eof_received():
            line.close()
        await quiet(lambda: connection.exchange is None and not connection.unread)
        if case.end is End.WAITS and not line.ended:  # until long after every deadline
            now = asyncio.get_running_loop().time()
            connection.sweep(now)
            connection.sweep(now + 1000)
        assert line.is_closing() or line.ended, "the connection stays open for ever"
        assert not line.aborted, "a response was broken off"
        line.abort()
        return line.sent


async def quiet(done: Any) -> None:
    """Let the loop run until a condition is true."""
    for tick in range(MAX_TICKS):
        if done():
            return
        await asyncio.sleep(0 if tick < 200 else 0.001)
    raise AssertionError("the connection hangs")


@asynccontextmanager
async def inner(figures: Counter[str]) -> AsyncIterator[Inner]:
    """Open a service on a new database with the examples; at the end, compare everything that it
    holds."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        async with inside(Path(folder), examples=True) as service:
            opened = Inner(service, Path(folder) / "stores.db", figures)
            yield opened
            opened.ledger.close()


async def fuzz_inside(
    cases: Cases, numbers: Iterator[int], requests: int, figures: Counter[str]
) -> None:
    """Send this many requests. Raises Found, and AssertionError for a fault that belongs to no
    single case."""
    strange: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: strange.append(context))
    growth = Growth(figures, requests)
    while figures["requests"] < requests:
        async with inner(figures) as service:
            for number in range(ROUND):
                case = cases[next(numbers)]
                if number >= ROUND - LEAVING:
                    case = replace(case, end=End.LEAVES)
                try:
                    await service.take(case)
                    assert not strange, strange
                except Exception as error:
                    raise Found(case, "inside", error) from error
                figures["requests"] += case.count
                if number % 100 == 0:
                    growth.look()
                if figures["requests"] >= requests:
                    break
        gc.unfreeze()  # each start hides all existing objects from the collector
        gc.collect()


# Over sockets.


@contextmanager
def outer() -> Iterator[tuple[Running, Ledger]]:
    """Start a service with two workers and a new database."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), "--workers=2") as service:
        service.raw(create("First", "Connection: close"))
        ledger = Ledger(Path(folder) / "stores.db")
        yield service, ledger
        ledger.close()


def converse(service: Running, case: Case) -> tuple[bytes, bool]:
    """Send a case and close the sending side; return what came, and whether a reset may have lost
    some of it."""
    received = b""
    with dial(service) as wire:
        try:
            for piece in case.pieces:
                wire.send(piece)
            wire.client.shutdown(socket.SHUT_WR)
            reset = False
        except TimeoutError:
            raise
        except OSError:  # the service closed after a last response
            reset = True
        try:
            while data := wire.client.recv(1 << 16):
                received += data
        except ConnectionResetError:
            reset = True
    return received, reset


def fuzz_sockets(
    cases: Cases, numbers: Iterator[int], requests: int, figures: Counter[str]
) -> None:
    """Send this many requests. Raises Found."""
    with outer() as (service, ledger):
        while figures["requests"] < requests:
            case = replace(cases[next(numbers)], end=End.HALF_CLOSES)
            try:
                came, cut_off = converse(service, case)
                judge(case, came, ledger, figures, cut_off=cut_off)
                figures["resets"] += cut_off
                assert service.raw(LAST).startswith(b"HTTP/1.1 200 OK\r\n")
            except Exception as error:
                raise Found(case, "over a socket", error) from error
            figures["requests"] += case.count


def requests_to_damage() -> list[bytes]:
    """Return the corpus of the adapter's tests, and as many common requests."""
    return [data for _, data in CORPUS] + COMMON * (len(CORPUS) // len(COMMON))


def fuzz(requests: int, seed: int, first: int = 0) -> Iterator[str]:
    """Send this many requests, a share of them over sockets; return a line for each way. Raises
    Found."""
    cases = Cases(requests_to_damage(), seed)
    numbers = count(first)
    sockets = requests // OVER_SOCKETS
    figures: Counter[str] = Counter()
    uvloop.run(fuzz_inside(cases, numbers, requests - sockets, figures))
    yield line("inside", figures)
    figures.clear()
    fuzz_sockets(cases, numbers, sockets, figures)
    yield line("sockets", figures)


def line(where: str, figures: Counter[str]) -> str:
    return " ".join(
        [f"fuzz-http-{where}", *(f"{name}={number}" for name, number in figures.items())]
    )


def main() -> int:
    """Print a line for each way, or the fault that was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    options = parser.parse_args()
    try:
        for text in fuzz(options.requests, options.seed, options.first):
            print(text, flush=True)
    except (Found, AssertionError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
