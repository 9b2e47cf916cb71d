"""PostgreSQL goes away in every way; what was acknowledged stays, every client is answered, and it
heals by itself."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from storekeeper.api.routes import exports
from storekeeper.domain.errors import Missing, Unavailable
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from storekeeper.storage.postgres.pool import UNREACHABLE
from storekeeper.storage.postgres.schema import COLLECTION_TABLE
from tests.harness.client import until
from tests.harness.collection import run
from tests.harness.command import run as run_command
from tests.harness.databases import make, opened, postgres
from tests.harness.garbage import no_garbage
from tests.harness.in_process import exchange, inside, settled, statuses
from tests.harness.in_process import until as until_inside
from tests.harness.loading import add_all
from tests.harness.machine import fill_disk, mounted
from tests.harness.metrics import parse, series
from tests.harness.postgres_server import Server, either, folder, replicated, running
from tests.harness.process import Response, Running, serving
from tests.harness.wire import create as store
from tests.harness.wire import request
from tests.oracles.promises import RECOVERY, RESPONSE_TIMEOUT, Writers, assert_nothing_lost

FAILOVER = 15.0
"""Seconds after the primary is dead in which every client writes again."""


WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
"""The sessions whose commit waits for a standby."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of this module's own: some tests end it or keep it still, and let it continue
    afterwards."""
    postgres()
    with running() as server:
        yield server


@contextmanager
def instances(
    database: str, path: Path, count: int = 2, *args: str, create: bool = True
) -> Iterator[list[Running]]:
    """Run some services on one database, both kinds of adapter among them."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(serving(path, *args, database=database, create=create))
            for number in range(count)
        ]


def ready(instance: Running) -> bool:
    return instance.request("GET", "/health/ready").status == 200


def create(instance: Running, name: str = "A") -> Response:
    return instance.request("POST", "/api/stores", {"name": name}, timeout=RESPONSE_TIMEOUT)


def assert_refused(response: Response, outcome: str = "none") -> None:
    assert response.status == 503
    assert response.headers["retry-after"]
    assert response.json["outcome"] == outcome


def test_connections_are_ended_under_load(server: Server, tmp_path: Path) -> None:
    """As an administrator, a proxy or a network does it: at any moment, one or all."""
    with instances(server.new_database(), tmp_path) as both:
        with Writers(both, 8) as history, psycopg.connect(server.url(), autocommit=True) as admin:
            for tick in range(8):
                history.everybody_writes(RECOVERY)
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'storekeeper' ORDER BY random() LIMIT %s",
                    (20 if tick % 2 else 1,),
                )
        assert_nothing_lost(history, *both)


def test_a_synchronous_standby_takes_over_under_load(tmp_path: Path) -> None:
    with replicated() as (primary, standby):
        url = (
            either(primary, standby, primary.new_database().rpartition("/")[2])
            + "?target_session_attrs=read-write"
        )
        with instances(url, tmp_path) as both:
            with Writers(both, 16) as history:
                history.everybody_writes(30, least=10)
                primary.kill()
                dead = time.monotonic()
                standby.promote()
                history.everybody_writes(FAILOVER - (time.monotonic() - dead))
            assert_nothing_lost(history, *both)
            assert len(history.acknowledged) > 16 * 10
            assert history.refused | history.unknown


