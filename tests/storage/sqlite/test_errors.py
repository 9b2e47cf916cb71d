"""What each of SQLite's errors means for a client, and for the process. How they come
about: `test_disk`."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from storekeeper.domain.errors import FAILED, Outcome, Unavailable
from storekeeper.storage.sqlite.errors import Failure, to_failure, to_unavailable, translate


def no_space_for_the_index() -> apsw.Error:
    error = apsw.IOError("disk I/O error")
    vars(error)["extendedresult"] = apsw.SQLITE_IOERR_SHMSIZE  # as SQLite sets it
    return error


GOES_ON = [
    (apsw.BusyError(), "The database is locked"),
    (apsw.LockedError(), "The database is locked"),
    (apsw.ProtocolError(), "The database is locked"),
    (apsw.FullError(), "The disk is full"),
    (apsw.ReadOnlyError(), "The database cannot be written"),
    (apsw.PermissionsError(), "The database cannot be written"),
    (apsw.CantOpenError(), "The database cannot be opened"),
    (apsw.ConnectionClosedError(), "The service is shutting down"),
]


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    with closing(apsw.Connection("")) as opened:
        yield opened


@pytest.mark.parametrize(("error", "reason"), GOES_ON)
def test_after_some_errors_nothing_has_changed(
    connection: apsw.Connection, error: apsw.Error, reason: str
) -> None:
    found = translate(error, connection, Outcome.UNKNOWN)
    assert type(found) is Unavailable
    assert (str(found), found.outcome) == (reason, Outcome.NONE)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (no_space_for_the_index(), "The disk is full"),
        (apsw.NoMemError(), "There is not enough memory"),
    ],
)
def test_without_space_for_the_index_of_the_log_or_without_memory_a_commit_may_be_in_the_log(
    connection: apsw.Connection, error: apsw.Error, reason: str
) -> None:
    found = translate(error, connection, Outcome.UNKNOWN)
    assert type(found) is Unavailable
    assert (str(found), found.outcome) == (reason, Outcome.UNKNOWN)


@pytest.mark.parametrize("error", [apsw.IOError(), apsw.CorruptError(), apsw.NotADBError()])
def test_after_others_the_file_cannot_be_trusted(
    connection: apsw.Connection, error: apsw.Error
) -> None:
    assert to_unavailable(error, Outcome.NONE) is None
    found = translate(error, connection, Outcome.UNKNOWN)
    assert isinstance(found, Failure)
    assert found.outcome == Outcome.UNKNOWN


def test_all_else_is_a_bug(connection: apsw.Connection) -> None:
    bug = apsw.ConstraintError()
    assert translate(bug, connection) is bug


def test_a_page_is_damaged_only_if_the_disk_can_be_read(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "stores.db"))
    connection.execute("CREATE TABLE one (two)")
    corrupt = apsw.CorruptError("page 2")

    def found(error: apsw.Error) -> tuple[str, bool]:
        failed = to_failure(error, connection)
        return failed.problem, failed.damaged

    assert found(corrupt) == ("The database is damaged: page 2", True)
    assert found(apsw.IOError("read")) == ("The database failed: read", False)
    connection.close()
    assert found(corrupt) == (f"{FAILED}: page 2", False)
