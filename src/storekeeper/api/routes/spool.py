"""Temporary files of imports and exports, and how long these may take."""

import gc
import time
from collections.abc import Callable
from contextlib import suppress
from io import BufferedRandom
from tempfile import TemporaryFile
from weakref import WeakSet

from storekeeper.domain.errors import Unavailable
from storekeeper.http.response import Response, unavailable


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

    def __del__(self) -> None:
        with suppress(OSError):  # what cannot be written is lost with the file
            self.close()


class Spools:
    """Hands out spools, of which `count` may be in use at once."""

    def __init__(self, count: int, refusal: str) -> None:
        self._count = count
        self._refusal = refusal
        self._used = WeakSet[Spool]()

    def take(self) -> Spool:
        """Return a new spool. Raises Unavailable."""
        if len(self._used) >= self._count:
            # A reference cycle, as of an exception with its frames, may keep one that nobody uses.
            gc.collect()
        if len(self._used) >= self._count:
            raise Unavailable(self._refusal)
        try:
            spool = Spool()
        except OSError as error:
            raise not_written(error) from None
        self._used.add(spool)
        return spool


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
