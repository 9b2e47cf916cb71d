"""Records what concurrent clients of a service do over real sockets, for `lincheck`. Imports msgspec and uvloop.

The client is ours because it must not do anything by itself: no retry, no pool, no redirect. A connection is
made before the clock of a request starts, so that a refused one is no operation; a request that was sent and
not answered whole may have happened.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from urllib.parse import quote_plus

import msgspec
import uvloop

from tests.oracles.lincheck import Kind, Operation, Outcome

TIMEOUT = 15.0
"""Seconds for one response: three times what the service promises."""

NAMES = ("Harbour", "Größe", "東京", "a b & c", "Airport")
HOT = 6
"""Stores that get half of all reads and replaces, so that they collide."""

MIX = {Kind.CREATE: 6, Kind.REPLACE: 36, Kind.READ: 50, Kind.LIST: 3, Kind.FILTER: 5}
"""How often clients do what."""


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """A store as it is answered."""

    id: int
    name: str
    address: str | None


_decode = msgspec.json.Decoder(Item).decode
_decode_list = msgspec.json.Decoder(list[Item]).decode


class Lost(Exception):
    """The connection ended, or time ran out, before the response was whole."""


class Client:
    """One keep-alive HTTP/1.1 connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> "Client":
        """Connect to 127.0.0.1; raises OSError."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body; raise Lost if they do not come."""
        framing = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
        self._writer.write(f"{method} {target} HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n".encode() + body)
        try:
            async with asyncio.timeout(TIMEOUT):
                head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
                return int(head[9:12]), await self._body(head)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
            raise Lost from error

    async def _body(self, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" not in head:
            _, _, rest = head.partition(b"\r\ncontent-length: ")
            return await self._reader.readexactly(int(rest.partition(b"\r\n")[0]))
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size + 2))
        await self._reader.readexactly(2)
        return b"".join(part[:-2] for part in parts)

    def close(self) -> None:
        """Close at once."""
        self._writer.transport.abort()


def outcome(status: int, body: bytes) -> Outcome:
    """Tell what a response's status says about its write (decision 30)."""
    if 200 <= status < 300:
        return Outcome.OK
    if 400 <= status < 500 or (status == 503 and b'"outcome":"none"' in body):
        return Outcome.FAILED
    return Outcome.UNKNOWN


