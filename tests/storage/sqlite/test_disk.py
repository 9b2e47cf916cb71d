"""What the service does when the disk below it fills up, fails or does not respond."""

import asyncio
import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path

import apsw
import pytest

from storekeeper.concurrency import batcher
from storekeeper.domain.commands import Command, Create, Replace
from storekeeper.domain.errors import LOCKED, Outcome, PreconditionFailed, Unavailable
from storekeeper.domain.stores import Payload, Store
from storekeeper.storage import write_state
from storekeeper.storage.collection import Collection
from storekeeper.storage.sqlite import SqliteCollection, connections
from storekeeper.storage.sqlite.file_identity import FileIdentity
from storekeeper.storage.sqlite.writer import SqliteWriter
from storekeeper.storage.write_state import WriteState
from tests.harness.cases import case, thorough
from tests.harness.client import fill, load, until
from tests.harness.collection import create, get, numbered, replace, stores
from tests.harness.command import run as run_command
from tests.harness.databases import Sqlite, handle, make_file
from tests.harness.log_lines import LogLines
from tests.harness.machine import fill_disk, mounted
from tests.harness.process import TIMEOUT, kill_group, serving
from tests.harness.stores import a_store
from tests.harness.system_calls import SYNCS, injected

LONG = "x" * 3000
Held = tuple[Sqlite, apsw.Connection]

