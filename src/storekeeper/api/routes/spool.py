"""Temporary files of imports and exports, and how long these may take."""

import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedRandom
from tempfile import TemporaryFile

from storekeeper.domain.errors import Unavailable
from storekeeper.http.response import Response, unavailable


class Spool(BufferedRandom):
    """A temporary file without a name. Raises OSError.

    It is released by what it was made for, and otherwise once nobody refers to it.
    """

    def __init__(self, released: Callable[[], None] = lambda: None) -> None:
        self._released = released
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
        self._released()
        with suppress(OSError, ValueError):  # what cannot be written is lost; or it was never open
            self.close()

    def __del__(self) -> None:
        self.release()


class Spools:
    """Hands out spools, of which `count` may be in use at once."""

    def __init__(self, count: int, refusal: str) -> None:
        self._count = count
        self._refusal = refusal
        self._used = set[object]()

    def take(self) -> Spool:
        """Return a new spool. Raises Unavailable."""
        if len(self._used) >= self._count:
            raise Unavailable(self._refusal)
        place = object()
        try:
            spool = Spool(partial(self._used.discard, place))
        except OSError as error:
            raise not_written(error) from None
        self._used.add(place)
        return spool


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
