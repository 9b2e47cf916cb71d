"""What is kept in memory or on disk until a client has read it, counted and bounded."""

from time import monotonic
from typing import Generic, TypeVar
from weakref import WeakSet

from storekeeper.domain.errors import Unavailable


class Kept:
    """Something of `size` bytes that is kept for one client until nothing refers to it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.gave_way = False
        self._progress_at = monotonic()

    def note_progress(self) -> None:
        """Note that the client has read some of it."""
        self._progress_at = monotonic()

    def seconds_without_progress(self) -> float:
        """Return how long the client has read nothing."""
        return monotonic() - self._progress_at

    def give_way(self) -> None:
        """Free what is kept: the client cannot read the rest."""
        self.gave_way = True


K = TypeVar("K", bound=Kept)


class SlowReaders(Generic[K]):
    """Everything that is kept: at most `max_count` things, and `max_bytes` in all; if there is only
    one, it may be larger.

    If there is no room for another, the client that has read nothing for longest gives way, if
    that is longer than `timeout` seconds. Otherwise the new one is refused. `refused` counts both.
    """

    def __init__(self, max_count: int, max_bytes: int, timeout: float, refusal: str) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._refusal = refusal
        self._kept = WeakSet[K]()
        self.refused = 0

    def add(self, kept: K) -> None:
        """Keep one more. Raises Unavailable."""
        self.make_room(kept.size)
        self._kept.add(kept)

    def make_room(self, size: int = 0) -> None:
        """Make slow clients give way until there is room for `size` bytes. Raises Unavailable."""
        while not self._has_room(size):
            self.refused += 1
            slowest = max(self._kept, key=Kept.seconds_without_progress)
            if slowest.seconds_without_progress() <= self._timeout:
                raise Unavailable(self._refusal)
            slowest.give_way()
            self._kept.discard(slowest)

    def _has_room(self, size: int) -> bool:
        if not self._kept:
            return True
        used = sum(kept.size for kept in self._kept)
        return len(self._kept) < self._max_count and used + size <= self._max_bytes
