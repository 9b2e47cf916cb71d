"""The least that a Python server does for GET by id with PostgreSQL: floor_postgres.py URL PORT; imports floor.

All requests that wait are one statement of psycopg's libpq, one at a time. What `floor` leaves out is left out here.
"""

import asyncio
import sys

import uvloop
from psycopg import pq
from psycopg.pq.abc import PGconn

from bench.floor import TEST, Connection, Request, Responder, Store, listen
from storekeeper.postgres.pipeline import rows
from storekeeper.postgres.schema import COLLECTION_TABLE

GET = b"SELECT id, name, address, version FROM stores WHERE id = ANY($1::int8[])"


class Floor(Responder):
    def __init__(self, connection: PGconn, epoch: str) -> None:
        super().__init__(epoch)
        self.connection = connection
        self.waiting: list[tuple[asyncio.WriteTransport, bytes]] = []
        self.asked: list[tuple[asyncio.WriteTransport, bytes]] = []
        asyncio.get_running_loop().add_reader(connection.socket, self.settle)

    def get(self, transport: asyncio.WriteTransport, id: bytes) -> None:
        if not self.waiting:
            asyncio.get_running_loop().call_soon(self.ask)
        self.waiting.append((transport, id))

    def ask(self) -> None:
        if self.waiting and not self.asked:
            self.asked, self.waiting = self.waiting, []
            ids = b"{%b}" % b",".join([id for _, id in self.asked])
            self.connection.send_query_prepared(b"get", [ids], result_format=pq.Format.BINARY)
            self.connection.flush()

    def settle(self) -> None:
        self.connection.consume_input()
        if self.connection.is_busy() or not (result := self.connection.get_result()):
            return
        assert self.connection.get_result() is None
        found = {row[0]: row for row in rows(result)}
        for transport, asked in self.asked:
            id, name, address, version = found[int(asked)]
            self.respond(transport, version, Store(id, name, address))
        self.asked = []
        self.ask()


class Client(Connection):
    def __init__(self, floor: Floor) -> None:
        self.floor = floor
        self.data_received = Request(self.carry_out).feed  # type: ignore[method-assign]  # one call less

    def carry_out(self, target: bytes, _body: bytes) -> None:
        if target == b"/test":
            self.transport.write(TEST)
        else:
            self.floor.get(self.transport, target[12:])


async def main(url: str, port: int) -> None:
    connection = pq.PGconn.connect(url.encode())
    epoch = connection.exec_(f"SELECT epoch FROM {COLLECTION_TABLE}".encode()).get_value(0, 0) or b""
    connection.prepare(b"get", GET)
    connection.nonblocking = 1
    floor = Floor(connection, epoch.decode())
    await listen(lambda: Client(floor), port)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
