"""One service at half of what it can do, for as long as you like (row L4): nothing may grow. For
`soak`.

Requests are sent in pipelined batches, so that the client costs less than the service.
"""

import asyncio
import random
import re
import time
from collections import Counter

import uvloop

from tests.harness.wire import request

CONNECTIONS = 16
BATCH = 20
"""Requests of one packet: 14 reads, 4 replaces, a filter and, in every tenth batch, a create."""

STORES = 1000
_RESPONSE = re.compile(
    rb"HTTP/1\.1 (\d{3}) .*?\r\n(?i:content-length): (\d+)(?=\r).*?\r\n\r\n", re.DOTALL
)


class Load:
    """Clients of one service; `statuses` counts its responses, `created` the stores among them."""

    def __init__(self, port: int, seed: int = 0) -> None:
        self._port = port
        self._random = random.Random(seed)
        self._batches = 0
        self.statuses: Counter[int] = Counter()
        self.created = 0

    def peak(self, seconds: float) -> float:
        """Send as fast as the service responds; return how many requests that is per second."""
        return uvloop.run(self._run(seconds, None))

    def hold(self, seconds: float, rate: float) -> float:
        """Send this many requests per second, or fewer if it is late; return how many they were."""
        return uvloop.run(self._run(seconds, rate))

    async def _run(self, seconds: float, rate: float | None) -> float:
        began, before = time.monotonic(), self.statuses.total()
        pause = CONNECTIONS * BATCH / rate if rate else 0.0
        await asyncio.gather(*(self._use(began + seconds, pause) for _ in range(CONNECTIONS)))
        return (self.statuses.total() - before) / (time.monotonic() - began)

    async def _use(self, end: float, pause: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        due = time.monotonic() + self._random.random() * pause
        while due < end:
            await asyncio.sleep(due - time.monotonic())
            await self._batch(reader, writer)
            # Requests that the service did not manage are not made up for: it would be more than
            # half afterwards.
            due = max(due + pause, time.monotonic())
        writer.close()

    async def _batch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._batches += 1
        creates = self._batches % 10 == 0
        writer.write(self._requests(creates=creates))
        received, answered, at = b"", 0, 0
        statuses: list[int] = []
        while answered < BATCH:
            data = await reader.read(65536)
            assert data, f"the service closed a connection after {statuses}"
            received += data
            while (found := _RESPONSE.match(received, at)) and found.end() + int(found[2]) <= len(
                received
            ):
                statuses.append(int(found[1]))
                at = found.end() + int(found[2])
                answered += 1
        assert at == len(received), "more came than was asked for"
        self.statuses.update(statuses)
        self.created += creates and statuses[0] == 200

    def _requests(self, *, creates: bool) -> bytes:
        id = self._random.randrange
        body = b'{"name":"Store %d","address":"%d Steady Road"}'
        first = request("POST", "/api/stores", body % (STORES, self._batches)) if creates else b""
        replaces = [
            request("PUT", f"/api/stores/{id(1, STORES)}", body % (id(1, STORES), self._batches))
            for _ in range(4)
        ]
        reads = [request("GET", f"/api/stores/{id(1, STORES)}") for _ in range(14 + (not creates))]
        return (
            first
            + b"".join(replaces + reads)
            + request("GET", f"/api/stores?name=Store+{id(1, STORES)}")
        )
