"""Copies a collection from one database to another, verified, all or nothing. Imports the domain."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from storekeeper.errors import StorekeeperError
from storekeeper.tables import TABLES

Row = tuple[Any, ...]

_PROGRESS_INTERVAL = 10_000


class TargetNotEmpty(StorekeeperError):
    """The target has stores already."""


class VerificationFailed(StorekeeperError):
    """The target is not identical to the source; it keeps none of the copied rows."""


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
        """Write all rows that were added to where they will stay; from then on, rows are read from there."""
        ...


Opening = Callable[[], AbstractContextManager[Snapshot]]
"""Opens a collection; at the end it keeps the rows that were added, or none of them if there was an exception."""


def copy(source: Opening, target: Opening, progress: Callable[[int, int], None]) -> tuple[int, int]:
    """Copy everything; return how many stores and changes. `progress` is called now and then: rows done, rows in all.

    Raises TargetNotEmpty, VerificationFailed, Unavailable.
    """
    with source() as source_snapshot, target() as target_snapshot:
        count = source_snapshot.count()
        if target_snapshot.count() != (0, 0):
            raise TargetNotEmpty("the target has stores already: name an empty database")
        checksums = _Checksums(lambda done: progress(done, 2 * sum(count)))
        sent = {}
        for table in TABLES:
            sent[table] = checksums.begin(table)
            target_snapshot.fill(table, checksums.through(source_snapshot.rows(table)))
        target_snapshot.finish()
        for table in TABLES:
            arrived = checksums.begin(table)
            for _ in checksums.through(target_snapshot.rows(table)):
                pass
            if arrived.digest() != sent[table].digest():
                raise VerificationFailed(
                    f"the {table} that arrived are not those that were sent; nothing was kept of them"
                )
        if target_snapshot.count() != count:
            raise VerificationFailed("the numbers of stores and changes differ; nothing was kept of them")
        return count


class _Checksums:
    """Counts rows, and computes a checksum of each table, while they pass."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._encode = msgspec.json.Encoder().encode
        self._done = 0
        self._checksum = hashlib.sha256()

    def begin(self, table: str) -> "hashlib._Hash":
        self._checksum = hashlib.sha256(table.encode())
        return self._checksum

    def through(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._checksum.update(self._encode(row))
            yield row
            self._done += 1
            if self._done % _PROGRESS_INTERVAL == 0:
                self._progress(self._done)
