"""Temporary files of imports: how many there may be at once."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storekeeper.api.routes import imports, spool
from storekeeper.api.routes.spool import Spool, Spools
from storekeeper.domain.errors import Unavailable
from storekeeper.http.connection import Connection
from tests.harness.in_process import (
    Inside,
    Line,
    exchange,
    inside,
    last_response,
    receive,
    settled,
    statuses,
    tick,
    until,
)
from tests.harness.wire import chunked, request


def test_a_place_is_free_once_its_file_is_released_or_nobody_refers_to_it() -> None:
    spools = Spools(1, "Another one is running")
    for release in (Spool.release, lambda _: None):
        taken = spools.take()
        with pytest.raises(Unavailable, match="Another one"):
            spools.take()
        release(taken)
        del taken
    spools.take()


CSV = "Content-Type: text/csv"


def begun(length: int, query: str = "add") -> bytes:
    data = request("POST", f"/api/imports?{query}", None, CSV, f"Content-Length: {length}")
    return data + b"name\n" + b"Store\n" * 2000


def is_slow(*_: object) -> None:
    """Fail on a thread, after the response to its import."""
    time.sleep(0.2)
    raise OSError("the file is closed")


ENDS: dict[str, tuple[bytes, list[int]]] = {
    "is done": (begun(12_005), [200]),
    "is bad": (begun(12_005, "add&map=name=Other"), [400]),
    "has a bad row": (begun(12_006) + b"\xff", [400]),
    "needs something else": (begun(12_005, "match=name&add"), [400]),
    "is slow": (begun(12_005), [503]),
    "is refused by its length": (begun(2**30), [413]),
    "is refused as it comes": (
        chunked(b"name\n", target="/api/imports?add", fields=f"{CSV}\r\n".encode())[:-5] + b"x\r\n",
        [400],
    ),
    "does not come to its end": (begun(13_000), [408]),
    "is left": (begun(13_000), []),
}


@pytest.mark.parametrize("end", ENDS)
async def test_an_import_gives_its_place_back_without_the_garbage_collector(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full collection takes 15 ms in a process with 3,000 connections."""
    data, expected = ENDS[end]
    monkeypatch.setattr(imports, "MAX_ARRIVING", 1)
    monkeypatch.setattr(imports, "MIN_RATE", 0)
    async with inside(tmp_path) as service:
        monkeypatch.setattr(gc, "collect", NotImplemented)
        gc.disable()
        try:
            with monkeypatch.context() as patched:
                if end == "is slow":
                    patched.setattr(imports, "RESPONSE_TIMEOUT", 0.05)
                    patched.setattr(imports, "_open", is_slow)
                connection, line = service.connect()
                receive(connection, data)
                if end == "does not come to its end":
                    await until(lambda: not connection.unread)
                    connection.sweep(connection.loop.time() + 1000)
                if end == "is left":
                    await until(lambda: not connection.unread)
                    line.abort()
                    await until(lambda: not service.server_state.connections)
                await settled(connection)
                assert statuses(line) == expected
            if end == "is slow":
                await asyncio.sleep(0.5)
            again = begun(12_005)
            assert (await exchange(service, again)).status == 200
        finally:
            gc.enable()


