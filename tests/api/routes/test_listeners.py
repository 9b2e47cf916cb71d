"""What a process does for those who listen to changes: whom it wakes, what it reads, when a
stream ends."""

import asyncio
import random
import re
import sys
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from storekeeper.api.routes import changes as feed
from storekeeper.api.routes import watch
from storekeeper.api.routes.changes import Feed
from storekeeper.domain.changes import ChangesPage, ChangesQuery, Cursor
from storekeeper.domain.commands import Create, Replace
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.queries import State
from storekeeper.domain.stores import Payload
from storekeeper.http.connection import Connection
from storekeeper.storage import databases
from storekeeper.storage.tokens import revoke_token
from tests.harness.asgi import scope_of
from tests.harness.client import locked
from tests.harness.collection import numbered
from tests.harness.in_process import (
    Inside,
    Line,
    exchange,
    inside,
    last_response,
    settled,
    statuses,
    until,
)
from tests.harness.tokens import add_token, now
from tests.harness.wire import assert_error, create, request

LISTEN = "Accept: text/event-stream"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look twenty times as often."""
    monkeypatch.setattr(watch, "POLL_INTERVAL", 0.01)
    monkeypatch.setattr(watch, "CHECK_INTERVAL", 0.05)


def feed_of(service: Inside) -> Feed:
    application: Any = service.service.runtime.application
    found: Feed = application._planners["changes"].__self__
    return found


def pages_of(service: Inside) -> dict[Any, Any]:
    """Return the pages that the latest watch keeps for its listeners."""
    found: Any = feed_of(service)
    pages: dict[Any, Any] = found._watch._pages
    return pages


def listen(service: Inside, query: str = "", *fields: str) -> tuple[Connection, Line]:
    connection, line = service.connect()
    connection.data_received(request("GET", f"/api/changes{query}", None, LISTEN, *fields))
    return connection, line


async def test_the_path_of_the_stream_gives_events_whatever_a_client_accepts(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path) as service:
        await exchange(service, create("First"))
        connection, line = service.connect()
        asked = request("GET", "/api/changes/stream?after=0", None, "Accept: application/json")
        connection.data_received(asked)
        await until(lambda: seqs(line))
        await exchange(service, create("Second"))
        await until(lambda: seqs(line) == [1, 2])
        assert b"content-type: text/event-stream" in line.sent


def seqs(line: Line) -> list[int]:
    """Return the numbers of the changes that a client received."""
    return [int(seq) for seq in re.findall(rb"id: (\d+)\.\w+\nevent: change", line.sent)]


class Counted:
    """A collection that counts its calls, and fails at those in `away`."""

    def __init__(self, collection: Any) -> None:
        self._collection = collection
        self.calls = Counter[str]()
        self.queries: list[ChangesQuery] = []
        self.away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collection, name)

    def state(self) -> State:
        self._count("state")
        state: State = self._collection.state()
        return state

    def changes(self, query: ChangesQuery) -> ChangesPage:
        self._count("changes")
        self.queries.append(query)
        page: ChangesPage = self._collection.changes(query)
        return page

    def _count(self, name: str) -> None:
        self.calls[name] += 1
        if self.away:
            raise Unavailable("The database is away")


def counted(service: Inside) -> Counted:
    """Count what the feed of a service reads from now on."""
    found: Any = feed_of(service)
    result = found._collection = Counted(found._collection)
    if found._watch:
        found._watch._collection = result
    return result


async def write(service: Inside, count: int = 1) -> None:
    await asyncio.gather(
        *(service.collection.write(Create(payload)) for payload in numbered(count))
    )


async def test_a_change_is_read_once_for_all_listeners(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        await write(service)
        lines = [listen(service, "?after=now")[1] for _ in range(50)]
        lines += [listen(service, "?after=now&store=2")[1] for _ in range(50)]
        await until(lambda: all(b"retry" in line.sent for line in lines))
        await asyncio.sleep(0.1)
        collection = counted(service)
        await write(service, 2)
        await until(lambda: all(seqs(line) == [2, 3] for line in lines[:50]))
        await until(lambda: all(seqs(line) == [2] for line in lines[50:]))
        # A look may fall between the two changes, and one between a change and its number.
        assert collection.calls["changes"] <= 4


async def test_while_nothing_changes_only_the_numbers_are_read_and_without_listeners_nothing(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path) as service:
        await write(service)
        _, line = listen(service)
        await until(lambda: seqs(line) == [1])
        await asyncio.sleep(0.1)
        collection = counted(service)
        await until(lambda: collection.calls["state"] > 20)
        assert collection.calls["changes"] == 0
        line.abort()
        await until(lambda: not feed_of(service).listeners)
        collection.calls.clear()
        await asyncio.sleep(0.1)
        assert collection.calls == {}
        _, line = listen(service)
        await until(lambda: seqs(line) == [1])
        await write(service)
        await until(lambda: seqs(line) == [1, 2])


async def test_what_one_watch_has_read_is_not_shown_to_who_listens_later(tmp_path: Path) -> None:
    """The change came when no client listened, so no watch looked for it."""
    async with inside(tmp_path) as service:
        await write(service)
        _, line = listen(service, "?after=now")
        await until(lambda: b"retry" in line.sent)
        await until(lambda: pages_of(service))
        [cursor] = re.findall(rb"id: (\S+)", line.sent)
        pages = pages_of(service)
        line.abort()
        await until(lambda: not feed_of(service).listeners)
        assert not pages
        await write(service)
        _, line = listen(service, f"?after={cursor.decode()}")
        await until(lambda: seqs(line) == [2])


class Watcher:
    """A client that comes and goes, each time with the cursor that it has."""

    def __init__(self, service: Inside, query: str, expected: list[int]) -> None:
        self._service = service
        self._query = query
        self._expected = expected
        self._found: list[int] = []
        self._cursor = "0"
        self._line: Line | None = None

    async def do(self, action: str) -> None:
        match action:
            case "listen":
                self.listen()
            case "leave":
                self.leave()
            case "poll":
                await self.poll()
            case "compare":
                self.listen()
                await until(lambda: self.all() == self._expected)

    def listen(self) -> None:
        if self._line is None:
            _, self._line = listen(self._service, f"?after={self._cursor}{self._query}")

    def leave(self) -> None:
        """Leave, with all that came."""
        if self._line is not None:
            self._line.abort()
            self._found += seqs(self._line)
            [*_, self._cursor] = [self._cursor, *self._cursors(self._line.sent)]
            self._line = None

    async def poll(self) -> None:
        if self._line is None:
            target = f"/api/changes?after={self._cursor}{self._query}"
            page = await exchange(self._service, request("GET", target))
            self._found += [change["seq"] for change in page.json["changes"]]
            self._cursor = page.json["next"]

    def all(self) -> list[int]:
        """Return what came so far."""
        return self._found + (seqs(self._line) if self._line else [])

    @staticmethod
    def _cursors(sent: bytes) -> list[str]:
        # An event counts once it is whole.
        return [id.decode() for id in re.findall(rb"id: (\S+)\n(?:event: .*\ndata: .*\n)?\n", sent)]


ACTIONS = ["listen", "leave", "all leave", "poll", "write", "write", "wait", "wait", "compare"]


@pytest.mark.parametrize("seed", range(4))
async def test_however_watchers_come_and_go_each_finds_every_change_once(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    async with inside(tmp_path) as service:
        await write(service)
        every, of_one = [1], [1]
        watchers = [Watcher(service, "", every), Watcher(service, "&store=1", of_one)]
        for _ in range(200):
            watcher = draw.choice(watchers)
            match draw.choice(ACTIONS):
                case "write" if draw.random() < 0.3:
                    every.append(len(every) + 1)
                    await write(service)
                case "write":
                    every.append(len(every) + 1)
                    of_one.append(every[-1])
                    await service.collection.write(Replace(1, Payload(f"Number {every[-1]}")))
                case "wait":
                    await asyncio.sleep(draw.choice([0, 0.001, 0.02, 0.02]))
                case "all leave":
                    for each in watchers:
                        each.leave()
                case action:
                    await watcher.do(action)


async def test_a_listener_that_lags_reads_pages_and_the_others_do_not_wait(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        stuck, slow = listen(service)
        _, fast = listen(service)
        await until(lambda: b"retry" in slow.sent)
        slow.stuck = True
        stuck.pause_writing()
        for _ in range(3):
            await write(service, 250)
            await until(lambda: len(seqs(fast)) % 250 == 0)
        await until(lambda: seqs(fast) == list(range(1, 751)))
        assert len(seqs(slow)) < 750
        slow.stuck = False
        stuck.resume_writing()
        await until(lambda: seqs(slow) == list(range(1, 751)))


async def test_of_what_was_sent_to_a_listener_nothing_stays_in_memory(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        await write(service)
        _, line = listen(service)
        await until(lambda: seqs(line) == [1])
        pages = pages_of(service)
        page: Any = next(iter(pages.values()))
        events = page.result().events
        del page
        await until(lambda: not pages)
        # The name here, and the parameter.
        assert sys.getrefcount(events) == 2


async def test_a_listener_to_one_store_finds_its_changes_among_many(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        await write(service, 700)
        collection = counted(service)
        epoch = collection.state().epoch
        _, line = listen(service, "?store=650")
        await until(lambda: seqs(line) == [650])
        await asyncio.sleep(0.1)
        assert collection.queries == [
            ChangesQuery(Cursor(place, epoch), store=650) for place in (0, 650)
        ]


async def test_a_page_that_is_newer_than_the_last_look_is_no_reason_to_begin_anew(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path) as service:
        _, line = listen(service)
        for _ in range(300):
            await write(service)
        await until(lambda: len(seqs(line)) == 300)
        assert seqs(line) == list(range(1, 301))
        assert b"reset" not in line.sent


async def test_a_new_epoch_resets_those_who_listen_and_they_go_on(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        await write(service, 3)
        lines = [listen(service, query)[1] for query in ("", "?store=2", "?after=now")]
        await until(lambda: all(b"retry" in line.sent for line in lines))
        epoch = await asyncio.to_thread(
            databases.epoch, f"sqlite:///{tmp_path}/stores.db", renew=True
        )
        reset = f'id: 3.{epoch}\nevent: reset\ndata: {{"cursor":"3.{epoch}"}}\n\n'.encode()
        await until(lambda: all(line.sent.count(reset) == 1 for line in lines))
        await write(service)
        await until(lambda: all(f"id: 4.{epoch}".encode() in line.sent for line in lines[::2]))
        assert all(line.sent.count(b"event: reset") == 1 for line in lines)


async def test_at_most_so_many_listen_and_the_next_is_503(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        found: Any = feed_of(service)
        assert found._max_listeners == service.service.runtime.limits.connections.maximum // 4
        found._max_listeners = 2
        _, one = listen(service)
        _, two = listen(service)
        refused, line = listen(service)
        await settled(refused)
        assert_error(last_response(line), 503, "Too many clients listen to changes", outcome="none")
        assert (len(found.listeners), found.refused) == (2, 1)
        refused.data_received(request("GET", "/api/changes"))  # pages are served to any number
        await settled(refused)
        assert statuses(line) == [503, 200]
        one.abort()
        await until(lambda: len(found.listeners) == 1)
        refused.data_received(request("GET", "/api/changes", None, LISTEN))
        await until(lambda: statuses(line) == [503, 200, 200])
        assert statuses(two) == [200]


async def test_a_listener_that_closes_its_side_is_gone_at_once(tmp_path: Path) -> None:
    """Also if it reads nothing."""
    async with inside(tmp_path) as service:
        reads, line = listen(service)
        stuck, _ = listen(service)
        await until(lambda: len(feed_of(service).listeners) == 2)
        await until(lambda: b"retry" in line.sent)
        stuck.pause_writing()
        for connection in (reads, stuck):
            assert connection.transport.reading, "else its end would not be seen"  # type: ignore[attr-defined]  # a Line
            connection.eof_received()
        assert not feed_of(service).listeners
        await until(line.is_closing)
        assert line.sent.endswith(b"0\r\n\r\n")


async def test_a_listener_that_left_before_its_stream_began_takes_no_place(tmp_path: Path) -> None:
    """It closed its sending side while its request waited for the response before it."""
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        with locked(tmp_path):
            connection.data_received(create("First"))
            connection.data_received(request("GET", "/api/changes", None, LISTEN))
            connection.eof_received()
        await until(line.is_closing)
        assert statuses(line) == [200, 200]
        assert not feed_of(service).listeners


BEHIND = {
    "another byte": b"G",
    "another request": request("GET", "/test"),
    "another stream": request("GET", "/api/changes?after=now", None, LISTEN),
    "no HTTP": b"\0",
}


@pytest.mark.parametrize("at_once", [False, True], ids=["while it runs", "in one read"])
@pytest.mark.parametrize("behind", BEHIND)
async def test_a_stream_ends_whole_when_its_client_begins_another_request(
    tmp_path: Path, behind: str, at_once: bool
) -> None:
    asked = request("GET", "/api/changes?after=now", None, LISTEN)
    async with inside(tmp_path) as service:
        await write(service)
        connection, line = service.connect()
        if at_once:
            connection.data_received(asked + b"\r\n" + BEHIND[behind])
        else:
            connection.data_received(asked)
            await until(lambda: b"retry" in line.sent)
            connection.data_received(b"\r\n")
            assert len(feed_of(service).listeners) == 1, "an empty line begins nothing"
            connection.data_received(BEHIND[behind])
        await until(lambda: b"\r\n0\r\n\r\n" in line.sent)
        await until(lambda: len(feed_of(service).listeners) == (behind == "another stream"))
        expected = {"another byte": [200], "no HTTP": [200, 400]}.get(behind, [200, 200])
        await until(lambda: statuses(line) == expected)


async def test_head_listens_to_nothing(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        connection.data_received(request("HEAD", "/api/changes", None, LISTEN) * 2)
        await settled(connection)
        assert statuses(line) == [200, 200]
        assert line.sent.endswith(b"\r\n\r\n")
        assert b"content-length" not in line.sent
        await until(lambda: not feed_of(service).listeners)


async def test_a_comment_comes_when_nothing_else_has_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "COMMENT_INTERVAL", 0.3)
    async with inside(tmp_path) as service:
        pauses = [1.0]
        while max(pauses) > 0.2:  # again, if a busy machine paused
            pauses, sent = [], monotonic()
            _, line = listen(service)
            for _ in range(4):
                await write(service)
                await asyncio.sleep(0.1)
                pauses.append(monotonic() - sent)
                sent = monotonic()
        assert b"\n:\n\n" not in line.sent
        await until(lambda: line.sent.count(b"\r\n:\n\n\r\n") == 2)


async def test_while_the_database_is_away_a_stream_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "COMMENT_INTERVAL", 0.2)
    async with inside(tmp_path) as service:
        await write(service)
        _, line = listen(service)
        await until(lambda: seqs(line) == [1])
        collection = counted(service)
        collection.away = True
        await write(service)
        await until(lambda: b":\n\n" in line.sent)
        assert seqs(line) == [1]
        refused, other = listen(service)
        await settled(refused)
        assert statuses(other) == [503]
        collection.away = False
        await until(lambda: seqs(line) == [1, 2])


async def test_a_page_that_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    """Also if nothing changes meanwhile."""
    async with inside(tmp_path) as service:
        await write(service)
        collection = counted(service)
        real, failed = collection.changes, 0

        def changes(query: ChangesQuery) -> ChangesPage:
            nonlocal failed
            failed += 1
            if failed < 3:
                raise Unavailable("The database is away")
            return real(query)

        collection.changes = changes  # type: ignore[method-assign]  # a fault is put in
        _, line = listen(service)
        await until(lambda: seqs(line) == [1])
        assert failed == 3


async def test_a_bug_in_one_look_does_not_end_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(watch, "emit", lambda event, **fields: told.append((event, fields)))
    async with inside(tmp_path) as service:
        _, line = listen(service)
        await until(lambda: b"retry" in line.sent)
        collection = counted(service)

        def fails() -> State:
            del collection.state
            raise RuntimeError("a bug")

        collection.state = fails  # type: ignore[method-assign]  # a fault is put in
        await until(lambda: told)
        await write(service)
        await until(lambda: seqs(line) == [1])


# Tokens.


async def test_a_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    bearers = [
        f"Authorization: Bearer {add_token(url, name, 'read')}" for name in ("gone", "stays")
    ]
    async with inside(tmp_path, auth="all") as service:
        lines = [listen(service, "", bearer)[1] for bearer in bearers]
        await until(lambda: all(b"retry" in line.sent for line in lines))
        await asyncio.to_thread(revoke_token, url, "gone", now())
        await until(lambda: lines[0].sent.endswith(b"\r\n0\r\n\r\n"))
        await write(service)
        await until(lambda: seqs(lines[1]) == [1])
        assert seqs(lines[0]) == []
        assert not lines[0].aborted


async def test_a_stream_ends_when_its_token_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expires = now() + 60_000
    bearer = (
        "Authorization: Bearer"
        f" {add_token(f'sqlite:///{tmp_path}/stores.db', 'short', 'read', expires)}"
    )
    async with inside(tmp_path, auth="all") as service:
        _, line = listen(service, "", bearer)
        await until(lambda: b"retry" in line.sent)
        monkeypatch.setattr("time.time_ns", lambda: expires * 1_000_000)
        await until(lambda: line.sent.endswith(b"\r\n0\r\n\r\n"))


async def test_while_the_tokens_cannot_be_read_a_stream_has_no_changes_but_stays_open(
    tmp_path: Path,
) -> None:
    bearer = f"Authorization: Bearer {add_token(f'sqlite:///{tmp_path}/stores.db', 'one', 'read')}"
    async with inside(tmp_path, auth="all") as service:
        _, line = listen(service, "", bearer)
        await until(lambda: b"retry" in line.sent)
        application: Any = service.service.runtime.application
        table = application._gate._tokens
        good, table._read_at = table._read_at, -10.0
        refresh, table.refresh = table.refresh, lambda: asyncio.sleep(0)
        await write(service)
        await asyncio.sleep(0.3)
        assert seqs(line) == []
        table._read_at, table.refresh = good, refresh
        await until(lambda: seqs(line) == [1])


async def test_who_wrote_is_shown_to_those_with_a_token(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    bearer = f"Authorization: Bearer {add_token(url, 'anna', 'write')}"
    async with inside(tmp_path, auth="writes") as service:
        connection, line = service.connect()
        connection.data_received(request("POST", "/api/stores", b'{"name":"By anna"}', bearer))
        await settled(connection)
        assert statuses(line) == [200]
        lines = [listen(service, "", *fields)[1] for fields in ((bearer,), ())]
        await until(lambda: all(seqs(line) == [1] for line in lines))
        assert [b'"by":"anna"' in line.sent for line in lines] == [True, False]
        connection.data_received(
            request("GET", "/api/changes", None, bearer) + request("GET", "/api/changes")
        )
        await settled(connection)
        assert line.sent.count(b'"by":"anna"') == 1
        tags = re.findall(rb'etag: ("[^"]+")\r\n', line.sent)[-2:]
        assert len(set(tags)) == 2


# Other servers.


EVENTS = [(b"accept", b"text/event-stream"), (b"host", b"a")]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_on_another_server_a_client_that_leaves_ends_its_stream(
    tmp_path: Path, method: str
) -> None:
    sent: list[Any] = []
    gone = asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async with inside(tmp_path) as service:
        scope = scope_of(method, "/api/changes", headers=EVENTS)
        call: asyncio.Task[None] = asyncio.ensure_future(service.service(scope, receive, send))
        await until(lambda: len(sent) > 1)
        if method == "GET":
            assert len(feed_of(service).listeners) == 1
            gone.set()
        await call
        assert not feed_of(service).listeners
        assert sent[0]["status"] == 200


async def test_on_another_server_a_client_that_left_before_listens_to_nothing(
    tmp_path: Path,
) -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        raise ConnectionResetError

    async with inside(tmp_path) as service:
        with pytest.raises(ConnectionResetError):
            await service.service(scope_of("GET", "/api/changes", headers=EVENTS), receive, send)
        assert not feed_of(service).listeners
