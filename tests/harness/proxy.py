"""A TCP proxy on 127.0.0.1 whose lines can be cut at any byte, or stall (fault table, rows E5,
E6)."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.harness.process import TIMEOUT

HANDSHAKE = 3000
"""After about this many bytes, a client of PostgreSQL has finished its greeting."""


class Proxy:
    """Forwards connections to a port, from a separate thread; made by `proxied`."""

    def __init__(self, target: int, seed: int) -> None:
        self.port = 0
        self.cuts = 0
        self.passed = [0, 0]
        """Bytes to the target, and from it."""
        self.received = 0
        """Bytes that the target sent."""
        self._target = target
        self._random = random.Random(seed)
        self._most: int | None = None
        self._directions = range(2)
        self._loop = asyncio.new_event_loop()
        self._moving = asyncio.Event()
        self._moving.set()
        self._lines: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    @contextmanager
    def cutting(self, most: int, *, responses: bool = False) -> Iterator[None]:
        """Cut every new connection after up to this many bytes in one of its directions.

        With `answers`, that is the direction from the target, and the greeting does not count.
        """
        self._most, self._directions = most, range(1, 2) if responses else range(2)
        self._loop.call_soon_threadsafe(self._cut_all)
        try:
            yield
        finally:
            self._most = None
            self._loop.call_soon_threadsafe(self._cut_all)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Deliver nothing, and report nothing; what is sent in the meantime arrives late, as from a
        network that is back."""
        self._loop.call_soon_threadsafe(self._moving.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._moving.set)

    def run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        self._cut_all()
        lines = asyncio.gather(*self._lines, return_exceptions=True)
        self._loop.run_until_complete(lines)
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _cut_all(self) -> None:
        for task in self._lines:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._lines[task] = [writer]
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self._target)
            self._lines[task].append(forth)
            lefts: list[float] = [float("inf"), float("inf")]
            if self._most is not None:
                # Not all of them during the greeting.
                least = self._random.choice(
                    (0, HANDSHAKE) if len(self._directions) == 2 else (HANDSHAKE,)
                )
                lefts[self._random.choice(self._directions)] = self._random.randint(
                    least, self._most
                )
            pumps = [self._pump(0, reader, forth, lefts[0]), self._pump(1, back, writer, lefts[1])]
            running = [asyncio.ensure_future(pump) for pump in pumps]
            try:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in running:
                    pump.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for side in self._lines.pop(task):
                # What was let through has been sent; then one side sees an end, the other a reset.
                side.close()

    async def _pump(
        self,
        direction: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        left: float,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._moving.wait()
                if len(data) >= left:
                    writer.write(data[: int(left)])
                    self.cuts += 1
                    return
                left -= len(data)
                self.passed[direction] += len(data)
                writer.write(data)
                await writer.drain()


@contextmanager
def proxied(target: int, seed: int = 0) -> Iterator[Proxy]:
    """Run a proxy for a port of this machine; stop it at the end."""
    proxy = Proxy(target, seed)
    ready = threading.Event()
    thread = threading.Thread(target=proxy.run, args=(ready,))
    thread.start()
    assert ready.wait(TIMEOUT)
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join(TIMEOUT)
