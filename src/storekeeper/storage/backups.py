"""Backups: one verified file of a whole collection, and the way back.

Files get their names by `atomicfile`.
"""

import hashlib
import itertools
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from storekeeper.domain.errors import CannotStart, Damaged, StorekeeperError, Unavailable
from storekeeper.domain.search import MAX_SEARCHED_LENGTH, folded
from storekeeper.storage import atomicfile, clock, databases
from storekeeper.storage.collection import Snapshot
from storekeeper.storage.sqlite import SqliteDatabase
from storekeeper.storage.sqlite.replacement import Place

_NAME = re.compile(r"stores-\d{4}-\d\d-\d\d-\d{6}\.db")
"""The names of backups in a folder; in their order, the oldest comes first."""

_NUMBERS = """SELECT
  (SELECT count(*) FROM stores), (SELECT coalesce(max(id), 0) FROM stores WHERE id > 0),
  (SELECT count(*) FROM changes), (SELECT coalesce(max(seq), 0) FROM changes WHERE seq > 0)"""
_DIFFERENT = """SELECT id FROM stores s WHERE NOT EXISTS (
    SELECT 1 FROM changes c WHERE c.seq = s.version AND c.store_id = s.id
      AND c.name = s.name AND c.address IS NOT DISTINCT FROM s.address)
  OR version <> (SELECT max(seq) FROM changes c WHERE c.store_id = s.id) ORDER BY id LIMIT 20"""
_MISFIT = """SELECT c.seq FROM changes c LEFT JOIN changes p ON p.seq = c.seq - 1
  WHERE c.count <> CASE WHEN c.store_id > coalesce(p.count, 0) THEN c.store_id ELSE coalesce(p.count, 0) END
    OR c.at < p.at OR c.token_number NOT IN (SELECT 0 UNION SELECT number FROM tokens)
  ORDER BY c.seq LIMIT 20"""
_SEARCHED = f"""SELECT id, name, substr(address, 1, {MAX_SEARCHED_LENGTH}), folded FROM stores
  ORDER BY id"""  # noqa: S608 - of a constant
_DATED_LATER = "SELECT count(*), min(seq), max(at) FROM changes WHERE at > $1"
_VERSION = "SELECT coalesce(max(seq), 0) FROM changes"
_CHANGE = "SELECT store_id, name, address, at FROM changes WHERE seq = $1"
_LATER_STORES = "SELECT DISTINCT store_id FROM changes WHERE seq > $1 ORDER BY store_id LIMIT 20"
_MARK = "UPDATE collection SET backed_up = $1"
_TOKENS = "SELECT name, revoked IS NOT NULL FROM tokens ORDER BY number"


class Backup(NamedTuple):
    """A backup that was made."""

    file: Path
    stores: int
    changes: int


class Lost(NamedTuple):
    """What a restore took away from the collection that was there."""

    changes: range
    """The numbers of the changes that the backup does not have, of at most 20 `stores`. From 1 on:
    it is another list."""

    stores: list[int]
    good_again: list[str]
    """The tokens that were revoked since, and are good again."""

    gone: list[str]
    """The tokens that were added since, and are gone."""


