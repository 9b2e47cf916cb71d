"""The embedded collection: one SQLite file, any number of processes."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from storekeeper.concurrency.interruption import Interruption
from storekeeper.concurrency.threads import run_in_thread, run_with
from storekeeper.concurrency.turns import Turns
from storekeeper.domain import search
from storekeeper.domain.changes import ChangesPage, ChangesQuery
from storekeeper.domain.errors import CLOSED, Outcome, Unavailable
from storekeeper.domain.queries import Moment, Query, State
from storekeeper.domain.selection import StoreKeys
from storekeeper.domain.stores import Store
from storekeeper.domain.tokens import USED_INTERVAL, Token, Traces
from storekeeper.log.events import Event, emit
from storekeeper.storage import sessions
from storekeeper.storage.collection import Collection, Eventual, Fail, Listing, Snapshot
from storekeeper.storage.selecting import Twins
from storekeeper.storage.sessions import Session
from storekeeper.storage.sqlite import connections, errors, moving, replacement, schema, snapshot
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.sqlite.reads import Reader, find
from storekeeper.storage.sqlite.selecting import select
from storekeeper.storage.sqlite.session import (
    open_command_session,
    open_new_session,
    open_session,
)
from storekeeper.storage.sqlite.statements import as_json
from storekeeper.storage.sqlite.writer import SqliteWriter
from storekeeper.storage.write_queue import QueuedWrites, WriteQueue

T = TypeVar("T")

TICK_INTERVAL = 0.25
"""Seconds between two looks at whether the file was replaced."""

MAX_BATCH_TIME = 0.005
"""Seconds for which the reads of a batch share one transaction: a long one keeps the log from
beginning again."""

_MARK_USED = f"""UPDATE tokens SET used = ?2 WHERE number IN (SELECT value FROM json_each(?1))
  AND abs(?2 - ifnull(used, 0)) >= {USED_INTERVAL}"""


class SqliteCollection(QueuedWrites, Collection):
    """A Collection in one SQLite file. Needs a running event loop, and a file that is prepared.

    `fail` is called once, on the loop, when the file can no longer be trusted: from then on no
    write is acknowledged, and the process should end so that the next one opens the file again.
    It is not called for a damaged file, which would be damaged for the next process too: reads
    continue where they can, and nothing is written.
    """

    def __init__(self, path: Path, fail: Fail) -> None:
        self._path = path
        self._fail = fail
        self._closed = self._failed = False
        self._twins = Twins()
        self._searches = Turns(search.MAX_AT_ONCE, search.TIMEOUT, search.TOO_LONG)
        with schema.raising_cannot_start(path):
            self._connection = connections.connect(
                path, reader=True, timeout=connections.START_TIMEOUT
            )
            self._reader = Reader(self._connection, self._translate)
            self._identity = FileIdentity(path)
            writing = connections.connect(path, timeout=connections.START_TIMEOUT)
        self._connection.set_busy_timeout(int(connections.LOCK_TIMEOUT * 1000))
        self._loop = asyncio.get_running_loop()
        self._writer = SqliteWriter(writing, self._identity, self._on_failure)
        self._queue = WriteQueue(self._writer)
        self._timer = self._loop.call_later(TICK_INTERVAL, self._tick)

    def begin_reads(self, count: int = 1) -> float:
        self._reader.end()
        self._reader.in_batch = True
        # The batch of one connection is short in any case.
        if count > 1 and self._reader.log_is_long():
            return 0.0
        return MAX_BATCH_TIME

    def end_reads(self) -> None:
        self._reader.in_batch = False
        self._reader.end()
        self._queue.start()

    def numbers(self) -> object | None:
        if not self._reader.in_batch:
            return None
        try:
            return self._reader.known or self._reader.read(self._reader.numbers)
        except Unavailable:  # the request itself meets the error, and responds with it
            return None

    def get(self, id: int) -> Store | None:
        return self._reader.read(self._reader.get, id)

    def get_at(self, id: int, at: Moment) -> Store | None:
        return self._reader.read(self._reader.get_at, id, at)

    def list(self, query: Query) -> Eventual[Listing]:
        if query.selection is not None:
            return asyncio.ensure_future(self._select(query))
        if query.search is not None:
            return asyncio.ensure_future(self._search(query))
        return self._reader.read(self._reader.list, query)

    async def _search(self, query: Query) -> Listing:
        with self._translating():
            async with self._searches:
                found = await run_in_thread(partial(find, self._identity, query))
        return self._reader.read(self._reader.searched, query, *found)

    async def _select(self, query: Query) -> Listing:
        with self._translating():
            async with self._searches:
                found = await run_in_thread(partial(select, self._identity, self._twins, query))
        return self._reader.read(self._reader.selected, query, *found)

    def keys(self, ids: Sequence[int]) -> StoreKeys:
        return self._reader.read(self._reader.keys, ids)

    def refused_lists(self) -> int:
        return self._reader.long_lists.refused

    def state(self) -> State:
        return self._reader.read(self._reader.state)

    def changes(self, query: ChangesQuery) -> ChangesPage:
        return self._reader.read(self._reader.changes, query)

    async def in_session(
        self, work: Callable[[Session], T], lock_timeout: float = sessions.LOCK_TIMEOUT
    ) -> T:
        self._check_writable()
        session = partial(open_session, self._path, self._identity, lock_timeout=lock_timeout)
        with self._translating(Outcome.UNKNOWN):
            return await run_with(session, work)

    async def with_snapshot(self, work: Callable[[Snapshot], T], interruption: Interruption) -> T:
        with self._translating():
            opened = partial(snapshot.live_snapshot, self._identity, interruption)
            return await run_with(opened, work)

    async def tokens(self) -> Sequence[Token]:
        return self._reader.read(self._reader.tokens)

    async def all_tokens(self) -> Sequence[Token]:
        return self._reader.read(self._reader.all_tokens)

    async def traces(self) -> Traces:
        return self._reader.read(self._reader.traces)

    async def restored(self) -> int | None:
        return replacement.restored(self._path, self.state().epoch)

    async def mark_used(self, numbers: Iterable[int], now: int) -> None:
        def mark() -> None:
            with (
                closing(self._identity.connect()) as connection,
                connections.transaction(connection, "IMMEDIATE"),
            ):
                connection.execute(_MARK_USED, (as_json(numbers), now))

        self._check_writable()
        with self._translating():
            await run_in_thread(mark)

    def _check_writable(self) -> None:
        """Raise Unavailable if nothing may be written any more."""
        if self._queue.refusal:
            raise Unavailable(self._queue.refusal)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_INTERVAL, self._tick)
        try:
            self._identity.check()
        except errors.Failure as failure:
            self._on_failure(failure)

    async def check(self) -> None:
        self._check_writable()
        self._reader.read(self._reader.state)

    async def figures(self) -> Mapping[str, float | None]:
        try:
            disk = os.statvfs(self._path.parent)
            sizes = [file.stat().st_size for file in schema.files(self._path) if file.exists()]
        except OSError as error:  # a file has just been deleted
            raise Unavailable(str(error)) from None
        backed_up = self._reader.read(self._reader.backed_up)
        return {
            "database_bytes": sum(sizes),
            "disk_free_bytes": disk.f_bavail * disk.f_frsize,
            "last_backup_timestamp_seconds": backed_up and backed_up / 1000,
        }

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._queue.close()
            self._writer.close()
            self._timer.cancel()
            self._connection.close()

    @contextmanager
    def _translating(self, outcome: Outcome = Outcome.NONE) -> Iterator[None]:
        try:
            yield
        except (*errors.READ_ERRORS, errors.Failure) as error:
            # `from None`: it may return `error`, which must not be its own cause.
            raise self._translate(error, outcome) from None

    def _translate(self, error: Exception, outcome: Outcome = Outcome.NONE) -> Exception:
        if self._closed:
            return Unavailable(CLOSED)
        error = errors.translate(error, self._connection, outcome)
        if isinstance(error, errors.Failure):
            self._on_failure(error)
        return error

    def _on_failure(self, failure: errors.Failure) -> None:
        if self._failed:
            return
        self._failed = True
        self._queue.fail(failure.problem)
        if failure.damaged:
            emit(Event.DATABASE_DAMAGED, reason=failure.problem)
        else:
            self._fail(failure)


class SqliteDatabase:
    """The database in a file, which might not exist yet; see `databases.Database`."""

    renew_epoch = snapshot.RENEW_EPOCH
    check = snapshot.CHECK

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self.prepare = partial(schema.prepare, path)
        self.create = partial(snapshot.create, path)
        self.exists = partial(schema.exists, path)
        self.session = partial(open_command_session, path)
        self.new_session = partial(open_new_session, path)
        self.snapshot = partial(snapshot.snapshot, path)
        self.upgraded = partial(snapshot.upgraded, path)
        self.target = partial(snapshot.target, path)
        self.held = partial(replacement.held, path)
        self.freeze = partial(moving.freeze, path)
        self.thaw = partial(moving.thaw, path)

    def open_collection(
        self, fail: Fail, on_reachable: Callable[[], None] = lambda: None
    ) -> SqliteCollection:
        self.prepare()
        on_reachable()
        return SqliteCollection(self.path, fail)
