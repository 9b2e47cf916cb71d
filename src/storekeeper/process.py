"""A worker process, as its supervisor sees it and as it is inside. Imports nothing of the project."""

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
"""Seconds between two signs of life that a worker gives."""

HEARTBEAT_TIMEOUT = 5.0
"""Seconds without a sign of life after which a worker is replaced."""

START_TIMEOUT = 30.0
"""Seconds that a worker may take until the first one."""

CANNOT_START = 3
"""Exit status of a worker that cannot start before an operator has changed something."""

_ALIVE, _READY, _CLOSED = b"a", b"r", b"c"
_spawn = multiprocessing.get_context("spawn")


class Heartbeat:
    """The worker's end of the pipe to its supervisor. It never blocks, and works on if there is no supervisor."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def live(self) -> None:
        """Begin to send heartbeats, from a thread: a long statement on the event loop is no hang."""
        os.set_blocking(self._pipe.fileno(), False)
        threading.Thread(target=self._beat, name="storekeeper-beat", daemon=True).start()

    def ready(self) -> None:
        """Say that this worker serves."""
        self._tell(_READY)

    def closed(self) -> None:
        """Say that this worker takes no more connections."""
        self._tell(_CLOSED)

    def _beat(self) -> None:
        while True:
            self._tell(_ALIVE)
            time.sleep(HEARTBEAT_INTERVAL)

    def _tell(self, what: bytes) -> None:
        with suppress(OSError):
            os.write(self._pipe.fileno(), what)


class Worker:
    """A worker process: what it said so far, and until when it has to end."""

    def __init__(self, work: Callable[[Heartbeat], None]) -> None:
        """Start one. Raises OSError if no process can be made now."""
        self.ready = False
        self.closed = False
        self.outdated = False
        self.end: float | None = None
        self._deadline = time.monotonic() + START_TIMEOUT
        self.pipe, other = multiprocessing.Pipe(duplex=False)
        os.set_blocking(self.pipe.fileno(), False)
        try:
            self.process = _spawn.Process(target=_run, args=(work, other))
            with _signals_left_to_us():
                self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            other.close()

    @property
    def status(self) -> int | None:
        """How it ended, None while it has not."""
        return self.process.exitcode

    def listen(self) -> None:
        """Take in what it said."""
        with suppress(OSError):
            said = os.read(self.pipe.fileno(), 65536)
            self.ready |= _READY in said
            self.closed |= _CLOSED in said
            if said:
                self._deadline = time.monotonic() + HEARTBEAT_TIMEOUT

    def spare(self) -> None:
        """Give it time for a heartbeat: this process itself stood still."""
        self._deadline = max(self._deadline, time.monotonic() + HEARTBEAT_TIMEOUT)

    def stop(self, timeout: float) -> None:
        """Tell it to stop; the supervisor kills it after so many seconds."""
        if self.end is None:
            self.end = time.monotonic() + timeout
            self.process.terminate()

    def is_late(self) -> bool:
        """Tell whether it has to be killed."""
        return time.monotonic() > min(self._deadline, self.end or self._deadline)

    def forget(self) -> None:
        """Let go of what belonged to it, once it has ended."""
        self.pipe.close()
        self.process.close()


@contextmanager
def _signals_left_to_us() -> Iterator[None]:
    """Have what is started here never take what a terminal sends to all: it hears from its supervisor."""
    resource_tracker.ensure_running()  # the first time, it would let them through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(work: Callable[[Heartbeat], None], pipe: Connection) -> None:
    work(Heartbeat(pipe))