def test_a_copy_by_logical_replication_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    """So does one move to another major version."""
    postgres()

    def keyed(instance: Running) -> Response:
        return instance.request("POST", "/api/stores", {"name": "B"}, {"idempotency-key": "B"})

    with running(wal_level="logical") as old, running() as new:
        here, there = old.new_database(), new.new_database()
        name = here.rpartition("/")[2]
        assert there.endswith(f"/{name}")
        with serving(tmp_path, database=here) as source:
            assert create(source).status == 200
            dump = [str(old.bin / "pg_dump"), "--schema-only", here]
            schema = subprocess.run(dump, capture_output=True, check=True).stdout
            subprocess.run(
                [new.bin / "psql", "--quiet", there],
                input=schema,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            done = run_command("epoch", "--database", there)
            assert done.returncode == 2
            assert done.stderr.count(b"\n") == 1
            old.sql("CREATE PUBLICATION move FOR ALL TABLES", name)
            with psycopg.connect(there, autocommit=True) as connection:
                connection.execute(
                    f"CREATE SUBSCRIPTION move CONNECTION '{here}' PUBLICATION move".encode()
                )
            first = keyed(source)
            listed = source.request("GET", "/api/stores")
        behind = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
        until(lambda: new.sql(f"SELECT version, ({behind}) FROM collection", name) == "2|0")
        with psycopg.connect(there, autocommit=True) as connection:
            connection.execute("DROP SUBSCRIPTION move")
        with serving(tmp_path, database=there) as target:
            moved = target.request("GET", "/api/stores")
            assert (moved.body, moved.headers["etag"]) == (listed.body, listed.headers["etag"])
            again = keyed(target)
            assert again.headers["idempotent-replayed"] == "true"
            assert (again.body, again.headers["etag"]) == (first.body, first.headers["etag"])
            assert create(target).json["id"] == 3


def test_reads_go_to_the_primary_only(tmp_path: Path) -> None:
    with replicated() as (primary, standby):
        name = primary.new_database().rpartition("/")[2]
        with instances(either(standby, primary, name), tmp_path, 1) as (one,):
            assert create(one).status == 200
            assert one.request("GET", "/api/stores/1").status == 200
        with serving(tmp_path, database=standby.url(name), create=False) as alone:
            assert_refused(alone.request("GET", "/api/stores/1"))
            assert_refused(create(alone))
            assert alone.request("GET", "/health/ready").status == 503


def test_a_commit_that_no_standby_confirms_is_not_acknowledged(tmp_path: Path) -> None:
    with (
        replicated() as (primary, standby),
        instances(primary.new_database(), tmp_path, 1) as (one,),
    ):
        assert create(one, "Replicated").status == 200
        standby.kill()
        with ThreadPoolExecutor() as clients:
            waits = clients.submit(create, one, "Waits")
            until(lambda: primary.sql(f"SELECT count(*) {WAITING}") == "1")
            # No other process gets the lock of writers; reading continues.
            assert_refused(create(one, "Behind it"))
            assert_refused(waits.result(), "unknown")
        assert [store["name"] for store in one.request("GET", "/api/stores").json] == ["Replicated"]
        assert writes(one) == "refused"
        standby.start()
        until(lambda: writes(one) == "ok")
        assert create(one, "Again").status == 200
        names = [store["name"] for store in one.request("GET", "/api/stores").json]
        assert names[:2] == ["Replicated", "Waits"]
        assert "Behind it" not in names


def test_a_database_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    postgres()
    with folder() as path:
        server = Server(path)
        server.create()
        server.start()
        make(server.url())
        server.stop()
        with instances(server.url(), tmp_path, 2, create=False) as both:
            for instance in both:
                assert instance.request("GET", "/health/live").status == 200
                assert_refused(instance.request("GET", "/health/ready"))
                assert_refused(instance.request("GET", "/api/stores"))
                assert_refused(instance.request("GET", "/api/stores?name=A"))
                assert_refused(instance.request("GET", "/api/stores/1"))
                assert_refused(create(instance))
                until(lambda: "database unreachable, retrying" in instance.log)  # noqa: B023 - asked at once
                assert str(server.port) in instance.log
            try:
                server.start()
                for instance in both:
                    until(partial(ready, instance), RECOVERY)
                assert create(both[1]).json["id"] == 1
                until(lambda: "database reachable again" in both[0].log)
            finally:
                server.kill()


def test_an_empty_database_that_turns_up_later_ends_the_service(tmp_path: Path) -> None:
    """It begins no list there, in no process: perhaps it is in the place of another one."""
    postgres()
    with folder() as path:
        server = Server(path)
        server.create()
        ways: list[list[str]] = [[], ["--auth=open", "--workers=2"]]
        with ExitStack() as stack:
            started = [
                stack.enter_context(serving(tmp_path, *args, database=server.url(), create=False))
                for args in ways
            ]
            try:
                server.start()
                for instance in started:
                    assert instance.process.wait(30) == 2
                    assert f"storekeeper: {Missing(server.url())}" in instance.log.splitlines()
                assert not databases.database(server.url()).exists()
            finally:
                server.kill()


def test_a_newer_schema_that_turns_up_later_ends_the_service(tmp_path: Path) -> None:
    postgres()
    with folder() as path:
        server = Server(path)
        server.create()
        server.start()
        make(server.url())
        server.sql("UPDATE storekeeper SET schema = 1000")
        server.stop()
        with ExitStack() as stack:
            ways: list[list[str]] = [[], ["--auth=open"], ["--auth=open", "--workers=2"]]
            started = [
                stack.enter_context(serving(tmp_path, *args, database=server.url(), create=False))
                for args in ways
            ]
            try:
                server.start()
                for instance in started:
                    assert instance.process.wait(30) == 2
                    assert "newer Storekeeper" in instance.log
            finally:
                server.kill()


def test_a_database_that_does_not_respond_keeps_nobody_waiting(
    server: Server, tmp_path: Path
) -> None:
    with instances(server.new_database(), tmp_path) as both:
        with Writers(both, 8) as history:
            history.everybody_writes(30)
            with frozen(server):
                targets = ("/api/stores/1", "/api/stores", "/api/stores?name=A", "/health/ready")
                with ThreadPoolExecutor() as clients:
                    get = partial(Running.request, method="GET", timeout=RESPONSE_TIMEOUT)
                    asked = [
                        clients.submit(get, each, target=target)
                        for each in both
                        for target in targets
                    ]
                    for instance in both:
                        assert instance.request("GET", "/health/live").status == 200
                    for response in asked:
                        assert_refused(response.result())
            history.everybody_writes(RECOVERY)
        assert_nothing_lost(history, *both)


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """Have all processes of a server stand still, as a machine does that is about to vanish."""
    assert server.process is not None
    pids = [server.process.pid, *server._children()]
    for pid in pids:
        signal_if_alive(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            signal_if_alive(pid, signal.SIGCONT)


def signal_if_alive(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process of the server: one of its children may have ended meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def test_an_instance_that_stands_still_does_not_keep_the_lock_of_writers(
    server: Server, tmp_path: Path
) -> None:
    with instances(server.new_database(), tmp_path, 3) as (one, two, three):
        with Writers([one, two], 4) as history:
            history.everybody_writes(30, least=20)
            one.process.send_signal(signal.SIGSTOP)
            until(lambda: create(three).status == 200, RECOVERY)
            one.process.send_signal(signal.SIGCONT)
            history.everybody_writes(RECOVERY)
        listed = two.request("GET", "/api/stores").json
        assert [store["id"] for store in listed] == list(range(1, len(listed) + 1))
        names = {store["name"]: store["id"] for store in listed}
        assert all(names[name] == id for name, id in history.acknowledged.items())


def test_a_held_lock_keeps_writes_waiting_and_then_refuses_them(
    server: Server, tmp_path: Path
) -> None:
    database = server.new_database()
    with instances(database, tmp_path, 1) as (one,):
        assert create(one).status == 200
        with psycopg.connect(database) as other:
            other.execute(f"SELECT * FROM {COLLECTION_TABLE} FOR UPDATE".encode())
            assert_refused(create(one, "B"))
            assert one.request("GET", "/api/stores/1").status == 200
        until(lambda: create(one, "C").status == 200)
        assert [store["name"] for store in one.request("GET", "/api/stores").json] == ["A", "C"]


def test_a_server_that_lets_in_few_connections_is_made_do_with(
    server: Server, tmp_path: Path
) -> None:
    server.sql("CREATE ROLE few LOGIN CONNECTION LIMIT 2")
    server.sql("GRANT CREATE ON SCHEMA public TO PUBLIC", "template1")
    with instances(server.new_database().replace("storekeeper@", "few@"), tmp_path, 1) as (one,):
        with Writers([one], 8) as history:
            for _ in range(5):
                history.everybody_writes(RECOVERY)
                assert one.request("GET", "/api/stores").status == 200
                assert one.request("GET", "/api/stores/1").status == 200
        assert_nothing_lost(history, one)
        assert not history.refused


def test_a_database_that_takes_no_writes_is_still_read(server: Server, tmp_path: Path) -> None:
    """So do managed services when the disk is full."""
    database = server.new_database()
    name = database.rpartition("/")[2]
    with instances(database, tmp_path, 1) as (one,):
        assert create(one).status == 200
        server.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ="
            " 'storekeeper'"
        )
        until(lambda: one.request("GET", "/api/stores/1").status == 200)
        assert_refused(create(one, "B"))
        assert "read-only" in create(one, "B").json["message"]
        until(lambda: 'event="writes are refused" reason="The database is read-only"' in one.log)
        refused = {"status": "ready", "writes": "refused", "reason": "The database is read-only"}
        assert one.request("GET", "/health/ready").json == refused
        server.sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ="
            " 'storekeeper'"
        )
        until(lambda: writes(one) == "ok")
        until(lambda: 'event="writes work again"' in one.log)
        assert create(one, "C").json["id"] == 2, "what was tried has left something behind"


READ_ONLY = "ALTER DATABASE {} SET default_transaction_read_only = on", "The database is read-only"
CONSTRAINT = "ALTER TABLE stores ADD CHECK (name <> 'Refused')", "The database failed"


@pytest.mark.parametrize(("statement", "message"), [READ_ONLY, CONSTRAINT])
async def test_writes_that_are_refused_are_not_left_to_the_garbage_collector(
    tmp_path: Path, statement: str, message: str
) -> None:
    """Each may have a mebibyte, and clients repeat it."""
    server = postgres()
    with server.database() as database:
        async with inside(tmp_path, database=database) as service:
            connection, line = service.connect()
            while 200 not in statuses(line):  # until it has a connection
                connection.data_received(b"GET /api/stores HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await settled(connection)
            name = database.rpartition("/")[2]
            server.sql(statement.format(name), database=name)
            server.sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
            while statuses(line)[-3:] != [503] * 3:
                connection.data_received(store("Refused"))
                await settled(connection)
            with no_garbage():
                for _ in range(3):
                    connection.data_received(store("Refused"))
                    await settled(connection)
            assert statuses(line)[-3:] == [503] * 3
            assert message in line.sent.decode()


@pytest.mark.parametrize("begun", [False, True])
def test_attempts_to_reach_a_host_that_vanished_are_not_left_to_the_garbage_collector(
    begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an outage of hours its sockets would use up all file descriptors."""
    if begun:
        monkeypatch.setattr("storekeeper.storage.postgres.schema.prepare", lambda _: "public")

    async def attempt(url: str) -> None:
        async with opened(url) as collection:
            with pytest.raises(Unavailable, match=UNREACHABLE):
                await collection.check()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        gc.disable()
        try:
            run(attempt(f"postgresql://127.0.0.1:{silent.getsockname()[1]}/a?connect_timeout=2"))
            with silent.accept()[0] as client:
                client.settimeout(1)
                assert client.recv(1024), "it greets the server"
                assert client.recv(1024) == b"", "then it closes the connection"
        finally:
            gc.enable()


async def test_a_stop_does_not_wait_until_no_name_server_has_responded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That takes minutes if there are several of them and a search list."""
    asked, stopped = threading.Event(), threading.Event()

    def look_up(*_: object, **__: object) -> None:
        asked.set()
        stopped.wait(RECOVERY)
        raise socket.gaierror(socket.EAI_AGAIN, "no name server responds")

    monkeypatch.setattr("storekeeper.storage.postgres.schema.prepare", lambda _: "public")
    monkeypatch.setattr("socket.getaddrinfo", look_up)
    began = time.monotonic()
    async with opened("postgresql://database/a"):
        assert await asyncio.to_thread(asked.wait, RECOVERY)
    stopped.set()
    assert time.monotonic() - began < RECOVERY


def writes(instance: Running) -> str:
    said: str = instance.request("GET", "/health/ready").json.get("writes", "")
    return said


@pytest.mark.thorough
def test_a_full_disk_is_known_of_while_it_is_full_although_nobody_writes(
    server: Server, open_folder: Path, tmp_path: Path
) -> None:
    with mounted(open_folder / "disk", "size=16m") as disk:
        os.chown(disk, server.uid or -1, server.gid or -1)
        server.sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
        database = server.new_database()
        server.sql(f"ALTER DATABASE {database.rpartition('/')[2]} SET TABLESPACE small")
        with instances(database, tmp_path, 1) as (one,):
            assert create(one).status == 200
            fill_disk(disk / "filler")
            while create(one, "Fills the last page").status == 200:
                pass
            assert writes(one) == "refused"
            assert one.request("GET", "/api/stores/1").status == 200
            before = len(one.request("GET", "/api/stores").json)
            (disk / "filler").unlink()
            until(lambda: writes(one) == "ok", RECOVERY)
            assert len(one.request("GET", "/api/stores").json) == before
        server.sql(f"DROP DATABASE {database.rpartition('/')[2]}")
        server.sql("DROP TABLESPACE small")


def test_a_list_that_cannot_be_finished_breaks_off_and_is_no_bug(
    server: Server, tmp_path: Path
) -> None:
    database = server.new_database()
    with instances(database, tmp_path) as both:
        with psycopg.connect(database) as connection:
            many = "FROM generate_series(1, 40000) AS n"
            connection.execute(
                "INSERT INTO stores SELECT n, 'Store', 'store', n, repeat('x', 500)"
                f" {many}".encode()
            )
            connection.execute(
                f"INSERT INTO changes SELECT n, n, 'Store', '', 0, 0, n {many}".encode()
            )
            connection.execute(
                f"UPDATE {COLLECTION_TABLE} SET count = 40000, version = 40000".encode()
            )
        for instance in both:
            with instance.socket() as client:
                client.sendall(b"GET /api/stores HTTP/1.1\r\nHost: a\r\n\r\n")
                received = client.recv(1000)
                assert received.startswith(b"HTTP/1.1 200 OK\r\n")
                server.kill()
                with suppress(ConnectionResetError):
                    while data := client.recv(2**20):
                        received = received[-10:] + data
                assert not received.endswith(b"0\r\n\r\n"), "the list was whole"
            server.start()
            for each in both:
                until(partial(ready, each))
            assert "event=bug" not in instance.log


@pytest.mark.parametrize(("row", "format"), [(1, "csv"), (100, "xlsx")])
async def test_a_server_that_stands_still_keeps_no_export_and_no_scrape_waiting(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: int, format: str
) -> None:
    """The thread ends while the server still stands: a further export has its place."""
    stands = threading.Event()
    stack = ExitStack()

    def freezing(*_: object) -> Callable[[int], None]:
        def check(number: int) -> None:
            if number == row and not stands.is_set():
                stack.enter_context(frozen(server))
                stands.set()

        return check

    monkeypatch.setattr(exports, "within", freezing)
    async with inside(tmp_path, database=server.new_database()) as service:
        await add_all(service.collection, [Payload("Store", "x" * 30_000)] * 1000)
        application: Any = service.service.runtime.application
        exporting = application._planners["export"].__self__
        get = request("GET", f"/api/export?format={format}")
        with stack:
            monkeypatch.setattr(exports, "RESPONSE_TIMEOUT", 2.0)
            while not stands.is_set():  # a busy machine may need longer
                assert_refused(await exchange(service, get))
            await until_inside(lambda: not exporting._writing)
            scraped = await exchange(service, request("GET", "/metrics"))
            found = parse(scraped.body.decode())
            assert found[series("ready")] == 0
            assert series("stores") not in found
        monkeypatch.setattr(exports, "RESPONSE_TIMEOUT", 30.0)
        assert (await exchange(service, get)).status == 200
