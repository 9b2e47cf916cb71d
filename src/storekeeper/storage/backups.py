"""Backups: one verified file of a whole collection, and the way back."""

import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from storekeeper.domain.errors import CannotStart, StorekeeperError, Unavailable
from storekeeper.storage import atomicfile, clock, databases
from storekeeper.storage.collection import Snapshot
from storekeeper.storage.sqlite import SqliteDatabase
from storekeeper.storage.sqlite.replacement import Place
from storekeeper.storage.verification import (
    checksum_file,
    checksum_of,
    problems_of,
    upgraded,
    verify,
)

_NAME = re.compile(r"stores-\d{4}-\d\d-\d\d-\d{6}\.db")
"""The names of backups in a folder; in their order, the oldest comes first."""

_VERSION = "SELECT coalesce(max(seq), 0) FROM changes"
_CHANGE = "SELECT store_id, name, address, at FROM changes WHERE seq = $1"
_LATER_STORES = "SELECT DISTINCT store_id FROM changes WHERE seq > $1 ORDER BY store_id LIMIT 20"
_MARK = "UPDATE {table} SET backed_up = $1"
_TOKENS = "SELECT name, revoked IS NOT NULL FROM tokens ORDER BY number"


class Backup(NamedTuple):
    """A backup that was made."""

    file: Path
    stores: int
    changes: int


class Lost(NamedTuple):
    """What a restore took away from the collection that was there."""

    changes: range
    """The numbers of the changes that the backup does not have. If they begin with 1, it is another
    list."""

    stores: list[int]
    """The stores of these changes, at most 20."""

    valid_again: list[str]
    """The tokens that were revoked after the backup."""

    gone: list[str]
    """The tokens that were added after the backup."""


class Restored(NamedTuple):
    """A collection that was restored.

    `aside` is the new name of its old file, or of its log if only that was left; None if there was
    nothing. `lost` is None if the old list cannot be read.
    """

    stores: int
    changes: int
    epoch: str
    aside: Path | None = None
    lost: Lost | None = None


def url_of(file: str) -> str:
    """Return the URL of a database that is named by its URL or by its file. Raises CannotStart."""
    if "://" in file:
        return file
    path = str(Path(file).absolute())
    try:
        return f"sqlite:///{quote(path)}"
    except UnicodeEncodeError:
        raise CannotStart("its name is not UTF-8: rename it", subject=path) from None


