"""A bounded cache that forgets by age, and a filter of what is worth caching. Imports nothing of the project.

To cache a value that nobody asks for again wastes time. So callers cache a value when its key is seen a second time.
"""

from array import array
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")

_SLOTS = 2**14
"""Slots for the hashes of keys that were seen: 128 KiB."""


class Generations(Generic[V]):
    """Values by key, about `max_bytes` of them as `size` counts them.

    When the young values take half of that, they become the old ones, and the former old ones are forgotten. An old
    value that is asked for becomes young again.
    """

    __slots__ = ("_max_bytes", "_sightings", "_size", "_young_bytes", "old", "young")

    def __init__(self, max_bytes: int, size: Callable[[bytes, V], int]) -> None:
        self._max_bytes = max_bytes
        self._size = size
        self._young_bytes = 0
        self._sightings = array("q", bytes(8 * _SLOTS))
        self.young: dict[bytes, V] = {}
        self.old: dict[bytes, V] = {}
        """`young` and `old` are always the same objects, so that a caller may look into them without a call."""

    def get(self, key: bytes) -> V | None:
        """Return the value of a key, or None."""
        value = self.young.get(key)
        if value is None and (value := self.old.get(key)) is not None:
            self.put(key, value)
        return value

    def seen(self, key: bytes) -> bool:
        """Remember that this key was seen; tell whether it was before, not too many other keys ago."""
        hashed = hash(key)
        slot = hashed % _SLOTS
        if self._sightings[slot] == hashed:
            return True
        self._sightings[slot] = hashed
        return False

    def put(self, key: bytes, value: V) -> None:
        """Cache a value."""
        self._young_bytes += self._size(key, value)
        if self._young_bytes > self._max_bytes // 2:
            self.old.clear()
            self.old.update(self.young)
            self.young.clear()
            self._young_bytes = self._size(key, value)
        self.young[key] = value

    def forget(self, key: bytes) -> None:
        """Forget the value of a key, if there is one."""
        self.old.pop(key, None)
        if (value := self.young.pop(key, None)) is not None:
            self._young_bytes -= self._size(key, value)

    def clear(self) -> None:
        """Forget all values."""
        self.young.clear()
        self.old.clear()
        self._young_bytes = 0
