"""The embedded collection: one SQLite file, any number of processes. Imports the domain and `concurrency`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec.structs import replace

from storekeeper.collection import Eventual, Listing, Moment, Query, State
from storekeeper.commands import Command
from storekeeper.concurrency.threads import run_in_thread
from storekeeper.errors import CLOSED, Outcome, Unavailable
from storekeeper.events import Event, emit
from storekeeper.sqlite import errors, schema
from storekeeper.sqlite.bulk import RENEW_EPOCH, load_all, snapshot
from storekeeper.sqlite.columns import as_json
from storekeeper.sqlite.committer import Committer
from storekeeper.sqlite.file_identity import FileIdentity
from storekeeper.sqlite.past import PastReader
from storekeeper.sqlite.read_transaction import token_reader
from storekeeper.sqlite.reads import Reader
from storekeeper.sqlite.schema import exists, files, opened, prepare
from storekeeper.sqlite.write_queue import TICK_INTERVAL, WriteQueue
from storekeeper.stores import Payload, Store
from storekeeper.tokens import USED_INTERVAL, Token

describe = str

__all__ = ["RENEW_EPOCH", "SqliteCollection", "describe", "exists", "files", "load_all", "open_collection", "opened"]
__all__ += ["prepare", "snapshot"]

_MARK_USED = f"""UPDATE tokens SET used = ?2 WHERE number IN (SELECT value FROM json_each(?1))
  AND abs(?2 - ifnull(used, 0)) >= {USED_INTERVAL}"""


class SqliteCollection:
    """A Collection in one SQLite file. Needs a running event loop, and a file that `prepare` was called for.

    `fail` is called once, on the loop, when the file cannot be trusted any more: from then on no write is
    acknowledged, and the process should end so that the next one opens the file anew. It is not called for a damaged
    file, which the next process would find as damaged: reads continue where they can, and nothing is written.
    """

    has_change_token = True

    def __init__(self, path: Path, fail: Callable[[str], None]) -> None:
        self._path = path
        self._fail = fail
        self._closed = False
        with schema.raising_cannot_start(path):
            self._connection = schema.connect(path, reader=True, timeout=schema.START_TIMEOUT)
            self._change_token = token_reader(self._connection)
            committer = Committer(schema.connect(path, timeout=schema.START_TIMEOUT), FileIdentity(path))
        self._connection.set_busy_timeout(int(schema.LOCK_TIMEOUT * 1000))
        self._reader = Reader(self._connection, self._change_token)
        self._past = PastReader(path, self._translating)
        self._loop = asyncio.get_running_loop()
        self._queue = WriteQueue(committer, self._on_failure)
        self._timer = self._loop.call_later(TICK_INTERVAL, self._tick)

    def get(self, id: int) -> Store | None:
        try:  # a context manager would cost as much as this read; and as much of the other short ones
            return self._reader.get(id)
        except errors.READ_ERRORS as error:
            raise self._translate(error) from None

    def get_at(self, id: int, at: Moment) -> Eventual[Store | None]:
        return self._past.get(id, at)

    def list(self, query: Query) -> Eventual[Listing]:
        if query.at is not None:
            return self._past.list(query)
        try:
            listing = self._reader.list(query)
        except errors.READ_ERRORS as error:
            raise self._translate(error) from None
        return replace(listing, rest=self._rest(listing.rest)) if listing.rest else listing

    def state(self) -> State:
        try:
            return self._reader.state()
        except errors.READ_ERRORS as error:
            raise self._translate(error) from None

    async def _rest(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        with self._translating():
            async for part in parts:
                yield part

    def write(self, command: Command) -> asyncio.Future[Store | None]:
        return self._queue.submit(command)

    async def load(self, payloads: Iterable[Payload], *, only_if_empty: bool = False) -> range:
        self._check_writable()
        with self._translating(Outcome.UNKNOWN):
            return await run_in_thread(lambda: load_all(self._path, payloads, only_if_empty=only_if_empty))

    async def tokens(self) -> Sequence[Token]:
        with self._translating():
            return self._reader.tokens()

    async def mark_used(self, numbers: Iterable[int], now: int) -> None:
        self._check_writable()
        with self._translating():
            await run_in_thread(lambda: _mark_used(self._path, as_json(numbers), now))

    def _check_writable(self) -> None:
        """Raise Unavailable if nothing is to be written any more."""
        if self._queue.refusal:
            raise Unavailable(self._queue.refusal)

    def change_token(self) -> bytes | None:
        """Return the header of the wal-index, which differs after every commit."""
        if self._closed:  # its memory is SQLite's
            raise Unavailable(CLOSED)
        return self._change_token()

    def changed_since(self, state: State) -> tuple[State, Sequence[int] | None]:
        try:
            return self._reader.changed_since(state)
        except errors.READ_ERRORS as error:
            raise self._translate(error) from None

    def _tick(self) -> None:
        self._reader.transaction.end()  # even while it is used: it keeps SQLite from reusing the log
        self._queue.tick()
        self._timer = self._loop.call_later(TICK_INTERVAL, self._tick)

    async def check(self) -> None:
        self._check_writable()
        with self._translating():
            self._reader.transaction.end()  # so that `state` reads the file, and not its own memory
            self._reader.state()

    async def refusal_of_writes(self) -> str:
        return await self._queue.state.refusal()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._past.close()
            await self._queue.close()
            self._timer.cancel()
            self._reader.close()
            self._connection.close()

    @contextmanager
    def _translating(self, outcome: Outcome = Outcome.NONE) -> Iterator[None]:
        try:
            yield
        except (*errors.READ_ERRORS, errors.Failure) as error:
            raise self._translate(error, outcome) from None  # it may return `error`, which must not be its own cause

    def _translate(self, error: Exception, outcome: Outcome = Outcome.NONE) -> Exception:
        error = errors.translate(error, self._connection, outcome)
        if isinstance(error, errors.Failure):
            self._on_failure(error)
        return error

    def _on_failure(self, failure: errors.Failure) -> None:
        if self._queue.failure:
            return
        self._queue.fail(failure.reason)
        if failure.damaged:
            emit(Event.DATABASE_DAMAGED, reason=failure.reason)
        else:
            self._fail(failure.reason)


def _mark_used(path: Path, numbers: str, now: int) -> None:
    with closing(schema.connect(path)) as connection, schema.transaction(connection, "IMMEDIATE"):
        connection.execute(_MARK_USED, (numbers, now))


def open_collection(path: Path, fail: Callable[[str], None], reached: Callable[[], None]) -> SqliteCollection:
    """Open the collection of a file, which is created or upgraded first."""
    prepare(path)
    reached()
    return SqliteCollection(path, fail)
