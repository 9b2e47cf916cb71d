"""What each step of a request takes inside the process, ours and the floor's, without socket; for `make profile`.

The database is a real file, in the memory of the system; the transport takes what is written and sends it to nobody.
A step is a call of what the service calls itself, or what is left of a longer call without the steps in it. Each is
repeated with requests none of which comes twice. The least of many rounds counts, so that a busy machine hardly moves
the figures.
"""

import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import uvloop
from storekeeper.api.fastlane import FastLane

from bench import floor, seeds
from bench.systems import DATA, STOREKEEPER, call
from storekeeper.http.response import Response, encode_content
from storekeeper.stores import Store
from tests.harness.in_process import Inside, Line, inside

STORES = 100_000
CLIENTS = 64
ROUND, ROUNDS = 500, 40
STEPS = ("read the request", "ask the cache, or check the body", "the database", "make the response", "the rest")
HEAD = "%s %s HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n%s\r\n%s"
UNIQUE = "x-request-id: %08x-7b06-4d1f-8a1b-0123456789ab\r\ntraceparent: 00-%032x-0123456789abcdef-01\r\n"
BODY = "Content-Type: application/json\r\nContent-Length: %d\r\n"
GETS = {"GET a random store": False, "GET a random store with unique fields": True}
POST = "POST: create"
Steps = dict[str, list[float]]


class Taker(Line):
    """A line that keeps what was written last; it takes as long as a function in C."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: deque[bytes] = deque(maxlen=1)
        self.write = self.taken.append  # type: ignore[method-assign, assignment]
        self.is_closing = bool  # type: ignore[method-assign]


def reads(ids: Iterable[int], *, unique: bool) -> Iterator[bytes]:
    for id in ids:
        yield (HEAD % ("GET", f"/api/stores/{id}", UNIQUE % (id, id) if unique else "", "")).encode()


def creates(ids: Iterable[int]) -> Iterator[bytes]:
    for id in ids:
        body = f'{{"name":"Bench {id:07}","address":"Lane {id:07}"}}'
        yield (HEAD % ("POST", "/api/stores", BODY % len(body), body)).encode()


def least(do: Callable[[Any], object], values: Iterator[Any]) -> float:
    """Microseconds of this thread for each of many calls: those of the quickest round."""
    best = 1.0
    for _ in range(ROUNDS):
        given = [next(values) for _ in range(ROUND)]
        began = time.thread_time()
        for value in given:
            do(value)
        best = min(best, time.thread_time() - began)
    return best / ROUND * 1e6


async def least_of_batches(send: Callable[[bytes], object], done: asyncio.Event, given: Iterator[bytes]) -> float:
    """The same for creates, in batches of one for each client; `done` is set with a batch's last response."""
    best = 1.0
    for _ in range(ROUNDS):
        batch = [next(given) for _ in range(CLIENTS)]
        began = time.thread_time()
        for data in batch:
            send(data)
        await done.wait()
        done.clear()
        best = min(best, time.thread_time() - began)
    return best / CLIENTS * 1e6


def responding(transport: Line) -> asyncio.Event:
    """Return an event that is set when something is written."""
    done = asyncio.Event()
    transport.write = lambda _: done.set()  # type: ignore[method-assign, assignment]
    return done


def rounds(connections: list[Any]) -> Callable[[bytes], object]:
    """Return what passes bytes to the connections, one after another and again from the first."""
    turns = itertools.cycle(connections)
    return lambda data: next(turns).data_received(data)


def lane(service: Inside) -> FastLane:
    connection, _ = service.connect()
    connection.transport = line = Taker()
    line.protocol = connection
    return cast("FastLane", connection)


def ours_get(service: Inside, ids: Iterator[int], *, unique: bool) -> list[float]:
    fast = lane(service)
    given = reads(ids, unique=unique)
    runtime = service.service.runtime
    cache, resource = runtime.cache, runtime.resource
    get = resource._collection.get  # noqa: SLF001 - nobody else needs it
    total = least(fast.data_received, given)
    read = least(lambda data: fast.requests.get(data) or fast.plain.read(data), given)
    looked = least(lambda key: cache.get(key) or cache.admits(key), (b"/api/stores/%d" % id for id in ids))
    asked = least(get, ids)
    plan = fast.plain.read(next(given)).plan  # type: ignore[union-attr]
    made = least(
        lambda target: encode_content(cast("Response", resource.respond(plan, target, b""))),
        (b"/api/stores/%d" % id for id in ids),
    )
    return [read, looked, asked, made - asked, total - read - looked - made]


