"""Runs the service with uvicorn: start, workers, drain, stop."""

import asyncio
import math
import os
import signal
import socket
import sys
import time
import webbrowser
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from threading import Thread
from types import FrameType

import msgspec
import uvicorn

from storekeeper import __version__
from storekeeper.api.metrics import Slots
from storekeeper.domain.errors import CannotStart, CannotStartYet, Unavailable
from storekeeper.domain.tokens import CONSOLE, console_link
from storekeeper.log.events import Event, bridge_log, emit, use_format, write_line
from storekeeper.process import supervisor
from storekeeper.process.listener import (
    address_of,
    bind,
    check_open_files_limit,
    has_client,
    host_of,
    listen,
    passed_by_systemd,
)
from storekeeper.process.service import Service
from storekeeper.process.supervisor import (
    CANNOT_START,
    CLOSING,
    READY,
    RETIRE,
    Heartbeat,
    Supervisor,
    ignore_signals,
    log_stop,
)
from storekeeper.settings import Settings, is_loopback
from storekeeper.storage.databases import absolute, database, ensure, refuse_gone
from storekeeper.storage.tokens import refuse_tokens

GRACEFUL_TIMEOUT = 8
"""Seconds that a stop waits for the requests under way; the whole stop takes at most 10."""

ACCEPT_TIMEOUT = 0.5
"""Seconds of processor time that a stop goes on to accept clients, if more of them come all the
time."""

CLOSE_PAUSE = 0.05
"""Seconds that a worker goes on to accept clients in any case: by then the supervisor has closed
its listener."""

_ACCEPTS_PER_ITERATION = 16
"""Connections that are accepted in one loop iteration: a thousand clients at full speed are
connected after 2 s."""


def serve(settings: Settings) -> int:
    """Run the service until it is told to stop; return the exit status. Raises CannotStart."""
    use_format(settings.log_format)
    check_open_files_limit(settings.workers)
    passed = passed_by_systemd()
    if passed or settings.uds:
        settings = msgspec.structs.replace(
            settings, host=host_of(passed) if passed else "localhost"
        )
    if settings.auth is None and not is_loopback(settings.host):
        raise CannotStart(
            f"{'ListenStream' if passed else '--host'} {settings.host} can be reached from elsewhere: choose which"
            " requests need a token, with --auth (or STOREKEEPER_AUTH) all, writes or open (none)"
        )
    # Where another service listens on the port, this start may not make or upgrade a database.
    with ExitStack() as stack:
        listener = stack.enter_context(passed or bind(settings.host, settings.port, settings.uds))
        console = CONSOLE
        if settings.demo:
            from storekeeper.process import demo  # noqa: PLC0415 - others do not pay for it

            settings, token = stack.enter_context(demo.prepared(settings))
            console = console_link("", token)
        new = settings.create and _make(settings)
        # No worker makes it again: its file may have been deleted since.
        settings = msgspec.structs.replace(
            settings, database=absolute(settings.database), create=False
        )
        settings = _prepared(settings)
        listen(listener, settings.host, settings.port)
        status = _serve(settings, listener, console, passed=bool(passed), new=new)
    if status:
        refuse_gone(settings.database)
        # It raises if there are tokens now, or if PostgreSQL has a newer schema. Of a file it could
        # also tell of what passes by itself, such as a lack of open files.
        if settings.auth is None or not settings.database.startswith("sqlite:"):
            _prepared(settings)
    return status


def _serve(
    settings: Settings, listener: socket.socket, console: str, *, passed: bool, new: bool
) -> int:
    address = address_of(listener, settings.host)
    # What counts is the address that the name led to: a host's own name may mean loopback, as 127.1
    # does.
    settings = msgspec.structs.replace(
        settings, host=host_of(listener), allowed_host=(*settings.allowed_host, settings.host)
    )
    service = Service(settings, slots=_slots(settings.workers))
    announce = partial(_announce, settings, address, console, new=new)
    if settings.workers > 1:
        work = partial(_run_worker, service, listener)
        return Supervisor(
            settings.workers,
            work,
            listener,
            announce,
            service.slots.release,
            settings.drain_delay,
            passed=passed,
        ).run()
    # All are the same socket: libuv accepts one connection from each in a loop iteration, and with
    # only one of them new clients of a service at its connection limit would wait for seconds.
    # Several workers share clients more evenly if each has only one.
    listeners = [listener, *(listener.dup() for _ in range(_ACCEPTS_PER_ITERATION - 1))]
    server = _Server(service, announce)
    try:
        return min(_run(server, listeners), 1)
    finally:
        log_stop(server.stop_signal, server.stop_began)


