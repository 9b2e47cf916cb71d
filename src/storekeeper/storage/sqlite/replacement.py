"""Another file in the place of a database, whose own files are kept."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import apsw

from storekeeper.domain.errors import CannotStart
from storekeeper.storage.atomicfile import sync_folder
from storekeeper.storage.collection import Snapshot
from storekeeper.storage.sqlite import connections, schema
from storekeeper.storage.sqlite.snapshot import SourceSnapshot


@contextmanager
def excluded(path: Path) -> Iterator[Snapshot | None]:
    """Keep all others from a database file; yield what reads it, None if nothing can. Raises
    CannotStart."""
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(
                closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
            )
            connections.exclude_others(connection)
        except apsw.BusyError:
            raise CannotStart("in use: stop the service first", subject=str(path)) from None
        except (
            apsw.Error
        ) as error:  # what is not there, or so damaged that SQLite cannot open it, nobody uses
            no_right = isinstance(
                error, (apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError)
            )
            if no_right and path.exists():  # a service of another user may use it
                problem = "this user may not write it: restore as the user of the service"
                raise CannotStart(problem, subject=str(path)) from None
            yield None
            return

        yield SourceSnapshot(connection, path, None)


def replace(path: Path, new: Path, suffix: str, *, logs: bool) -> Path | None:
    """Give a new file the name of a database, and the owner and mode of its file; return the old
    file's new name.

    At each moment there is a file of that name. With `logs`, its logs go aside before: SQLite
    would apply them to the new file. `excluded` leaves none, unless it cannot read the file.
    """
    path = Path(os.path.realpath(path))
    aside = None
    if path.exists():
        aside = path.with_name(f"{path.stem}-{suffix}{path.suffix}")
        aside.hardlink_to(path)  # the system may refuse that: then the logs stay too
        for file in schema.files(path)[1:]:
            if logs and file.exists():
                file.rename(f"{aside}{file.name.removeprefix(path.name)}")
        old = path.stat()
        with suppress(PermissionError):  # only root may give a file to somebody else
            os.chown(new, old.st_uid, old.st_gid)
        new.chmod(old.st_mode & 0o777)
    new.replace(path)
    sync_folder(path.parent)
    return aside
