"""Writers that continue through failures and remember what each response promised, and the check of
the outcome."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import count
from typing import Any

from tests.harness.client import until
from tests.harness.process import Response, Running, ask

RESPONSE_TIMEOUT = 10.0
"""Seconds that a client waits: a response takes at most 5 (decision 30), and longer on a busy
machine."""

RECOVERY = 10.0
"""Seconds after the database is back within which every client can read and write again."""


def wait_until_ready(instance: Running) -> None:
    until(lambda: instance.request("GET", "/health/ready").status == 200)


@dataclass
class History:
    """The response to every create, by the unique name that it sent."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    strange: list[Response | Exception] = field(default_factory=list)
    lock: threading.Condition = field(default_factory=threading.Condition)
    progress: dict[int, int] = field(default_factory=dict)

    def note(self, writer: int, name: str, response: Response) -> None:
        with self.lock:
            if response.status == 200:
                self.acknowledged[name] = response.json["id"]
                self.progress[writer] = self.progress.get(writer, 0) + 1
                self.lock.notify_all()
            elif response.status == 503 and "retry-after" in response.headers:
                (self.refused if response.json["outcome"] == "none" else self.unknown).add(name)
            else:
                self.strange.append(response)

    def everybody_writes(self, timeout: float, least: int = 1) -> None:
        """Return when every writer has had `least` more creates acknowledged."""
        with self.lock:
            goal = {writer: done + least for writer, done in self.progress.items()}
            arrived = self.lock.wait_for(
                lambda: all(self.progress[writer] >= number for writer, number in goal.items()),
                timeout,
            )
        assert arrived, f"not every writer was answered 200 again within {timeout} s"


class Writers:
    """Run threads that create stores on each instance in turn until the block ends."""

    def __init__(self, instances: list[Running], writers: int) -> None:
        self.history = History()
        for writer in range(writers):
            self.history.progress[writer] = 0
        self._instances = instances
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(writers)
        self._done = [self._pool.submit(self._write, writer) for writer in range(writers)]

    def __enter__(self) -> History:
        return self.history

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for done in self._done:
            done.result(60)
        self._pool.shutdown()

    def _write(self, writer: int) -> None:
        connection = self._instances[writer % len(self._instances)].connection(RESPONSE_TIMEOUT)
        try:
            for number in count():
                if self._stop.is_set():
                    return
                self._create(connection, writer, f"{writer}-{number}")
        finally:
            connection.close()

    def _create(self, connection: HTTPConnection, writer: int, name: str) -> None:
        try:
            response = ask(connection, "POST", "/api/stores", {"name": name})
        except (OSError, HTTPException) as error:
            self.history.strange.append(error)
            connection.close()
        else:
            self.history.note(writer, name, response)
            if response.status == 503:
                self._stop.wait(0.02)


def all_stores(instance: Running) -> list[dict[str, Any]]:
    """Return the list of an instance, once it has a connection: its latest connections may just
    have been lost."""
    responses: list[Response] = []

    def listed() -> bool:
        responses.append(instance.request("GET", "/api/stores", timeout=RESPONSE_TIMEOUT))
        return responses[-1].status == 200

    until(listed, RECOVERY)
    stores: list[dict[str, Any]] = responses[-1].json
    return stores


def assert_nothing_lost(history: History, *instances: Running) -> None:
    """Check that every promise was kept: what was acknowledged is there, what was refused is not,
    ids have no gaps, and no client saw a 500."""
    assert history.strange == []
    lists = [all_stores(instance) for instance in instances]
    assert all(one == lists[0] for one in lists)
    stores = {store["name"]: store["id"] for store in lists[0]}
    assert [store["id"] for store in lists[0]] == list(range(1, len(lists[0]) + 1))
    assert len(stores) == len(lists[0]), "something was created twice"
    lost = {name: id for name, id in history.acknowledged.items() if stores.get(name) != id}
    assert not lost
    assert not history.refused & stores.keys(), (
        "a create that was said to have done nothing did something"
    )
    assert stores.keys() <= history.acknowledged.keys() | history.unknown
