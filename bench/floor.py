"""The least that a Python server does with Storekeeper's file: floor.py DATABASE_FILE PORT; no
peer, for no use.

It shows how fast the parts are that Storekeeper is built of: uvloop, apsw, msgspec, and a thread
that commits. It keeps the file whole: a write is a row of `changes`, a version, a text to search
and an entry in the index of names, on the disk before its response. llhttp reads the requests,
as every server has to, and their fields become a list that nobody looks at. All else is left
out: nothing is checked, %20 is the only escape; there are no limits, timeouts, errors (what
fails gets no response), conditions, keys, tokens, events, other processes, and no cache: each
GET is a SELECT.
"""

import asyncio
import gc
import queue
import sys
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import cast

import apsw
import httptools
import msgspec
import uvloop

from storekeeper.domain.search import folded
from storekeeper.storage.sqlite import connections
from storekeeper.storage.sqlite.schema import CHANGES_TABLE

HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: %b\r\ncontent-type: application/json; charset=utf-8\r\ncache-control: no-cache\r\n"
    b'etag: "%%d.%b"\r\ncontent-length: %%d\r\n\r\n%%b'
)
TEST = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK"
LOG_PAGES = 4000
"""Pages of the log from which on it is copied into the file, as Storekeeper has it."""
GET = "SELECT id, name, address, version FROM stores WHERE id = ?"
NAMED = "SELECT id, name, address FROM stores WHERE name = ?"
LATEST = (
    "SELECT seq, count, epoch FROM collection JOIN changes ON seq = (SELECT max(seq) FROM changes)"
)
COLUMNS = "seq, store_id, name, address, at, count, token_number"
CREATED = f"INSERT INTO {CHANGES_TABLE} ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?2, 0)"
CREATE = "INSERT INTO stores (id, name, address, folded, version) VALUES (?, ?, ?, ?, ?)"
REPLACED = f"INSERT INTO {CHANGES_TABLE} ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)"
REPLACE = "UPDATE stores SET name = ?2, address = ?3, folded = ?4, version = ?5 WHERE id = ?1"


class Payload(msgspec.Struct):
    name: str
    address: str | None = None


class Store(msgspec.Struct):
    id: int
    name: str
    address: str | None


Write = tuple[asyncio.WriteTransport, int, Payload]
"""Who waits for its response, the store (0: a new one), and what it becomes."""
encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Payload).decode


