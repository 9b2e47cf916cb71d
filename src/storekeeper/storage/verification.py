"""Whether a database or a backup is valid: its numbers, its content, its checksum."""

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storekeeper.domain.errors import CannotStart, Damaged
from storekeeper.domain.search import MAX_SEARCHED_LENGTH, fold, folded
from storekeeper.storage import clock, databases
from storekeeper.storage.collection import Snapshot
from storekeeper.storage.sqlite import SqliteDatabase

_NUMBERS = """SELECT
  (SELECT count(*) FROM stores), (SELECT coalesce(max(id), 0) FROM stores WHERE id > 0),
  (SELECT count(*) FROM changes), (SELECT coalesce(max(seq), 0) FROM changes WHERE seq > 0)"""
_DIFFERENT = """SELECT id FROM stores s WHERE NOT EXISTS (
    SELECT 1 FROM changes c WHERE c.seq = s.version AND c.store_id = s.id
      AND c.name = s.name AND c.address IS NOT DISTINCT FROM s.address)
  OR version <> (SELECT max(seq) FROM changes c WHERE c.store_id = s.id) ORDER BY id LIMIT 20"""
_MISFIT = """SELECT c.seq FROM changes c LEFT JOIN changes p ON p.seq = c.seq - 1
  WHERE c.count <> CASE
      WHEN c.store_id > coalesce(p.count, 0) THEN c.store_id
      ELSE coalesce(p.count, 0) END
    OR c.at < p.at OR c.token_number NOT IN (SELECT 0 UNION SELECT number FROM tokens)
  ORDER BY c.seq LIMIT 20"""
_SEARCHED = f"""SELECT id, name, substr(address, 1, {MAX_SEARCHED_LENGTH}), folded, folded_name
  FROM stores ORDER BY id"""  # noqa: S608 - built from a constant
_STRAY = """SELECT first_seq FROM imports WHERE first_seq > last_seq
    OR last_seq > (SELECT coalesce(max(seq), 0) FROM changes) OR undoes >= first_seq
  ORDER BY first_seq LIMIT 20"""
_DATED_LATER = "SELECT count(*), min(seq), max(at) FROM changes WHERE at > $1"


@contextmanager
def upgraded(found: databases.Database) -> Iterator[databases.Database]:
    """Yield a database, or, if it is a file of an older schema, a copy that is upgraded. Raises
    CannotStart."""
    if not isinstance(found, SqliteDatabase):
        yield found
        return
    with found.upgraded() as path:
        yield SqliteDatabase(path)


def verify(url: str) -> list[str]:
    """Return what is wrong with a database, [] if nothing is. Raises CannotStart if that cannot
    be found out, Unavailable.

    Ids and changes have no gaps; each store is what its latest change made of it, and has the right
    search text; each change follows the one before it. A file also matches the SHA-256 next to it,
    if there is one, and SQLite finds it whole.
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
        with upgraded(found) as present, present.snapshot() as snapshot:
            return problems_of(snapshot, found.check)
    except Damaged as error:
        return [error.problem]


def remarks(url: str) -> list[str]:
    """Return what is odd about a database, but not wrong: nothing is refused for it. Raises
    CannotStart, Unavailable."""
    with upgraded(databases.database(url)) as present, present.snapshot() as snapshot:
        ((count, first, latest),) = snapshot.select(_DATED_LATER, clock.now())
    if not count:
        return []
    changes = f"{count:,} changes are"
    if count == 1:
        changes = "1 change is"
    dated = f"dated after now, from number {first} on and up to {clock.utc(latest)}"
    return [f"{changes} {dated}: the clock is or was wrong"]


def problems_of(snapshot: Snapshot, check: str) -> list[str]:
    """Return what is wrong with a collection; `check` is the statement of its database."""
    found = [str(line) for (line,) in snapshot.select(check) if line != "ok"]
    return found + list(_inconsistencies(snapshot))


def _inconsistencies(snapshot: Snapshot) -> Iterator[str]:
    ((stores, last_id, changes, last_seq),) = snapshot.select(_NUMBERS)
    if stores != last_id:
        yield f"there are {stores} stores, but the greatest id is {last_id}"
    if changes != last_seq:
        yield f"there are {changes} changes, but the greatest number is {last_seq}"
    for (id,) in snapshot.select(_DIFFERENT):
        yield f"store {id} is not what its latest change made of it"
    for (seq,) in snapshot.select(_MISFIT):
        yield f"change {seq} has a count, time or token that it cannot have"
    for (seq,) in snapshot.select(_STRAY):
        yield f"the import that begins with change {seq} has a range that it cannot have"
    rows = snapshot.select(_SEARCHED)
    wrong = (
        id for id, name, address, *texts in rows if texts != [folded(name, address), fold(name)]
    )
    for id in list(itertools.islice(wrong, 20)):
        yield f"the search text of store {id} does not match its name and address"


def checksum_file(file: Path) -> Path:
    """Return the file of the checksum of a file."""
    return file.with_name(f"{file.name}.sha256")


def checksum_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _differs(file: Path) -> str | None:
    """Return what is wrong if a file does not match the checksum next to it. Raises CannotStart."""
    checksum = checksum_file(file)
    if not checksum.exists():
        return None
    try:
        expected = checksum.read_bytes()[:64]
        found = checksum_of(file).encode()
    except OSError as error:
        raise CannotStart(
            f"cannot be read ({error.strerror}): let the user who runs this read it",
            subject=str(error.filename or file),
        ) from None
    if found == expected:
        return None
    return f"its SHA-256 is not that of {checksum.name}"
