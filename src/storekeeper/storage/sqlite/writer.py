"""The thread that commits: a batch becomes one transaction, one fsync.

One half of `SqliteWriter` runs on the event loop, and waits at most until a response is due. The
other half runs on the thread, which owns the connection and does not know the queue.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from storekeeper.concurrency.batcher import response_deadline
from storekeeper.concurrency.threads import is_done, run_into
from storekeeper.domain import commands as domain
from storekeeper.domain.commands import (
    MAX_KEPT_BYTES,
    MAX_KEYS,
    MIN_KEY_AGE,
    MIN_KEYS,
    Batch,
    Before,
    ChangeRow,
    Command,
    Remembered,
    Result,
    apply,
)
from storekeeper.domain.errors import DISK_STALLED, Outcome, Unavailable
from storekeeper.domain.search import fold, folded
from storekeeper.domain.stores import Payload
from storekeeper.log.events import Event, emit
from storekeeper.storage import clock
from storekeeper.storage.sqlite import connections, errors, statements
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.write_queue import BatchTooLarge, InvalidWrite
from storekeeper.storage.write_state import PROBE_BYTES

T = TypeVar("T")

LOCK_TIMEOUT = 3.5
"""Seconds after which a write is refused if the file is locked all the time; nothing was
written."""

_FILL_PROBE = f"INSERT OR REPLACE INTO probe (one, filler) VALUES (1, randomblob({PROBE_BYTES}))"
_EMPTY_PROBE = "DELETE FROM probe"


class SqliteWriter:
    """A `write_queue.Writer`: the thread that commits, and the connection that only it uses.

    `identity` is the file as it was opened. `fail` is called on the loop, perhaps after the
    response was due, when no more can be written.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        identity: FileIdentity,
        fail: Callable[[errors.Failure], None],
    ) -> None:
        self.connection = connection
        self._identity = identity
        self._fail = fail
        self._execute = connection.execute
        self._lock_deadline = 0.0
        connections.retry_lock_until(connection, lambda: self._lock_deadline)
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._under_way: Future[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="storekeeper-writer", daemon=True)
        self._thread.start()

    # On the event loop:

    async def commit(self, commands: Sequence[Command], since: float) -> Sequence[Result]:
        return await self._run_on_thread(partial(self._commit, commands), since)

    async def probe(self, since: float) -> None:
        await self._run_on_thread(self._probe, since)

    def close(self) -> None:
        """End the thread and close its connection, unless the disk does not respond."""
        self._inbox.put(None)
        if self._under_way is None or self._under_way.done():
            self.connection.close()

    async def _run_on_thread(self, work: Callable[[float], T], since: float) -> T:
        """Call `work` with the time until which it may wait for the lock; return its result."""
        deadline = response_deadline(since)
        if not await self._is_idle(deadline):  # it still has a batch that was given up
            raise Unavailable(DISK_STALLED)
        self._under_way = Future()
        task = partial(work, since + LOCK_TIMEOUT)
        self._inbox.put(partial(run_into, self._under_way, task))
        if not await self._is_idle(deadline):
            raise Unavailable(DISK_STALLED, Outcome.UNKNOWN)
        try:
            result: T = self._under_way.result()
            return result
        finally:
            self._under_way = None  # it would keep an error, whose frames have the batch

    async def _is_idle(self, deadline: float) -> bool:
        if self._under_way is None:
            return True
        return await is_done(self._under_way, self._thread, deadline - self._loop.time())

    # On the thread. `lock_deadline` is on the monotonic clock, as is the loop's: if the file stays
    # locked until then, nothing is written.

    def _run(self) -> None:
        for work in iter(self._inbox.get, None):
            work()

    def _commit(self, commands: Sequence[Command], lock_deadline: float) -> list[Result]:
        """Apply commands in one transaction; return their results in the same order.

        Raises BatchTooLarge, InvalidWrite, Unavailable.
        """
        with self._refusing(lock_deadline):
            with self._transaction():
                now = clock.now()
                before = self._before(commands)
                batch = apply(commands, before, now)
                if batch.changes:
                    self._add_changes(batch)
                if batch.keys:
                    rows = [(*entry, now) for entry in batch.keys]
                    self._execute(statements.ADD_KEYS, (statements.as_json(rows),))
            if batch.keys:
                self._delete_keys(now)
            self._identity.check()
        if batch.changes:
            clock.WATCH.committed(now, before.at)
        return batch.results

    def _probe(self, lock_deadline: float) -> None:
        """Write PROBE_BYTES and delete them. Raises Unavailable."""
        with self._refusing(lock_deadline):
            for statement in (statements.TOUCH_CHANGES, _FILL_PROBE, _EMPTY_PROBE):
                with self._transaction():
                    self._execute(statement)

    @contextmanager
    def _refusing(self, lock_deadline: float) -> Iterator[None]:
        """Turn every error into BatchTooLarge, InvalidWrite or Unavailable."""
        self._lock_deadline = lock_deadline
        try:
            yield
        except BatchTooLarge:
            raise
        except (apsw.ConstraintError, UnicodeEncodeError, OverflowError) as error:
            raise InvalidWrite(error) from None
        except BaseException as error:  # noqa: BLE001 - a bug, too: it may have left anything
            raise self._refusal(error) from None

    def _refusal(self, error: BaseException) -> Unavailable:
        """Return why a batch is refused; report a failure, after which no more can be written."""
        unavailable = errors.to_unavailable(error, Outcome.UNKNOWN)
        if unavailable:
            return unavailable
        failure = errors.to_failure(error, self.connection)
        self._loop.call_soon_threadsafe(self._fail, failure)
        return Unavailable(failure.problem, Outcome.UNKNOWN)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with connections.transaction(self.connection, "IMMEDIATE"):
            self._identity.check()  # before anything is written: others may use another log
            yield

    def _before(self, commands: Sequence[Command]) -> Before:
        """Return what the batch needs to know about the collection."""
        count, version, epoch, at = self._execute(statements.STATE).get
        versions: dict[int, int] = {}
        equal: list[int] = []
        # Ids are dense, and a greater one may be too large for SQLite.
        replacements = [row for row in domain.replacements(commands) if row[1] <= count]
        if replacements:
            found = self._execute(statements.COMPARE, (statements.as_json(replacements),)).get
            ids, their_versions, equal = map(statements.decode_integers, found)
            versions = dict(zip(ids, their_versions, strict=True))
        kept: dict[int, tuple[str, str | None]] = {}
        patches = [row for row in domain.patches(commands) if row[1] <= count]
        if patches:
            sent = (statements.as_json(patches),)
            self._check_size(commands, statements.KEPT_BYTES, sent)
            found = statements.decode_patched(self._execute(statements.PATCHED, sent).get)
            for place, id, its_version, is_equal, name, address in found:
                versions[id] = its_version
                kept[place] = name, address
                if is_equal:
                    equal.append(place)
        remembered = self._remembered(commands)
        return Before(count, version, at, epoch, versions, frozenset(equal), remembered, kept)

    def _remembered(self, commands: Sequence[Command]) -> dict[str, Remembered]:
        """Return what the database has of the keys of a batch."""
        keys = domain.keys_of(commands)
        if not keys:
            return {}
        found = self._execute(statements.FIND_KEYS, (statements.as_json(keys),))
        remembered = {key: Remembered(*values) for key, *values in found}
        if keys := domain.keys_of_patches(commands):
            sent = (statements.as_json(keys),)
            self._check_size(commands, statements.REPLAYED_BYTES, sent)
            became = statements.decode_replayed(self._execute(statements.REPLAYED, sent).get)
            for key, name, address in became:
                content = Payload(name, address)
                remembered[key] = remembered[key]._replace(content=content)
        return remembered

    def _check_size(self, commands: Sequence[Command], statement: str, sent: tuple[str]) -> None:
        """Raise BatchTooLarge if a batch of several commands would load more than
        MAX_KEPT_BYTES."""
        if len(commands) > 1 and self._execute(statement, sent).get > MAX_KEPT_BYTES:
            raise BatchTooLarge

    def _add_changes(self, batch: Batch) -> None:
        self._execute(statements.ADD_CHANGES, (statements.as_json(batch.changes),))
        if batch.created:
            self._execute(statements.INSERT, (_search_texts(batch.created),))
        if batch.replaced:
            self._execute(statements.UPDATE, (_search_texts(batch.replaced),))

    def _delete_keys(self, now: int) -> None:
        """Delete the oldest keys that may be forgotten (decision 36), in a transaction of its
        own."""
        last, at, newest = self._execute(statements.LAST_OLD_KEY).get or (1, now, 0)
        kept = MIN_KEYS if at < now - MIN_KEY_AGE else MAX_KEYS
        if last > newest - kept:
            return
        try:
            self._execute(statements.DELETE_KEYS, (last,))
        except (apsw.ConstraintError, apsw.SQLError, apsw.BusyError, apsw.FullError) as error:
            emit(Event.DATABASE_REFUSED, reason=f"old Idempotency-Keys stay: {error}")


def _search_texts(changes: Mapping[int, ChangeRow]) -> str:
    """Return the number of each change, and the search text and the folded name that its store
    gets."""
    rows = []
    for change in changes.values():
        seq, _, name, address, *_ = change
        rows.append((seq, folded(name, address), fold(name)))
    return statements.as_json(rows)