def back_up(
    url: str,
    target: Path,
    progress: Callable[[int, int], None],
    *,
    keep: int | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> Backup:
    """Copy a collection into a new file, or into a folder; `keep` is how many backups stay there.

    The file gets its name when it is complete, on disk and verified; its SHA-256 is next to it.
    Raises CannotStart, CopyFailed.
    """
    file = target
    if target.is_dir():
        file = target / time.strftime("stores-%Y-%m-%d-%H%M%S.db")
    elif keep is not None:
        raise CannotStart(
            "--keep is for a folder: it says how many backups stay there", subject=str(target)
        )
    try:
        backup = _write_backup(url, file, progress, before_commit)
        _mark(url)
        if keep is not None:
            _delete_outdated(file, keep, url)
    except FileExistsError:
        raise CannotStart("exists already: name another file", subject=str(file)) from None
    except OSError as error:
        raise CannotStart(
            f"cannot be written ({error.strerror}): name a file in a folder that the user who runs"
            " this can write to",
            subject=str(file),
        ) from None
    return backup


def _write_backup(
    url: str,
    file: Path,
    progress: Callable[[int, int], None],
    before_commit: Callable[[], None],
) -> Backup:
    """Make a file and the file of its checksum. Raises CannotStart, CopyFailed, OSError."""
    checksum = checksum_file(file)
    # SQLite would take a file with the name of its log for its log, and delete it.
    if databases.is_database_file(url, file):
        raise FileExistsError
    for path in (file, checksum):
        if path.exists():
            raise CannotStart("exists already: name another file", subject=str(path))
    with atomicfile.unfinished(file) as new:
        stores, changes, _ = databases.copy(url, url_of(str(new)), progress)
        # Later readers would change how the file is logged, and so its checksum.
        SqliteDatabase(new).prepare()
        new.chmod(0o600)
        with atomicfile.replacing(checksum_file(new)) as opened:
            opened.write(f"{checksum_of(new)}  {file.name}\n")
        before_commit()
        # The checksum first: otherwise a backup that is killed in between would have none. Neither
        # replaces a file: two backups into the same file would mix theirs.
        atomicfile.publish(checksum_file(new), checksum)
        try:
            atomicfile.publish(new, file)
        except OSError:
            checksum.unlink()
            raise
    return Backup(file, stores, changes)


def _mark(url: str) -> None:
    """Note in the database when its latest backup was made, for the metrics; do nothing if the
    database cannot be written."""
    with suppress(CannotStart, Unavailable), databases.write_session(url) as session:
        session.write(_MARK.format(table=session.collection_table), (clock.now(),))


def _delete_outdated(file: Path, keep: int, url: str) -> None:
    """Delete older backups, so that `keep` stay with the new one, and what killed backups left."""
    others = [
        other
        for other in sorted(file.parent.iterdir())
        if _NAME.fullmatch(other.name)
        and other != file
        and not databases.is_database_file(url, other)  # one that is served
    ]
    for old in others[: max(0, len(others) + 1 - keep)]:
        old.unlink(missing_ok=True)
        checksum_file(old).unlink(missing_ok=True)
    for left in filter(_was_killed, file.parent.glob(".*.unfinished-*")):
        shutil.rmtree(left, ignore_errors=True)
    for left in filter(_was_killed, file.parent.glob("*.db.sha256")):
        if _NAME.fullmatch(left.stem) and not left.with_suffix("").exists():
            left.unlink(missing_ok=True)


def _was_killed(left: Path) -> bool:
    """Return whether the backup that made an unfinished file must have been killed."""
    return time.time() - left.stat().st_mtime > 12 * 3600


def restore(
    file: Path,
    url: str,
    progress: Callable[[int, int], None],
    before_commit: Callable[[], None] = lambda: None,
) -> Restored:
    """Put the collection of a backup in the place of a database's, with a new epoch. Raises
    CannotStart.

    An existing SQLite file is moved aside; no process may use it. A PostgreSQL database must be
    empty.
    """
    backup = url_of(str(file))
    if problems := verify(backup):
        raise CannotStart(f"not valid, so nothing was restored: {problems[0]}", subject=str(file))
    goal = databases.database(url)
    with upgraded(databases.database(backup)) as present:
        if not isinstance(goal, SqliteDatabase):
            source = url_of(present.name)
            return Restored(*databases.copy(source, url, progress, before_commit=before_commit))
        if databases.is_database_file(url, file):
            raise CannotStart("the file is the database itself: name a backup", subject=str(file))
        try:
            return _put_in_place(url_of(present.name), goal, progress, before_commit)
        except OSError as error:
            raise CannotStart(f"cannot be replaced: {error.strerror}", subject=goal.name) from None


def _put_in_place(
    backup: str,
    goal: SqliteDatabase,
    progress: Callable[[int, int], None],
    before_commit: Callable[[], None],
) -> Restored:
    """Restore the database of a URL, which is of the current schema, into a file. Raises OSError,
    CannotStart."""
    path = Path(os.path.realpath(goal.path))  # a link may lead to another disk
    with goal.held() as place, atomicfile.unfinished(path) as new:
        copied = databases.copy(backup, url_of(str(new)), progress)
        # From now on it needs no journal: a process that waits for the old file would take that
        # for the old file's.
        SqliteDatabase(new).prepare()
        lost = _lost(place, backup)
        before_commit()
        aside = place.replace(new, copied[2])
    return Restored(*copied, aside, lost)


def _lost(place: Place, backup: str) -> Lost | None:
    """Return what the list in a place has and its backup lacks; None if the list cannot be read."""
    if place.old is None:
        return None
    try:
        if place.without_log is not None:
            # A damaged list, or one with the log of another list, is left as it is.
            if not _is_later(place.old, place.without_log):
                return None
            place.fold_log()
        with databases.database(backup).snapshot() as kept:
            return _difference(place.old, kept)
    except StorekeeperError:
        return None


def _is_later(old: Snapshot, before: Snapshot) -> bool:
    """Return whether a list is valid, and has all changes of what may be its earlier state."""
    ((version,),) = before.select(_VERSION)
    return _common(old, before) == version and not problems_of(old, SqliteDatabase.check)


def _difference(old: Snapshot, kept: Snapshot) -> Lost:
    ((latest,),) = old.select(_VERSION)
    before: dict[str, bool] = dict(kept.select(_TOKENS))
    now: dict[str, bool] = dict(old.select(_TOKENS))
    common = _common(old, kept)
    return Lost(
        range(common + 1, latest + 1),
        [id for (id,) in old.select(_LATER_STORES, common)],
        [name for name, revoked in now.items() if revoked and not before.get(name, True)],
        [name for name in now if name not in before],
    )


def _common(old: Snapshot, kept: Snapshot) -> int:
    """Return the number of the latest change that two lists share: from the next one on, all
    differ."""
    ((old_version,),) = old.select(_VERSION)
    ((kept_version,),) = kept.select(_VERSION)
    first, last = 0, min(old_version, kept_version)
    while first < last:
        middle = (first + last + 1) // 2
        if list(old.select(_CHANGE, middle)) == list(kept.select(_CHANGE, middle)):
            first = middle
        else:
            last = middle - 1
    return first
