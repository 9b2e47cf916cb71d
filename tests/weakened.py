"""The real command with one promise broken, or one thing made frequent, on purpose: WEAKENED names which of them.

Each test of a promise must fail on a build that breaks it; else it shows nothing. Workers are started anew as
this file, so that each of them is changed too.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import apsw

from storekeeper import cli, service, supervisor
from storekeeper.api import connection
from storekeeper.api.crowd import Crowd
from storekeeper.api.kept import Kept
from storekeeper.api.resource import Resource
from storekeeper.collection import CREATE
from storekeeper.pace import Pace
from storekeeper.sqlite import schema, writes
from storekeeper.sqlite.place import Place
from storekeeper.sqlite.reads import Reader
from storekeeper.sqlite.writes import Writer

PROGRAM = (sys.executable, __file__)


def environment(*changes: str) -> dict[str, str]:
    """Give what to start PROGRAM with."""
    return {"WEAKENED": " ".join(changes)}


# Broken promises.


def keeps_answers_for_ever() -> None:
    def drop(_kept: Kept) -> None:
        return

    vars_of(Kept).drop = drop


def sees_own_writes_only() -> None:
    """Keeps answers until this worker writes, as a cache without SQLite's data_version would."""
    own = itertools.count()
    now = next(own)
    answer = Writer._answer

    def answered(writer: Writer, batch: list[writes.Write], results: list[writes.Result]) -> None:
        nonlocal now
        now = next(own)
        answer(writer, batch, results)

    vars_of(Writer)._answer = answered
    look = Kept.look

    def look_at_own(kept: Kept, *args: Any) -> None:
        vars_of(kept)._stamp = lambda: now
        look(kept, *args)

    vars_of(Kept).look = look_at_own


def acknowledges_before_commit() -> None:
    def transact(writer: Writer, batch: list[writes.Write]) -> list[writes.Result]:
        writer._give_up = min(write.since for write in batch) + writes.LOCK_PATIENCE
        writer._execute("BEGIN IMMEDIATE")
        results = writer._apply(batch)
        writer._loop.call_soon_threadsafe(writer._answer, batch, results)
        time.sleep(0.01)
        writer._execute("COMMIT")
        writer._waiting += len(batch)
        return results

    vars_of(Writer)._transact = transact


def counts_ids_in_memory() -> None:
    """Each worker counts from what it found at its first write."""
    vars_of(writes)._INSERT = writes._INSERT.replace("INSERT", "INSERT OR REPLACE")
    apply = Writer._apply
    count = -1

    def apply_counted(writer: Writer, batch: list[writes.Write]) -> list[writes.Result]:
        nonlocal count
        execute = writer._execute
        found, version = execute(writes._STATE).get
        count = max(count, 0) or found
        vars_of(writer)._execute = lambda sql, *args: (
            execute("SELECT ?, ?", (count, version)) if sql == writes._STATE else execute(sql, *args)
        )
        try:
            results = apply(writer, batch)
        finally:
            vars_of(writer)._execute = execute
        count += sum(write.id == CREATE for write in batch)
        return results

    vars_of(Writer)._apply = apply_counted


def reads_pages_as_they_are() -> None:
    """The later pages of a long list are not as of the first one."""
    page = Reader._page

    def newest(reader: Reader, ids: Sequence[int], _version: int) -> bytes:
        return page(reader, ids, 2**62)

    vars_of(Reader)._page = newest


def forgets_what_it_sent() -> None:
    """A write whose COMMIT was on its way when PostgreSQL was lost is called refused."""
    from storekeeper.postgres import link  # noqa: PLC0415 - its driver is an extra

    vars_of(link.Lost).sent = property(lambda _lost: False, lambda _lost, _sent: None)


def syncs_normally() -> None:
    """WAL's usual setting: COMMIT does not wait for the disk."""
    _after_connect(lambda connection: connection.pragma("synchronous", "normal"))


