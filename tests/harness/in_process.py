"""The service inside the test's own process: real parts, except that a `Line` replaces the socket.

Code that depends on time is told the time (`Connection.sweep`), and what a client does not read
stays on the line.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from uvicorn.server import ServerState

from storekeeper.domain.stores import Payload
from storekeeper.http.connection import Connection
from storekeeper.process.service import Service
from storekeeper.settings import make
from tests.harness.client import fill
from tests.harness.databases import make as make_database
from tests.harness.process import Response
from tests.harness.wire import request

HIGH_WATER = 64 * 1024


class Line(asyncio.Transport):
    """A transport without a socket; while `stuck`, the client reads nothing, and what is sent to it
    piles up."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Connection
        self._sent: list[bytes] = []
        self.stuck = False
        self.unread = 0
        self.high = 64 * 1024
        self.reading = True
        self.ended = False
        self.aborted = False
        self._closing = False
        self._lost = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended, "nothing may follow the end"
        self._sent.append(bytes(data))
        if self.stuck:
            self.unread += len(data)
            if self.unread > self.high and not self.protocol.flow.write_paused:
                self.protocol.pause_writing()

    @property
    def sent(self) -> bytes:
        return b"".join(self._sent)

    def client_reads(self, amount: int) -> None:
        """Take this many bytes off the line, as a client that reads does."""
        self.unread = max(0, self.unread - amount)
        if self.unread == 0 and self._closing:
            self._lose()
        elif self.unread == 0 and self.protocol.flow.write_paused:
            self.protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        assert low is None
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": ("127.0.0.1", 80), "peername": ("127.0.0.1", 40_000)}.get(name, default)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Close once everything has been read."""
        self._closing = True
        if not self.unread:
            self._lose()

    def abort(self) -> None:
        self.aborted = True
        self.unread = 0
        self.close()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Careful(Connection):
    """A connection that reads every request with the careful reader, and takes nothing from a
    cache."""

    def _handle_plain(self) -> bool:
        return False


class Inside:
    """A running service; `connect` opens a connection to it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.server_state = ServerState()
        self.server_state.default_headers = [(b"date", b"Sat, 21 Nov 2026 12:00:00 GMT")]

    @property
    def collection(self) -> Any:
        """The collection that the service reads and writes."""
        application: Any = self.service.runtime.application
        return application._planners["store"].__self__._collection

    def protocol(self, kind: type[Connection] = Connection, **changes: Any) -> Connection:
        """Return a connection that has no transport yet; `changes` replaces parts of the
        runtime."""
        runtime = replace(self.service.runtime, **changes)
        return kind(runtime, self.server_state, asyncio.get_running_loop())

    def connect(
        self, kind: type[Connection] = Connection, **changes: Any
    ) -> tuple[Connection, Line]:
        connection = self.protocol(kind, **changes)
        line = Line()
        line.protocol = connection
        connection.connection_made(line)
        return connection, line


@asynccontextmanager
async def inside(folder: Path, **settings: object) -> AsyncIterator[Inside]:
    """Open a service on a database in `folder`, through the ASGI lifespan, as a server does.

    The database has the examples only with `examples=True`.
    """
    values = {"database": f"sqlite:///{folder}/stores.db", **settings}
    make_database(str(values["database"]), examples=bool(values.get("examples")))
    service = Service(make(values))
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    life = asyncio.create_task(service({"type": "lifespan", "state": {}}, told.get, said.put))
    await told.put({"type": "lifespan.startup"})
    assert (await said.get())["type"] == "lifespan.startup.complete"
    try:
        yield Inside(service)
    finally:
        await told.put({"type": "lifespan.shutdown"})
        await life


async def until(done: Callable[[], object]) -> None:
    """Let the loop run until a condition is true."""
    async with asyncio.timeout(30):
        for _ in count():
            if done():
                return
            await asyncio.sleep(0.001)


def receive(connection: Connection, data: bytes) -> None:
    """Have bytes arrive, the last of an iteration of the event loop, and handle them."""
    connection.data_received(data)
    connection.runtime.arrivals._handle()


async def settled(connection: Connection) -> None:
    """Wait until a connection has responded to everything that it was asked."""
    await until(lambda: connection.exchange is None and not connection.unread)


def cached(connection: Connection) -> int:
    """Return how many responses a process has in its cache."""
    return len(connection.runtime.cache._responses)


def last_response(line: Line) -> Response:
    head, _, body = line.sent[line.sent.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    return Response(int(first.split()[1]), dict(field.split(": ", 1) for field in fields), body)


async def exchange(service: Inside, data: bytes) -> Response:
    """Send bytes on a new connection; return the last response."""
    connection, line = service.connect()
    connection.data_received(data)
    await settled(connection)
    return last_response(line)


def statuses(line: Line) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", line.sent)]


async def tick() -> None:
    """Let everything run that is ready, and everything that becomes ready through that."""
    for _ in range(5):
        await asyncio.sleep(0)


async def stuck(service: Inside) -> tuple[Connection, Line]:
    """Return a connection whose client requested more than the line holds, and reads nothing."""
    connection, line = service.connect()
    line.stuck = True
    connection.data_received(request("GET", "/api/stores") * 1000)
    await until(lambda: connection.flow.write_paused)
    await tick()
    return connection, line


def some_stores(folder: Path, count: int) -> None:
    fill(folder, (Payload(f"Store {number}", "x" * 100) for number in range(count)))
