"""How one thread ends what another thread waits for."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock


class Interruption:
    """Ends the work of one thread, at once or as soon as it begins."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._end: Callable[[], object] | None = None
        self._is_requested = False

    @contextmanager
    def by(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` if this work is interrupted before it is over."""
        with self._lock:
            self._end = end
            if self._is_requested:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._end = None

    @contextmanager
    def by_closing(self, descriptor: int) -> Iterator[None]:
        """Close the connection of a socket if this work, which waits for it, is interrupted."""
        # With its own descriptor, because the work may close the other one at any time.
        with socket.socket(fileno=os.dup(descriptor)) as own:

            def close() -> None:
                with suppress(OSError):  # the other side has closed it
                    own.shutdown(socket.SHUT_RDWR)

            with self.by(close):
                yield

    def interrupt(self) -> None:
        """End the work, if it is not over."""
        with self._lock:
            self._is_requested = True
            if self._end is not None:
                self._end()