SLACK = 5.0
"""Seconds beyond its time that a busy machine may take."""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB."""
    with mounted(tmp_path / "disk", "size=64m") as disk:
        yield disk


def free(disk: Path, pages: int) -> None:
    """Leave only these pages of the disk free."""
    filler = disk / "filler"
    fill_disk(filler)
    os.truncate(filler, filler.stat().st_size - pages * 4096)


def test_a_full_disk_refuses_writes_which_is_heard_of_until_it_has_space(
    small: Path, tmp_path: Path
) -> None:
    with serving(tmp_path, database=f"sqlite:///{small}/stores.db") as service:
        assert service.request("POST", "/api/stores", {"name": "Before"}).json["id"] == 1
        fill_disk(small / "filler")
        for _ in range(3):
            refused = service.request("POST", "/api/stores", {"name": "Refused", "address": LONG})
            assert (refused.status, refused.json["outcome"], refused.headers["retry-after"]) == (
                503,
                "none",
                "1",
            )
            assert len(service.request("GET", "/api/stores").json) == 1
        until(
            lambda: (
                'level=error event="writes are refused" reason="The disk is full"' in service.log
            ),
            1 + SLACK,
        )
        expected = {"status": "ready", "writes": "refused", "reason": "The disk is full"}
        assert service.request("GET", "/health/ready").json == expected
        asked = run_command("ready", "--port", str(service.port))
        said = b"storekeeper: ready, but writes are refused: The disk is full\n"
        assert (asked.returncode, asked.stderr) == (0, said)
        (small / "filler").unlink()
        until(
            lambda: (
                service.request("GET", "/health/ready").json == {"status": "ready", "writes": "ok"}
            ),
            6 + SLACK,
        )
        until(lambda: 'level=info event="writes work again" seconds=' in service.log)
        assert service.log.count("writes are refused") == 1
        assert service.request("POST", "/api/stores", {"name": "After"}).json["id"] == 2
        assert service.stop() == 0


def test_a_start_on_a_full_disk_says_so_and_is_worth_another_try(
    small: Path, tmp_path: Path
) -> None:
    """A service manager starts it again, until there is space."""
    fill(small, [Payload("Before")])
    fill_disk(small / "filler")
    for workers in (1, 2):
        full = serving(
            tmp_path, f"--workers={workers}", database=f"sqlite:///{small}/stores.db", ready=False
        )
        with case(workers), full as service:
            assert service.process.wait(TIMEOUT) == 74
            assert "cannot be opened for writing (The disk is full)" in service.log
            assert service.log.count("\n") == 1
    (small / "filler").unlink()
    assert load(f"sqlite:///{small}/stores.db", [Payload("After")]) == range(2, 3)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_each_worker_knows_of_a_full_disk_although_nobody_writes(
    small: Path, tmp_path: Path, workers: int
) -> None:
    options = (f"--workers={workers}", "--ready-needs-writes")
    with serving(tmp_path, *options, database=f"sqlite:///{small}/stores.db") as service:

        def readiness() -> set[int]:
            return {service.request("GET", "/health/ready").status for _ in range(8 * workers)}

        fill_disk(small / "filler")
        assert readiness() == {503}
        response = service.request("GET", "/health/ready").json
        assert (response["message"], response["outcome"]) == (
            "Writes are refused: The disk is full",
            "none",
        )
        assert service.request("GET", "/api/stores").json == []
        (small / "filler").unlink()
        until(lambda: readiness() == {200}, 6 + SLACK)


async def test_a_probe_needs_the_disk_and_leaves_nothing_behind(small: Path) -> None:
    path = small / "stores.db"
    fill(small, [Payload("First")])
    now = asyncio.get_running_loop().time
    with (
        closing(apsw.Connection(str(path))) as other,
        closing(
            SqliteWriter(connections.connect(path), FileIdentity(path), fail_on_failure)
        ) as writer,
    ):
        before = other.execute("SELECT * FROM changes").fetchall()
        fill_disk(small / "filler")
        with pytest.raises(Unavailable, match="The disk is full"):
            await writer.probe(now())
        (small / "filler").unlink()
        for _ in range(3):
            await writer.probe(now())
        assert other.execute("SELECT * FROM changes").fetchall() == before
        assert other.execute("SELECT count(*) FROM probe").get == 0
        assert await writer.commit([Create(Payload("Next"))], now()) == [
            a_store(2, "Next", None, 2)
        ]


def fail_on_failure(failure: Exception) -> None:
    pytest.fail(str(failure))


async def test_the_first_write_that_works_ends_a_refusal_and_nobody_probes_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[float] = []
    monkeypatch.setattr(SqliteWriter, "_probe", lambda _writer, deadline: probed.append(deadline))
    async with handle(Sqlite(tmp_path)) as collection:
        assert isinstance(collection, SqliteCollection)
        assert not await collection.refusal_of_writes(probe=False)
        for reason in (LOCKED, "The disk is full"):
            collection._queue.state.refused(reason)
            assert collection._queue.state.reason == reason
            await create(collection, Payload("Works"))
            assert not await collection.refusal_of_writes(probe=False)
        assert probed == []
        for _ in range(3):
            assert not await collection.refusal_of_writes(probe=True)
        assert len(probed) == 1, "once in 5 s"


async def test_a_refused_precondition_is_no_refusal_of_the_database(tmp_path: Path) -> None:
    async with handle(Sqlite(tmp_path)) as collection:
        assert isinstance(collection, SqliteCollection)
        await create(collection, Payload("First"))
        for before in ("", LOCKED):
            collection._queue.state.reason = before
            with pytest.raises(PreconditionFailed):
                await collection.write(
                    Replace(1, Payload("x"), if_match=frozenset(['"9.aaaaaaaa"']))
                )
            assert collection._queue.state.reason == ""


async def test_a_probe_that_does_not_come_back_is_a_refusal_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_state, "CHECK_TIMEOUT", 0.01)
    monkeypatch.setattr(write_state, "PROBE_TIMEOUT", 0.1)
    back = asyncio.Event()

    async def probe() -> None:
        await back.wait()

    state = WriteState(probe)
    assert not await state.refusal(probe=True)
    async with asyncio.timeout(TIMEOUT):
        while not await state.refusal(probe=True):
            pass
    assert state.reason == "The disk does not respond"
    back.set()
    await state.close()
    assert state.reason == ""


def test_a_probe_that_waits_for_the_disk_keeps_no_read_waiting(tmp_path: Path) -> None:
    make_file(tmp_path / "stores.db")
    delay = 20.0
    slow = injected("pwrite64", tmp_path / "stores.db-wal", "2+", f"delay_enter={delay * 1e6:.0f}")
    with serving(tmp_path, "--ready-needs-writes", within=slow) as service:
        began = time.monotonic()
        assert service.request("GET", "/health/ready").json["status"] == "ready"
        assert service.request("GET", "/api/stores").json == []
        assert time.monotonic() - began < delay
        kill_group(service.process)


async def test_a_refusal_that_lasts_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = LogLines(monkeypatch)

    async def probe() -> None:
        raise Unavailable("The disk is full")

    state = WriteState(probe)
    state.refused("The disk is full")
    state.refused("The disk is full")
    assert len(lines) == 1, "not with each refused write"
    lines.now += 61
    assert await state.refusal(probe=False) == "The disk is full"
    assert 'event="writes are refused"' in lines[-1]
    assert "suppressed=1" in lines[-1]
    state.accepted()
    state.accepted()
    assert len(lines) == 3
    assert 'event="writes work again"' in lines[-1]
    state.refused("The disk is full")
    assert len(lines) == 4, "what begins again is logged at once"


@pytest.mark.parametrize("pages", [0, 4, 10, *thorough(2, 6, 8)])
async def test_the_last_pages_of_a_disk_are_used_without_a_wrong_response(
    small: Path, pages: int
) -> None:
    """One write of another length after another: it is in the list if and only if it was
    acknowledged."""
    async with handle(Sqlite(small)) as collection:
        acknowledged = [await create(collection, Payload("First"))]
        free(small, pages)
        outcomes: set[Outcome | None] = set()
        for number in range(60):
            outcomes.add(await _try_to_add(collection, acknowledged, "x" * (number * 97 % 6000)))
            assert len(await stores(collection)) == len(acknowledged)
        assert Outcome.NONE in outcomes <= {Outcome.NONE, None}
        await _goes_on(collection, acknowledged, small)


async def _try_to_add(
    collection: Collection, acknowledged: list[Store], address: str
) -> Outcome | None:
    """Return the outcome of a refusal."""
    try:
        acknowledged.append(await create(collection, Payload("New", address)))
    except Unavailable as error:
        assert str(error) == "The disk is full"
        return error.outcome
    return None


async def _goes_on(collection: Collection, acknowledged: list[Store], disk: Path) -> None:
    """Free the disk, write again, and find exactly what was acknowledged, also after the next
    start."""
    (disk / "filler").unlink()
    acknowledged.append(await create(collection, Payload("Last")))
    assert [store.id for store in acknowledged] == list(range(1, len(acknowledged) + 1))
    await collection.close()
    async with handle(Sqlite(disk)) as again:
        assert [await get(again, store.id) for store in acknowledged] == acknowledged
        assert len(await stores(again)) == len(acknowledged)


@pytest.mark.parametrize("pages", [16, 27, 34, *thorough(20, 23, 24, 31)])
async def test_the_index_of_the_log_may_find_no_space(small: Path, pages: int) -> None:
    """It grows once in about 4,000 pages of the log, after these were written: no response is
    wrong, none final."""
    async with handle(Sqlite(small)) as collection:
        acknowledged = [await create(collection, Payload("First"))]
        with closing(apsw.Connection(str(small / "stores.db"))) as other:
            # A transaction that reads: the log cannot begin again and grows.
            assert other.execute("BEGIN; SELECT count(*) FROM stores").get == 1
            log = small / "stores.db-wal"
            while (grown := log.stat().st_size // 4120) < 4040:
                count = min(300, 1 + max(0, (4000 - grown) // 4))
                many = [create(collection, Payload("New", LONG)) for _ in range(count)]
                acknowledged += await asyncio.gather(*many)
            free(small, pages)
            outcomes: set[Outcome | None] = set()
            for _ in range(40):
                outcomes.add(await _try_to_add(collection, acknowledged, LONG))
                assert await get(collection, len(acknowledged)) == acknowledged[-1]
                assert await get(collection, len(acknowledged) + 1) is None
            # Undone, but in the log all the same: should all crash now, the next start would find
            # it.
            assert outcomes - {None} == {Outcome.UNKNOWN if 23 < pages < 32 else Outcome.NONE}
        await _goes_on(collection, acknowledged, small)


# Errors after which it is unknown what the file holds.


def test_after_an_error_of_the_disk_the_process_says_so_and_ends(tmp_path: Path) -> None:
    database = tmp_path / "stores.db"
    make_file(database)
    with serving(
        tmp_path, within=injected(SYNCS, database.with_name("stores.db-wal"), "3+")
    ) as service:
        assert service.request("POST", "/api/stores", {"name": "Kept"}).json["id"] == 1
        ready = b"GET /health/ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        write = (
            b'POST /api/stores HTTP/1.1\r\nhost: x\r\ncontent-length: 16\r\n\r\n{"name":"Lost?"}'
        )
        responses = service.raw(write + write + ready)
        assert [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", responses)] == [
            503,
            503,
            503,
        ]
        assert re.findall(rb'"outcome":"(\w+)"', responses)[0] == b"unknown"
        assert service.process.wait(TIMEOUT) == 74
        assert service.log.count("database failed, ending this process") == 1
        assert "Traceback" not in service.log
    names = [change[2] for change in Sqlite(tmp_path).changes()]
    assert names in (["Kept"], ["Kept", "Lost?"])
    assert load(f"sqlite:///{database}", [Payload("Next")])[0] == len(names) + 1


def test_a_worker_whose_disk_failed_is_replaced(tmp_path: Path) -> None:
    """The kernel counts for each process: every worker fails at its 20th sync."""
    make_file(tmp_path / "stores.db")
    within = injected(SYNCS, tmp_path / "stores.db-wal", "20")
    with serving(tmp_path, "--workers", "2", within=within) as service:
        acknowledged: list[int] = []

        def write() -> bool:
            with suppress(OSError, HTTPException):  # it was at the worker that has just ended
                response = service.request("POST", "/api/stores", {"name": "x"})
                if response.status == 200:
                    acknowledged.append(response.json["id"])
                    return True
            return False

        until(lambda: not write())
        until(lambda: "worker lost" in service.log)
        assert "database failed" in service.log
        for _ in range(3):
            until(write)
        stored = [store["id"] for store in service.request("GET", "/api/stores").json]
        assert stored == list(range(1, len(stored) + 1))
        assert set(acknowledged) <= set(stored)
        assert acknowledged == sorted(set(acknowledged))


# Waiting.


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    """A database with one store, locked by another process's transaction."""
    database = Sqlite(tmp_path)
    fill(tmp_path, [Payload("First")])
    with closing(apsw.Connection(str(database.path))) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield database, connection


