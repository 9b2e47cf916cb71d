"""Temporary files of imports and exports, and how long these may take."""

import gc
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from math import inf
from tempfile import TemporaryFile
from weakref import WeakSet

from storekeeper.domain.errors import Unavailable
from storekeeper.http.response import Response, unavailable

COLLECT_INTERVAL = 1.0
"""Seconds between two collections of garbage for the sake of a place."""


class Spool(BufferedRandom):
    """A temporary file without a name, closed when nobody refers to it any more. Raises OSError."""

    def __init__(self) -> None:
        super().__init__(TemporaryFile(buffering=0))  # noqa: SIM115 - closed below

    def append(self, data: bytes) -> Response | None:
        """Append bytes; return the refusal of the request if they cannot be kept."""
        try:
            self.write(data)
        except OSError as error:
            return unavailable(str(not_written(error)))
        return None

    def release(self) -> None:
        """Close the file, and give its place to another one."""
        with suppress(OSError):  # what cannot be written is lost with the file
            self.close()

    def __del__(self) -> None:
        self.release()


class Spools:
    """Hands out spools, of which `count` may be in use at once."""

    def __init__(self, count: int, refusal: str) -> None:
        self._count = count
        self._refusal = refusal
        self._used = WeakSet[Spool]()
        self._collected_at = -inf

    def take(self) -> Spool:
        """Return a new spool. Raises Unavailable."""
        if self._is_full():
            self._collect()
        if self._is_full():
            raise Unavailable(self._refusal)
        try:
            spool = Spool()
        except OSError as error:
            raise not_written(error) from None
        self._used.add(spool)
        return spool

    def _is_full(self) -> bool:
        return sum(not spool.closed for spool in self._used) >= self._count

    def _collect(self) -> None:
        """Free a spool that nobody uses, and that a reference cycle keeps, as of an exception with
        its frames: now and then, because this takes long."""
        if (now := time.monotonic()) - self._collected_at >= COLLECT_INTERVAL:
            self._collected_at = now
            gc.collect()


@contextmanager
def releasing(spool: Spool) -> Iterator[None]:
    """Release a spool at the end, unless what waited for a thread was cancelled: the thread may
    still use it."""
    try:
        yield
    except CancelledError:
        raise
    except BaseException:
        spool.release()
        raise
    spool.release()


def not_written(error: OSError) -> Unavailable:
    """Return what a failure to write a spool means to the client."""
    return Unavailable(f"The folder of temporary files cannot be written: {error.strerror}")


def within(seconds: float, refusal: str) -> Callable[[int], None]:
    """Return a function that is called with the number of each row; after so many seconds it
    raises Unavailable."""
    check_time = until(seconds, refusal)

    def check(row: int) -> None:
        if row % 256 == 0:
            check_time()

    return check


def until(seconds: float, refusal: str) -> Callable[[], None]:
    """Return a function that raises Unavailable after so many seconds."""
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise Unavailable(refusal)

    return check
