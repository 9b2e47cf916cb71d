"""The wiring: settings in, running service out; start, drain, stop. The only module that knows every package."""

import asyncio
import functools
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import uvicorn
from uvicorn.supervisors import Multiprocess

from storekeeper.api.asgi import Application
from storekeeper.api.connection import Connection
from storekeeper.api.fastlane import FastLane
from storekeeper.api.kept import Kept
from storekeeper.api.resource import Resource, Rules
from storekeeper.collection import Collection
from storekeeper.errors import CannotStart
from storekeeper.events import Event, emit
from storekeeper.settings import Settings, from_environment
from storekeeper.sqlite import SqliteCollection, prepare
from storekeeper.stores import EXAMPLES

GRACE = 8
"""Seconds that a stop waits for the requests under way; it ends within 10."""

_SWEEP = 0.5
_BROKEN = 74
"""Exit status after the database failed (EX_IOERR of sysexits.h)."""


def sqlite_path(database: str) -> Path:
    """Give the file that a database URL names; raise CannotStart if it names none."""
    scheme, separator, rest = database.partition("://")
    if not separator or scheme != "sqlite":
        raise CannotStart(
            f"--database {database}: unknown kind of database; use sqlite:///relative.db or sqlite:////absolute.db"
        )
    name = unquote(rest[1:])
    if not rest.startswith("/") or not name or name == ":memory:":
        raise CannotStart(
            f"--database {database}: names no file; use sqlite:///relative.db or sqlite:////absolute.db"
        )
    return Path(name).absolute()


def open_collection(settings: Settings, fail: Callable[[str], None]) -> Collection:
    """Open the collection that the settings name; needs a running event loop. Raises CannotStart."""
    path = sqlite_path(settings.database)
    prepare(path)
    return SqliteCollection(path, fail)


class Service:
    """The ASGI application with its life: opens the collection at start-up, closes it at the end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.resource: Resource
        self.kept: Kept
        self._application: Application
        self._connections: set[Connection] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or live one life."""
        if scope["type"] == "http":
            await self._application(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(scope.get("state", {}), receive, send)

    async def _live(self, state: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        try:
            collection = await self._open()
        except CannotStart as error:
            emit(Event.WORKER_CANNOT_START, reason=str(error))
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        state["connections"] = self._connections
        # What is there by now stays: the collector need not look at it again, nor at every few requests.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        sweeper = asyncio.create_task(self._sweep())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        sweeper.cancel()
        await collection.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self) -> Collection:
        settings = self.settings
        collection = open_collection(settings, _die)
        if settings.examples:
            await collection.load(EXAMPLES, only_if_empty=True)
        rules = Rules(settings.error_detail, 500 if settings.missing_store == "500" else 404, settings.unknown_keys)
        self.resource = Resource(collection, rules)
        self.kept = Kept(collection.stamp)
        self._application = Application(self.resource, collection)
        return collection

    async def _sweep(self) -> None:
        parent = multiprocessing.parent_process()
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP)
            now = loop.time()
            for connection in list(self._connections):
                connection.sweep(now)
            if parent is not None and os.getppid() != parent.pid:
                # Nobody is left who could stop this process, and it would keep the port.
                signal.raise_signal(signal.SIGTERM)


def application() -> Service:
    """Give the application for another ASGI server, with the settings that the environment holds."""
    return Service(from_environment())


def serve(settings: Settings) -> int:
    """Run the service until it is told to stop; give the exit status. Raises CannotStart."""
    prepare(sqlite_path(settings.database))
    listener = _listen(settings.host, settings.port)
    address = _address(settings.host, listener)
    config = uvicorn.Config(
        Service(settings),
        http=FastLane if settings.fast_lane else Connection,
        loop="uvloop" if sys.platform != "win32" else "auto",
        interface="asgi3",
        lifespan="on",
        ws="none",
        workers=settings.workers,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )
    announce = functools.partial(_announce, settings, address)
    _bridge_log()
    if settings.workers == 1:
        return _run(_Server(config, announce), listener)
    supervisor = _Supervisor(config, [listener], announce)
    supervisor.run()
    return int(any(process.exitcode == uvicorn.config.STARTUP_FAILURE for process in supervisor.processes))


class _Server(uvicorn.Server):
    """A server that says when it answers."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        self._announce()


class _Supervisor(Multiprocess):
    """Keeps the workers alive, and says when all of them answer."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], announce: Callable[[], None]) -> None:
        super().__init__(config, sockets)
        self._announce = announce

    def init_processes(self) -> None:
        """Start the workers."""
        super().init_processes()
        if all(process.wait_until_ready(30, self.should_exit) for process in self.processes):
            self._announce()

    def keep_subprocess_alive(self) -> None:
        """Start another worker for each that is lost, and say so."""
        before = list(self.processes)
        super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if old is not new:
                emit(Event.WORKER_LOST, pid=old.pid, status=old.exitcode)


def _run(server: uvicorn.Server, listener: socket.socket) -> int:
    # uvicorn raises the signal again after a graceful stop; the status of a stop that was asked for is 0.
    # One that comes before uvicorn listens to signals stops the server all the same, once it has started.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    try:
        server.run([listener])
    except SystemExit:
        return 1
    return 0


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Now, so that a port in use is found here and not in a worker.
        listener.listen(2048)
        listener.setblocking(False)
        listener.set_inheritable(True)
    except OSError as error:
        raise CannotStart(
            f"cannot listen on {host} port {port} ({error.strerror}): choose another --host or --port"
        ) from None
    return listener


def _address(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _announce(settings: Settings, address: str) -> None:
    print(f"Storekeeper answers on {address} (Ctrl-C stops it)", file=sys.stderr, flush=True)  # noqa: T201
    if settings.host not in ("127.0.0.1", "::1", "localhost"):
        emit(Event.OPEN_TO_ALL, address=address)


def _die(reason: str) -> None:
    """End this process soon: what is under way gets its 503 first, and the supervisor starts anew."""
    emit(Event.DATABASE_FAILED, reason=reason)
    asyncio.get_running_loop().call_later(0.3, os._exit, _BROKEN)


def _bridge_log() -> None:
    """Send what uvicorn has to say, from warnings on, through our one log."""

    class Bridge(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            emit(Event.SERVER, message=record.getMessage())

    logger = logging.getLogger("uvicorn")
    logger.setLevel(logging.WARNING)
    logger.handlers = [Bridge()]
    logger.propagate = False
