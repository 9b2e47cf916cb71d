"""A file that is deleted while it is being opened: no step of an opening begins another one."""

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from storekeeper.domain.errors import StorekeeperError
from storekeeper.storage import databases, sqlite
from storekeeper.storage.sqlite import schema
from tests.harness.cases import thorough
from tests.harness.databases import make_file

SOURCE = str(Path(sqlite.__file__).parent)

Use = Callable[[str], object]


def prepared(url: str) -> None:
    databases.database(url).prepare()


def read(url: str) -> None:
    with databases.open_existing(url).snapshot() as snapshot:
        list(snapshot.rows("stores"))


def written(url: str) -> None:
    with databases.write_session(url) as session:
        session.write("DELETE FROM keys")


def served(url: str) -> None:
    async def main() -> None:
        collection = databases.database(url).open_collection(lambda _: None)
        with suppress(StorekeeperError):
            await collection.check()
        await collection.close()

    asyncio.run(main())


@contextmanager
def deleting(path: Path, at: int) -> Iterator[list[int]]:
    """Delete a database and its log as this thread begins the n-th line of the code that opens it;
    yield how many lines were begun."""
    begun = [0]

    def trace_line(_frame: FrameType, event: str, _value: Any) -> Any:
        if event == "line":
            begun[0] += 1
            if begun[0] == at:
                for file in schema.files(path):
                    file.unlink(missing_ok=True)
        return trace_line

    def trace_call(frame: FrameType, _event: str, _value: Any) -> Any:
        return trace_line if frame.f_code.co_filename.startswith(SOURCE) else None

    before = sys.gettrace()
    sys.settrace(trace_call)
    try:
        yield begun
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("step", [7, *thorough(1)])
@pytest.mark.parametrize("use", [prepared, read, written, served])
def test_a_file_that_is_deleted_at_any_step_of_its_opening_is_not_begun_again(
    tmp_path: Path, use: Use, step: int
) -> None:
    """Neither is one left that has no tables, which the next start could fill."""
    path = tmp_path / "stores.db"
    url = f"sqlite:///{path}"
    kept = tmp_path / "kept.db"
    make_file(kept)
    at = 1
    while True:
        shutil.copy(kept, path)
        with deleting(path, at) as begun:
            try:
                use(url)
            except StorekeeperError as error:
                assert str(path) in str(error) or "is gone" in str(error)
        if begun[0] < at:
            break
        assert not path.exists()
        for file in schema.files(path):
            file.unlink(missing_ok=True)
        at += step
    assert at > 30, "it was traced"
