"""Runs the service with uvicorn: start, workers, drain, stop."""

import asyncio
import math
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from types import FrameType

import msgspec
import uvicorn

from storekeeper.api.metrics import Slots
from storekeeper.domain.errors import CannotStart, CannotStartYet, Unavailable
from storekeeper.domain.tokens import CONSOLE, console_link
from storekeeper.log.events import Event, bridge_log, emit, use_format
from storekeeper.process import supervisor, systemd
from storekeeper.process.launch import Launch, announce
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
    RUNNING,
    Heartbeat,
    Supervisor,
    ignore_signals,
    log_stop,
)
from storekeeper.settings import Auth, Settings, is_loopback
from storekeeper.storage.databases import absolute, database, ensure, epoch, refuse_gone
from storekeeper.storage.tokens import refuse_tokens

GRACEFUL_TIMEOUT = 8
"""Seconds that a stop waits for the requests under way; the whole stop takes at most 10."""

ACCEPT_TIMEOUT = 0.5
"""Seconds of processor time for which a stop still accepts clients, if more of them keep
coming."""

CLOSE_PAUSE = 0.05
"""Seconds for which a stopping worker still accepts clients in any case: by then, the supervisor
has closed its listener."""

_ACCEPTS_PER_ITERATION = 16
"""Connections that are accepted in one loop iteration: a thousand clients at full speed are
connected after 2 s."""


def serve(settings: Settings) -> int:
    """Run the service until it is told to stop; return the exit status. Raises CannotStart."""
    use_format(settings.log_format)
    check_open_files_limit(settings.workers)
    with ExitStack() as stack:
        launch = _launch(settings, stack)
        status = _serve(launch)
    if status:
        _refuse_another_start(launch.settings)
    return status


def _launch(settings: Settings, stack: ExitStack) -> Launch:
    """Open the socket and prepare the database, for as long as the stack is open. Raises
    CannotStart."""
    passed = passed_by_systemd()
    host = _host(settings, passed)
    # If another service listens on the port, this start must not make or upgrade a database.
    listener = stack.enter_context(passed or bind(host, settings.port, settings.uds))
    url, auth, console, is_new = settings.database, settings.auth, CONSOLE, False
    if settings.demo:
        from storekeeper.process import demo  # noqa: PLC0415 - other starts do not pay for it

        url, token = stack.enter_context(demo.database_of(settings))
        auth, console = auth or "writes", console_link("", token)
    elif settings.create:
        is_new = _make(settings)
    url = absolute(url)
    auth, found = _prepare(url, auth)
    listen(listener, host, settings.port)
    settings = msgspec.structs.replace(
        settings,
        # The address that the name led to: a host's own name may mean loopback, as 127.1 does.
        host=host_of(listener),
        allowed_host=(*settings.allowed_host, host),
        database=url,
        create=False,  # no worker makes it again: its file may have been deleted since
        auth=auth,
    )
    address = address_of(listener, host)
    is_passed = passed is not None
    return Launch(settings, listener, is_passed, address, console, is_new, found)


def _host(settings: Settings, passed: socket.socket | None) -> str:
    """Return the name of the host to listen on. Raises CannotStart if other machines reach it, and
    no mode was chosen."""
    host, source = settings.host, "--host"
    if passed:
        host, source = host_of(passed), "ListenStream"
    elif settings.uds:
        host = "localhost"
    if settings.auth is None and not is_loopback(host):
        raise CannotStart(
            f"{source} {host} can be reached from elsewhere: choose which requests need a token,"
            " with --auth (or STOREKEEPER_AUTH) all, writes or open (none)"
        )
    return host


def _make(settings: Settings) -> bool:
    """Make the database if there is none; return whether it did. Raises CannotStart."""
    try:
        return ensure(settings.database, examples=settings.examples)
    except Unavailable as error:
        raise CannotStartYet(
            f"cannot be made or found ({error.problem}): start again",
            subject=database(settings.database).name,
        ) from None


