"""The wiring: settings in, running service out; start, drain, stop."""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Self

from uvicorn.server import ServerState

from storekeeper.api import access_log
from storekeeper.api.application import make_application
from storekeeper.api.asgi import AsgiApplication
from storekeeper.api.metrics import Metrics, Slots
from storekeeper.api.token_table import TokenTable
from storekeeper.domain.errors import CannotStart, CannotStartYet, StorekeeperError, Unavailable
from storekeeper.http.arrivals import Arrivals
from storekeeper.http.cache import ResponseCache
from storekeeper.http.connection import Connection
from storekeeper.http.limits import Limits
from storekeeper.http.peers import TrustedPeers
from storekeeper.http.plain import PlainReader
from storekeeper.http.runtime import Observer, Runtime, Served
from storekeeper.log.events import Event, emit, flush, use_format, write_line
from storekeeper.process.audit import Audit, Shared
from storekeeper.process.supervisor import CANNOT_START
from storekeeper.settings import Settings, from_environment, make
from storekeeper.storage import clock
from storekeeper.storage.collection import Collection
from storekeeper.storage.databases import database, ensure, refuse_gone
from storekeeper.storage.tokens import refuse_tokens

SWITCH_INTERVAL = 0.0005
"""Seconds for which the event loop waits at most for the interpreter's lock, while another
thread runs Python."""

_SWEEP_INTERVAL = 0.5