def keeps_every_connection() -> None:
    """However many files it may open."""
    vars_of(Crowd).enter = lambda crowded, newcomer: crowded._all.add(newcomer) or True


def takes_all_writes() -> None:
    """However slow the disk is."""
    vars_of(Pace).note = lambda _pace, _seconds: None


def takes_all_bodies() -> None:
    """However much memory they take together."""
    vars_of(connection).MOST_HELD = 2**60


def does_not_look_for_its_file() -> None:
    vars_of(Place).check = lambda _place: None


def goes_by_the_clock_on_the_wall() -> None:
    """Deadlines end early, or never, when somebody sets the clock."""
    sweep = Crowd.sweep
    apart = time.time() - time.monotonic()

    async def sweep_by_the_wall(all: Crowd, now: float) -> None:
        await sweep(all, now + time.time() - time.monotonic() - apart)

    vars_of(Crowd).sweep = sweep_by_the_wall


def fails_in_the_writer() -> None:
    """At the batch whose number stands in FAILS_AT."""
    apply = Writer._apply
    left = int(os.environ["FAILS_AT"])

    def apply_or_fail(writer: Writer, batch: list[writes.Write]) -> list[writes.Result]:
        nonlocal left
        left -= 1
        if not left:
            raise RuntimeError("a bug")
        return apply(writer, batch)

    vars_of(Writer)._apply = apply_or_fail


def meets_a_bug_in_every_write() -> None:
    def payload(_resource: Resource, _body: bytes) -> NoReturn:
        raise RuntimeError("a bug")

    vars_of(Resource)._payload = payload


def heeds_signals_to_the_end() -> None:
    """What comes after a stop has its usual effect."""
    for module in (service, supervisor):
        vars_of(module).ignore_signals = lambda: None


# Nothing broken.


def is_impatient() -> None:
    """Deadlines in a tenth of their time."""
    for name in ("REQUEST_PATIENCE", "IDLE_PATIENCE", "STALL_PATIENCE", "DISCARD_PATIENCE"):
        setattr(connection, name, getattr(connection, name) / 10)


def has_short_timeouts() -> None:
    """What a supervisor waits for takes about a second at most."""
    supervisor.STOP_TIMEOUT = 1.0
    supervisor.CLOSE_TIMEOUT = 0.2
    supervisor.FIRST_PAUSE = 0.05


def has_a_slow_disk() -> None:
    """For each 10 writes it takes as many seconds as stand in the file that SLOW_DISK names."""
    vars_of(writes)._BATCH = 10
    transact = Writer._transact

    def transact_slowly(writer: Writer, batch: list[writes.Write]) -> list[writes.Result]:
        time.sleep(float(Path(os.environ["SLOW_DISK"]).read_text()) * max(1, len(batch) / 10))
        return transact(writer, batch)

    vars_of(Writer)._transact = transact_slowly


def checkpoints_often() -> None:
    """Every 4 pages, so that a checkpoint is always under way somewhere."""
    _after_connect(lambda connection: connection.wal_autocheckpoint(4))


def has_a_next_schema() -> None:
    """As a later release would: a migration that touches every store."""
    vars_of(schema).MIGRATIONS = (
        *schema.MIGRATIONS,
        "ALTER TABLE stores ADD COLUMN shown TEXT; UPDATE stores SET shown = upper(name)",
    )


def _after_connect(change: Callable[[apsw.Connection], object]) -> None:
    connect = schema.connect

    def connect_and_change(path: Path, *, reader: bool = False) -> apsw.Connection:
        made = connect(path, reader=reader)
        change(made)
        return made

    vars_of(schema).connect = connect_and_change


def vars_of(target: Any) -> Any:
    """Give a module, class or object as one whose attributes may be set to anything."""
    return target


# Not under `if __name__`: a worker runs this file by another name.
for change in os.environ.get("WEAKENED", "").split():
    globals()[change]()

if __name__ == "__main__":
    cli.main()
