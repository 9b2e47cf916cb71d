"""Copies a collection from one database to another, verified, all or nothing."""

import hashlib
import itertools
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext

import msgspec

from storekeeper.domain.errors import CannotStart, Code, StorekeeperError
from storekeeper.storage.collection import CopyTarget, Rows, Snapshot
from storekeeper.storage.sql import TABLES


class VerificationFailed(StorekeeperError):
    """The target differs from the source; it keeps none of the copied rows."""

    code = Code.COPY_DIFFERS


def copy(
    source: Snapshot,
    target: CopyTarget,
    progress: Callable[[int, int], None],
    *,
    move: bool = False,
    reading: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[int, int, str]:
    """Copy everything; return how many stores and changes there are, and the target's epoch.

    The target gets a new epoch: from now on, both may give the same version to different
    changes. With `move`, it keeps the source's epoch, and nobody may write to the source any
    more. Each read of the source is inside `reading`. `progress` gets, after each row, the rows
    done and the rows in all.

    Raises CannotStart, VerificationFailed, Unavailable.
    """
    with reading():
        *count, epoch = source.state()
    _require_empty(target, epoch)

    def source_rows(table: str) -> Rows:
        with reading():  # the target iterates over this, but an error in it is the source's
            yield from source.rows(table)

    numbers, total = itertools.count(1), 2 * sum(count)

    def advance() -> None:
        done = next(numbers)
        progress(done, max(done, total))  # `total` is without keys and tokens

    sent: dict[str, hashlib._Hash] = {}
    for table in TABLES:
        sent[table] = hashlib.sha256()
        with closing(source_rows(table)) as rows:
            target.fill(table, _summed(rows, sent[table], advance))
    target.finish(epoch if move else None)
    _verify(target, sent, advance)
    stores, changes, arrived_epoch = target.state()
    if [stores, changes, arrived_epoch == epoch] != [*count, move]:
        raise VerificationFailed(
            "the numbers of stores and changes differ, or the epoch; nothing was copied"
        )
    return stores, changes, arrived_epoch


def _require_empty(target: CopyTarget, source_epoch: str) -> None:
    *count, epoch = target.state()
    if any(count):
        raise CannotStart("the database has stores already: name an empty one")
    if epoch == source_epoch:  # as no other collection has it
        raise CannotStart("the database is the source itself: name another one")
    if list(target.rows("tokens")):
        raise CannotStart("the database has tokens already: name an empty one")


def _verify(
    target: CopyTarget, sent: dict[str, "hashlib._Hash"], advance: Callable[[], None]
) -> None:
    """Read each table of the target again. Raises VerificationFailed if its rows have another
    checksum."""
    for table, checksum in sent.items():
        arrived = hashlib.sha256()
        with closing(target.rows(table)) as rows:  # an open one would block the undoing of the copy
            deque(_summed(rows, arrived, advance), maxlen=0)  # reads all rows, and keeps none
        if arrived.digest() != checksum.digest():
            raise VerificationFailed(
                f"the {table} that arrived differ from those that were sent; nothing was copied"
            )


def _summed(rows: Rows, checksum: "hashlib._Hash", advance: Callable[[], None]) -> Rows:
    for row in rows:
        checksum.update(msgspec.json.encode(row))
        yield row
        advance()
