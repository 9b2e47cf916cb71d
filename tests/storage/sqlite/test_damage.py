"""What is under a running service goes bad: a damaged page, a sector that cannot be read, a disk
that is slow."""

import asyncio
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from storekeeper.domain.errors import Outcome, Unavailable
from storekeeper.domain.queries import Moment
from storekeeper.domain.stores import Payload, Store
from storekeeper.log import events
from storekeeper.storage import write_state
from storekeeper.storage.collection import Eventual
from tests.harness import weakened
from tests.harness.cases import thorough
from tests.harness.client import create as store
from tests.harness.client import fill
from tests.harness.collection import MANY, create, get, now, numbered
from tests.harness.command import run
from tests.harness.databases import Sqlite, handle, make_file
from tests.harness.loading import add_all
from tests.harness.process import TIMEOUT, Running, ask, refused, serving
from tests.harness.stores import a_store, shown
from tests.harness.system_calls import SYNCS, injected, injecting
from tests.harness.tokens import add_token
from tests.harness.wire import assert_error
from tests.oracles.aftermath import judge
from tests.oracles.history import Recorder
from tests.oracles.lincheck import Kind

BAD = 1800
"""A store whose page is spoilt; those far from it stand on others, and so does what a probe of
writes changes."""


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A database with many stores."""
    fill(tmp_path, numbered(MANY))
    return tmp_path / "stores.db"


@pytest.fixture
def damaged(whole: Path) -> Path:
    """A database with one page of noise, which no start can see."""
    data = bytearray(whole.read_bytes())
    for found in re.finditer(b"Store %d" % BAD, bytes(data)):
        page = found.start() // 4096 * 4096
        data[page : page + 4096] = b"\xa5" * 4096
    whole.write_bytes(data)
    return whole


@pytest.mark.parametrize("workers", [1, *thorough(2)])
def test_a_damaged_page_is_a_503_and_the_others_are_read(damaged: Path, workers: int) -> None:
    """A restart would find the same, so there is none: writes and readiness are refused until it
    is restored."""
    with (
        serving(damaged.parent, f"--workers={workers}") as service,
        closing(service.connection()) as connection,  # one worker's
    ):
        received = service.raw(b"GET /api/stores HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert not received.endswith(b"]\r\n0\r\n\r\n"), "the list looks whole"
        assert received.count(b'"id"') < MANY
        for _ in range(3):
            response = ask(connection, "GET", f"/api/stores/{BAD}")
            assert_error(response, 503, outcome="none")
            assert response.json["message"].startswith("The database is damaged")
            for id in (1, MANY):
                expected = shown(id, f"Store {id}", f"{id} Road")
                assert ask(connection, "GET", f"/api/stores/{id}").json == expected
            assert_error(
                ask(connection, "POST", "/api/stores", {"name": "New"}), 503, outcome="none"
            )
            assert_error(ask(connection, "GET", "/health/ready"), 503, outcome="none")
            assert ask(connection, "GET", "/health/live").status == 200
        assert service.process.poll() is None
        assert 1 <= service.log.count("database is damaged, refusing writes") <= workers
        assert "worker lost" not in service.log
        assert service.stop() == 0


@pytest.mark.parametrize("then", ["the create first", "the damage first"])
async def test_once_a_damaged_page_was_met_nothing_more_is_acknowledged(
    damaged: Path, then: str
) -> None:
    async with handle(
        Sqlite(damaged.parent)
    ) as collection:  # no failure: a successor would find the same damage
        written = [create(collection, Payload("New"))] if then == "the create first" else []
        for _ in range(3):
            with pytest.raises(Unavailable, match="The database is damaged"):
                await get(collection, BAD)
        assert await get(collection, 1) == a_store(1, "Store 1", "1 Road", 1)
        written.append(create(collection, Payload("New")))
        for refused in (*written, collection.check(), add_all(collection, numbered(1))):
            with pytest.raises(Unavailable, match="The database is damaged"):
                await refused


@pytest.fixture
def damaged_text(tmp_path: Path) -> Path:
    """A database in which one byte of a store, and one of a token, made invalid UTF-8: SQLite
    does not look."""
    url = f"sqlite:///{tmp_path}/stores.db"
    fill(tmp_path, numbered(3))
    add_token(url, "nightly", "read")
    path = tmp_path / "stores.db"
    path.write_bytes(
        path.read_bytes().replace(b"Store 2", b"Sto\xfae 2").replace(b"nightly", b"night\xfay")
    )
    return path


@pytest.mark.parametrize("moment", [None, Moment(3)])
async def test_text_that_is_damaged_is_a_503_and_others_are_read(
    damaged_text: Path, moment: Moment | None
) -> None:
    async with handle(Sqlite(damaged_text.parent)) as collection:

        def read(id: int) -> Eventual[Store | None]:
            return collection.get(id) if moment is None else collection.get_at(id, moment)

        with pytest.raises(Unavailable, match="is damaged") as refused:
            await now(read(2))
        assert refused.value.outcome is Outcome.NONE
        assert (await now(read(1)) or Payload("")).name == "Store 1"
        with pytest.raises(Unavailable, match="is damaged"):
            await collection.tokens()
        with pytest.raises(Unavailable, match="is damaged"):
            await collection.check()


@pytest.mark.parametrize("name", ["token list", "export -", "copy", "serve --port 0"])
def test_text_that_is_damaged_is_no_bug_of_a_command(damaged_text: Path, name: str) -> None:
    url = f"sqlite:///{damaged_text}"
    arguments = [url, f"{url}.copy"] if name == "copy" else ["--database", url]
    (line,) = refused(run(*name.split(), *arguments))
    assert str(damaged_text) in line
    assert "'utf-8' codec can't decode byte 0xfa" in line
    assert not Path(f"{damaged_text}.copy").exists()


async def test_no_probe_finds_that_writes_work_again_after_damage(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would change may be whole, but nothing is written any more."""
    lines: list[str] = []
    # A captured log would still write to its file, whose number the next test has for
    # something else.
    monkeypatch.setattr(events, "write_line", lines.append)
    monkeypatch.setattr(events, "_due", {})
    monkeypatch.setattr(write_state, "PROBE_INTERVAL", 0.01)
    async with handle(Sqlite(damaged.parent)) as collection:
        with pytest.raises(Unavailable, match="is damaged"):
            await get(collection, BAD)
        for _ in range(10):  # some probes have come and gone
            await asyncio.sleep(0.02)
            assert "is damaged" in await collection.refusal_of_writes(probe=False)
    assert "writes are refused" in "".join(lines)
    assert "writes work again" not in "".join(lines)


