"""More connections than the service takes: idle ones make room, those at work are left alone,
others are told."""

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from storekeeper.http import limits
from storekeeper.http.connection import Connection
from tests.harness import weakened
from tests.harness.client import create as store
from tests.harness.client import locked, until
from tests.harness.in_process import (
    Inside,
    Line,
    inside,
    last_response,
    settled,
    some_stores,
    stuck,
    tick,
)
from tests.harness.linux import sockets
from tests.harness.process import Running, serving
from tests.harness.wire import SLOW, Wire, assert_error, create, dial, request

FILES = 200
"""What a process may open in these tests: 72 connections."""

MANY = 300


async def connected(service: Inside, count: int) -> list[tuple[Connection, Line]]:
    """Return connections that were served once, each idle for a second longer than the next."""
    made = [service.connect() for _ in range(count)]
    now = asyncio.get_running_loop().time()
    for number, (connection, _) in enumerate(made):
        connection.data_received(request("GET", "/test"))
        await settled(connection)
        connection.sweep(now - count + number)
    return made


@asynccontextmanager
async def limited(folder: Path, maximum: int) -> AsyncIterator[Inside]:
    async with inside(folder) as service:
        service.service.runtime.limits.connections.maximum = maximum
        yield service


async def test_the_connection_that_is_idle_for_longest_makes_room(tmp_path: Path) -> None:
    async with limited(tmp_path, 5) as service:
        made = await connected(service, 5)
        made[0][0].data_received(request("GET", "/test"))  # so that it is the latest
        await settled(made[0][0])
        for longest in (1, 2, 3, 4, 0):
            assert not made[longest][1].is_closing()
            newcomer, line = service.connect()
            assert made[longest][1].is_closing()
            await tick()
            newcomer.data_received(request("GET", "/test"))
            await settled(newcomer)
            assert last_response(line).status == 200
        assert len(service.service.runtime.limits.connections.open) == 5


async def test_one_that_was_served_since_idle_ones_were_looked_for_is_the_last_to_make_room(
    tmp_path: Path,
) -> None:
    async with limited(tmp_path, 3) as service:
        made = await connected(service, 3)
        service.connect()
        await tick()
        made[1][0].data_received(request("GET", "/test"))
        await settled(made[1][0])
        service.connect()
        assert [line.is_closing() for _, line in made] == [True, False, True]


async def test_a_connection_with_an_unread_response_is_not_idle(tmp_path: Path) -> None:
    async with limited(tmp_path, 1) as service:
        connection, line = service.connect()
        line.stuck = True
        connection.data_received(request("GET", "/test"))
        await settled(connection)
        assert 0 < line.unread < line.high
        assert last_response(service.connect()[1]).status == 503
        assert not line.is_closing()


async def test_no_connection_at_work_is_closed_and_the_newcomer_is_told(tmp_path: Path) -> None:
    some_stores(tmp_path, 2500)
    async with limited(tmp_path, 5) as service:
        at_work = [await stuck(service)]
        with locked(tmp_path):
            for sent in (
                b"G",
                create("Half")[:-1],
                create("Waits"),
                request("GET", SLOW) + b"GET /te",
            ):
                connection, line = service.connect()
                connection.data_received(sent)
                at_work.append((connection, line))
            newcomer, line = service.connect()
            assert_error(last_response(line), 503, "Too many connections", outcome="none")
            assert last_response(line).headers["connection"] == "close"
            newcomer.data_received(create("Never"))
            assert line.ended
            assert not any(old.is_closing() for _, old in at_work)
        for connection, _ in at_work[3:]:
            await settled(connection)
        assert [last_response(line).status for _, line in at_work[3:]] == [200, 200]


async def test_those_that_were_told_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes on top of them is closed without a word: there may be no file left."""
    monkeypatch.setattr(limits, "MAX_REFUSED", 3)
    async with limited(tmp_path, 2) as service:
        for _ in range(2):
            service.connect()[0].data_received(b"G")
        lines = [service.connect()[1] for _ in range(6)]
        assert [line.aborted for line in lines] == [False] * 3 + [True] * 3
        assert [len(line.sent) > 0 for line in lines] == [True] * 3 + [False] * 3


@pytest.mark.parametrize(
    ("files", "connections"),
    [
        (64, 16),
        (128, 32),
        (200, 72),
        (1024, 896),
        (100_000, 20_000),
        (resource.RLIM_INFINITY, 20_000),
    ],
)
def test_a_process_takes_as_many_connections_as_it_may_open_files_less_a_reserve(
    files: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert limits.raise_files_limit() == connections


# The real thing.


def within(soft: int, hard: int) -> list[str]:
    """Return the command that runs another one with these limits of open files."""
    return ["sh", "-c", f'ulimit -S -n {soft} && ulimit -H -n {hard} && exec "$0" "$@"']


@contextmanager
def dialled(service: Running, count: int, *, one_by_one: bool = False) -> Iterator[list[Wire]]:
    """Return that many connections; with `one_by_one`, each few are followed by a newcomer that
    is served."""
    wires = []
    try:
        for number in range(count):
            wires.append(dial(service))
            if one_by_one and number % 20 == 0:
                store(service, "Newcomer")
        yield wires
    finally:
        for wire in wires:
            wire.client.close()


def test_thousands_of_silent_clients_keep_nobody_out(tmp_path: Path) -> None:
    """Each newcomer is served, and so is a client at work, with hundreds of connections held
    open."""
    with serving(tmp_path, within=within(100, FILES)) as service, dial(service) as wire:
        wire.send(create("At work")[:-1])
        with dialled(service, 60) as wires:  # of 72: it lets itself open as many files as it may
            for each in wires:
                each.send(request("GET", "/test"))
                assert each.response().body == b"OK"
            assert service.log.count("level=") == 1
        with dialled(service, MANY, one_by_one=True) as silent:
            assert len(sockets(service.process.pid)) < FILES
            wire.send(b"}")
            assert wire.response().json["name"] == "At work"
            silent[0].assert_closed()
            silent[-1].send(request("GET", "/test"))
            assert silent[-1].response().body == b"OK"
        assert service.log.count("connection limit reached, closing idle connections") == 1
        assert service.log.count("level=") == 2


def test_without_a_file_left_established_connections_are_served_all_the_same(
    tmp_path: Path,
) -> None:
    """In a build that takes every connection. It is whole again when they go, and has not filled
    the log."""
    keeping = weakened.environment("keeps_every_connection")
    with serving(
        tmp_path, env=keeping, program=weakened.PROGRAM, within=within(FILES, FILES)
    ) as service:
        with dial(service) as wire:
            wire.send(create("Before"))
            assert wire.response().json["id"] == 1
            with dialled(service, MANY):
                until(lambda: len(sockets(service.process.pid)) > FILES - 50)
                for number in range(2, 50):
                    wire.send(create("Still") + request("GET", "/health/ready"))
                    assert wire.response().json["id"] == number
                    assert wire.response().status == 200
                with pytest.raises((OSError, AssertionError)):  # no other client gets in
                    store(service, "Newcomer")
        until(lambda: len(sockets(service.process.pid)) < 50)
        assert store(service, "After") == 50
        assert service.log.count("\n") < 100
        assert service.stop() == 0
