"""A bounded cache that forgets by age, and a filter of what is worth caching. Imports nothing of the project.

A value that nobody asks for again is not worth the time of caching it: so a key is admitted at its second sighting.
"""

from array import array
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")

_SLOTS = 2**14
"""Keys whose sighting is remembered, at most: 128 KiB."""


class Generations(Generic[V]):
    """Values by key, about `max_bytes` of them as `size` counts them.

    When the young take half of that they become the old, and the old ones before them are forgotten. An old one that
    is asked for is young again.
    """

    __slots__ = ("_max_bytes", "_sightings", "_size", "_young_bytes", "old", "young")

    def __init__(self, max_bytes: int, size: Callable[[bytes, V], int]) -> None:
        self._max_bytes = max_bytes
        self._size = size
        self._young_bytes = 0
        self._sightings = array("q", bytes(8 * _SLOTS))
        self.young: dict[bytes, V] = {}
        self.old: dict[bytes, V] = {}
        """Both are always the same objects, so that a caller may look here first."""

    def get(self, key: bytes) -> V | None:
        """Return the value of a key, or None."""
        value = self.young.get(key)
        if value is None and (value := self.old.get(key)) is not None:
            self.put(key, value)
        return value

    def admits(self, key: bytes) -> bool:
        """Tell whether this key was seen before, not too many other keys ago; remember that it was seen."""
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