class Restored(NamedTuple):
    """A collection that was restored.

    `aside`: what its old file is called now, or its log if only that was left; None if nothing was
    there. `lost` is None if that cannot be read.
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
    """Copy a collection into a new file, or into a folder, of whose backups the latest `keep` stay.

    The file gets its name when it is complete, on the disk and verified; its SHA-256 is beside
    it. Raises CannotStart, CopyFailed.
    """
    file = target / time.strftime("stores-%Y-%m-%d-%H%M%S.db") if target.is_dir() else target
    if keep is not None and file is target:
        raise CannotStart(
            "--keep is for a folder, of whose backups the latest stay", subject=str(target)
        )
    checksum = _checksum_file(file)
    try:
        if databases.is_database_file(url, file):  # SQLite would delete a log that is none
            raise FileExistsError
        for path in (file, checksum):
            if path.exists():
                raise CannotStart("exists already: name another file", subject=str(path))
        with atomicfile.unfinished(file) as new:
            stores, changes, _ = databases.copy(url, url_of(str(new)), progress)
            # Later readers would change how the file is logged, and its checksum with that.
            SqliteDatabase(new).prepare()
            new.chmod(0o600)
            with atomicfile.replacing(_checksum_file(new)) as opened:
                opened.write(f"{_checksum(new)}  {file.name}\n")
            before_commit()
            # First its checksum: a backup that was killed in between would have none. Each only
            # where there is none: two backups to one file would mix theirs.
            atomicfile.publish(_checksum_file(new), checksum)
            try:
                atomicfile.publish(new, file)
            except OSError:
                checksum.unlink()
                raise
        _mark(url)
        if keep is not None:
            _delete_outdated(file, keep, url)
    except FileExistsError:
        raise CannotStart("exists already: name another file", subject=str(file)) from None
    except OSError as error:
        raise CannotStart(
            f"cannot be written ({error.strerror}): name a file in a folder that the user who runs this may write",
            subject=str(file),
        ) from None
    return Backup(file, stores, changes)


def _mark(url: str) -> None:
    """Note in the database when its latest backup was made, for the metrics, unless nothing can
    be written there."""
    with suppress(CannotStart, Unavailable), databases.write_session(url) as session:
        session.write(_MARK, (clock.now(),))


def _delete_outdated(file: Path, keep: int, url: str) -> None:
    """Delete the backups beside a new one, which stays, that are not among the latest, and what
    killed ones left."""
    others = sorted(
        other for other in file.parent.iterdir() if _NAME.fullmatch(other.name) and other != file
    )
    others = [
        other for other in others if not databases.is_database_file(url, other)
    ]  # one that is served
    for old in others[: max(0, len(others) + 1 - keep)]:
        old.unlink(missing_ok=True)
        _checksum_file(old).unlink(missing_ok=True)
    for left in filter(_was_killed, file.parent.glob(".*.unfinished-*")):
        shutil.rmtree(left, ignore_errors=True)
    for left in filter(_was_killed, file.parent.glob("*.db.sha256")):
        if _NAME.fullmatch(left.stem) and not left.with_suffix("").exists():
            left.unlink(missing_ok=True)


def _was_killed(left: Path) -> bool:
    """Return whether what made an unfinished file is no more under way."""
    return time.time() - left.stat().st_mtime > 12 * 3600


def verify(url: str) -> list[str]:
    """Return what is wrong with a database, [] if nothing is. Raises CannotStart if that cannot
    be said, Unavailable.

    Ids and changes are numbered without a hole; each store is what its latest change made of it,
    and found by its text; each change follows the one before it. A file also is what its SHA-256
    beside it says, if there is one, and SQLite finds it whole.
    """
    with databases.failures_of("DATABASE"):
        found = databases.database(url)
    if not found.exists():
        raise CannotStart(
            "there is no such database or backup: name another one", subject=found.name
        )
    if isinstance(found, SqliteDatabase) and (wrong := _differs(found.path)):
        return [wrong]
    try:
        with found.snapshot() as snapshot:
            return _problems(snapshot, found.check)
    except Damaged as error:
        return [error.problem]


def remarks(url: str) -> list[str]:
    """Return what is not wrong with a database, but odd: nothing is refused for it. Raises
    CannotStart, Unavailable."""
    with databases.database(url).snapshot() as snapshot:
        ((count, first, latest),) = snapshot.select(_DATED_LATER, clock.now())
    if not count:
        return []
    changes = "1 change is" if count == 1 else f"{count:,} changes are"
    dated = f"dated after now, from number {first} on and up to {clock.utc(latest)}"
    return [f"{changes} {dated}: the clock is or was wrong"]


def _problems(snapshot: Snapshot, check: str) -> list[str]:
    found = [str(line) for (line,) in snapshot.select(check) if line != "ok"]
    return found + list(_inconsistencies(snapshot))


def _inconsistencies(snapshot: Snapshot) -> Iterator[str]:
    ((stores, last_id, changes, last_seq),) = snapshot.select(_NUMBERS)
    if stores != last_id:
        yield f"there are {stores} stores, and the greatest id is {last_id}"
    if changes != last_seq:
        yield f"there are {changes} changes, and the greatest number is {last_seq}"
    for (id,) in snapshot.select(_DIFFERENT):
        yield f"store {id} is not what its latest change made of it"
    for (seq,) in snapshot.select(_MISFIT):
        yield f"change {seq} has another count, time or token than it can have"
    rows = snapshot.select(_SEARCHED)
    wrong = (id for id, name, address, text in rows if text != folded(name, address))
    for id in list(itertools.islice(wrong, 20)):
        yield f"the text that is searched of store {id} is not that of its name and address"


def restore(
    file: Path,
    url: str,
    progress: Callable[[int, int], None],
    before_commit: Callable[[], None] = lambda: None,
) -> Restored:
    """Put the collection of a backup in the place of that of a database, with a new epoch.
    Raises CannotStart.

    What is there of a SQLite file is moved aside; nobody may use it. Another database has to be
    empty.
    """
    backup = url_of(str(file))
    if problems := verify(backup):
        raise CannotStart(f"not good, so nothing was restored: {problems[0]}", subject=str(file))
    goal = databases.database(url)
    if not isinstance(goal, SqliteDatabase):
        return Restored(*databases.copy(backup, url, progress, before_commit=before_commit))
    if databases.is_database_file(url, file):
        raise CannotStart("the file is the database itself: name a backup", subject=str(file))
    try:
        path = Path(os.path.realpath(goal.path))  # a link may lead to another disk
        with goal.held() as place, atomicfile.unfinished(path) as new:
            copied = databases.copy(backup, url_of(str(new)), progress)
            # From now on it needs no journal, which whoever waits for the old file would take for
            # that of the old file.
            SqliteDatabase(new).prepare()
            lost = _lost(place, backup)
            before_commit()
            aside = place.replace(new, copied[2])
    except OSError as error:
        raise CannotStart(f"cannot be replaced: {error.strerror}", subject=goal.name) from None
    return Restored(*copied, aside, lost)


def _lost(place: Place, backup: str) -> Lost | None:
    """Return what the list in a place has and its backup has not, None if that cannot be read."""
    if place.old is None:
        return None
    try:
        if place.without_log is not None:
            # What is damaged, or has the log of another list, is left as it is.
            if not _is_later(place.old, place.without_log):
                return None
            place.fold_log()
        with databases.database(backup).snapshot() as kept:
            return _difference(place.old, kept)
    except StorekeeperError:
        return None


def _is_later(old: Snapshot, before: Snapshot) -> bool:
    """Return whether a good list has all changes of what perhaps is its earlier state."""
    ((version,),) = before.select(_VERSION)
    return _common(old, before) == version and not _problems(old, SqliteDatabase.check)


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
    first, last = 0, min(version for each in (old, kept) for (version,) in each.select(_VERSION))
    while first < last:
        middle = (first + last + 1) // 2
        if list(old.select(_CHANGE, middle)) == list(kept.select(_CHANGE, middle)):
            first = middle
        else:
            last = middle - 1
    return first


def _checksum_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")


def _checksum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _differs(file: Path) -> str | None:
    """Return what is wrong if a file is not what its checksum beside it says. Raises
    CannotStart."""
    beside = _checksum_file(file)
    if not beside.exists():
        return None
    try:
        expected = beside.read_bytes()[:64]
        return (
            None
            if _checksum(file).encode() == expected
            else f"its SHA-256 is not that of {beside.name}"
        )
    except OSError as error:
        raise CannotStart(
            f"cannot be read ({error.strerror}): let the user who runs this read it",
            subject=str(error.filename or file),
        ) from None