async def test_after_damage_no_thread_writes_beside_the_writer(damaged: Path) -> None:
    """The use of a token, or a bulk load: each has a connection of its own, and its pages may be
    whole."""
    add_token(f"sqlite:///{damaged}", "nightly", "read")
    async with handle(Sqlite(damaged.parent)) as collection:
        with pytest.raises(Unavailable, match="is damaged"):
            await get(collection, BAD)
        for writing in (collection.mark_used([1], 10**13), add_all(collection, numbered(1))):
            with pytest.raises(Unavailable, match="is damaged"):
                await writing
        assert [token.used for token in await collection.tokens()] == [None]


def test_a_page_that_cannot_be_read_ends_the_process_and_no_response_is_wrong(
    tmp_path: Path, whole: Path
) -> None:
    statuses = []
    with serving(tmp_path) as service, closing(service.connection()) as connection:
        assert ask(connection, "GET", "/api/stores/1").status == 200
        with injecting(service.process.pid, "pread64", whole):
            for id in range(1, MANY, 20):
                response = ask(connection, "GET", f"/api/stores/{id}")
                statuses.append(response.status)
                if response.status != 200:
                    assert_error(response, 503, outcome="none")
                    break
                assert response.json["name"] == f"Store {id}"
            assert service.process.wait(TIMEOUT) == 74
        assert service.log.count("database failed, ending this process") == 1
    assert statuses.count(503) == 1
    assert len(Sqlite(tmp_path).changes()) == MANY


def test_a_writer_that_dies_leaves_nobody_waiting(tmp_path: Path) -> None:
    """Each write is answered, what was acknowledged is there, and the process ends so that
    another may begin."""
    environment = weakened.environment("fails_in_the_writer") | {"FAILS_AT": "3"}
    recorder = Recorder(clients=24, mix={Kind.CREATE: 1})
    with serving(tmp_path, env=environment, program=weakened.PROGRAM) as service:
        recorder.run(service.port, 2000)
        assert service.process.wait(TIMEOUT) == 74
        assert service.log.count("database failed, ending this process") == 1
    assert recorder.statuses[503] > 0
    assert recorder.statuses.keys() <= {200, 412, 503}  # some of its creates have an If-Match
    assert judge(recorder.history, f"sqlite:///{tmp_path}/stores.db") == []


def test_a_disk_that_takes_long_to_sync_keeps_no_read_waiting(tmp_path: Path) -> None:
    """Writes share its syncs: all of them take as long as two or three, not as long as 24."""
    make_file(tmp_path / "stores.db")
    delay = injected(SYNCS, tmp_path / "stores.db-wal", "1+", "delay_enter=200000")
    with serving(tmp_path, within=delay) as service, ThreadPoolExecutor(24) as pool:

        def reads_beside_writes(round: int) -> int:
            writes = [pool.submit(store, service, f"Store {number}") for number in range(24)]
            reads = _reads_until(service, lambda: all(write.done() for write in writes))
            assert sorted(write.result() for write in writes) == list(
                range(24 * round + 1, 24 * round + 25)
            )
            return reads

        # One for each sync, if they waited for it; a busy machine may come to little more now and
        # then.
        assert any(reads_beside_writes(round) > 12 for round in range(9))
        assert service.stop() == 0


def _reads_until(service: Running, done: Callable[[], bool]) -> int:
    reads = 0
    with closing(service.connection()) as connection:
        while not done():
            assert ask(connection, "GET", "/api/stores").status == 200
            reads += 1
            time.sleep(0.005)  # the writes' own threads need the interpreter too
    return reads
