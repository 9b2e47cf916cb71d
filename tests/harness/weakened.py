"""The real command with one promise broken, or one rare thing made frequent, on purpose: WEAKENED
names which.

Each test of a promise must fail on a build that breaks it; otherwise the test shows nothing.
Workers are started from this file too, so that each of them is changed.
"""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, NoReturn

import apsw
import msgspec

from storekeeper import cli
from storekeeper.api import token_table
from storekeeper.api.application import Application
from storekeeper.api.routes.stores import Resource
from storekeeper.concurrency.batcher import Batcher, Queued
from storekeeper.domain import commands
from storekeeper.domain.commands import Batch, Before, Command, Replace, Result
from storekeeper.http import deadlines, limits, reader
from storekeeper.http.cache import Cached, ResponseCache
from storekeeper.http.limits import ConnectionLimit
from storekeeper.http.request import BodyLimit
from storekeeper.process import listener, server, service, supervisor
from storekeeper.storage import write_queue
from storekeeper.storage.sqlite import SqliteCollection, connections, schema, statements, writer
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.sqlite.migrations import MIGRATIONS
from storekeeper.storage.sqlite.reads import Reader
from storekeeper.storage.sqlite.writer import SqliteWriter

PROGRAM = (sys.executable, __file__)


def environment(*changes: str) -> dict[str, str]:
    """Return the command that starts PROGRAM."""
    return {"WEAKENED": " ".join(changes)}


# Broken promises.


def keeps_responses_for_ever() -> None:
    def get(cache: ResponseCache, request: bytes) -> Cached | None:
        vars_of(cache)._numbers = cache._current()
        return cache._responses.get(request)

    vars_of(ResponseCache).get = get


def sees_own_writes_only() -> None:
    """Keeps responses until this worker writes, like a cache without SQLite's wal-index."""
    own = itertools.count()
    now = next(own)
    commit = SqliteWriter.commit

    async def commit_and_count(
        writer: SqliteWriter, batch: Sequence[Command], since: float
    ) -> Sequence[Result]:
        nonlocal now
        results = await commit(writer, batch, since)
        now = next(own)
        return results

    vars_of(SqliteWriter).commit = commit_and_count
    vars_of(SqliteCollection).numbers = lambda _collection: now


def begins_reads_before_the_requests_arrive() -> None:
    """A transaction stays open for those of the next iterations of the loop."""
    end = SqliteCollection.end_reads
    ends_at = 0.0

    def begin_reads(collection: SqliteCollection, _count: int = 1) -> float:
        nonlocal ends_at
        reader = collection._reader
        if time.monotonic() > ends_at:
            reader.end()
            ends_at = time.monotonic() + 0.02
        reader.in_batch = True
        return inf

    def end_reads(collection: SqliteCollection) -> None:
        reader = vars_of(collection._reader)
        reader.end = lambda: None
        end(collection)
        del reader.end

    vars_of(SqliteCollection).begin_reads = begin_reads
    vars_of(SqliteCollection).end_reads = end_reads


def acknowledges_before_commit() -> None:
    serve, commit = Batcher._serve_batch, SqliteWriter._commit
    apply = vars_of(writer).apply
    loop, waiting, results = None, list[Queued[Any, Any]](), list[Result]()

    async def serve_early(batcher: Batcher[Any, Any], batch: list[Queued[Any, Any]]) -> None:
        nonlocal loop
        loop, waiting[:] = asyncio.get_running_loop(), batch
        await serve(batcher, batch)

    def applied(*args: Any) -> Batch:
        decided: Batch = apply(*args)
        results[:] = decided.results
        return decided

    def acknowledge_first(_cursor: apsw.Cursor, sql: str, _values: object) -> bool:
        if sql == "COMMIT" and loop:
            for queued, result in zip(waiting, results, strict=True):
                loop.call_soon_threadsafe(queued.settle, result)
            time.sleep(0.01)
        return True

    def commit_late(own: SqliteWriter, batch: Sequence[Command], deadline: float) -> list[Result]:
        own.connection.exec_trace = acknowledge_first
        return commit(own, batch, deadline)

    vars_of(Batcher)._serve_batch = serve_early
    vars_of(writer).apply = applied
    vars_of(SqliteWriter)._commit = commit_late


def counts_ids_in_memory() -> None:
    """Each worker counts on from its first write."""
    vars_of(statements).INSERT = statements.INSERT.replace("INSERT", "INSERT OR REPLACE")
    apply = vars_of(writer).apply
    count = 0

    def apply_counted(commands: Sequence[Command], found: Before, now: int) -> Batch:
        nonlocal count
        batch: Batch = apply(
            commands, msgspec.structs.replace(found, count=count or found.count), now
        )
        count = batch.count
        return batch

    vars_of(writer).apply = apply_counted