class Clock:
    """What spools take for the time."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(spool, "monotonic", lambda: made.now)
    return made


CHUNKED = chunked(b"name\n", target="/api/imports?add", fields=f"{CSV}\r\n".encode())
WHOLE = begun(12_005)
HALF = WHOLE[:-6000]
LAST_CHUNK = b"0\r\n\r\n"


def arrives(service: Inside, data: bytes = HALF) -> tuple[Connection, Line]:
    """Return a connection whose import arrives."""
    connection, line = service.connect()
    receive(connection, data)
    return connection, line


def arrives_at_leisure(service: Inside, data: bytes = HALF) -> tuple[Connection, Line]:
    """Return one that may pause for as long as a busy machine takes for the imports of others."""
    connection, line = arrives(service, data)
    reader = connection.reader
    reader.limit = reader.limit._replace(timeout=600.0, pause_timeout=600.0)
    return connection, line


async def test_a_body_that_trickles_keeps_no_other_import_out(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        connection, line = arrives_at_leisure(service)
        await tick()
        for small in (WHOLE, request("POST", "/api/imports?add", b"name\nStore\n")):
            data = small.replace(b"application/json", b"text/csv")
            assert (await exchange(service, data)).status == 200
        receive(connection, WHOLE[-6000:])
        await settled(connection)
        assert statuses(line) == [200]


async def test_where_all_places_for_bodies_are_taken_the_slowest_body_gives_way(
    tmp_path: Path, clock: Clock
) -> None:
    async with inside(tmp_path) as service:
        made = [
            arrives_at_leisure(service, WHOLE[: -6000 - number])
            for number in range(imports.MAX_ARRIVING)
        ]
        await until(lambda: not any(connection.unread for connection, _ in made))
        clock.now = 0.5
        early = await exchange(service, WHOLE)
        assert (early.status, early.json["outcome"]) == (503, "none")
        assert early.json["message"] == "Too many imports arrive at once"
        clock.now = 2.0
        assert (await exchange(service, WHOLE)).status == 200
        for number, (connection, line) in enumerate(made):
            receive(connection, WHOLE[-6000 - number :])
            await settled(connection)
            assert statuses(line) == [503 if number == imports.MAX_ARRIVING - 1 else 200]
        assert b"Too many imports arrive at once" in made[-1][1].sent


async def test_a_body_that_comes_fast_enough_gives_way_to_no_other(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "MIN_RATE", 1000)
    async with inside(tmp_path) as service:
        made = [arrives_at_leisure(service) for _ in range(imports.MAX_ARRIVING)]
        await until(lambda: not any(connection.unread for connection, _ in made))
        clock.now = 2.0
        assert (await exchange(service, WHOLE)).status == 503
        for connection, line in made:
            receive(connection, WHOLE[-6000:])
            await settled(connection)
            assert statuses(line) == [200]


AFTER: dict[str, tuple[bytes, bytes, list[int]]] = {
    "more of it comes": (HALF, b"S", [503]),
    "all the rest comes": (HALF, WHOLE[-6000:], [503]),
    "only its end comes": (CHUNKED[: -len(LAST_CHUNK)], LAST_CHUNK, [503]),
    "nothing comes": (HALF, b"", [408]),
    "its client leaves": (HALF, b"", []),
}


@pytest.mark.parametrize("after", AFTER)
async def test_a_body_that_gave_way_is_refused_and_takes_no_place(
    tmp_path: Path, after: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "MAX_ARRIVING", 1)
    data, rest, expected = AFTER[after]
    async with inside(tmp_path) as service:
        connection, line = arrives(service, data)
        await until(lambda: not connection.unread)
        clock.now += 2.0
        second, second_line = arrives(service)
        await until(lambda: not second.unread)
        if after == "its client leaves":
            line.abort()
            await until(lambda: len(service.server_state.connections) == 1)
        elif after == "nothing comes":
            connection.sweep(connection.loop.time() + 11)
        else:
            receive(connection, rest)
        await settled(connection)
        assert statuses(line) == expected
        assert (await exchange(service, WHOLE)).status == 503, "the second one has lost its place"
        receive(second, WHOLE[-6000:])
        await settled(second)
        assert statuses(second_line) == [200]
        assert last_response(second_line).json["created"] == 2000
        assert (await exchange(service, WHOLE)).status == 200, "a place is not free"


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Imports are carried out once this is set."""
    event, opens = threading.Event(), imports._open

    def waits(*arguments: object) -> object:
        event.wait(30)
        return opens(*arguments)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(imports, "_open", waits)
    yield event
    event.set()


async def test_while_an_import_is_carried_out_others_are_refused_before_or_after_their_body(
    tmp_path: Path, held: threading.Event
) -> None:
    async with inside(tmp_path) as service:
        earlier, earlier_line = arrives(service)
        first, first_line = arrives(service, WHOLE)
        await until(lambda: not first.unread)
        later = await exchange(service, HALF)
        small = request("POST", "/api/imports?add", b"name\nStore\n")
        whole = await exchange(service, small.replace(b"application/json", b"text/csv"))
        receive(earlier, WHOLE[-6000:])
        await settled(earlier)
        for refused in (later, whole, last_response(earlier_line)):
            assert (refused.status, refused.json["outcome"]) == (503, "none")
            assert refused.json["message"] == "Another import is under way"
        held.set()
        await settled(first)
        assert statuses(first_line) == [200]
        done = await exchange(service, WHOLE)
        assert (done.status, done.json["changes"][0]["id"]) == (200, 2001)