class Recorder:
    """Clients that create, replace, read, list and filter at once, over any number of a service's lives.

    `history` is for `lincheck`; `odd` has answers that no history could explain, such as a body that is no
    store; `statuses` counts the responses.
    """

    def __init__(
        self, seed: int = 0, *, clients: int = 24, most_stores: int = 400, mix: dict[Kind, int] = MIX
    ) -> None:
        self.history: list[Operation] = []
        self.odd: list[str] = []
        self.statuses: Counter[int] = Counter()
        self._random = random.Random(seed)
        self._clients = clients
        self._most_stores = most_stores
        self._kinds, self._weights = tuple(mix), tuple(mix.values())
        self._last_value = 0
        self._known = 0
        self._left = 0
        self._at: tuple[int, Callable[[], object]] | None = None

    @property
    def acknowledged(self) -> int:
        """How many writes were."""
        return sum(op.writes and op.outcome is Outcome.OK for op in self.history)

    def run(
        self, port: int | Sequence[int], operations: int, *, when: int = 0, then: Callable[[], object] | None = None
    ) -> None:
        """Let the clients do so many operations, or fewer if the service ends.

        Several ports are those of instances, to which the clients are dealt out. When `when` of the operations
        were begun, `then` is called.
        """
        self._left = operations
        self._at = (operations - when, then) if then else None
        uvloop.run(self._run([port] if isinstance(port, int) else port))

    def settle(self, port: int) -> None:
        """Read all there is, with nothing else going on."""
        uvloop.run(self._settle(port))

    def rows(self, count: int) -> list[Operation]:
        """Begin creates that something else than a client does, with their outcome unknown for now."""
        made = [self._write(Kind.CREATE, 0) for _ in range(count)]
        for op in made:
            op.outcome = Outcome.UNKNOWN
        self.history += made
        self._known += count
        return made

    def acknowledge(self, rows: list[Operation]) -> None:
        """Note that all of them are done."""
        for op in rows:
            op.outcome, op.end = Outcome.OK, time.monotonic_ns()

    async def _run(self, ports: Sequence[int]) -> None:
        seeds = [self._random.random() for _ in range(self._clients)]
        clients = zip(itertools.cycle(ports), seeds, strict=False)
        await asyncio.gather(*(self._use(port, random.Random(seed)) for port, seed in clients))

    async def _settle(self, port: int) -> None:
        client = await Client.connect(port)
        await self._list(client)
        for name in NAMES:
            await self._list(client, name)
        client.close()

    async def _use(self, port: int, rng: random.Random) -> None:
        client: Client | None = None
        while self._left > 0:
            if client is None:
                try:
                    client = await Client.connect(port)
                except OSError:
                    return
            self._count()
            try:
                await self._one(client, rng)
            except Lost:
                client.close()
                client = None
        if client is not None:
            client.close()

    def _count(self) -> None:
        self._left -= 1
        if self._at is not None and self._left <= self._at[0]:
            _, then = self._at
            self._at = None
            then()

    async def _one(self, client: Client, rng: random.Random) -> None:
        (kind,) = rng.choices(self._kinds, self._weights)
        if kind is Kind.CREATE and self._known < self._most_stores:
            return await self._change(client, Kind.CREATE, 0)
        if kind is Kind.LIST:
            return await self._list(client)
        if kind is Kind.FILTER:
            return await self._list(client, rng.choice(NAMES))
        # Up to one more than there are: a store that is just being created, or missing.
        id = rng.randint(1, HOT if rng.random() < 0.5 else self._known + 1)
        if kind is Kind.READ:
            return await self._read(client, id)
        return await self._change(client, Kind.REPLACE, id)

    def _write(self, kind: Kind, id: int) -> Operation:
        self._last_value += 1
        name = NAMES[self._last_value % len(NAMES)]
        return Operation(kind, time.monotonic_ns(), inf, id, self._last_value, name)

    async def _change(self, client: Client, kind: Kind, id: int) -> None:
        op = self._write(kind, id)
        op.outcome = Outcome.UNKNOWN
        self.history.append(op)
        method, target = ("POST", "/api/stores") if kind is Kind.CREATE else ("PUT", f"/api/stores/{id}")
        status, body = await client.ask(method, target, payload(op))
        end = time.monotonic_ns()
        self.statuses[status] += 1
        op.outcome = outcome(status, body)
        if op.outcome is not Outcome.UNKNOWN:
            op.end = end
        if op.outcome is Outcome.OK:
            (op.store,), (value,) = self._values(body, many=False) or ((0,), (None,))
            if value != op.value or id not in (0, op.store):
                self.odd.append(f"{method} {target} of {op.value} was answered with {body!r}")
            self._known = max(self._known, op.store)
        elif status == 404:
            self.history.append(Operation(Kind.READ, op.start, end, id))

    async def _read(self, client: Client, id: int) -> None:
        start = time.monotonic_ns()
        status, body = await client.ask("GET", f"/api/stores/{id}")
        end = time.monotonic_ns()
        self.statuses[status] += 1
        if status == 404:
            self.history.append(Operation(Kind.READ, start, end, id))
        elif status == 200 and (found := self._values(body, many=False)):
            (store,), (value,) = found
            self.history.append(Operation(Kind.READ, start, end, id, value))
            if store != id:
                self.odd.append(f"a read of store {id} was answered with store {store}")

    async def _list(self, client: Client, name: str = "") -> None:
        start = time.monotonic_ns()
        status, body = await client.ask("GET", f"/api/stores?name={quote_plus(name)}" if name else "/api/stores")
        end = time.monotonic_ns()
        self.statuses[status] += 1
        if status == 200 and (found := self._values(body, many=True)):
            kind = Kind.FILTER if name else Kind.LIST
            self.history.append(Operation(kind, start, end, name=name, ids=found[0], values=found[1]))

    def _values(self, body: bytes, *, many: bool) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the ids and values in a response; None, and a note, if it has anything that we never sent."""
        try:
            items = _decode_list(body) if many else [_decode(body)]
            values = tuple([value_of(item) for item in items])
        except (msgspec.ValidationError, msgspec.DecodeError, ValueError, TypeError) as error:
            self.odd.append(f"{body[:200]!r}: {error}")
            return None
        ids: Sequence[int] = [item.id for item in items]
        # Nearly every list has these ids, and a range takes no memory.
        return range(1, len(ids) + 1) if many and ids == list(range(1, len(ids) + 1)) else ids, values


def payload(op: Operation) -> bytes:
    """Return the body that writes an operation's value."""
    return msgspec.json.encode({"name": op.name, "address": str(op.value)})


def csv(rows: list[Operation]) -> bytes:
    """Return the file that imports these creates."""
    return b"name,address\n" + b"".join(f"{op.name},{op.value}\n".encode() for op in rows)


def value_of(item: Item) -> int:
    """Return the value that a store has; raises ValueError if its name and address were never sent together."""
    value = int(item.address or "")
    if item.name != NAMES[value % len(NAMES)]:
        raise ValueError(f"name and address of two writes: {item}")
    return value
