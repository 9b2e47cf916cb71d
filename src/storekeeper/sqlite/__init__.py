"""The embedded collection: one SQLite file, any number of processes. Imports apsw and the domain."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from storekeeper.aside import aside
from storekeeper.collection import CREATE, Listing, Pending
from storekeeper.errors import Outcome, Unavailable
from storekeeper.events import Event, emit
from storekeeper.sqlite import faults, schema
from storekeeper.sqlite.load import load
from storekeeper.sqlite.place import Place
from storekeeper.sqlite.reads import NO_STORE, Reader
from storekeeper.sqlite.whole import listed, whole
from storekeeper.sqlite.writes import CLOSED, Writer
from storekeeper.stores import Payload, Store

prepare = schema.prepare
files = schema.files

__all__ = ["SqliteCollection", "files", "listed", "prepare", "whole"]


class SqliteCollection:
    """A Collection in one SQLite file. Needs a running event loop; `prepare` has to have seen the file.

    `fail` is called once, on the loop, when the file cannot be trusted any more: from then on no write is
    acknowledged, and the process should end so that its successor opens the file anew. Not for a damaged file,
    which its successor would find as damaged: what can be read of it is read on, and nothing is written.
    """

    def __init__(self, path: Path, fail: Callable[[str], None]) -> None:
        self._path = path
        self._fail = fail
        self._failure = ""
        self._closed = False
        self._connection = schema.connect(path, reader=True)
        self._reader = Reader(self._connection)
        self._writer = Writer(schema.connect(path), Place(path), self._broken)

    def get(self, id: int) -> Store | None:
        """See Collection."""
        try:  # not the context manager: this is the hottest of all, and it costs as much as the read
            return self._reader.get(id)
        except apsw.Error as error:
            raise self._translated(error) from error

    def list(self, name: str | None = None) -> Listing:
        """See Collection."""
        with self._translating():
            listing = self._reader.list_all() if name is None else self._reader.list_named(name)
        return listing if listing.rest is None else Listing(listing.first, self._rest(listing.rest))

    async def _rest(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        with self._translating():
            async for part in parts:
                yield part

    def create(self, payload: Payload) -> Pending[Store]:
        """See Collection."""
        # A create never answers None: that is for a replace whose store is missing.
        return self._writer.submit(CREATE, payload)  # type: ignore[return-value]

    def replace(self, id: int, payload: Payload) -> Pending[Store | None]:
        """See Collection."""
        # No store has the id that stands for a create; the greatest one there can be, none has either.
        return self._writer.submit(NO_STORE if id == CREATE else id, payload)

    async def load(self, payloads: Iterable[Payload], *, only_if_empty: bool = False) -> int:
        """See Collection."""
        if reason := CLOSED if self._closed else self._failure:
            raise Unavailable(reason)
        with self._translating(Outcome.UNKNOWN):
            return await aside(lambda stop: load(self._path, payloads, stop, only_if_empty=only_if_empty))

    def stamp(self) -> int:
        """See Collection."""
        try:
            return self._reader.stamp()
        except apsw.Error as error:
            raise self._translated(error) from error

    async def check(self) -> None:
        """See Collection."""
        if self._failure:
            raise Unavailable(self._failure)
        with self._translating():
            self._reader.check()

    async def close(self) -> None:
        """See Collection."""
        if not self._closed:
            self._closed = True
            await self._writer.close()
            self._connection.close()

    @contextmanager
    def _translating(self, outcome: Outcome = Outcome.NONE) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise self._translated(error, outcome) from error

    def _translated(self, error: apsw.Error, outcome: Outcome = Outcome.NONE) -> Exception:
        if answer := faults.temporary(error, outcome):
            return answer
        if not faults.lost(error):
            return error
        failure = faults.failure(error, self._connection)
        self._broken(failure)
        return Unavailable(failure.reason, outcome)

    def _broken(self, failure: faults.Failure) -> None:
        if self._failure:
            return
        self._failure = failure.reason
        self._writer.distrust(failure.reason)
        if failure.damaged:
            emit(Event.DATABASE_DAMAGED, reason=failure.reason)
        else:
            self._fail(failure.reason)
