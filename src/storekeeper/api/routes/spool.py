"""Temporary files of imports and exports."""

import math
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from tempfile import TemporaryFile
from time import monotonic
from weakref import ref

from storekeeper.domain.errors import Unavailable
from storekeeper.http.response import Response, unavailable

MIN_SECONDS = 1.0
"""Seconds before the rate of an arriving import counts."""


class Spool(BufferedRandom):
    """A temporary file without a name. Raises OSError.

    It is released by the request that it was made for, and otherwise once nothing refers to it.
    """

    def __init__(self) -> None:
        self._spools: Spools | None = None
        self._place = ref(self)
        self._began = monotonic()
        self._received = 0
        self._refusal = ""
        super().__init__(TemporaryFile(buffering=0))  # noqa: SIM115 - closed below

    def append(self, data: bytes) -> Response | None:
        """Append bytes of a body; return the refusal of the request if they cannot be kept."""
        if self._refusal:
            return unavailable(self._refusal)
        self._received += len(data)
        try:
            self.write(data)
        except OSError as error:
            return unavailable(str(not_written(error)))
        return None

    def rate(self) -> float:
        """Return how many bytes a second came; infinite while it is too early to say."""
        seconds = monotonic() - self._began
        if seconds <= MIN_SECONDS:
            return math.inf
        return self._received / seconds

    def give_way(self, refusal: str) -> None:
        """Release it before its body is whole: its request is refused when more of it arrives."""
        self._refusal = refusal
        self.release()

    def check(self) -> None:
        """Raise Unavailable if it gave way."""
        if self._refusal:
            raise Unavailable(self._refusal)

    def move(self, spools: "Spools | None") -> None:
        """Give its place back, and take one of these, unless that is None."""
        if self._spools is not None:
            self._spools.used.discard(self._place)
        if spools is not None:
            spools.used.add(self._place)
        self._spools = spools

    def release(self) -> None:
        """Close the file, and give its place to another one."""
        self.move(None)
        # What cannot be written is lost; ValueError: it was never open.
        with suppress(OSError, ValueError):
            self.close()

    def __del__(self) -> None:
        self.release()


class Spools:
    """Places for `count` spools.

    If none is left for another, the spool whose body arrives most slowly gives way, if its rate is
    below `min_rate` bytes a second. Otherwise the new one is refused.
    """

    def __init__(self, count: int, refusal: str, min_rate: float = 0) -> None:
        self._count = count
        self._refusal = refusal
        self._min_rate = min_rate
        self.used = set[ref[Spool]]()
        """The spools that have a place here. Threads release spools too."""

    def make_room(self) -> None:
        """Make the slowest give way if no place is left. Raises Unavailable."""
        if len(self.used) < self._count:
            return
        spools = [place() for place in list(self.used)]
        slow = [each for each in spools if each is not None and each.rate() < self._min_rate]
        if not slow:
            raise Unavailable(self._refusal)
        min(slow, key=Spool.rate).give_way(self._refusal)

    def take(self) -> Spool:
        """Return a new spool. Raises Unavailable."""
        self.make_room()
        try:
            spool = Spool()
        except OSError as error:
            raise not_written(error) from None
        spool.move(self)
        return spool

    def take_over(self, spool: Spool) -> None:
        """Give a spool a place here instead of the one that it had. Raises Unavailable."""
        spool.check()
        self.make_room()
        spool.move(self)


@contextmanager
def releasing(spool: Spool) -> Iterator[None]:
    """Release a spool at the end, unless this was cancelled while it waited for a thread, which may
    still use the spool."""
    try:
        yield
    except CancelledError:
        raise
    except BaseException:
        spool.release()
        raise
    spool.release()


def not_written(error: OSError) -> Unavailable:
    """Return the Unavailable for a failure to write a spool."""
    return Unavailable(f"The folder of temporary files cannot be written: {error.strerror}")