def floor_get(service: floor.Floor, ids: Iterator[int], *, unique: bool) -> list[float]:
    given = reads(ids, unique=unique)
    client = floor.Client(service)
    client.connection_made(Taker())
    total = least(client.data_received, given)
    read = least(floor.Request(lambda *_: None).feed, given)
    asked = least(lambda number: service.read(floor.GET, (number,)).get, ids)
    store, taker = floor.Store(7, "Bench 0000007", "Lane 0000007"), Taker()
    made = least(lambda number: service.respond(taker, number, store), ids)
    return [read, 0.0, asked, made, total - read - asked - made]


async def ours_post(service: Inside, ids: Iterator[int]) -> list[float]:
    lanes = [lane(service) for _ in range(CLIENTS)]
    done = responding(cast("Line", lanes[-1].transport))
    given = creates(ids)
    runtime = service.service.runtime
    resource, collection = runtime.resource, runtime.resource._collection  # noqa: SLF001 - nobody else needs it
    total = await least_of_batches(rounds(lanes), done, given)
    loop = asyncio.get_running_loop()
    store = Store(7, "Bench 0000007", "Lane 0000007", 7, "epochepo")

    def write(_: object) -> asyncio.Future[Store | None]:
        future: asyncio.Future[Store | None] = loop.create_future()
        future.set_result(store)
        return future

    collection.write = write  # type: ignore[method-assign, assignment]
    without = await least_of_batches(rounds(lanes), done, given)
    pending = write(None)
    collection.write = lambda _: pending  # type: ignore[method-assign, assignment]
    read = least(lanes[0].plain.read, given)
    asking = next(given)
    plan = lanes[0].plain.read(asking).plan  # type: ignore[union-attr]
    bodies = (data.partition(b"\r\n\r\n")[2] for data in given)
    made = least(lambda body: resource.respond(plan, b"/api/stores", body), bodies)
    deferred = resource.respond(plan, b"/api/stores", asking.partition(b"\r\n\r\n")[2])
    rendered = least(lambda _: encode_content(deferred.response()), ids)  # type: ignore[union-attr]
    return [read, made, total - without, rendered, without - read - made - rendered]


async def floor_post(service: floor.Floor, ids: Iterator[int]) -> list[float]:
    clients = [floor.Client(service) for _ in range(CLIENTS)]
    for client in clients:
        client.connection_made(Taker())
    done = responding(cast("Line", clients[-1].transport))
    given = creates(ids)
    total = await least_of_batches(rounds(clients), done, given)
    read = least(floor.Request(lambda *_: None).feed, given)
    decoded = least(floor.decode, (data.partition(b"\r\n\r\n")[2] for data in given))
    store, taker = floor.Store(7, "Bench 0000007", "Lane 0000007"), Taker()
    made = least(lambda number: service.respond(taker, number, store), ids)
    return [read, decoded, total - read - decoded - made, made, 0.0]


async def measured(folder: Path) -> Steps:
    """Return the microseconds of each of STEPS, by what was measured."""
    ids = itertools.cycle(random.Random(7).sample(range(1, STORES + 1), STORES))
    found = {}
    async with inside(folder) as service:
        for title, unique in GETS.items():
            found[title] = ours_get(service, ids, unique=unique)
        found[POST] = await ours_post(service, ids)
    bare = floor.Floor(folder / "stores.db")
    for title, unique in GETS.items():
        found[f"the floor: {title}"] = floor_get(bare, ids, unique=unique)
    found[f"the floor: {POST}"] = await floor_post(bare, ids)
    bare.writer.inbox.put([])
    return found


def table() -> list[str]:
    """Measure, and return the lines of a table."""
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        rows = Path(folder) / "rows.csv"
        seeds.write_csv(rows, STORES)
        call(STOREKEEPER, "import", rows, "--database", f"sqlite:///{folder}/stores.db")
        found = uvloop.run(measured(Path(folder)))
    lines = [
        f"| of the loop, without kernel, by step | {' | '.join(STEPS)} | sum |",
        f"|---|{'---:|' * (len(STEPS) + 1)}",
    ]
    for title in (*GETS, POST):
        for row in (title, f"the floor: {title}"):
            cells = [f"{step:.1f}" for step in (*found[row], sum(found[row]))]
            lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join([*table(), ""]))
