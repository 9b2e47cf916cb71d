"""The wiring: settings in, running service out; start, drain, stop. Imports every part but the commands'."""

import asyncio
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import msgspec
import uvicorn

from storekeeper import __version__, supervisor
from storekeeper.api.application import make_application
from storekeeper.api.asgi import AsgiApplication
from storekeeper.api.routes import match_route
from storekeeper.api.token_table import TokenTable
from storekeeper.collection import Collection
from storekeeper.databases import absolute, database, refuse_gone, refuse_tokens
from storekeeper.errors import CannotStart, CannotStartYet, Unavailable
from storekeeper.events import Event, bridge_log, emit, flush, write_line
from storekeeper.http.cache import ResponseCache
from storekeeper.http.connection import Connection
from storekeeper.http.limits import Limits
from storekeeper.http.plain import PlainReader
from storekeeper.http.runtime import Runtime
from storekeeper.listener import bind, check_open_files_limit, has_client, listen
from storekeeper.settings import Settings, from_environment, is_loopback
from storekeeper.stores import EXAMPLES
from storekeeper.supervisor import CANNOT_START, CLOSING, READY, Heartbeat, Supervisor, ignore_signals, log_stop

SWITCH_INTERVAL = 0.0005
"""Seconds for which the event loop waits at most for the interpreter's lock, while another thread runs Python."""

GRACEFUL_TIMEOUT = 8
"""Seconds that a stop waits for the requests under way; the whole stop takes at most 10."""

ACCEPT_TIMEOUT = 0.5
"""Seconds that a stop goes on to accept clients, if more of them come all the time."""

CLOSE_PAUSE = 0.05
"""Seconds that a worker goes on to accept clients in any case: by then the supervisor has closed its listener."""

EXAMPLES_TIMEOUT = 5.0
"""Seconds that a start waits until the examples are stored; without a database, they are stored later."""

_ACCEPTS_PER_ITERATION = 16
"""Connections that are accepted in one loop iteration: a thousand clients at full speed are connected after 2 s."""

_SWEEP_INTERVAL = 0.5


