"""Keeps worker processes running: starts, watches, replaces and stops them.

One loop checks everything and never blocks for long, so that a stop works at any time.
"""

import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path

from storekeeper.log.events import Event, emit, flush
from storekeeper.process.systemd import Watchdog

HEARTBEAT_INTERVAL = 1.0
HEARTBEAT_TIMEOUT = 5.0
START_TIMEOUT = 30.0
"""Seconds between two heartbeats of a worker; without one until it is replaced; the same for its
first heartbeat."""

STUCK_TIMEOUT = 30.0
"""Seconds after which a worker is replaced whose event loop does not run, though its thread sends
heartbeats."""

STOP_TIMEOUT = 9.0
"""Seconds between the signal to stop and the kill of a worker."""

CLOSE_TIMEOUT = 1.0
"""Seconds after which the supervisor shuts the socket down, if a worker has not begun to stop."""

MIN_RETRY_PAUSE = 0.5
MAX_RETRY_PAUSE = 8.0
"""Seconds between two attempts to replace a worker: the first pause and the longest; each is
twice the last."""

CANNOT_START = 3
"""Exit status of a worker that cannot start until the operator changes something."""

RETIRE = signal.SIGUSR1
"""Has a worker stop at once: another one serves in its place, or the operator does not wait."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_WATCH_INTERVAL = 0.5
_KILL_TIMEOUT = 0.5

ALIVE, RUNNING, READY, CLOSING = b"a", b"l", b"r", b"c"
"""Reports of a worker: it is alive, its event loop runs, it serves, it soon accepts no more
connections."""

_spawn = multiprocessing.get_context("spawn")


class Heartbeat:
    """The worker's end of the pipe to its supervisor. It never blocks."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def start(self) -> None:
        """Send heartbeats from a thread, which a long statement on the event loop does not stop."""
        os.set_blocking(self._pipe.fileno(), False)
        threading.Thread(target=self._beat, name="storekeeper-beat", daemon=True).start()

    def report(self, message: bytes) -> None:
        """Send a report. If the supervisor is gone, stop this process, which would keep the port
        for ever."""
        try:
            os.write(self._pipe.fileno(), message)
        except BlockingIOError:
            pass  # the supervisor is paused
        except OSError:
            signal.raise_signal(signal.SIGTERM)

    def _beat(self) -> None:
        while True:
            self.report(ALIVE)
            time.sleep(HEARTBEAT_INTERVAL)


def max_processes(workers: int) -> int:
    """Return how many processes these workers may have, while SIGHUP replaces them."""
    return 2 * workers + 1


class Worker:
    """A worker process, what it has reported, and when it must be killed. No two have the same
    `number` at a time."""

    def __init__(self, work: Callable[[Heartbeat, int], None], number: int) -> None:
        """Start the process. Raises OSError."""
        self.number = number
        self.ready = self.closing = self.outdated = False
        self.stop_deadline: float | None = None
        self._deadline = time.monotonic() + START_TIMEOUT
        self._stuck_at = math.inf
        # Otherwise `start` would start it, and unblock the signals.
        resource_tracker.ensure_running()
        self.pipe, other = multiprocessing.Pipe(duplex=False)
        os.set_blocking(self.pipe.fileno(), False)
        self.process = _spawn.Process(target=work, args=(Heartbeat(other), number))
        try:
            Path.cwd()
        except FileNotFoundError:
            os.chdir("/")  # no process can be started in a deleted folder
        # A terminal sends these to all processes, but only the supervisor may stop this one.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
        try:
            self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            other.close()

    def read_reports(self, *, was_paused: bool) -> None:
        """Read its reports. If the supervisor itself was paused, give the worker more time for its
        next heartbeat."""
        with suppress(OSError):
            received = os.read(self.pipe.fileno(), 65536)
            self.ready |= READY in received
            self.closing |= CLOSING in received
            if received:
                self._deadline = time.monotonic() + HEARTBEAT_TIMEOUT
            if RUNNING in received:
                self._stuck_at = time.monotonic() + STUCK_TIMEOUT
        if was_paused:
            self._deadline = max(self._deadline, time.monotonic() + HEARTBEAT_TIMEOUT)
            self._stuck_at = max(self._stuck_at, time.monotonic() + STUCK_TIMEOUT)

    def stop(self, number: signal.Signals, delay: float = 0.0) -> None:
        """Send it a signal that stops it after `delay` seconds; STOP_TIMEOUT later, it is
        overdue."""
        self.stop_deadline = min(
            self.stop_deadline or math.inf, time.monotonic() + delay + STOP_TIMEOUT
        )
        assert self.process.pid
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def is_overdue(self) -> bool:
        """Return whether it must be killed."""
        deadline = min(self._deadline, self._stuck_at)
        return time.monotonic() > min(deadline, self.stop_deadline or deadline)


