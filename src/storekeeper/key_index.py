"""Domain: the index of the Idempotency-Keys that are remembered, in the memory of a process. Imports the domain.

A transaction adds one row, with all its keys, to the end of their table; the oldest rows are deleted first. So a
write changes few pages. An index in the database would cost it one more page, far from the others: each process that
writes has one of its own. Each transaction with keys first puts the rows in there that are new since the last one.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, compress, repeat
from operator import and_, itemgetter

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

LISTS = 2**20
"""Into so many lists the hashes of keys divide them. Each has five if there are as many keys as there may be."""


class KeyIndex:
    """The numbers of the rows by key, in flat arrays: 8 MB, and 24 to 32 bytes for each key.

    An object for each key, or for each list of keys, may be anywhere in memory: to reach one that is in no cache of
    the processor takes longer than all else here. A new key goes to the end of the entries, and becomes the head of
    its list. The hash is Python's, another one in each process unless PYTHONHASHSEED is set: no client can find a
    million keys for one list. Keys of deleted rows stay here, until others come and find that they are a quarter.
    """

    def __init__(self) -> None:
        self._heads = array("q")  # of each list the place of its newest key, 0 for none; the first key of all had 1
        self._entries = array("q")  # of each key its hash, its row, and the place of the key before it in its list
        self._gone = 0  # places whose keys have left the entries
        self._keys: Sequence[str] = ()
        self._split_keys: tuple[list[int], list[int]] = [], []

    def find(self, keys: Sequence[str]) -> set[int]:
        """Return the numbers of what may be the rows of these keys."""
        hashes, lists = self._split(keys)
        heads = itemgetter(*lists, 0)(self._heads)  # one more, because of one alone it would return no tuple
        found, entries, start = set[int](), self._entries, self._gone + 1
        for hashed, place in compress(zip(hashes, heads, strict=False), heads):
            while place >= start:
                at = 3 * (place - start)
                if entries[at] == hashed:
                    found.add(entries[at + 1])
                place = entries[at + 2]  # noqa: PLW2901 - on through its list
        return found

    def load(self, rows: Iterable[Row], oldest: int) -> None:
        """Add the keys of rows, in the order of their numbers; all before the number `oldest` were deleted."""
        numbered = [(key, n) for n, entries in rows for key, _, _ in entries]
        if numbered:
            keys, numbers = zip(*numbered, strict=True)
            self._add(keys, numbers, oldest)

    def add(self, keys: Sequence[str], row: int, oldest: int) -> None:
        """Add the keys of one row, which were just looked for."""
        self._add(keys, repeat(row), oldest)

    def _add(self, keys: Sequence[str], rows: Iterable[int], oldest: int) -> None:
        hashes, lists = self._split(keys)
        heads, entries, first = self._heads, self._entries, len(self._entries)
        # First all that takes memory: should there be none, the lists are as they were.
        entries.extend(array("q", chain.from_iterable(zip(hashes, rows, lists, strict=False))))
        place = self._gone + first // 3
        for at in range(first + 2, len(entries), 3):
            number, place = entries[at], place + 1
            entries[at] = heads[number]
            heads[number] = place
        quarter = len(entries) // 12
        if entries[3 * quarter + 1] < oldest:
            del entries[: 3 * quarter]
            self._gone += quarter

    def _split(self, keys: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the hashes of keys, and the numbers of their lists."""
        # The keys of a batch are looked for, and added when they are committed.
        if keys != self._keys:
            if not self._heads:
                self._heads = array("q", [0]) * LISTS
            hashes = [*map(hash, keys)]
            self._keys, self._split_keys = keys, (hashes, [*map(and_, hashes, repeat(LISTS - 1))])
        return self._split_keys