def reads_pages_as_they_are() -> None:
    """The later pages of a long list are not as of the same moment as the first one."""
    page = Reader._page
    vars_of(Reader)._page = lambda reader, ids, state: page(
        reader, ids, state._replace(version=2**62)
    )


def ignores_if_match() -> None:
    vars_of(commands).matches = lambda _tags, _current: True


def takes_same_content_for_a_match() -> None:
    """A write of what the store already is succeeds with any tag: two clients with one tag win."""
    applied = vars_of(commands.Batch)
    replace = applied._replace

    def replace_without_tag(batch: Any, place: int, command: Any) -> Any:
        if place in batch._before.equal and command.id not in batch.replaced:
            command = msgspec.structs.replace(command, if_match=None)
        return replace(batch, place, command)

    applied._replace = replace_without_tag


def remembers_only_its_own_keys() -> None:
    """Each worker has its keys in memory, like a cache in front of the database."""
    _remember_in({})


def _remember_in(known: dict[str, Any]) -> None:
    begin = commands.Batch.__init__

    def begin_with(all: Any, present: Before, now: int) -> None:
        begin(all, present, now)
        vars_of(all)._remembered = known

    vars_of(commands.Batch).__init__ = begin_with


def counts_unchanged_writes() -> None:
    """A PUT that changes nothing makes a change."""
    begin = commands.Batch.__init__

    def begin_without(all: Any, present: Before, now: int) -> None:
        begin(all, msgspec.structs.replace(present, equal=()), now)

    vars_of(commands.Batch).__init__ = begin_without


def loads_addresses() -> None:
    """The process compares the contents of a batch, not the database."""
    before = vars_of(SqliteWriter)._before

    def load_and_compare(own: Any, writes: Sequence[Command]) -> Before:
        ids = [write.id for write in writes if isinstance(write, Replace)]
        loaded = [own._execute("SELECT address FROM stores WHERE id = ?", (id,)).get for id in ids]
        found: Before = before(own, writes)
        del loaded
        return found

    vars_of(SqliteWriter)._before = load_and_compare


def forgets_what_it_sent() -> None:
    """A write whose COMMIT was under way when PostgreSQL was lost is reported as refused."""
    from storekeeper.storage.postgres import pipeline  # noqa: PLC0415 - its driver is an extra

    begin = pipeline.ConnectionLost.__init__

    def begin_unsent(lost: Any, reason: str, *, sent: bool) -> None:
        begin(lost, reason, sent=sent)
        vars_of(lost).sent = False

    vars_of(pipeline.ConnectionLost).__init__ = begin_unsent


def syncs_normally() -> None:
    """The usual setting of WAL: COMMIT does not wait for the disk."""
    _after_connect(lambda connection: connection.pragma("synchronous", "normal"))


def keeps_every_connection() -> None:
    """However many files it may open."""
    vars_of(ConnectionLimit).enter = lambda limit, newcomer: limit.open.add(newcomer) or True


def takes_all_writes() -> None:
    """However slow the disk is."""
    vars_of(Batcher).record = lambda _batcher, _seconds: None


def takes_all_bodies() -> None:
    """However much memory they take together."""
    vars_of(limits).MAX_RECEIVED_BYTES = 2**60


def goes_by_what_the_kernel_took() -> None:
    """The bytes that were sent count, not those that the client acknowledged; the kernel takes as
    many as it likes."""
    vars_of(deadlines).acknowledged = lambda _transport: None
    vars_of(listener).limit_unsent = lambda _listener: None


def does_not_look_for_its_file() -> None:
    vars_of(FileIdentity).check = lambda _identity: None


def goes_by_the_clock_on_the_wall() -> None:
    """Deadlines end early, or never, if the clock is set."""
    sweep = ConnectionLimit.sweep
    apart = time.time() - time.monotonic()

    async def sweep_by_the_wall(all: ConnectionLimit, now: float) -> None:
        await sweep(all, now + time.time() - time.monotonic() - apart)

    vars_of(ConnectionLimit).sweep = sweep_by_the_wall


def fails_in_the_writer() -> None:
    """At the batch with the number in FAILS_AT."""
    apply = vars_of(writer).apply
    left = int(os.environ["FAILS_AT"])

    def apply_or_fail(*args: Any) -> Batch:
        nonlocal left
        left -= 1
        if not left:
            raise RuntimeError("a bug")
        batch: Batch = apply(*args)
        return batch

    vars_of(writer).apply = apply_or_fail


