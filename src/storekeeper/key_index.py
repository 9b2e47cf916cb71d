"""Domain: the index of the Idempotency-Keys that are remembered, in the memory of a process. Imports nothing.

The table of keys grows only at its end and shrinks only at its beginning, so that a write changes few of its pages.
An index in the database would cost each write one more page, far from the others. So each process that writes has one
of its own. Each transaction with keys first puts the rows in there that are new since the last one.
"""

import secrets
from collections.abc import Iterable
from itertools import starmap
from struct import Struct, pack

MAX_LOADED = 500
"""Keys that are put into the index at once: some 0.2 ms, for which the event loop may have to wait."""

LOAD_TIME = 0.5
"""Seconds for which a write with a key waits for the index of all keys; the rest is read without it, once again."""

_SPLIT = Struct(">H4s2x")  # a key, multiplied by the salt: its bucket, and by what it is known there
# Clients know how their keys are hashed: without it, they could find a million keys for one bucket.
_SALT = secrets.randbits(64) | 1
_64_BITS = 2**64 - 1
_ENTRY = Struct(">4sq")  # and the number of its row

SWEEP = 16 * _ENTRY.size
"""Bytes that a bucket gets until the entries of deleted rows are removed from it."""


class KeyIndex:
    """The numbers of the rows by key: some 15 bytes for each, in buckets that the hash of a key chooses.

    Two keys may look the same here. A row that was deleted may still have its entry.
    """

    def __init__(self) -> None:
        self._buckets = [b""] * 2**16
        self._keys: list[int] = []
        self._places: list[tuple[int, bytes]] = []

    def find(self, keys: list[int]) -> set[int]:
        """Return the numbers of what may be the rows of these keys."""
        buckets = self._buckets
        return {
            n
            for bucket, known in self._split(keys)
            if buckets[bucket].find(known) >= 0  # `in` takes twice as long
            for found, n in _ENTRY.iter_unpack(buckets[bucket])
            if found == known
        }

    def add(self, keys: list[int], rows: Iterable[int], oldest: int) -> None:
        """Add the numbers of the `rows` of these keys; all rows before `oldest` were deleted."""
        buckets = self._buckets
        for n, (bucket, known) in zip(rows, self._split(keys), strict=True):
            buckets[bucket] = entries = buckets[bucket] + known + n.to_bytes(8)
            if not len(entries) % SWEEP:
                left = [entry for entry in _ENTRY.iter_unpack(entries) if entry[1] >= oldest]
                buckets[bucket] = b"".join(starmap(_ENTRY.pack, left))

    def _split(self, keys: list[int]) -> list[tuple[int, bytes]]:
        # The keys of a batch are looked for, and added when they are committed.
        if keys != self._keys:
            salted = [key * _SALT & _64_BITS for key in keys]
            self._keys, self._places = keys, [*_SPLIT.iter_unpack(pack(f">{len(keys)}Q", *salted))]
        return self._places
