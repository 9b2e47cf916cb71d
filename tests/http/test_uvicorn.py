"""What uvicorn's server asks of the class of its connections, which is documented nowhere.

The server itself runs here, on a socket: another version of it that asks for more fails.
"""

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn import server as uvicorn_server

from storekeeper.http.connection import Connection
from storekeeper.process.service import Service
from storekeeper.settings import make as make_settings
from tests.harness.databases import make
from tests.harness.in_process import until
from tests.harness.wire import request

ASKED_OF_A_CONNECTION = {"shutdown"}
"""All that the server's source asks of what is in `connections`."""


def test_uvicorn_asks_nothing_else_of_a_connection() -> None:
    source = inspect.getsource(uvicorn_server)
    assert set(re.findall(r"\bconnection\.(\w+)", source)) == ASKED_OF_A_CONNECTION
    assert set(re.findall(r"server_state\.(\w+)", source)) == {
        "connections",
        "default_headers",
        "tasks",
        "total_requests",
    }


async def test_a_connection_is_made_listed_and_shut_down_as_uvicorn_does_it(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/stores.db"
    make(database)
    service = Service(make_settings({"database": database}))
    made: list[tuple[Connection, set[str]]] = []

    def connect(*args: Any, **options: Any) -> Connection:
        connection = service.connect(*args, **options)
        made.append((connection, set(options)))
        return connection

    config = uvicorn.Config(
        service,
        port=0,
        interface="asgi3",
        http=connect,  # type: ignore[arg-type]  # as `process.server` does
        log_config=None,
        ws="none",
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    await until(lambda: server.started)
    reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
    writer.write(request("GET", "/test"))
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"\r\ndate: " in head, "a common field, which the server renews"
    [(connection, options)] = made
    assert options == {"config", "server_state", "app_state", "_loop"}
    assert server.server_state.connections == {connection}
    server.should_exit = True
    await serving
    assert connection.draining
    assert await reader.read() == b"OK"
    assert server.server_state.connections == set()
    writer.close()
