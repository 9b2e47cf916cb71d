"""Copies that are made only from the feed equal the list, whatever is killed, restarted or
restored."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPException
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import pytest

from storekeeper.storage import databases
from tests.harness.client import until
from tests.harness.databases import postgres
from tests.harness.events import Listener
from tests.harness.linux import workers
from tests.harness.postgres_server import running
from tests.harness.process import Running, free_port, kill_group, serving

KILLS = 2


class Mirror(threading.Thread):
    """A copy of the list, kept in step on a thread of its own."""

    def __init__(self, service: Running) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.stores: dict[int, Any] = {}
        self.cursor = "0"
        self.resets = 0
        self.seen: list[int] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.01):
            with suppress(OSError, HTTPException):
                self.follow()

    def follow(self) -> None:
        """Take changes until the service is away."""
        raise NotImplementedError

    def take(self, change: Any) -> None:
        self.stores[change["store"]["id"]] = change["store"]
        self.seen.append(change["seq"])

    def read_again(self) -> None:
        response = self.service.request("GET", "/api/stores")
        assert response.status == 200
        self.stores = {store["id"]: store for store in response.json}
        self.cursor = response.headers["etag"].strip('"')
        self.resets += 1
        self.seen = []


class Polls(Mirror):
    """By pages."""

    def follow(self) -> None:
        response = self.service.request("GET", f"/api/changes?after={self.cursor}&limit=7")
        if response.status == 410:
            self.read_again()
        elif response.status == 200:
            for change in response.json["changes"]:
                self.take(change)
            self.cursor = response.json["next"]


class Events(Mirror):
    """By server-sent events."""

    def follow(self) -> None:
        with Listener(self.service, headers={"last-event-id": self.cursor}) as listener:
            if listener.status != 200:
                return
            for message in listener:
                if message.event == "reset":
                    self.read_again()
                    return
                if message.event == "change":
                    self.take(message.data)
                    self.cursor = message.id


def write(service: Running, over: threading.Event) -> None:
    for number in takewhile(lambda _: not over.wait(0.005), count(1)):
        method, target = (
            ("POST", "/api/stores")
            if number % 3
            else ("PUT", f"/api/stores/{1 + number // 3 % 50}")
        )
        with suppress(OSError, HTTPException):
            service.request(method, target, {"name": "Mirrored", "address": str(time.monotonic())})


@contextmanager
def writing(service: Running) -> Iterator[None]:
    over = threading.Event()
    with ThreadPoolExecutor() as pool:
        for _ in range(2):
            pool.submit(write, service, over)
        try:
            yield
        finally:
            over.set()


def assert_in_step(service: Running, mirrors: list[Mirror]) -> None:
    def know_the_latest_version() -> bool:
        """What was killed may have sent PostgreSQL a write that it carries out a moment later."""
        response = service.request("GET", "/api/stores?limit=1")
        return {f'"{mirror.cursor}"' for mirror in mirrors} == {response.headers.get("etag")}

    until(know_the_latest_version)
    expected = {store["id"]: store for store in service.request("GET", "/api/stores").json}
    for mirror in mirrors:
        assert mirror.stores == expected
        assert mirror.seen == sorted(set(mirror.seen)), "each change once, in order"


@contextmanager
def sqlite_databases(folder: Path) -> Iterator[tuple[Callable[[], str], Callable[[], None]]]:
    names = iter("abc")
    yield lambda: f"sqlite:///{folder}/{next(names)}.db", lambda: None


@contextmanager
def postgres_databases(_folder: Path) -> Iterator[tuple[Callable[[], str], Callable[[], None]]]:
    postgres()
    with running() as server:

        def restart() -> None:
            server.stop()
            server.start()

        yield server.new_database, restart


@pytest.mark.parametrize("new_databases", [sqlite_databases, postgres_databases])
def test_a_copy_made_of_the_feed_equals_the_list_through_kills_a_restart_and_a_restore(
    tmp_path: Path, new_databases: Any
) -> None:
    port = free_port()
    anybody = Running(None, port, tmp_path)  # type: ignore[arg-type]  # whichever process serves the port
    mirrors: list[Mirror] = [Polls(anybody), Events(anybody)]
    with new_databases(tmp_path) as (new_database, restart):
        url, backup, restored = new_database(), new_database(), new_database()
        try:
            for mirror in mirrors:
                mirror.start()
            for number in range(KILLS):
                with (
                    serving(tmp_path, "--workers=2", f"--port={port}", database=url) as service,
                    writing(service),
                ):
                    time.sleep(0.3)
                    if number:
                        os.kill(min(workers(service)), signal.SIGKILL)
                        time.sleep(0.3)
                        databases.copy(url, backup, lambda *_: None)
                        restart()
                        time.sleep(0.3)
                    kill_group(service.process)
                with serving(tmp_path, f"--port={port}", database=url) as service:
                    assert_in_step(service, mirrors)
            databases.copy(
                backup, restored, lambda *_: None
            )  # as a restore does it: with a new epoch
            assert [mirror.resets for mirror in mirrors] == [0, 0]
            with serving(tmp_path, f"--port={port}", database=restored) as service:
                assert_in_step(service, mirrors)
                with writing(service):
                    time.sleep(0.3)
                assert_in_step(service, mirrors)
            assert [mirror.resets for mirror in mirrors] == [1, 1]
        finally:
            for mirror in mirrors:
                mirror.over.set()
        assert sum(len(mirror.seen) for mirror in mirrors) > 0
