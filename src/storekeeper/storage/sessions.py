"""The session of a command that writes, on both databases, and what each such command begins
with."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from storekeeper.domain.changes import Cursor
from storekeeper.domain.commands import Tags, matches, tag
from storekeeper.domain.errors import KeyReused, PreconditionFailed
from storekeeper.domain.intake import Counts, Import, Numbers
from storekeeper.domain.undo import Undo, UndoCounts

AnyCounts = TypeVar("AnyCounts", Counts, UndoCounts)

LOCK_TIMEOUT = 60.0
"""Seconds that an import waits for other writers, unless its caller says otherwise."""


class Session(Protocol):
    """A connection to a database, for one import or another command that writes."""

    changes_table: str
    """The table of changes."""

    collection_table: str
    """The table of the collection's epoch."""

    set_numbers: str
    """The statement that makes the numbers of the collection those of the latest change, if a
    table has them."""

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
        """Execute a statement with parameters `$1`, `$2`; return its rows."""

    def write(self, statement: str, values: tuple[Any, ...] = ()) -> int:
        """Execute a statement that writes; return how many rows it wrote."""

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows to a temporary table, which has just these columns."""

    def writing(self, before_commit: Callable[[], None]) -> AbstractContextManager[None]:
        """Begin to write: take the lock of writers. At the end, call `before_commit` and commit."""


_NUMBERS = """SELECT coalesce(changes.count, 0), coalesce(seq, 0), epoch, coalesce(changes.at, 0),
    memory
  FROM collection LEFT JOIN changes ON seq = (SELECT max(seq) FROM changes)"""
_FIND_KEY = "SELECT request, result FROM keys WHERE key = $1"


def numbers_of(session: Session) -> Numbers:
    """Return the numbers of the collection."""
    (row,) = session.execute(_NUMBERS)
    return Numbers(*row)


def require_tag(tags: Tags | None, numbers: Numbers) -> None:
    """Raise PreconditionFailed if these are tags, but none of the list."""
    current = tag(numbers.version, numbers.epoch)
    if tags is not None and not matches(tags, current):
        raise PreconditionFailed(
            f"The list has changed: its version is {numbers.version} now", current
        )


def replayed(session: Session, options: Import | Undo, kind: type[AnyCounts]) -> AnyCounts | None:
    """Return the counts of the earlier import or undo with the same key, None if there is none.
    Raises KeyReused if that was another request."""
    if options.idempotency_key is None or options.dry_run:
        return None
    key, request = options.idempotency_key
    for known, result in session.execute(_FIND_KEY, (key,)):
        if known != request or result is None:
            raise KeyReused("The Idempotency-Key was used for another request: send a new one")
        return _in_epoch(msgspec.json.decode(result, type=kind), numbers_of(session).epoch)
    return None


def _in_epoch(counts: AnyCounts, epoch: str) -> AnyCounts:
    """Return counts with their cursors in the current epoch, which are the tags that clients
    need."""

    def renewed(cursor: str) -> str:
        return str(Cursor(int(cursor.partition(".")[0]), epoch))

    counts.version = renewed(counts.version)
    if counts.first is not None and counts.last is not None:
        counts.first, counts.last = renewed(counts.first), renewed(counts.last)
    return counts