class Service:
    """The ASGI application with its lifespan: opens the collection at start-up, closes it at the end."""

    def __init__(self, settings: Settings, *, create: bool = True) -> None:
        self.settings = settings
        self._create = create
        self.cannot_start = self.draining = False
        self.runtime: Runtime
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Respond to one request, or handle the lifespan."""
        if scope["type"] in ("http", "websocket"):
            await AsgiApplication(self.runtime)(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)

    def connect(self, *args: Any, **kwargs: Any) -> Connection:
        """Return the protocol object of a new connection, as uvicorn asks for it."""
        return Connection(self.runtime, *args, **kwargs)

    async def _run_lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            collection = await self._open()
        except (CannotStart, Unavailable, OSError, RuntimeError, MemoryError) as error:
            # Any other error is a lock, or a lack of files, threads, memory or space: a supervisor tries again.
            self.cannot_start |= isinstance(error, CannotStart) and not isinstance(error, CannotStartYet)
            emit(Event.WORKER_CANNOT_START, reason=str(error))
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        # All present objects live as long as the process: the garbage collector need not visit them again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        sys.setswitchinterval(SWITCH_INTERVAL)
        self._tasks.append(asyncio.create_task(self._sweep()))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in self._tasks:
            task.cancel()
        await collection.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self) -> Collection:
        settings = self.settings
        if not self._create:  # the file existed when this service started
            refuse_gone(settings.database)
        # There is no mode if the database was away at the start: if it has tokens, it is refused once it is reached.
        reached = partial(refuse_tokens, settings.database) if settings.auth is None else lambda: None
        collection = database(settings.database).open_collection(partial(_fail, settings), reached)
        if settings.workers > 1:
            # The supervisor must not give up another worker for this one before this one can use the database.
            with suppress(Unavailable):
                database(settings.database).prepare()
        if settings.examples:
            self._tasks.append(asyncio.create_task(_add_examples(collection)))
            await asyncio.wait(self._tasks, timeout=EXAMPLES_TIMEOUT)
        tokens = None if settings.auth in ("open", None) else TokenTable(collection)
        if tokens:
            await tokens.refresh()
            self._tasks.append(asyncio.create_task(tokens.keep_fresh()))
        limits = Limits()
        application = make_application(
            collection,
            settings,
            tokens,
            max_listeners=limits.connections.maximum // 4,
            is_draining=lambda: self.draining,
        )
        plain = PlainReader(match_route, application.plan)
        self.runtime = Runtime(application, plain, ResponseCache(partial(_change_token, collection)), limits)
        return collection

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL)
            await self.runtime.limits.connections.sweep(loop.time())


def _change_token(collection: Collection) -> object | None:
    try:
        return collection.change_token()
    except Unavailable:  # the request itself meets the error, and responds with it
        return None


async def _add_examples(collection: Collection) -> None:
    while True:
        try:
            await collection.load(EXAMPLES, only_if_empty=True)
            return None
        except Unavailable:  # the start goes on meanwhile, without the examples
            await asyncio.sleep(1)
        except CannotStart as error:
            return emit(Event.DATABASE_REFUSED, reason=str(error))


def application() -> Service:
    """Return the application for another ASGI server, set by the environment; if that is wrong, exit with 2."""
    try:
        settings = from_environment()
        if settings.auth is None:
            raise CannotStart(
                "choose which requests need a token, because only this server knows from where it can be reached:"
                " set STOREKEEPER_AUTH to all, writes or open"
            )
        return Service(settings)
    except CannotStart as error:
        print(f"storekeeper: {error}", file=sys.stderr)  # noqa: T201 - for people, beside the log
        raise SystemExit(2) from None


def serve(settings: Settings) -> int:
    """Run the service until it is told to stop; return the exit status. Raises CannotStart."""
    check_open_files_limit(settings.workers)
    if settings.auth is None and not is_loopback(settings.host):
        raise CannotStart(
            f"--host {settings.host} can be reached from elsewhere: choose which requests need a token, with --auth"
            " all, --auth writes or --auth open (none)"
        )
    # Where another service listens on the port, this start may not make or upgrade a database.
    with bind(settings.host, settings.port) as listener:
        settings = _prepared(msgspec.structs.replace(settings, database=absolute(settings.database)))
        listen(listener, settings.host, settings.port)
        status = _serve(settings, listener)
    if status:
        refuse_gone(settings.database)
        if settings.auth is None:
            _prepared(settings)  # raises if the reason is that there are tokens now
    return status


def _serve(settings: Settings, listener: socket.socket) -> int:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    bound_host, port = listener.getsockname()[:2]
    # What counts is the address that the name led to: a host's own name may mean loopback, as 127.1 does.
    settings = msgspec.structs.replace(
        settings, host=bound_host, allowed_host=(*settings.allowed_host, settings.host)
    )
    service = Service(settings, create=False)
    announce = partial(_announce, settings, f"http://{host}:{port}")
    if settings.workers > 1:
        work = partial(_run_worker, service, listener)
        return Supervisor(settings.workers, work, listener, announce).run()
    # All are the same socket: libuv accepts one connection from each in a loop iteration, and with only one of
    # them new clients of a service at its connection limit would wait for seconds. Several workers share clients
    # more evenly if each has only one.
    listeners = [listener, *(listener.dup() for _ in range(_ACCEPTS_PER_ITERATION - 1))]
    server = _Server(service, announce)
    try:
        return min(_run(server, listeners), 1)
    finally:
        log_stop(server.stop_signal, server.stop_began)


def _prepared(settings: Settings) -> Settings:
    """Prepare the database; return the settings with a mode if that is decided now. Raises CannotStart."""
    with suppress(Unavailable):  # the database may become reachable later
        database(settings.database).prepare()
        if settings.auth is None:
            refuse_tokens(settings.database)
            return msgspec.structs.replace(settings, auth="open")
    return settings


class _Server(uvicorn.Server):
    """Runs the service; calls `ready` when it serves, and `closing` shortly before it accepts no more connections."""

    def __init__(
        self, service: Service, ready: Callable[[], None], closing: Callable[[], None] | None = None
    ) -> None:
        config = uvicorn.Config(
            service,
            http=service.connect,  # type: ignore[arg-type]  # only called
            loop="uvloop",
            lifespan="on",
            ws="none",
            workers=1,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACEFUL_TIMEOUT,
        )
        super().__init__(config)
        self.service = service
        self._ready = ready
        self._closing = closing
        self.stop_signal: int | None = None
        self.stop_began = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call back."""
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Remember the first signal that asks to stop, and when it came."""
        if self.stop_signal is None:
            self.stop_signal, self.stop_began = sig, time.monotonic()
            self.service.draining = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that clients have already, and no more; then stop."""
        if self._closing is not None:
            self._closing()
            await asyncio.sleep(CLOSE_PAUSE)
        last = time.monotonic() + ACCEPT_TIMEOUT
        # The kernel resets those that are not accepted when their listener closes.
        while sockets and has_client(sockets[0]) and time.monotonic() < last:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0)
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        await asyncio.sleep(0)
        await super().shutdown(sockets)


