"""Domain: the index of the Idempotency-Keys that are remembered, in the memory of a process. Imports the domain.

A transaction adds one row, with all its keys, to the end of their table; the oldest rows are deleted first. So a
write changes few pages. An index in the database would cost it one more page, far from the others: each process that
writes has one of its own. Each transaction with keys first puts the rows in there that are new since the last one.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from struct import Struct, pack

import msgspec

from storekeeper.commands import KeyEntry

MAX_LOADED = 500
"""Keys, or more if one row has them, that are put into the index at once: the event loop may wait for some 0.2 ms."""

LOAD_TIME = 0.5
"""Seconds for which a write with a key waits for the index of all keys; the rest is read without it, once again."""

as_entries = msgspec.json.Encoder().encode
"""Returns keys as a row of `tables.KEYS` has them."""

Row = tuple[int, list[KeyEntry]]
"""The number of such a row, and what is in it."""

entries_in = msgspec.json.Decoder(list[KeyEntry]).decode

_SPLIT = Struct(">H3s3x")  # a hash: its bucket, and by what the key is known there
_ENTRY = Struct(">3s5s")  # and the number of its row

TRIM_EVERY = 16
"""Each call that adds keys rids one bucket of the entries of deleted rows, and one more for each of so many keys."""


class KeyIndex:
    """The numbers of the rows by key: some 10 bytes for each, in buckets that the hash of a key chooses.

    It is Python's hash, another one in each process unless PYTHONHASHSEED is set: no client can find a million keys
    for one bucket. Two keys may look the same here. A row that was deleted may still have its entries.
    """

    def __init__(self) -> None:
        self._buckets = [b""] * 2**16  # entries in the order of their rows
        self._trimmed = 0
        self._keys: Sequence[str] = ()
        self._places: tuple[Sequence[int], Sequence[bytes]] = (), ()

    def find(self, keys: Sequence[str]) -> set[int]:
        """Return the numbers of what may be the rows of these keys."""
        places, known = self._split(keys)
        buckets = [*map(self._buckets.__getitem__, places)]
        if max(map(bytes.find, buckets, known)) < 0:  # most keys are new
            return set()
        return {
            int.from_bytes(row)
            for bucket, wanted in zip(buckets, known, strict=True)
            for found, row in _ENTRY.iter_unpack(bucket)
            if found == wanted
        }

    def load(self, rows: Iterable[Row], oldest: int) -> None:
        """Add the keys of rows, in the order of their numbers; all before the number `oldest` were deleted."""
        numbered = [(key, n.to_bytes(5)) for n, entries in rows for key, _, _ in entries]
        if numbered:
            keys, numbers = zip(*numbered, strict=True)
            self._add(keys, numbers, oldest)

    def add(self, keys: Sequence[str], row: int, oldest: int) -> None:
        """Add the keys of one row, which were just looked for."""
        self._add(keys, repeat(row.to_bytes(5)), oldest)

    def _add(self, keys: Sequence[str], rows: Iterable[bytes], oldest: int) -> None:
        buckets = self._buckets
        for place, known, row in zip(*self._split(keys), rows, strict=False):
            buckets[place] += known + row
        first = oldest.to_bytes(5)
        for _ in range(len(keys) // TRIM_EVERY + 1):
            self._trimmed = place = (self._trimmed + 1) % len(buckets)
            entries, start = buckets[place], 0
            while (row := entries[start + 3 : start + 8]) and row < first:
                start += _ENTRY.size
            buckets[place] = entries[start:]

    def _split(self, keys: Sequence[str]) -> tuple[Sequence[int], Sequence[bytes]]:
        # The keys of a batch are looked for, and added when they are committed.
        if keys != self._keys:
            hashes = pack(f">{len(keys)}q", *map(hash, keys))
            places, known = zip(*_SPLIT.iter_unpack(hashes), strict=True)
            self._keys, self._places = keys, (places, known)
        return self._places
