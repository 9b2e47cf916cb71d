"""A log whose lines a thread writes, so that logging never waits for a reader."""

import os
import select
import threading
from collections import deque
from collections.abc import Callable

MAX_QUEUED_LINES = 1000
"""Lines that may wait; the log drops and counts further ones."""

MAX_LINE_BYTES = 64 * 1024
"""Bytes of a line; what follows is cut off."""


class Log:
    """Writes lines to a file descriptor, in order. `format_dropped` returns a line that reports
    `n` dropped lines."""

    def __init__(self, file: int, format_dropped: Callable[[int], bytes]) -> None:
        self._file = file
        self._format_dropped = format_dropped
        self._changed = threading.Condition()  # its lock is reentrant: a finalizer may log
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self.waiting: deque[bytes] = deque()

    def write(self, line: bytes) -> None:
        """Queue a line; the thread writes it soon."""
        with self._changed:
            if len(self.waiting) >= MAX_QUEUED_LINES:
                self._dropped += 1
                return
            if len(line) > MAX_LINE_BYTES:
                line = line[:MAX_LINE_BYTES] + b"\n"
            self.waiting.append(line)
            self._changed.notify_all()
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="storekeeper-log", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:  # no thread can be started; the next line tries again
            self._write_at_once()

    def flush(self, timeout: float) -> bool:
        """Wait until all lines are written, at most `timeout` seconds; return whether they are."""
        with self._changed:
            if self._thread is None:
                self._write_at_once()
            return self._changed.wait_for(lambda: not self.waiting, timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.waiting)
            self._write_some(wait=True)

    def _write_at_once(self) -> None:
        while self.waiting and self._write_some(wait=False):
            pass

    def _write_some(self, *, wait: bool) -> bool:
        """Write the first line. Without `wait`, write only what a pipe takes at once; return False
        if that is nothing."""
        poll = select.poll()
        poll.register(self._file, select.POLLOUT)
        ready = poll.poll() if wait else poll.poll(0)
        if not ready:
            return False
        line = self.waiting[0]  # it stays until it is written, so that `flush` waits for it
        # In one piece if possible: other processes write lines to the same file.
        piece = line if wait else line[: select.PIPE_BUF]
        try:
            written = os.write(self._file, piece)
        except BlockingIOError:
            # Another program made the pipe non-blocking, and has just filled it.
            written = 0
        except OSError:  # the reader is gone, or the disk is full
            written = len(line)
        with self._changed:
            self._remove(written)
            self._changed.notify_all()
        return True

    def _remove(self, written: int) -> None:
        """Remove the bytes that were written of the first line; after the last line, report those
        that were dropped."""
        self.waiting[0] = self.waiting[0][written:]
        if self.waiting[0]:
            return
        self.waiting.popleft()
        if not self.waiting and self._dropped:
            self.waiting.append(self._format_dropped(self._dropped))
            self._dropped = 0