def meets_a_bug_in_every_write() -> None:
    def payload(_resource: Resource, _body: bytes) -> NoReturn:
        raise RuntimeError("a bug")

    vars_of(Resource)._payload = payload


def knows_tokens_for_ever() -> None:
    """They are read once, and that is never too old."""
    vars_of(token_table).REFRESH_INTERVAL = 3600.0
    vars_of(token_table).MAX_AGE = float("inf")


def heeds_signals_to_the_end() -> None:
    """A signal during a stop has its usual effect."""
    for module in (server, supervisor):
        vars_of(module).ignore_signals = lambda: None


# Nothing broken.


def is_impatient() -> None:
    """Deadlines take a tenth of their time."""
    for name in ("REQUEST_TIMEOUT", "IDLE_TIMEOUT", "STALL_TIMEOUT", "DISCARD_TIMEOUT"):
        setattr(vars_of(deadlines), name, getattr(deadlines, name) / 10)
    short = BodyLimit(timeout=deadlines.REQUEST_TIMEOUT)
    vars_of(reader).BodyLimit = lambda: short
    vars_of(Application).body_limit = lambda *_: short


def stands_still_at_its_stop() -> None:
    """For a second, with clients that it has not accepted yet."""
    waits, has_client = [1.0], listener.has_client

    def look(at: Any) -> bool:
        time.sleep(waits.pop() if waits else 0)
        return has_client(at)

    vars_of(server).has_client = look


def drops_who_reads_nothing_early() -> None:
    """After half a second, checked ten times a second."""
    vars_of(deadlines).STALL_TIMEOUT = 0.5
    vars_of(service)._SWEEP_INTERVAL = 0.1


def gets_stuck() -> None:
    """At a POST: its event loop never runs again, all of its threads do."""

    def sleep(_resource: Resource, _body: bytes) -> NoReturn:
        while True:
            time.sleep(1)

    vars_of(Resource)._payload = sleep


def replaces_stuck_workers_soon() -> None:
    """After five seconds."""
    vars_of(supervisor).STUCK_TIMEOUT = 5.0


def has_short_timeouts() -> None:
    """A supervisor waits two seconds at most."""
    vars_of(supervisor).STOP_TIMEOUT = 2.0
    vars_of(supervisor).CLOSE_TIMEOUT = 0.2
    vars_of(supervisor).MIN_RETRY_PAUSE = 0.05


def starts_and_stops_soon() -> None:
    """A start or a stop waits about a second at most."""
    vars_of(server).GRACEFUL_TIMEOUT = 1
    vars_of(
        import_module("storekeeper.storage.postgres.schema")
    )._LOCK_TIMEOUT = "SET LOCAL lock_timeout = '0.5s'"


def has_a_slow_disk() -> None:
    """Every 10 writes take as many seconds as the file in SLOW_DISK says."""
    vars_of(write_queue).MAX_BATCH = 10
    commit = SqliteWriter._commit

    def commit_slowly(own: SqliteWriter, batch: Sequence[Command], deadline: float) -> list[Result]:
        time.sleep(float(Path(os.environ["SLOW_DISK"]).read_text()) * max(1, len(batch) / 10))
        return commit(own, batch, deadline)

    vars_of(SqliteWriter)._commit = commit_slowly


def checkpoints_often() -> None:
    """Every 4 pages, so that there is always a checkpoint under way."""
    _after_connect(lambda connection: connection.wal_autocheckpoint(4))


def has_a_next_schema() -> None:
    """As a later release would: a migration that touches every store."""
    vars_of(schema).MIGRATIONS = (
        *MIGRATIONS,
        "ALTER TABLE stores ADD COLUMN shown TEXT; UPDATE stores SET shown = upper(name)",
    )


def _after_connect(change: Callable[[apsw.Connection], object]) -> None:
    connect = connections.connect

    def connect_and_change(path: Path, **options: Any) -> apsw.Connection:
        made = connect(path, **options)
        change(made)
        return made

    vars_of(connections).connect = connect_and_change


class _Changed:
    """A module, class or object whose attributes can be set to anything, but only those that it
    has: a change of an attribute that was renamed would change nothing."""

    def __init__(self, target: Any) -> None:
        vars(self)["target"] = target

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["target"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        target = vars(self)["target"]
        getattr(target, name)
        setattr(target, name, value)


def vars_of(target: Any) -> Any:
    """Return something to change a module, class or object with."""
    return _Changed(target)


# Not under `if __name__`: a worker runs this file under a different name.
for change in os.environ.get("WEAKENED", "").split():
    globals()[change]()

if __name__ == "__main__":
    cli.main()
