"""Lines for standard error, written by a thread: who logs never waits for who reads. Imports nothing of ours."""

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

MAX_QUEUED_LINES = 1000
MAX_QUEUED_BYTES = 256 * 1024
"""What may wait at most; a line that does not fit is dropped and counted."""

_PIPE_BUF = 4096
"""Bytes that a pipe which can be written takes without a wait."""


class Log:
    """Writes lines to a file descriptor, in order; `dropped` makes the line that says how many were lost."""

    def __init__(self, file: int, dropped: Callable[[int], bytes]) -> None:
        self._file = file
        self._say_dropped = dropped
        self._changed = threading.Condition()  # on a lock that a thread may take twice, as a finalizer that logs does
        self._thread: threading.Thread | None = None
        self._size = 0
        self._dropped = 0
        self.waiting: deque[bytes] = deque()

    def write(self, line: bytes) -> None:
        """Have a line written soon."""
        with self._changed:
            if len(self.waiting) >= MAX_QUEUED_LINES or self._size + len(line) > MAX_QUEUED_BYTES:
                self._dropped += 1
                return
            self._append(line)
            if self._thread is None and not self._start():
                self._write_at_once()

    def flush(self, timeout: float) -> bool:
        """Wait until all lines are written, or for so many seconds; tell whether they are."""
        with self._changed:
            if self._thread is None:
                self._write_at_once()
            return self._changed.wait_for(lambda: not self.waiting, timeout)

    def _append(self, line: bytes) -> None:
        self.waiting.append(line)
        self._size += len(line)
        self._changed.notify_all()

    def _remove(self) -> None:
        self._size -= len(self.waiting.popleft())
        if not self.waiting and self._dropped:
            line, self._dropped = self._say_dropped(self._dropped), 0
            self._append(line)
        self._changed.notify_all()

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name="storekeeper-log", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there is none to be had; the next line tries again
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.waiting)
                line = self.waiting[0]  # it stays until it is written, so that `flush` waits for it
            with suppress(OSError):  # its reader has gone, or its disk is full
                self._write(line)
            with self._changed:
                self._remove()

    def _write(self, line: bytes) -> None:
        while line:
            try:
                line = line[os.write(self._file, line) :]
            except BlockingIOError:  # another program that has the same pipe chose that
                self._can_be_written(None)

    def _write_at_once(self) -> None:
        with suppress(OSError):
            while self.waiting and self._can_be_written(0):
                line = self.waiting[0]
                written = os.write(self._file, line[:_PIPE_BUF])
                self._size -= written
                self.waiting[0] = line[written:]
                if not self.waiting[0]:
                    self._remove()

    def _can_be_written(self, timeout: int | None) -> bool:
        poll = select.poll()
        poll.register(self._file, select.POLLOUT)
        return bool(poll.poll(timeout))
