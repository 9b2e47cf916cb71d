"""Records what concurrent clients of a service do over real sockets, for `lincheck`.

A connection is made before the clock of a request starts, so that a refused connection is not an
operation. A request that was sent and has no complete response may have happened. With an
Idempotency-Key, it is sent again, by whichever client is free, until it has a response, and
sometimes afterwards too.
"""

import asyncio
import itertools
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from urllib.parse import quote_plus

import msgspec
import uvloop

from tests.harness.keep_alive import Client, Lost, Response
from tests.oracles.lincheck import Kind, Operation, Outcome

NAMES = ("Harbour", "Größe", "東京", "a b & c", "Airport")
HOT = 6
"""Stores that get half of all reads and replaces, so that these collide."""

MIX = {Kind.CREATE: 6, Kind.REPLACE: 36, Kind.READ: 50, Kind.LIST: 3, Kind.FILTER: 5}
"""How often clients do what."""


CONDITIONAL = 0.4
"""Share of the writes that have an If-Match with the latest tag seen."""

KEYED = 0.4
"""Share of the writes that have an Idempotency-Key,"""

AT_ONCE = 0.3
"""and share of those that two clients send at the same time."""

REPEATED = 0.1
"""Share of the turns in which a completed write is sent again with its key."""

SAME = 0.2
"""Share of the replaces that write the content last seen."""

UNCHANGED = 0.2
"""Share of the reads that have an If-None-Match, and share of those that read the past."""

PIPELINED = 0.2
"""Share of the turns in which a client sends two requests before it has a response."""

KEPT = 5
"""One store in this many is only ever replaced with its own content, so that only its tag can go
wrong."""


class Item(msgspec.Struct):
    """A store as a response shows it."""

    id: int
    name: str
    address: str | None


_decode = msgspec.json.Decoder(Item).decode
_decode_list = msgspec.json.Decoder(list[Item]).decode


def outcome(status: int, body: bytes) -> Outcome:
    """Return what the status of a response says about its write (decision 30)."""
    if 200 <= status < 300:
        return Outcome.OK
    if 400 <= status < 500 or (status == 503 and b'"outcome":"none"' in body):
        return Outcome.FAILED
    return Outcome.UNKNOWN


@dataclass(slots=True, eq=False)
class Keyed:
    """A write with an Idempotency-Key: `tries` were sent, `first` responses were not replays."""

    op: Operation
    key: str
    tries: int = 0
    first: int = 0