class Service:
    """The ASGI application with its lifespan: opens the collection at start-up, closes it at the
    end.

    `number` is the number of this worker, which counts in `slots`. The event loop calls `on_sweep`
    twice a second, as long as it runs. If it is a `guest`, the process is another application's: it
    never ends it, and does not touch the garbage collector and the interpreter's settings.
    """

    def __init__(
        self, settings: Settings, *, slots: Slots | None = None, guest: bool = False
    ) -> None:
        self.settings = settings
        self._is_guest = guest
        self.slots, self.number = slots or Slots(), 0
        self._shared = Shared(settings.workers)
        self.cannot_start = self.draining = False
        self.on_sweep: Callable[[], None] | None = None
        self._runtime: Runtime | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Respond to one request, or handle the lifespan."""
        if scope["type"] == "http":
            await AsgiApplication(self.runtime)(scope, receive, send)
        elif scope["type"] == "websocket":  # refused with a 403 by every server
            await send({"type": "websocket.close"})
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)

    @property
    def runtime(self) -> Runtime:
        """What all connections share; raises RuntimeError before the start."""
        if self._runtime is None:
            raise RuntimeError(
                "Storekeeper has not started: run its lifespan before the first request, or"
                " use `async with app.running():`, as httpx.ASGITransport and mounted"
                " applications need it"
            )
        return self._runtime

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Open the collection, and close it at the end, for a host that runs no lifespan of it.

        Raises CannotStart, Unavailable.
        """
        collection = await self._open()
        try:
            yield self
        finally:
            await self._close(collection)

    def is_draining(self) -> bool:
        """Return whether the service was told to stop."""
        return self.draining

    def connect(
        self,
        config: object,  # noqa: ARG002 - as uvicorn calls it
        server_state: ServerState,
        app_state: object,  # noqa: ARG002
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> Connection:
        """Return the protocol object of a new connection, as uvicorn asks for it."""
        return Connection(self.runtime, server_state, _loop or asyncio.get_running_loop())

    async def _run_lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            collection = await self._open()
        except (CannotStart, Unavailable, OSError, RuntimeError, MemoryError) as error:
            # Any other error is a lock, or a lack of files, threads, memory or space: a supervisor
            # tries again.
            if isinstance(error, CannotStart) and not isinstance(error, CannotStartYet):
                self.cannot_start = True
            emit(Event.WORKER_CANNOT_START, reason=str(error))
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        if not self._is_guest:
            _tune_process()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._close(collection)
        await send({"type": "lifespan.shutdown.complete"})

    async def _close(self, collection: Collection) -> None:
        for task in self._tasks:
            task.cancel()
        await collection.close()

    async def _open(self) -> Collection:
        settings = self.settings
        use_format(settings.log_format)
        collection = database(settings.database).open_collection(
            _report_failure if self._is_guest else partial(_fail, settings),
            partial(_check_mode, settings),
        )
        if settings.workers > 1:
            # The supervisor must not give up another worker for this one before this one can use
            # the database.
            with suppress(Unavailable):
                database(settings.database).prepare()
        tokens = None
        if settings.auth in ("writes", "all"):
            tokens = TokenTable(collection)
            await tokens.refresh()
            self._tasks.append(asyncio.create_task(tokens.keep_fresh()))
        self._make_runtime(collection, tokens)
        if not settings.demo:  # its token is not the operator's
            audit = Audit(collection, self._shared)
            self._tasks.append(asyncio.create_task(audit.watch()))
        return collection

    def _make_runtime(self, collection: Collection, tokens: TokenTable | None) -> None:
        """Join what all connections share, and begin to sweep them."""
        settings, limits = self.settings, Limits()
        metrics = Metrics(self.slots, self.number) if settings.metrics else None
        if metrics:
            metrics.watch_limits(limits, collection)
            metrics.watch_refusal(partial(_why_writes_are_refused, collection, tokens))
        application = make_application(
            collection,
            settings,
            tokens,
            metrics=metrics,
            max_listeners=max(1, limits.connections.maximum // 4),
            is_draining=self.is_draining,
        )
        arrivals = Arrivals(collection.begin_reads, collection.end_reads)
        cache = ResponseCache(collection.numbers)
        observe = _observer(settings, metrics, tokens)
        more = [settings.user_header.lower().encode()] if settings.user_header else []
        trusted = TrustedPeers(settings.trusted_proxy)
        plain = PlainReader(more)
        self._runtime = Runtime(
            application, arrivals, plain, cache, limits, observe, trusted, self.is_draining
        )
        self._tasks.append(asyncio.create_task(self._sweep(metrics)))

    async def _sweep(self, metrics: Metrics | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self.on_sweep:
                self.on_sweep()
            clock.WATCH.look()
            if metrics:
                metrics.publish()
            await asyncio.sleep(_SWEEP_INTERVAL)
            await self.runtime.limits.connections.sweep(loop.time())


def _check_mode(settings: Settings) -> None:
    """Raise CannotStart if the database was away at the start, so that there is no mode, and has
    tokens."""
    if settings.auth is None:
        refuse_tokens(settings.database)


def _why_writes_are_refused(collection: Collection, tokens: TokenTable | None) -> str:
    if tokens and (reason := tokens.why_unavailable()):
        return reason
    return collection.writes_refused()


def _observer(settings: Settings, metrics: Metrics | None, tokens: TokenTable | None) -> Observer:
    count = metrics.observe if metrics else _ignore
    if settings.access_log == "off":
        return count
    token_name = tokens.name if tokens else str
    errors_only = settings.access_log == "errors"

    def observe(served: Served) -> None:
        count(served)
        access_log.log(served, token_name, errors_only=errors_only)

    return observe


def _ignore(_: Served) -> None:
    pass


def _tune_process() -> None:
    # All objects so far live as long as the process: the garbage collector need not visit them
    # again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    sys.setswitchinterval(SWITCH_INTERVAL)


def mounted(**settings: Any) -> Service:
    """Return the application for a process that is another application's: FastAPI's, a test's.

    It takes the settings by their names. Run it in `async with app.running():`. If its database
    fails, it refuses every request with 503, and ends nothing. Raises CannotStart.
    """
    made = make(settings)
    if made.auth is None:
        raise CannotStart("choose which requests need a token: auth is all, writes or open")
    if made.create:
        ensure(made.database, examples=made.examples)
    database(made.database).prepare()
    return Service(made, guest=True)


def application() -> Service:
    """Return the application for another ASGI server, with the settings of the environment; exit
    with 2 if they are wrong."""
    try:
        settings = from_environment()
        if settings.auth is None:
            raise CannotStart(
                "choose which requests need a token, because only this server knows from where it"
                " can be reached: set STOREKEEPER_AUTH to all, writes or open"
            )
        if settings.create:
            ensure(settings.database, examples=settings.examples)
        with suppress(Unavailable):  # it may become reachable later
            database(settings.database).prepare()
        return Service(settings)
    except CannotStart as error:
        print(f"storekeeper: {error}", file=sys.stderr)  # noqa: T201 - for people, not in the log
        raise SystemExit(2) from None


def _report_failure(error: StorekeeperError) -> None:
    emit(Event.DATABASE_FAILED, reason=str(error))


def _fail(settings: Settings, error: StorekeeperError) -> None:
    """End this process soon: requests under way get their 503 first, and the supervisor starts
    another process."""
    try:
        emit(Event.DATABASE_FAILED, reason=str(error))
    finally:  # after the line, which may take a while: only then are the responses sent
        asyncio.get_running_loop().call_later(0.3, _exit, settings, error)


def _exit(settings: Settings, error: StorekeeperError) -> None:
    try:
        refuse_gone(settings.database)
    except CannotStart as gone:
        error = gone
    except OSError:
        pass  # the disk does not even say whether the file exists
    status = os.EX_IOERR
    if isinstance(error, CannotStart):
        # A service manager must not start it again: it would begin a new list, serve what needs a
        # token, or fail again.
        if settings.workers > 1:
            status = CANNOT_START  # `serve` says why
        else:
            flush()  # what was suppressed: the last line says what the operator must fix
            write_line(f"storekeeper: {error}")
            status = 2
    flush()
    os._exit(status)
