"""What concurrent clients of two instances saw was possible one after another, whatever became
of the database."""

import threading
from collections.abc import Callable
from pathlib import Path

import psycopg

from storekeeper.storage.postgres.schema import COLLECTION_TABLE
from tests.harness.databases import postgres
from tests.harness.postgres_server import either, replicated, running
from tests.harness.process import serving
from tests.oracles.aftermath import judge
from tests.oracles.history import Recorder
from tests.oracles.promises import wait_until_ready

OPERATIONS = 600


def record(
    url: str, folder: Path, recorder: Recorder, strike: Callable[[], None] | None = None
) -> None:
    """Let clients use two instances; something strikes after a quarter, and when all is well
    again they continue."""
    with serving(folder, database=url) as one, serving(folder, database=url) as two:
        ports = [one.port, two.port]
        if strike is not None:
            thread = threading.Thread(target=strike)
            recorder.run(ports, OPERATIONS, when=OPERATIONS // 4, then=thread.start)
            thread.join()
            for instance in (one, two):
                wait_until_ready(instance)
        recorder.run(ports, OPERATIONS)
        for port in ports:
            recorder.settle(port)
        assert "event=bug" not in one.log + two.log


def assert_sound(recorder: Recorder, url: str, statuses: set[int]) -> None:
    assert judge(recorder.history, url) == []
    assert recorder.odd == []
    assert set(recorder.statuses) == statuses
    # So that the history is one of writes: about a sixth are acknowledged, the others fail their
    # condition.
    assert recorder.acknowledged > OPERATIONS // 20


def test_histories_over_two_instances_are_linearizable(tmp_path: Path) -> None:
    recorder = Recorder()
    with postgres().database() as url:
        record(url, tmp_path, recorder)
        assert_sound(recorder, url, {200, 304, 404, 412})


def test_histories_are_linearizable_across_a_kill_of_the_database(tmp_path: Path) -> None:
    postgres()
    recorder = Recorder()

    def strike() -> None:
        server.kill()
        server.start()

    with running() as server:
        url = server.new_database()
        record(url, tmp_path, recorder, strike)
        assert_sound(recorder, url, {200, 304, 404, 412, 503})


def test_histories_are_linearizable_across_a_failover(tmp_path: Path) -> None:
    postgres()
    recorder = Recorder()

    def strike() -> None:
        primary.kill()
        standby.promote()

    with replicated() as (primary, standby):
        name = primary.new_database().rpartition("/")[2]
        record(either(primary, standby, name), tmp_path, recorder, strike)
        assert_sound(recorder, standby.url(name), {200, 304, 404, 412, 503})


def test_a_write_that_the_database_forgets_is_found(tmp_path: Path) -> None:
    """The check itself: a server that may lose its latest commits loses one here, and is caught."""
    recorder = Recorder()
    with postgres().database() as url:
        record(url, tmp_path, recorder)
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM changes WHERE seq = (SELECT version FROM collection)")
            connection.execute(f"UPDATE {COLLECTION_TABLE} SET version = version - 1".encode())
        assert {violation.fault for violation in judge(recorder.history, url)}