class Recorder:
    """Clients that concurrently create, replace, read, list and filter, over any number of lives of
    a service.

    Some operations have conditions or keys, are pipelined, or read the past.

    `history` is for `lincheck`; `odd` has responses that no history could explain, such as a body
    that is not a store; `statuses` counts the responses.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        clients: int = 24,
        most_stores: int = 400,
        mix: dict[Kind, int] = MIX,
    ) -> None:
        self.history: list[Operation] = []
        self.odd: list[str] = []
        self.statuses: Counter[int] = Counter()
        self._random = random.Random(seed)
        self._seed = seed
        self._clients = clients
        self._most_stores = most_stores
        self._kinds, self._weights = tuple(mix), tuple(mix.values())
        self._last_value = 0
        self._known = 0
        self._left = 0
        self._at: tuple[int, Callable[[], object]] | None = None
        self._epoch = ""
        self._latest = 0
        # The latest version of each store that was seen, with its value, and the one before that.
        self._seen: dict[int, tuple[int, int]] = {}
        self._before: dict[int, int] = {}
        self._retries: deque[Keyed] = deque()
        self._answered: deque[Keyed] = deque(maxlen=50)

    @property
    def acknowledged(self) -> int:
        """How many operations were writes."""
        return sum(op.writes and op.outcome is Outcome.OK for op in self.history)

    def run(
        self,
        port: int | Sequence[int],
        operations: int,
        *,
        when: int = 0,
        then: Callable[[], object] | None = None,
    ) -> None:
        """Let the clients do this many operations, or fewer if the service ends.

        Several ports are those of instances, among which the clients are divided. Once `when`
        operations have begun, `then` is called.
        """
        self._left = operations
        self._at = (operations - when, then) if then else None
        uvloop.run(self._run([port] if isinstance(port, int) else port))

    def settle(self, port: int) -> None:
        """Read everything, with no concurrent operation."""
        uvloop.run(self._settle(port))

    def rows(self, count: int) -> list[Operation]:
        """Begin creates by something other than a client; their outcome is unknown for now."""
        made = [self._write(Kind.CREATE, 0) for _ in range(count)]
        self.history += made
        self._known += count
        return made

    def acknowledge(self, rows: list[Operation]) -> None:
        """Record that all of them are done."""
        for op in rows:
            op.outcome, op.end = Outcome.OK, time.monotonic_ns()

    # What the clients do.

    async def _run(self, ports: Sequence[int]) -> None:
        seeds = [self._random.random() for _ in range(self._clients)]
        clients = zip(itertools.cycle(ports), seeds, strict=False)
        await asyncio.gather(*(self._use(port, random.Random(seed)) for port, seed in clients))

    async def _settle(self, port: int) -> None:
        client = await Client.connect(port)
        while self._retries:
            await self._again(client)
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
                await self._turn(client, rng)
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

    async def _turn(self, client: Client, rng: random.Random) -> None:
        if rng.random() >= PIPELINED:
            return await self._one(client, rng)
        two = self._one(client, rng), self._one(client, rng)
        for error in await asyncio.gather(*two, return_exceptions=True):
            if error is not None:
                raise error
        return None

    async def _one(self, client: Client, rng: random.Random) -> None:
        if self._retries:
            return await self._again(client)
        if self._answered and rng.random() < REPEATED:
            return await self._send(client, rng.choice(self._answered))
        (kind,) = rng.choices(self._kinds, self._weights)
        if kind is Kind.CREATE and self._known < self._most_stores:
            return await self._change(client, self._write(kind, 0), rng)
        if kind is Kind.LIST:
            return await self._list(client, rng=rng)
        if kind is Kind.FILTER:
            return await self._list(client, rng.choice(NAMES), rng)
        # Up to one more than there are: a store that is just being created, or missing.
        id = rng.randint(1, HOT if rng.random() < 0.5 else self._known + 1)
        if kind is Kind.READ:
            return await self._read(client, id, rng)
        if id in self._seen and (id % KEPT == 0 or rng.random() < SAME):
            return await self._write_same(client, id, rng)
        return await self._change(client, self._write(Kind.REPLACE, id + (id % KEPT == 0)), rng)

    def _write(self, kind: Kind, id: int) -> Operation:
        self._last_value += 1
        name = NAMES[self._last_value % len(NAMES)]
        return Operation(
            kind, time.monotonic_ns(), inf, id, self._last_value, name, outcome=Outcome.UNKNOWN
        )

    async def _change(self, client: Client, op: Operation, rng: random.Random) -> None:
        keyed = Keyed(op, f"{self._seed}-{op.value}" if rng.random() < KEYED else "")
        if rng.random() < CONDITIONAL and self._epoch:
            op.if_match = self._seen.get(op.store, (0, 0))[0]
            if op.kind is Kind.CREATE:
                # The list will have changed by the time this arrives, so guess. Never with a key,
                # see `_note`.
                op.if_match = self._latest + (
                    0 if keyed.key else rng.randint(0, self._clients // 2)
                )
        self.history.append(op)
        if keyed.key and rng.random() < AT_ONCE:
            self._retries.append(keyed)
        await self._send(client, keyed)

    async def _write_same(self, client: Client, id: int, rng: random.Random) -> None:
        """Replace a store with the content last seen: if it still has that, nothing changes
        (decision 35), and the tag that it had before is refused (decision 34)."""
        version, value = self._seen[id]
        op = Operation(Kind.REPLACE, time.monotonic_ns(), inf, id, value, NAMES[value % len(NAMES)])
        fields = ""
        if id % KEPT:  # no tag that was seen is valid for a store that has different content now
            op.if_match = rng.choice((version, self._before[id] or version))
            fields = f"if-match: {self._tag(op.if_match)}\r\n"
        response = await client.exchange("PUT", f"/api/stores/{id}", payload(op), fields)
        self._note_read(response, op.start, time.monotonic_ns(), id, op)

    async def _read(self, client: Client, id: int, rng: random.Random) -> None:
        start = time.monotonic_ns()
        target, fields, at = f"/api/stores/{id}", "", None
        if self._epoch and rng.random() < UNCHANGED:
            if id in self._seen and rng.random() < 0.9:
                fields = f"if-none-match: {self._tag(self._seen[id][0])}\r\n"
            else:
                at, target = self._past(target, rng)
        response = await client.exchange("GET", target, fields=fields)
        self._note_read(response, start, time.monotonic_ns(), id, at=at)

    async def _list(self, client: Client, name: str = "", rng: random.Random | None = None) -> None:
        start = time.monotonic_ns()
        target, fields, at = (
            f"/api/stores?name={quote_plus(name)}" if name else "/api/stores",
            "",
            None,
        )
        if rng is not None and self._epoch and rng.random() < UNCHANGED:
            if name or rng.random() < 0.5:
                fields = f"if-none-match: {self._tag(self._latest)}\r\n"
            else:
                at, target = self._past(target, rng)
        response = await client.exchange("GET", target, fields=fields)
        end = time.monotonic_ns()
        self.statuses[response.status] += 1
        if response.status == 304:
            self._note_tag(response, start, end, 0)
        elif response.status == 200 and (found := self._values(response.body, many=True)):
            self._check_tag(response)
            self._latest = max(self._latest, response.version or 0)
            kind = Kind.FILTER if name else Kind.LIST
            self.history.append(
                Operation(kind, start, end, 0, None, name, *found, version=response.version, at=at)
            )

    def _past(self, target: str, rng: random.Random) -> tuple[int, str]:
        """Return a version that was seen, and the target that asks for that moment (decision
        40)."""
        at = rng.randint(0, self._latest)
        return at, f"{target}?at={at}{rng.choice(('', f'.{self._epoch}'))}"

    async def _again(self, client: Client) -> None:
        """Send the write that has waited longest for its response."""
        await self._send(client, self._retries.popleft())

    async def _send(self, client: Client, keyed: Keyed) -> None:
        op = keyed.op
        keyed.tries += 1
        method, target = method_of(op), "/api/stores"
        if op.kind is not Kind.CREATE:
            target = f"/api/stores/{op.store}"
        fields = "" if op.if_match is None else f"if-match: {self._tag(op.if_match)}\r\n"
        if keyed.key:
            # Quoted or bare, the key is the same (decision 36).
            fields += (
                f"idempotency-key: {keyed.key}\r\n"
                if keyed.tries % 2
                else f'idempotency-key: "{keyed.key}"\r\n'
            )
        start = time.monotonic_ns() if keyed.tries > 1 else op.start
        try:
            response = await client.exchange(method, target, payload(op), fields)
        except Lost:
            self._try_again(keyed)
            raise
        self._note(keyed, response, start, time.monotonic_ns())

    def _try_again(self, keyed: Keyed) -> None:
        if keyed.key and keyed.op.outcome is Outcome.UNKNOWN:
            self._retries.append(keyed)

    # What the responses say.

    def _note(self, keyed: Keyed, response: Response, start: float, end: float) -> None:
        """Record a response to a write that was sent, perhaps not for the first time."""
        op = keyed.op
        self.statuses[response.status] += 1
        what = outcome(response.status, response.body)
        if what is Outcome.OK:
            self._note_done(keyed, response, start, end)
        elif response.status == 412:
            # If a version that was seen is not there, it never will be: no other try can succeed.
            if op.outcome is Outcome.OK or op.if_match is None:
                self.odd.append(f"{op} was refused: {response}")
            op.outcome, op.end = Outcome.FAILED, end
            self._note_tag(response, start, end, op.store, op)
        elif what is Outcome.UNKNOWN or response.status == 503:
            if what is Outcome.FAILED and self._is_only(keyed):
                op.outcome, op.end = what, end
            self._try_again(keyed)
        elif response.status == 404:
            self.history.append(Operation(Kind.READ, start, end, op.store))
            if self._is_only(keyed):  # another try may find the store
                op.outcome, op.end = what, end
        else:
            self.odd.append(f"{op} got {response}")

    def _is_only(self, keyed: Keyed) -> bool:
        """Return whether a write was sent once, and no other client is about to send it."""
        return keyed.tries == 1 and keyed not in self._retries

    def _note_done(self, keyed: Keyed, response: Response, start: float, end: float) -> None:
        op = keyed.op
        if (found := self._values(response.body, many=False)) is None:
            return
        (store,), (value,) = found
        keyed.first += not response.replayed
        if (
            value != op.value
            or op.store not in (0, store)
            or keyed.first > 1
            or (response.replayed and keyed.tries == 1)
        ):
            self.odd.append(f"{keyed} got {response}")
        if op.outcome is Outcome.FAILED:
            self.odd.append(f"{op} was refused, and then done: {response}")
        version = self._see(response, store, value)
        if op.outcome is Outcome.OK:
            self.history.append(Operation(Kind.REPLAY, start, end, store, value, version=version))
            return
        op.outcome, op.end, op.store, op.version = Outcome.OK, end, store, version
        self._known = max(self._known, store)
        if keyed.key:
            self._answered.append(keyed)

    def _note_tag(
        self, response: Response, start: float, end: float, store: int, op: Operation | None = None
    ) -> None:
        """Record a response that has only a tag: to a refused write, or to a read."""
        self._check_tag(response)
        value, if_match = (op.value, op.if_match) if op else (None, None)
        self.history.append(
            Operation(
                Kind.TAG, start, end, store, value, version=response.version, if_match=if_match
            )
        )

    def _note_read(
        self,
        response: Response,
        start: float,
        end: float,
        id: int,
        op: Operation | None = None,
        at: int | None = None,
    ) -> None:
        self.statuses[response.status] += 1
        if response.status in (304, 412):
            self._note_tag(response, start, end, id, op)
        elif response.status == 404:
            self.history.append(Operation(Kind.READ, start, end, id, at=at))
        elif response.status == 200 and (found := self._values(response.body, many=False)):
            (store,), (value,) = found
            version = self._see(response, store, value)
            asked = op.if_match if op else None
            self.history.append(
                Operation(Kind.READ, start, end, id, value, version=version, if_match=asked, at=at)
            )
            if store != id:
                self.odd.append(f"a read of store {id} got store {store}")

    def _see(self, response: Response, store: int, value: int) -> int | None:
        """Remember which version a store has; return it."""
        self._check_tag(response)
        version = response.version
        if version is not None and version > (before := self._seen.get(store, (0, 0)))[0]:
            self._seen[store], self._before[store] = (version, value), before[0]
            self._latest = max(self._latest, version)
        return version

    def _check_tag(self, response: Response) -> None:
        epoch = response.tag.strip('"').partition(".")[2]
        self._epoch = self._epoch or epoch
        if response.version is None or response.tag != self._tag(response.version):
            self.odd.append(f"a tag of another epoch, or none: {response.status} {response.tag!r}")

    def _tag(self, version: int) -> str:
        return f'"{version}.{self._epoch}"'

    def _values(self, body: bytes, *, many: bool) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the ids and values in a response; None, and a note, if it contains something that
        we never sent."""
        try:
            items = _decode_list(body) if many else [_decode(body)]
            values = tuple([value_of(item) for item in items])
        except (msgspec.ValidationError, msgspec.DecodeError, ValueError, TypeError) as error:
            self.odd.append(f"{body[:200]!r}: {error}")
            return None
        ids: Sequence[int] = [item.id for item in items]
        # Nearly every list has these ids, and a range takes no memory.
        return range(1, len(ids) + 1) if many and ids == list(
            range(1, len(ids) + 1)
        ) else ids, values


def method_of(op: Operation) -> str:
    """Return the method of a write, the same each time that it is sent."""
    if op.kind is Kind.CREATE:
        return "POST"
    return "PUT" if (op.value or 0) % 3 else "PATCH"


def payload(op: Operation) -> bytes:
    """Return the body that writes an operation's value."""
    return msgspec.json.encode({"name": op.name, "address": str(op.value)})


def csv(rows: list[Operation]) -> bytes:
    """Return the file that imports these creates."""
    return b"name,address\n" + b"".join(f"{op.name},{op.value}\n".encode() for op in rows)


def value_of(item: Item) -> int:
    """Return the value that a store has; raises ValueError if its name and address were never sent
    together."""
    value = int(item.address or "")
    if item.name != NAMES[value % len(NAMES)]:
        raise ValueError(f"name and address of two writes: {item}")
    return value
