"""Many concurrent clients over real sockets, for `load`: well-behaved ones, which are timed, and
others."""

import asyncio
import itertools
import math
import selectors
import socket
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import cast

import uvloop

from tests.harness.keep_alive import Client, Lost
from tests.harness.process import TIMEOUT
from tests.harness.wire import request

NEW_STORE = b'{"name":"Load","address":"1 High Street"}'


# Well-behaved clients.


@dataclass
class Responses:
    """What some clients got: how many responses of each status, and how long each took, in
    seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    times: dict[int, list[float]] = field(default_factory=dict)
    created: dict[int, float] = field(default_factory=dict)
    """The ids of the added stores, and when they were added, by the clock of the machine."""
    outcomes_unknown: int = 0
    rate: float = 0.0
    """How many succeeded, per second."""

    def add(self, status: int, took: float, body: bytes) -> None:
        self.statuses[status] += 1
        self.times.setdefault(status, []).append(took)
        self.outcomes_unknown += status == 503 and b'"outcome":"none"' not in body

    def percentile(self, share: float, status: int = 200) -> float:
        """Return the time within which that share of the responses with a status came; 0 if there
        are none."""
        times = sorted(self.times.get(status, [0.0]))
        return times[math.ceil(share * len(times)) - 1]


LOST = 0
"""Stands for the status of a response that never came."""


async def _ask(
    client: Client, responses: Responses, method: str, target: str, body: bytes = b""
) -> bool:
    began = time.monotonic()
    try:
        response = await client.exchange(method, target, body)
    except Lost:
        responses.add(LOST, time.monotonic() - began, b"")
        return False
    ended = time.monotonic()
    responses.add(response.status, ended - began, response.body)
    if method == "POST" and response.status == 200:
        responses.created[int(response.body[len(b'{"id":') : response.body.index(b",")])] = ended
    return True


async def _behave(port: int, seconds: float, connections: int, pause: float) -> Responses:
    responses = Responses()
    began = time.monotonic()
    end = began + seconds

    async def one(number: int) -> None:
        client = await Client.connect(port)
        while time.monotonic() < end:
            turn = responses.statuses.total() % 4
            write = ("POST", "/api/stores", NEW_STORE)
            if not await _ask(
                client, responses, *(write if turn == 0 else ("GET", f"/api/stores/{1 + number}"))
            ):
                client.close()
                client = await Client.connect(port)
            await asyncio.sleep(pause)
        client.close()

    await asyncio.gather(*(one(number) for number in range(connections)))
    responses.rate = responses.statuses[200] / (time.monotonic() - began)
    return responses


def behave(port: int, seconds: float, connections: int = 8, pause: float = 0.005) -> Responses:
    """Create and read, one request after another for each client."""
    return uvloop.run(_behave(port, seconds, connections, pause))


async def _offer(port: int, seconds: float, rate: float) -> Responses:
    responses = Responses()
    free: list[Client] = []
    under_way: set[asyncio.Task[None]] = set()

    async def one() -> None:
        client = free.pop() if free else await Client.connect(port)
        if await _ask(client, responses, "POST", "/api/stores", NEW_STORE):
            free.append(client)

    began = time.monotonic()
    offered = 0
    while (passed := time.monotonic() - began) < seconds:
        while offered < passed * rate:
            offered += 1
            task = asyncio.create_task(one())
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.sleep(0.005)
    responses.rate = responses.statuses[200] / passed
    await asyncio.gather(*under_way)
    for client in free:
        client.close()
    return responses


def offer(port: int, seconds: float, rate: float) -> Responses:
    """Start this many creates per second, whatever happens to the earlier ones."""
    return uvloop.run(_offer(port, seconds, rate))


class _Listener(asyncio.Protocol):
    """One client of the feed: which changes it received, and when."""

    def __init__(self, heard: dict[int, list[float]]) -> None:
        self._heard = heard
        self._rest = b""
        self.has_begun = False
        self.changes = array("q")

    def data_received(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n\n")
        self.has_begun |= bool(whole)
        now = time.monotonic()
        for message in whole:
            if b"event: change" in message:
                self.changes.append(int(message[message.index(b"id: ") + 4 :].partition(b".")[0]))
                self._heard.setdefault(self.changes[-1], []).append(now)


Heard = tuple[set[bytes], dict[int, list[float]]]
"""The sequences of changes that clients received, one if it is the same for all; and all times of
each change."""


async def _listen(
    port: int, count: int, begin: Callable[[], None], has_ended: Callable[[], bool]
) -> Heard:
    loop, heard = asyncio.get_running_loop(), dict[int, list[float]]()
    asked = request("GET", "/api/changes?after=now", None, "Accept: text/event-stream")
    listeners = list[_Listener]()
    for _ in range(count):
        transport, listener = await loop.create_connection(
            lambda: _Listener(heard), "127.0.0.1", port
        )
        transport.write(asked)
        listeners.append(listener)
    await _until(lambda: all(listener.has_begun for listener in listeners))
    begin()
    await _until(has_ended)
    await asyncio.sleep(2)
    return {listener.changes.tobytes() for listener in listeners}, heard


async def _until(done: Callable[[], bool]) -> None:
    for _ in itertools.count():
        if done():
            return
        await asyncio.sleep(0.05)


def listen(
    port: int, count: int, begin: Callable[[], None], has_ended: Callable[[], bool]
) -> Heard:
    """Listen to changes with many clients; call `begin` when all listen, and continue for 2 s once
    it `has_ended`."""
    return uvloop.run(_listen(port, count, begin, has_ended))


@contextmanager
def elsewhere() -> Iterator[ProcessPoolExecutor]:
    """A process for the well-behaved clients, so that our own load does not slow them."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield pool