def _run_worker(service: Service, listener: socket.socket, heartbeat: Heartbeat) -> None:
    server = _Server(service, partial(heartbeat.report, READY), partial(heartbeat.report, CLOSING))
    sys.exit(_run(server, [listener], heartbeat.start))


def _run(server: _Server, listeners: list[socket.socket], begin: Callable[[], None] = lambda: None) -> int:
    """Run a server until it is told to stop; return 0, 1 if it did not start, or CANNOT_START."""
    # uvicorn raises the signal again after a graceful stop; the exit status of a requested stop is 0.
    # A signal that comes before uvicorn handles signals stops the server too, once it has started.
    # So does a terminal that closes, unless `nohup` has it ignored.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, server.handle_exit)
    bridge_log()
    try:
        begin()
        server.run(listeners)
    except SystemExit:
        pass  # it did not start, and the service has said why
    except (OSError, RuntimeError, MemoryError) as error:
        if server.started:
            raise
        emit(Event.WORKER_CANNOT_START, reason=str(error))
    finally:
        ignore_signals()
    return CANNOT_START if server.service.cannot_start else int(not server.started)


def _announce(settings: Settings, address: str) -> None:
    name = database(settings.database).name
    write_line(f"Storekeeper listens on {address} with {name}; {address}/docs describes it (Ctrl-C stops it)")
    emit(Event.STARTED, version=__version__, database=name, workers=settings.workers, pid=os.getpid())
    supervisor.tell_ready()
    if settings.auth == "open" and not is_loopback(settings.host):
        emit(Event.OPEN_TO_ALL, address=address)


def _fail(settings: Settings, reason: str) -> None:
    """End this process soon: requests under way get their 503 first, and the supervisor starts another process."""
    try:
        emit(Event.DATABASE_FAILED, reason=reason)
    finally:  # begin the 0.3 s only now: the first log line takes a while, and the responses are sent after it
        asyncio.get_running_loop().call_later(0.3, _exit, settings)


def _exit(settings: Settings) -> None:
    status = os.EX_IOERR
    try:
        refuse_gone(settings.database)
        if settings.auth is None:
            refuse_tokens(settings.database)
    except CannotStart as error:
        # No service manager may start it again: it would begin a new list, or serve what needs a token.
        if settings.workers > 1:
            status = CANNOT_START  # `serve` says why
        else:
            write_line(f"storekeeper: {error}")
            status = 2
    except (OSError, Unavailable):
        pass  # the disk does not even say whether the file exists, or the database is away
    flush()
    os._exit(status)