def _prepare(url: str, auth: Auth | None) -> tuple[Auth | None, str]:
    """Prepare the database; return the mode and the epoch. If the database cannot be reached, the
    mode may be None, which is chosen later, and the epoch is "". Raises CannotStart."""
    try:
        database(url).prepare()
        if auth is None:
            refuse_tokens(url)
        return auth or "open", epoch(url, renew=False)
    except Unavailable:
        return auth, ""


def _refuse_another_start(settings: Settings) -> None:
    """Raise CannotStart if the service failed for a reason that a restart would meet again."""
    refuse_gone(settings.database)
    if settings.auth is not None and settings.database.startswith("sqlite:"):
        return  # to prepare a file may fail for a reason that passes, such as a lack of open files
    with suppress(Unavailable):
        database(settings.database).prepare()  # it may have a newer schema by now
        if settings.auth is None:
            refuse_tokens(settings.database)


def _serve(launch: Launch) -> int:
    settings = launch.settings
    service = Service(settings, slots=_slots(settings.workers))
    when_ready = partial(announce, launch)
    if settings.workers > 1:
        supervisor = Supervisor(
            settings.workers,
            partial(_run_worker, service, launch.listener),
            launch.listener,
            when_ready,
            service.slots.release,
            settings.drain_delay,
            passed=launch.is_passed,
        )
        return supervisor.run()
    # All are the same socket: libuv accepts one connection from each in a loop iteration. With only
    # one of them, new clients of a service at its connection limit would wait for seconds. Several
    # workers share clients more evenly if each has only one.
    listeners = [launch.listener]
    while len(listeners) < _ACCEPTS_PER_ITERATION:
        listeners.append(launch.listener.dup())
    service.on_sweep = systemd.Watchdog().feed
    server = _Server(service, when_ready)
    try:
        return min(_run(server, listeners), 1)
    finally:
        log_stop(server.stop_signal, server.stop_began)


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
        """Remember the first signal that asks to stop, and when it came; the most urgent one sets
        the delay."""
        if self.stop_signal is None:
            self.stop_signal = sig
            self.stop_began = time.monotonic()
        if sig != RETIRE:
            self.service.draining = True
        if sig == signal.SIGTERM:
            self._delay = min(self._delay, self.service.settings.drain_delay)
        else:
            self._delay = 0
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop now."""
        return await super().on_tick(counter) and time.monotonic() >= self.stop_began + self._delay

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the clients that have connected already, and no more; then stop."""
        if self._closing is not None:
            self._closing()
            await asyncio.sleep(CLOSE_PAUSE)
        sockets = sockets or []
        # Of this thread: that does not pass while other programs have the processor.
        last = time.thread_time() + ACCEPT_TIMEOUT
        # The kernel resets those that are not accepted when their listener closes.
        # No event tells that a client waits.
        while sockets and has_client(sockets[0]) and time.thread_time() < last:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        for listener in sockets:
            listener.close()
        await asyncio.sleep(0)
        await super().shutdown(sockets)


def _slots(workers: int) -> Slots:
    try:
        return Slots(1 if workers == 1 else supervisor.max_processes(workers))
    except OSError as error:
        raise CannotStart(
            f"no shared memory for metrics ({error.strerror}): make space, or use --no-metrics"
        ) from None


def _run_worker(
    service: Service, listener: socket.socket, heartbeat: Heartbeat, number: int
) -> None:
    service.number = number
    service.on_sweep = partial(heartbeat.report, RUNNING)
    server = _Server(service, partial(heartbeat.report, READY), partial(heartbeat.report, CLOSING))
    sys.exit(_run(server, [listener], heartbeat.start))


def _run(
    server: _Server, listeners: list[socket.socket], begin: Callable[[], None] = lambda: None
) -> int:
    """Run a server until it is told to stop; return 0, 1 if it did not start, or CANNOT_START."""
    # uvicorn raises the signal again after a graceful stop, but the exit status of a requested stop
    # is 0. A signal that comes before uvicorn handles signals also stops the server, once it has
    # started. So does a terminal that closes, unless `nohup` makes the process ignore it.
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
