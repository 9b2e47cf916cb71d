"""Copies a collection from one database to another: verified, all or nothing."""

import hashlib
import itertools
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
    changes. With `move`, it keeps the source's epoch, and no process may write to the source any
    more. Each read of the source is inside `reading`. After each row, `progress` gets how many rows
    are done, and how many there are.

    Raises CannotStart, VerificationFailed, Unavailable.
    """
    with reading():
        total, version, epoch = source.state()
    _require_empty(target, epoch)

    def source_rows(table: str) -> Rows:
        with reading():  # the target iterates over this, but an error in it is the source's
            yield from source.rows(table)

    numbers = itertools.count(1)
    expected = 2 * (total + version)  # without keys and tokens

    def advance() -> None:
        done = next(numbers)
        progress(done, max(done, expected))

    sent: dict[str, hashlib._Hash] = {}
    for table in TABLES:
        sent[table] = hashlib.sha256()
        with closing(source_rows(table)) as rows:
            target.fill(table, _summed(rows, sent[table], advance))
    target.finish(epoch if move else None)
    _verify(target, sent, advance)
    arrived = target.state()
    has_same_epoch = arrived.epoch == epoch
    if arrived[:2] != (total, version) or has_same_epoch != move:
        raise VerificationFailed(
            "the numbers of stores and changes differ, or the epoch; nothing was copied"
        )
    return arrived


def _require_empty(target: CopyTarget, source_epoch: str) -> None:
    total, version, epoch = target.state()
    if total or version:
        raise CannotStart("the database has stores already: name an empty one")
    if epoch == source_epoch:  # no two collections have the same one
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
        # An open generator would block the rollback of the copy.
        with closing(target.rows(table)) as rows:
            for _ in _summed(rows, arrived, advance):
                pass
        if arrived.digest() != checksum.digest():
            raise VerificationFailed(
                f"the {table} that arrived differ from those that were sent; nothing was copied"
            )


def _summed(rows: Rows, checksum: "hashlib._Hash", advance: Callable[[], None]) -> Rows:
    for row in rows:
        checksum.update(msgspec.json.encode(row))
        yield row
        advance()
