"""A collection as a whole, from one database to another, verified, all or nothing. Imports the domain's errors."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from storekeeper.errors import StorekeeperError

Row = tuple[Any, ...]

TABLES = {
    "stores": ("id", "name", "address", "version"),
    "changes": ("seq", "store_id", "name", "address", "at"),
}
"""All that a collection consists of: its tables in the order in which they can be filled, their columns. The
first column is the key."""

_PROGRESS_INTERVAL = 10_000


class NotEmpty(StorekeeperError):
    """The target has stores already."""


class NotTheSame(StorekeeperError):
    """The target is not identical to the source; nothing of it was kept."""


class Snapshot(Protocol):
    """All rows of one collection, as they are at one moment."""

    def count(self) -> tuple[int, int]:
        """Return how many stores and how many changes there are."""
        ...

    def rows(self, table: str) -> Iterator[Row]:
        """Return a table's rows by its key, a few at a time from the database."""
        ...

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        """Add rows to a table that has none."""
        ...

    def finish(self) -> None:
        """Write all that was filled to where it will be kept; rows are read from there then."""
        ...


Opening = Callable[[], AbstractContextManager[Snapshot]]
"""Opens a collection; what was filled is kept at the end, or nothing of it if there was an exception."""


def copy(source: Opening, target: Opening, progress: Callable[[int, int], None]) -> tuple[int, int]:
    """Copy everything; return how many stores and changes. `progress` is called now and then: rows done, rows in all.

    Raises NotEmpty, NotTheSame, Unavailable.
    """
    with source() as one, target() as other:
        count = one.count()
        if other.count() != (0, 0):
            raise NotEmpty("the target has stores already: name an empty database")
        sums = _Sums(lambda done: progress(done, 2 * sum(count)))
        sent = {}
        for table in TABLES:
            sent[table] = sums.begin(table)
            other.fill(table, sums.through(one.rows(table)))
        other.finish()
        for table in TABLES:
            arrived = sums.begin(table)
            for _ in sums.through(other.rows(table)):
                pass
            if arrived.digest() != sent[table].digest():
                raise NotTheSame(f"the {table} that arrived are not those that were sent; nothing was kept of them")
        if other.count() != count:
            raise NotTheSame("the numbers of stores and changes differ; nothing was kept of them")
        return count


class _Sums:
    """Counts rows and sums them up, one table after another, on their way."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._encode = msgspec.json.Encoder().encode
        self._done = 0
        self._sum = hashlib.sha256()

    def begin(self, table: str) -> "hashlib._Hash":
        self._sum = hashlib.sha256(table.encode())
        return self._sum

    def through(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._sum.update(self._encode(row))
            yield row
            self._done += 1
            if self._done % _PROGRESS_INTERVAL == 0:
                self._progress(self._done)