def _make(settings: Settings) -> bool:
    """Make the database if there is none; return whether it did. Raises CannotStart."""
    try:
        return ensure(settings.database, examples=settings.examples)
    except Unavailable as error:
        raise CannotStartYet(
            f"cannot be made or found ({error.problem}): start again",
            subject=database(settings.database).name,
        ) from None


def _prepared(settings: Settings) -> Settings:
    """Prepare the database; return the settings with a mode if that is decided now. Raises
    CannotStart."""
    with suppress(Unavailable):  # the database may become reachable later
        database(settings.database).prepare()
        if settings.auth is None:
            refuse_tokens(settings.database)
            return msgspec.structs.replace(settings, auth="open")
    return settings


class _Server(uvicorn.Server):
    """Runs the service; calls `ready` when it serves, and `closing` shortly before it accepts no
    more connections."""

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
        self._delay = math.inf

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call back."""
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Remember the first signal that asks to stop, and when it came; the delay is that of
        the most urgent one."""
        if self.stop_signal is None:
            self.stop_signal, self.stop_began = sig, time.monotonic()
        self.service.draining |= sig != RETIRE
        self._delay = min(
            self._delay, self.service.settings.drain_delay if sig == signal.SIGTERM else 0
        )
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop now."""
        return await super().on_tick(counter) and time.monotonic() >= self.stop_began + self._delay

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that clients have already, and no more; then stop."""
        if self._closing is not None:
            self._closing()
            await asyncio.sleep(CLOSE_PAUSE)
        last = (
            time.thread_time() + ACCEPT_TIMEOUT
        )  # none of it passes while the machine holds this process up
        # The kernel resets those that are not accepted when their listener closes.
        while sockets and has_client(sockets[0]) and time.thread_time() < last:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0)
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        await asyncio.sleep(0)
        await super().shutdown(sockets)


def _slots(workers: int) -> Slots:
    try:
        return Slots(workers if workers == 1 else supervisor.max_processes(workers))
    except OSError as error:
        raise CannotStart(
            f"no shared memory for metrics ({error.strerror}): make space, or use --no-metrics"
        ) from None


def _run_worker(
    service: Service, listener: socket.socket, heartbeat: Heartbeat, number: int
) -> None:
    service.number = number
    server = _Server(service, partial(heartbeat.report, READY), partial(heartbeat.report, CLOSING))
    sys.exit(_run(server, [listener], heartbeat.start))


def _run(
    server: _Server, listeners: list[socket.socket], begin: Callable[[], None] = lambda: None
) -> int:
    """Run a server until it is told to stop; return 0, 1 if it did not start, or CANNOT_START."""
    # uvicorn raises the signal again after a graceful stop; the exit status of a requested stop is
    # 0. A signal that comes before uvicorn handles signals stops the server too, once it has
    # started. So does a terminal that closes, unless `nohup` has it ignored.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, RETIRE):
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


def _announce(settings: Settings, address: str, console: str, *, new: bool) -> None:
    name = database(settings.database).name
    link = f"{address}{console}"
    if settings.log_format == "logfmt":
        linked = f"; the console is at {link}" * address.startswith("http")
        with_new = (
            "the new database " * new
        )  # of a mistyped name too, or below a disk that is not mounted
        write_line(
            f"Storekeeper listens on {address} with {with_new}{name}{linked} (Ctrl-C stops it)"
        )
    fields = {
        "database": name,
        "new": new,
        "workers": settings.workers,
        "pid": os.getpid(),
        "address": address,
    }
    emit(Event.STARTED, version=__version__, **fields)
    if settings.open and address.startswith(
        "http"
    ):  # some browsers of terminals end only when they are closed
        Thread(target=webbrowser.open, args=(link,), daemon=True).start()
    supervisor.tell_ready()
    if settings.auth == "open" and not is_loopback(settings.host):
        emit(Event.OPEN_TO_ALL, address=address)
