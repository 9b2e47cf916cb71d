"""The bare minimum that a Python server does with Storekeeper's file: floor.py DATABASE_FILE PORT.

It is a reference point, not a peer: it shows how fast the parts of Storekeeper are, which are
uvloop, apsw, msgspec, and a thread that commits. The file stays valid: a write is a row of
`changes`, a version, a search text and an entry in the index of names, on the disk before its
response. llhttp parses the requests, as in every server, and their fields go into a list that is
never read. Everything else is left out: nothing is checked, and %20 is the only escape. There are
no limits, timeouts, errors (a failed request gets no response), conditions, keys, tokens, events
or other processes, and no cache: each GET is a SELECT.
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
from storekeeper.storage.sqlite.migrations import CHANGES_TABLE

HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: %b\r\n"
    b"content-type: application/json; charset=utf-8\r\ncache-control: no-cache\r\n"
    b'etag: "%%d.%b"\r\ncontent-length: %%d\r\n\r\n%%b'
)
TEST = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK"
LOG_PAGES = 4000
"""The log is copied into the file once it has this many pages, as Storekeeper does."""
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
"""The client that waits for its response, the store (0: a new one), and its new content."""
encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Payload).decode


class Responder:
    """Sends responses; the date in their heads is updated every second."""

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
                id = self.count = self.count + 1  # noqa: PLW2901 - a new store has no id
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
    """The half on the event loop: reads in one transaction until there is a write, and gathers
    writes while a batch is being committed."""

    def __init__(self, path: Path) -> None:
        reader = connections.connect(path, reader=True)
        # Without this, the query is planned again for each name.
        reader.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self.read, self.transaction = reader.cursor().execute, reader.cursor()
        self.writer = Writer(path, self.settle)
        self.gathered: list[Write] = []
        self.writing = False
        super().__init__(self.writer.epoch)
        self.begin()

    def begin(self) -> None:
        """Begin to read what is committed; the unfinished statement keeps the transaction open."""
        next(self.transaction.execute("SELECT 1 FROM collection UNION ALL SELECT 2"))
        if self.writer.log_pages >= LOG_PAGES:
            self.transaction.fetchall()  # an open transaction would keep the log from restarting

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
        version = last - len(batch)
        for (transport, _, new), id in zip(batch, ids, strict=True):
            version += 1
            self.respond(transport, version, Store(id, new.name, new.address))
        self.writing = False
        self.writer.loop.call_soon(self.hand_over)


class Connection(asyncio.Protocol):
    transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The classes of uvloop do not derive from it.
        self.transport = cast("asyncio.WriteTransport", transport)


class Request:
    """The request that llhttp is parsing; `execute` is called once it is complete."""

    def __init__(self, execute: Callable[[bytes, bytes], None]) -> None:
        self.execute = execute
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
        self.execute(target, body)


class Client(Connection):
    def __init__(self, floor: Floor) -> None:
        self.floor = floor
        # Calling `feed` directly saves one call.
        self.data_received = Request(self.execute).feed  # type: ignore[method-assign]

    def execute(self, target: bytes, body: bytes) -> None:
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
