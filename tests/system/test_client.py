"""The client through a kill, a database that is away, and a restore: nothing lost, nothing
twice."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from storekeeper.client import Change, Client, Mirror, Reset, Store
from tests.harness.client import locked, until
from tests.harness.command import run
from tests.harness.process import TIMEOUT, free_port, kill_group, serving

COUNTERS, INCREMENTS, CREATES = 3, 25, 25
THE_END = "The end"


def counted(store: Store) -> Store:
    return replace(store, address=str(int(store.address or "") + 1))


def count_up(client: Client) -> None:
    for _ in range(INCREMENTS):
        client.edit(1, counted)


def add(client: Client) -> None:
    for number in range(CREATES):
        client.create(f"Store {number}")


def follow(client: Client, cursor: str, found: list[Change | Reset]) -> None:
    for event in client.follow(cursor):
        found.append(event)
        if isinstance(event, Change) and event.store.name == THE_END:
            return


@pytest.mark.parametrize("away", [0.5, pytest.param(30.0, marks=pytest.mark.thorough)])
def test_nothing_is_lost_and_nothing_done_twice(tmp_path: Path, away: float) -> None:
    url, backup = f"sqlite:///{tmp_path}/stores.db", str(tmp_path / "backup.db")
    port, found = free_port(), list[Change | Reset]()
    service = ("--workers=2", f"--port={port}")

    with ExitStack() as stack:
        client = stack.enter_context(Client(f"http://127.0.0.1:{port}", patience=60))
        mirror = Mirror(client, ":memory:")
        pool = stack.enter_context(ThreadPoolExecutor())

        def start(work: Callable[..., None], *more: object) -> Future[None]:
            return pool.submit(work, client, *more)

        with serving(tmp_path, *service, database=url) as first:
            cursor = client.create("Counter", "0").tag.strip('"')
            mirror.update()
            workers = [start(count_up) for _ in range(COUNTERS)] + [start(add)]
            # No test that fails waits for it: it would follow for ever.
            following = Thread(target=follow, args=(client, cursor, found), daemon=True)
            following.start()
            until(lambda: len(found) > 10)
            kill_group(first.process)
        with serving(tmp_path, *service, database=url):
            with locked(tmp_path):
                time.sleep(away)  # the database is away for so long
            for worker in workers:
                worker.result()
            assert client.get(1).address == str(COUNTERS * INCREMENTS)
            names = [store.name for store in client.list()]
            assert names == ["Counter", *(f"Store {number}" for number in range(CREATES))]
            count = COUNTERS * INCREMENTS + CREATES
            until(lambda: len(found) >= count)
            assert [event.seq for event in found if isinstance(event, Change)] == list(
                range(2, count + 2)
            )
            assert mirror.update().changes == count
            assert run("backup", backup, "--database", url).returncode == 0
            client.create("Lost by the restore")
            until(lambda: len(found) == count + 1)
            mirror.update()
        assert run("restore", backup, "--database", url).returncode == 0
        with serving(tmp_path, *service, database=url):
            until(lambda: isinstance(found[-1], Reset))
            client.create(THE_END)
            following.join(TIMEOUT)
            reset, last = found[count + 1 :]
            assert isinstance(reset, Reset)
            assert isinstance(last, Change)
            assert last.cursor.partition(".")[2] == reset.cursor.partition(".")[2]
            copied = mirror.update()
            assert (copied.stores, copied.review) == (CREATES + 2, 1)
            review = mirror.database.execute("SELECT * FROM review").fetchall()
            assert review == [(CREATES + 2, "Lost by the restore")]