class Responder:
    """Responds; the date of the heads is renewed every second."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch.encode()
        self.tick()

    def tick(self) -> None:
        self.head = HEAD % (formatdate(usegmt=True).encode(), self.epoch)
        asyncio.get_running_loop().call_later(1, self.tick)

    def respond(
        self, transport: asyncio.WriteTransport, version: int, value: Store | list[Store]
    ) -> None:
        body = encode(value)
        if not transport.is_closing():
            transport.write(self.head % (version, len(body), body))


class Writer(threading.Thread):
    """Commits a batch of writes in one transaction."""

    def __init__(self, path: Path, settle: Callable[[list[Write], list[int], int], None]) -> None:
        super().__init__(daemon=True)
        self.inbox: queue.SimpleQueue[list[Write]] = queue.SimpleQueue()
        self.loop, self.settle, self.log_pages = asyncio.get_running_loop(), settle, 0
        connection = connections.connect(path)
        connection.set_wal_hook(self.committed)
        self.execute = connection.execute
        self.version, self.count, self.epoch = self.execute(LATEST).get
        self.start()

    def run(self) -> None:
        while batch := self.inbox.get():
            self.loop.call_soon_threadsafe(self.settle, batch, self.commit(batch), self.version)

    def commit(self, batch: list[Write]) -> list[int]:
        """Return the ids of the stores."""
        now, ids = time.time_ns() // 1_000_000, []
        self.execute("BEGIN IMMEDIATE")
        for _, id, new in batch:
            self.version += 1
            searched = folded(new.name, new.address)
            if id:
                self.execute(REPLACED, (self.version, id, new.name, new.address, now, self.count))
                self.execute(REPLACE, (id, new.name, new.address, searched, self.version))
            else:
                id = self.count = self.count + 1  # noqa: PLW2901 - it had none
                self.execute(CREATED, (self.version, id, new.name, new.address, now))
                self.execute(CREATE, (id, new.name, new.address, searched, self.version))
            ids.append(id)
        self.execute("COMMIT")
        return ids

    def committed(self, connection: apsw.Connection, _name: str, pages: int) -> int:
        self.log_pages = pages
        if pages >= LOG_PAGES:
            connection.wal_checkpoint()
        return 0


class Floor(Responder):
    """The event loop's half: reads in one transaction until something was written; gathers
    writes behind a batch."""

    def __init__(self, path: Path) -> None:
        reader = connections.connect(path, reader=True)
        reader.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else it is planned anew for each name
        self.read, self.transaction = reader.cursor().execute, reader.cursor()
        self.writer = Writer(path, self.settle)
        self.gathered: list[Write] = []
        self.writing = False
        super().__init__(self.writer.epoch)
        self.begin()

    def begin(self) -> None:
        """See what is committed, in a transaction that this unfinished statement keeps open."""
        next(self.transaction.execute("SELECT 1 FROM collection UNION ALL SELECT 2"))
        if (
            self.writer.log_pages >= LOG_PAGES
        ):  # an open transaction would keep the log from beginning anew
            self.transaction.fetchall()

    def submit(self, *write: *Write) -> None:
        if not self.gathered:
            asyncio.get_running_loop().call_soon(self.hand_over)
        self.gathered.append(write)

    def hand_over(self) -> None:
        if self.gathered and not self.writing:
            self.writing = True
            self.writer.inbox.put(self.gathered)
            self.gathered = []

    def settle(self, batch: list[Write], ids: list[int], last: int) -> None:
        self.begin()
        for version, ((transport, _, new), id) in enumerate(
            zip(batch, ids, strict=True), last - len(batch) + 1
        ):
            self.respond(transport, version, Store(id, new.name, new.address))
        self.writing = False
        self.writer.loop.call_soon(self.hand_over)


class Connection(asyncio.Protocol):
    transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(
            "asyncio.WriteTransport", transport
        )  # uvloop's are none by their class


class Request:
    """What llhttp tells of the request that is being read; `carry_out` is called once it is
    whole."""

    def __init__(self, carry_out: Callable[[bytes, bytes], None]) -> None:
        self.carry_out = carry_out
        self.parser = httptools.HttpRequestParser(self)
        self.feed = self.parser.feed_data
        self.fields: list[tuple[bytes, bytes]] = []
        self.target = self.body = b""

    def on_url(self, target: bytes) -> None:
        self.target = target

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        target, body = self.target, self.body
        self.fields, self.body = [], b""
        self.carry_out(target, body)


class Client(Connection):
    def __init__(self, floor: Floor) -> None:
        self.floor = floor
        self.data_received = Request(self.carry_out).feed  # type: ignore[method-assign]  # one call less

    def carry_out(self, target: bytes, body: bytes) -> None:
        floor = self.floor
        if body:
            floor.submit(self.transport, int(target[12:] or 0), decode(body))
        elif target.startswith(b"/api/stores/"):
            id, name, address, version = floor.read(GET, (int(target[12:]),)).get
            floor.respond(self.transport, version, Store(id, name, address))
        elif target.startswith(b"/api/stores?name="):
            rows = floor.read(NAMED, (target[17:].replace(b"%20", b" ").decode(),))
            floor.respond(self.transport, floor.writer.version, [Store(*row) for row in rows])
        else:
            self.transport.write(TEST)


async def listen(client: Callable[[], Connection], port: int) -> None:
    server = await asyncio.get_running_loop().create_server(client, "127.0.0.1", port, backlog=2048)
    gc.freeze()
    gc.set_threshold(50_000)
    sys.setswitchinterval(0.0005)
    await server.serve_forever()


async def main(path: Path, port: int) -> None:
    floor = Floor(path)
    await listen(lambda: Client(floor), port)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2])))
