"""The ids of long lists by name or search, which are kept until their clients have read them.

A list shows one moment, however slowly it is read, and no index says which stores had a name at
an earlier moment. So the ids of such a list are found at once, kept in 8 bytes each, counted and
bounded.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import overload

from storekeeper.concurrency.slow_readers import Kept, SlowReaders
from storekeeper.domain.errors import Unavailable

MAX_KEPT_BYTES = 32 * 2**20
"""Bytes of the ids of lists by name that slow clients have not read yet: 4,000,000 ids."""

MAX_KEPT_LISTS = 4000
"""Lists by name that may be under way in one process, each of more than one page."""

PROGRESS_TIMEOUT = 1.0
"""Seconds for which a client may take no page of a list by name, while others need the room."""

GAVE_WAY = "The client read the list too slowly, and others needed the room"


class KeptIds(Kept, Sequence[int]):
    """Ids in ascending order, until their list gives way. Reading some is progress."""

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids = array("q", ids)
        super().__init__(len(self._ids) * self._ids.itemsize)

    def give_way(self) -> None:
        """Forget the ids."""
        super().give_way()
        self._ids = array("q")

    def __len__(self) -> int:
        return len(self._present())

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        self.note_progress()
        return self._present()[place]

    def _present(self) -> "array[int]":
        if self.gave_way:
            raise Unavailable(GAVE_WAY)
        return self._ids


class LongLists(SlowReaders[KeptIds]):
    """The ids of all lists that are under way in one process."""

    def __init__(self) -> None:
        super().__init__(
            MAX_KEPT_LISTS, MAX_KEPT_BYTES, PROGRESS_TIMEOUT, "Too many long lists are being read"
        )

    def keep(self, ids: Sequence[int]) -> Sequence[int]:
        """Return ids that may be read slowly while there is room for them. Raises Unavailable.

        A range takes no room.
        """
        if isinstance(ids, range):
            return ids
        kept = KeptIds(ids)
        self.add(kept)
        return kept
