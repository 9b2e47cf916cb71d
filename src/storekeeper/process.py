"""A worker process, and the pipe on which it reports to its supervisor. Imports nothing of the project."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection

HEARTBEAT_INTERVAL = 1.0
"""Seconds between two heartbeats of a worker."""

HEARTBEAT_TIMEOUT = 5.0
"""Seconds without a heartbeat after which a worker is replaced."""

START_TIMEOUT = 30.0
"""Seconds that a worker may take until its first heartbeat."""

CANNOT_START = 3
"""Exit status of a worker that cannot start before an operator has changed something."""

_ALIVE, _READY, _CLOSED = b"a", b"r", b"c"
_spawn = multiprocessing.get_context("spawn")


class Heartbeat:
    """The worker's end of the pipe to its supervisor. It never blocks, not even without a supervisor."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def start(self) -> None:
        """Start to send heartbeats, on a thread: a long statement on the event loop does not stop them."""
        os.set_blocking(self._pipe.fileno(), False)
        threading.Thread(target=self._beat, name="storekeeper-beat", daemon=True).start()

    def ready(self) -> None:
        """Report that this worker serves."""
        self._send(_READY)

    def closed(self) -> None:
        """Report that this worker accepts no more connections."""
        self._send(_CLOSED)

    def _beat(self) -> None:
        while True:
            self._send(_ALIVE)
            time.sleep(HEARTBEAT_INTERVAL)

    def _send(self, message: bytes) -> None:
        with suppress(OSError):
            os.write(self._pipe.fileno(), message)


class Worker:
    """A worker process: what it reported so far, and until when it has to end."""

    def __init__(self, work: Callable[[Heartbeat], None]) -> None:
        """Start the process. Raises OSError if none can be started now."""
        self.ready = False
        self.closed = False
        self.outdated = False
        self.stop_deadline: float | None = None
        self._deadline = time.monotonic() + START_TIMEOUT
        self.pipe, other = multiprocessing.Pipe(duplex=False)
        os.set_blocking(self.pipe.fileno(), False)
        try:
            self.process = _spawn.Process(target=_run, args=(work, other))
            with _terminal_signals_blocked():
                self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            other.close()

    @property
    def status(self) -> int | None:
        """Its exit status, None while it runs."""
        return self.process.exitcode

    def read_reports(self) -> None:
        """Read what it reported."""
        with suppress(OSError):
            received = os.read(self.pipe.fileno(), 65536)
            self.ready |= _READY in received
            self.closed |= _CLOSED in received
            if received:
                self._deadline = time.monotonic() + HEARTBEAT_TIMEOUT

    def extend_deadline(self) -> None:
        """Extend the time for its next heartbeat, because this process itself was paused."""
        self._deadline = max(self._deadline, time.monotonic() + HEARTBEAT_TIMEOUT)

    def stop(self, timeout: float) -> None:
        """Tell it to stop; the supervisor kills it after `timeout` seconds."""
        if self.stop_deadline is None:
            self.stop_deadline = time.monotonic() + timeout
            self.process.terminate()

    def is_overdue(self) -> bool:
        """Tell whether it has to be killed."""
        return time.monotonic() > min(self._deadline, self.stop_deadline or self._deadline)

    def release(self) -> None:
        """Release its pipe and its process object, once it has ended."""
        self.pipe.close()
        self.process.close()


@contextmanager
def _terminal_signals_blocked() -> Iterator[None]:
    """Block, in the process that is started, the signals that a terminal sends to all: its supervisor stops it."""
    resource_tracker.ensure_running()  # its first start would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(work: Callable[[Heartbeat], None], pipe: Connection) -> None:
    work(Heartbeat(pipe))