async def test_no_more_writes_than_the_limit_wait(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, connection = held
    monkeypatch.setattr(batcher, "MAX_QUEUED", 50)
    monkeypatch.setattr(
        write_state, "PROBE_TIMEOUT", 0.0
    )  # waiting writes are not a probe that does not come back
    async with handle(database) as collection:
        waiting = [create(collection, payload) for payload in numbered(50)]
        for refused in (
            create(collection, Payload("Too many")),
            replace(collection, 1, Payload("Too many")),
        ):
            assert refused.done(), "it waits as well"
            with pytest.raises(Unavailable, match="Too many requests are waiting") as error:
                await refused
            assert error.value.outcome is Outcome.NONE
        assert await get(collection, 1) == a_store(1, "First", None, 1)
        assert not await collection.refusal_of_writes(probe=False)
        connection.execute("COMMIT")
        assert [store.id for store in await asyncio.gather(*waiting)] == list(range(2, 52))
        assert (await create(collection, Payload("Now"))).id == 52


async def test_a_lock_of_a_moment_is_no_refusal_of_writes(held: Held) -> None:
    database, connection = held
    async with handle(database) as collection:
        assert not await collection.refusal_of_writes(probe=False)
        connection.execute("COMMIT")
        assert (await create(collection, Payload("Next"))).id == 2


async def test_a_write_that_has_waited_for_too_long_is_told_so_and_nothing_changes(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a lock, or because the whole process stood still: there need not be many others."""
    database, connection = held
    async with handle(database) as collection:
        first = create(collection, Payload("Under way"))
        await asyncio.sleep(0.1)  # the thread has it
        monkeypatch.setattr(batcher, "QUEUE_TIMEOUT", 0.2)
        late = create(collection, Payload("Late"))
        await asyncio.sleep(0.3)
        connection.execute("COMMIT")
        with pytest.raises(Unavailable, match="The request has waited for too long") as error:
            await late
        assert error.value.outcome is Outcome.NONE
        assert (await first).id == 2
        assert not await collection.refusal_of_writes(probe=False)
        assert await get(collection, 3) is None


MIB = 2**20
LARGE = [
    Create(Payload("Large", "x" * MIB)),
    Create(Payload("Tagged"), if_match=frozenset({"x" * MIB})),
    Replace(1, Payload("Tagged"), if_none_match=frozenset({"x" * MIB})),
]


@pytest.mark.parametrize("command", LARGE, ids=["a text", "If-Match", "If-None-Match"])
async def test_no_more_bytes_than_the_limit_wait(
    held: Held, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    database, connection = held
    monkeypatch.setattr(batcher, "MAX_QUEUED_BYTES", 4 * MIB)
    async with handle(database) as collection:
        writes = [collection.write(command) for _ in range(4)]
        assert [write.done() for write in writes] == [False, False, False, True]
        with pytest.raises(Unavailable, match="Too many requests are waiting") as error:
            await writes[3]
        assert error.value.outcome is Outcome.NONE
        small = create(collection, Payload("Small"))
        connection.execute("COMMIT")
        await asyncio.gather(*writes[:3], return_exceptions=True)
        await small
        assert (await create(collection, Payload("x" * 30, "x" * (3 * MIB)))).name == "x" * 30, (
            "there is room again"
        )


async def test_a_write_that_nobody_carries_out_gets_its_response_all_the_same(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome of the one under way is unknown: here it is even written in the end. What
    waits changed nothing."""
    database, connection = held
    monkeypatch.setattr(batcher, "RESPONSE_TIMEOUT", 0.2)
    async with handle(database) as collection:
        for outcome in (Outcome.UNKNOWN, Outcome.NONE):
            with pytest.raises(Unavailable, match="The disk does not respond") as error:
                await create(collection, Payload("Late"))
            assert error.value.outcome is outcome
        assert await collection.refusal_of_writes(probe=False) == "The disk does not respond"
        monkeypatch.undo()  # else a busy machine may be late
        connection.execute("COMMIT")
        assert (await create(collection, Payload("Next"))).id == 3
        assert [store["name"] for store in await stores(collection)] == ["First", "Late", "Next"]


async def test_closing_does_not_wait_for_ever(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    database, connection = held
    monkeypatch.setattr(batcher, "RESPONSE_TIMEOUT", 0.2)
    collection = SqliteCollection(database.path, lambda error: pytest.fail(str(error)))
    write = create(collection, Payload("Stuck"))
    await collection.close()
    with pytest.raises(Unavailable) as error:
        await write
    assert error.value.outcome is Outcome.UNKNOWN
    connection.execute("COMMIT")
