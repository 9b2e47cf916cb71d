"""Copies a collection from one database to another, verified, all or nothing. Imports the domain."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

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

    def epoch(self) -> str:
        """Return the collection's epoch."""
        ...

    def finish(self, epoch: str | None) -> None:
        """Set the epoch, None for a new one, and write all that was added to where it will stay.

        From then on, everything is read from there.
        """
        ...


Opening = Callable[[], AbstractContextManager[Snapshot]]
"""Opens a collection; at the end it keeps the rows that were added, or none of them if there was an exception."""


class Copied(NamedTuple):
    """How many stores and changes were copied, and the target's epoch."""

    stores: int
    changes: int
    epoch: str


def copy(source: Opening, target: Opening, progress: Callable[[int, int], None], *, move: bool = False) -> Copied:
    """Copy everything. `progress` is called now and then: rows done, rows in all.

    The target gets an epoch of its own, since both may be written from now on and would give the same versions to
    different changes. With `move` it keeps the source's, which must not be written any more.

    Raises TargetNotEmpty, VerificationFailed, Unavailable.
    """
    with source() as source_snapshot, target() as target_snapshot:
        count = source_snapshot.count()
        if target_snapshot.count() != (0, 0):
            raise TargetNotEmpty("the target has stores already: name an empty database")
        if list(target_snapshot.rows("tokens")):
            raise TargetNotEmpty(
                "the target has tokens already, and gets those of the source: name an empty database"
            )
        epoch = source_snapshot.epoch()
        checksums = _Checksums(lambda done: progress(done, max(done, 2 * sum(count))))  # the keys are not counted
        sent = {}
        for table in TABLES:
            sent[table] = checksums.begin(table)
            target_snapshot.fill(table, checksums.through(source_snapshot.rows(table)))
        target_snapshot.finish(epoch if move else None)
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
        if ((arrived_epoch := target_snapshot.epoch()) == epoch) is not move:
            raise VerificationFailed("the target has not got its epoch; nothing was kept of it")
        return Copied(*count, arrived_epoch)


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