# The others.


class ClientGroup:
    """Connections that each do something four times a second, until the service closes them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._all: list[socket.socket] = []
        self._doing: dict[socket.socket, Callable[[socket.socket], object]] = {}
        # Connections that only listen cost nothing while nothing comes: their load must not be
        # ours.
        self._listening = selectors.DefaultSelector()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.began = time.monotonic()
        self.closed: dict[socket.socket, float] = {}
        self.received: dict[socket.socket, bytes] = {}

    def add(
        self, first: bytes, then: Callable[[socket.socket], object], *, buffer: int = 0
    ) -> socket.socket:
        """Connect, send, and do something with the connection again and again."""
        client = socket.socket()
        self._all.append(client)
        if buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.settimeout(TIMEOUT)
        client.connect(("127.0.0.1", self._port))
        client.sendall(first)
        client.setblocking(False)
        if then == self.listen:
            self._listening.register(client, selectors.EVENT_READ, then)
        else:
            self._doing[client] = then
        return client

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()
            self._listening.close()
            for client in self._all:
                client.close()

    def all_closed(self, which: list[socket.socket], within: float) -> bool:
        """Wait until the service has closed these; return whether it did, within this many seconds
        of the start."""
        while len(self.closed.keys() & set(which)) < len(which):
            if time.monotonic() > self.began + within:
                return False
            time.sleep(0.05)
        return True

    def _run(self) -> None:
        while not self._over.wait(0.25):
            for client, then in list(self._doing.items()):
                if self._ends(client, then):
                    del self._doing[client]
            for key, _ in self._listening.select(0):
                client = cast("socket.socket", key.fileobj)
                if self._ends(client, key.data):
                    self._listening.unregister(client)

    def _ends(self, client: socket.socket, then: Callable[[socket.socket], object]) -> bool:
        try:
            then(client)
        except BlockingIOError:
            return False
        except OSError:
            self.closed[client] = time.monotonic() - self.began
            return True
        return False

    def listen(self, client: socket.socket) -> None:
        """Receive what comes, and notice the end."""
        data = client.recv(4096)
        self.received[client] = self.received.get(client, b"") + data
        if not data:
            raise ConnectionResetError

    def drip(self, client: socket.socket) -> None:
        """Send one byte."""
        with suppress(BlockingIOError):
            self.listen(client)
        client.send(b"x")

    def sip(self, client: socket.socket) -> None:
        """Read little."""
        if not client.recv(1024):
            raise ConnectionResetError

    def gorge(self, client: socket.socket) -> None:
        """Request more, and read nothing."""
        while client.send(request("GET", "/api/stores") * 100):
            pass