@dataclass
class Supervisor:
    """Runs `count` workers, which call `work`, on one listening socket, until a signal stops it.

    `announce` is called once they serve. `on_end` is called with the number of a worker that
    ended, and whether it was lost. After a SIGTERM, clients are accepted for `drain_delay` seconds
    more. A listener that was `passed` belongs to another process too.
    """

    count: int
    work: Callable[[Heartbeat, int], None]
    listener: socket.socket
    announce: Callable[[], None] | None
    on_end: Callable[[int, bool], None]
    drain_delay: float = 0.0
    passed: bool = False

    def __post_init__(self) -> None:
        self._workers: list[Worker] = []
        self._signals: set[int] = set()
        self._stop_began: float | None = None
        self._closes_at = math.inf
        self._stop_signal: int | None = None
        self._status = 0
        self._retry_pause = 0.0
        self._next_start = 0.0
        self._last_watch = time.monotonic()
        self._watchdog = Watchdog()

    def run(self) -> int:
        """Run until a signal comes and all workers have ended; return the exit status."""
        self._wakeup, wake = os.pipe()
        for end in (self._wakeup, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGHUP):
            # Python also writes the signal into the pipe, which wakes the loop.
            signal.signal(number, lambda number, _frame: self._signals.add(number))
        try:
            while not self._is_over():
                self._step()
                self._sleep()
        except OSError as error:
            emit(Event.BUG, error=error)
            self._status = 1
        finally:
            ignore_signals()
            for worker in self._workers:
                worker.process.kill()
            log_stop(self._stop_signal, self._stop_began)
        if any(worker.process.exitcode is None for worker in self._workers):
            flush()
            # Python would wait for a process that waits for a broken disk, which nothing ends.
            os._exit(self._status)
        return self._status

    def _is_over(self) -> bool:
        if self._stop_began is None:
            return False
        return (
            not self._workers or time.monotonic() > self._closes_at + STOP_TIMEOUT + _KILL_TIMEOUT
        )

    def _sleep(self) -> None:
        awaited: list[int | Connection] = [self._wakeup]
        for worker in self._workers:
            awaited += [worker.pipe, worker.process.sentinel]
        wait(awaited, _WATCH_INTERVAL)
        with suppress(BlockingIOError):
            os.read(self._wakeup, 65536)

    def _step(self) -> None:
        self._watchdog.feed()
        signals, self._signals = self._signals, set()
        if signal.SIGHUP in signals:
            for worker in self._workers:
                worker.outdated = True
        if asked := signals.intersection(STOP_SIGNALS):
            self._stop_signal = self._stop_signal or min(asked)
            self._stop(0.0 if signal.SIGINT in asked else self.drain_delay)
        self._watch()  # after the signals: a worker that also got one is not lost
        if self._stop_began is None:
            self._replace()
        else:
            self._refuse_clients()

    def _watch(self) -> None:
        now = time.monotonic()
        was_paused = now - self._last_watch > HEARTBEAT_TIMEOUT / 2
        self._last_watch = now
        for worker in list(self._workers):
            worker.read_reports(was_paused=was_paused)
            if worker.process.exitcode is not None:
                self._workers.remove(worker)
                self.on_end(worker.number, worker.stop_deadline is None)
                if worker.stop_deadline is None:
                    self._on_loss(worker, worker.process.exitcode)
                worker.pipe.close()
                worker.process.close()
            elif worker.is_overdue():
                worker.process.kill()
        if self.announce and sum(worker.ready for worker in self._workers) >= self.count:
            self.announce()
            self.announce = None

    def _on_loss(self, worker: Worker, status: int) -> None:
        serving = [other for other in self._workers if other.stop_deadline is None]
        if status == CANNOT_START and len(serving) >= self.count:
            # A SIGHUP asked for this worker, which cannot start: keep those that serve.
            emit(
                Event.WORKER_CANNOT_START,
                reason="no worker is replaced at SIGHUP, those before it continue",
            )
            for other in serving:
                other.outdated = False
            return
        emit(Event.WORKER_LOST, pid=worker.process.pid, status=status)
        if status == CANNOT_START:
            self._status = 1
            self._stop()
        elif not worker.ready:
            self._delay_next_start()

    def _replace(self) -> None:
        serving = [worker for worker in self._workers if worker.stop_deadline is None]
        outdated = [worker for worker in serving if worker.outdated]
        if all(worker.ready for worker in serving):
            if len(serving) >= self.count:
                self._retry_pause = 0.0
            if outdated and len(serving) > self.count:
                outdated[0].stop(RETIRE)
        wanted = self.count
        if outdated:
            wanted += 1
        for _ in range(len(serving), wanted):
            if time.monotonic() >= self._next_start:
                self._start()

    def _start(self) -> None:
        used = {worker.number for worker in self._workers}
        free = set(range(max_processes(self.count))) - used
        if not free:  # many that SIGHUP replaced have not ended yet
            return
        try:
            self._workers.append(Worker(self.work, min(free)))
        except (OSError, ImportError, MemoryError) as error:  # perhaps no more files can be opened
            emit(Event.WORKER_CANNOT_START, reason=str(error))
            self._delay_next_start()
            if self.announce and not self._workers:
                self._status = 1
                self._stop()

    def _delay_next_start(self) -> None:
        self._retry_pause = min(2 * self._retry_pause or MIN_RETRY_PAUSE, MAX_RETRY_PAUSE)
        self._next_start = time.monotonic() + self._retry_pause

    def _stop(self, delay: float = 0.0) -> None:
        now = time.monotonic()
        self._stop_began = self._stop_began or now
        self._closes_at = min(self._closes_at, now + delay)
        for worker in self._workers:
            worker.stop(signal.SIGTERM, delay)
            if not delay:
                worker.stop(RETIRE)

    def _refuse_clients(self) -> None:
        if all(worker.closing for worker in self._workers):
            # The last worker refuses new clients; this socket would reset them.
            self.listener.close()
        elif time.monotonic() > self._closes_at + CLOSE_TIMEOUT:
            if not self.passed:
                with suppress(OSError):
                    self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()


def log_stop(number: int | None, began: float | None) -> None:
    """Log the end of a service that a signal stopped, and how long that took; `began` is
    monotonic time."""
    if number is not None and began is not None:
        name = signal.Signals(number).name
        seconds = round(time.monotonic() - began, 2)
        emit(Event.STOPPED, signal=name, seconds=seconds, pid=os.getpid())


def ignore_signals() -> None:
    """Ignore further signals, so that none changes the exit status at the end of a stop."""
    # Python would print that it ignores a signal that comes right now.
    sys.unraisablehook = lambda _: None
    for number in (*STOP_SIGNALS, signal.SIGHUP, RETIRE):
        signal.signal(number, signal.SIG_IGN)
