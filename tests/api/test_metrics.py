"""What /metrics shows: every response once, in a closed set of series, and what is left out when
it is not known."""

import asyncio
import random
import shutil
import string
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from storekeeper.api import exposition, token_table
from storekeeper.api.metrics import BOUNDS, CELLS, ENDS, FAMILIES, OTHER, STATUSES, Metrics, Slots
from storekeeper.api.routes import exports, scrapes
from storekeeper.api.routing import ROUTES
from storekeeper.concurrency import threads
from storekeeper.domain import errors
from storekeeper.domain.errors import Outcome, Unavailable
from storekeeper.domain.queries import State
from storekeeper.domain.tokens import Token
from storekeeper.http import limits
from storekeeper.http.runtime import Served
from storekeeper.storage import write_state
from storekeeper.storage.sqlite.writer import SqliteWriter
from tests.harness.asgi import asked
from tests.harness.client import locked
from tests.harness.databases import Database
from tests.harness.in_process import (
    Inside,
    inside,
    last_response,
    receive,
    settled,
    some_stores,
    tick,
    until,
)
from tests.harness.machine import need
from tests.harness.metrics import Series, parse, responses, series
from tests.harness.process import TIMEOUT
from tests.harness.wire import PHRASES, assert_error, create, request

PROMTOOL = "promtool"


async def respond(service: Inside, *data: bytes) -> None:
    """Send requests, one after another, each on a connection of its own."""
    for each in data:
        connection, _ = service.connect()
        receive(connection, each)
        await settled(connection)
        connection.transport.close()
        await tick()


async def shown(service: Inside) -> Mapping[Series, float]:
    connection, line = service.connect()
    receive(connection, request("GET", "/metrics"))
    await settled(connection)
    assert last_response(line).status == 200
    connection.transport.close()
    await tick()
    return parse(last_response(line).body.decode())


async def test_each_response_is_counted_once_by_route_method_and_status(tmp_path: Path) -> None:
    get = request("GET", "/api/stores/1")
    sent = {
        ("/api/stores", "POST", "200"): [create("First")],
        ("/api/stores", "POST", "400"): [create("")],
        ("/api/stores/{id}", "GET", "200"): [get, get, get, get],  # the last ones from the cache
        ("/api/stores/{id}", "GET", "404"): [request("GET", "/api/stores/9")],
        ("/api/stores/{id}", "HEAD", "200"): [request("HEAD", "/api/stores/1")],
        ("/api/stores/{id}", "PUT", "412"): [
            request("PUT", "/api/stores/1", b'{"name":"a"}', 'If-Match: "9.abcdefgh"')
        ],
        ("/api/stores", "GET", "200"): [
            request("GET", "/api/stores?q=1"),
            request("GET", "/api/stores?name=a"),
        ],
        ("/docs/{name}", "GET", "404"): [request("GET", "/docs/secret.js")],
        ("/health/ready", "GET", "200"): [request("GET", "/health/ready")],
        ("/test", "OPTIONS", "204"): [request("OPTIONS", "/test")],
        ("/test", "other", "405"): [request("DELETE", "/test"), request("TRACE", "/test")],
        ("/test", "PATCH", "405"): [request("PATCH", "/test")],
        ("/api/stores/{id}", "PATCH", "200"): [request("PATCH", "/api/stores/1", b"{}")],
        ("other", "GET", "404"): [
            request("GET", "/secret"),
            request("GET", "/api/stores/1/secret"),
        ],
        ("other", "other", "501"): [request("SECRET", "/test")],
        ("other", "other", "400"): [b"no HTTP\r\n\r\n"],
    }
    async with inside(tmp_path) as service:
        await respond(service, *(data for several in sent.values() for data in several))
        found = await shown(service)
        assert responses(found) == {key: len(several) for key, several in sent.items()}
        name = "http_request_duration_seconds"
        for route in {route for route, _, _ in sent}:
            count = sum(len(several) for key, several in sent.items() if key[0] == route)
            assert found[series(f"{name}_count", route=route)] == count
            assert found[series(f"{name}_bucket", route=route, le="+Inf")] == count
            assert 0 < found[series(f"{name}_sum", route=route)] < 60
            assert (
                len(
                    [
                        key
                        for key in found
                        if key[0].endswith("_bucket") and ("route", route) in key[1]
                    ]
                )
                == 10
            )
        assert responses(await shown(service))["/metrics", "GET", "200"] == 1


async def test_a_response_of_another_asgi_server_is_counted_too(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        await asked(service, "GET", "/api/stores")
        await asked(service, "SECRET", "/secret")
        assert responses(await shown(service)) == {
            ("/api/stores", "GET", "200"): 1,
            ("other", "other", "404"): 1,
        }


async def test_a_client_that_leaves_before_its_response_is_counted_without_a_status(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path) as service:
        with locked(tmp_path):
            connection, _ = service.connect()
            receive(connection, create("Left"))
            connection.transport.abort()
            await tick()
            assert responses(await shown(service)) == {("/api/stores", "POST", "0"): 1}


def word(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_letters + "-_.%\"{}'\\", k=chance.randrange(1, 12)))


def hostile(chance: random.Random) -> bytes:
    """Return a request that no client would send, with or without a known method."""
    method = chance.choice(("GET", "PROPFIND", word(chance)))
    return request(
        method, f"/{word(chance)}/{word(chance)}?{word(chance)}", None, "Connection: close"
    )


def assert_closed(found: Mapping[Series, float]) -> None:
    routes = {route.path for route in ROUTES} | {OTHER}
    for route, method, status in responses(found):
        assert route in routes
        assert method in {"GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS", OTHER}
        assert status in {*map(str, STATUSES), OTHER}


@pytest.mark.parametrize("count", [5000, pytest.param(1_000_000, marks=pytest.mark.thorough)])
async def test_hostile_methods_and_paths_make_no_new_series(tmp_path: Path, count: int) -> None:
    """Whatever a response is said to be; each hundredth is one that was read."""
    chance = random.Random(1)
    async with inside(tmp_path, allowed_host=("stores.example",)) as service:
        count_response: Any = service.service.runtime.observe
        for number in range(count):
            if number % 100:
                route = chance.choice((None, word(chance), "store"))
                count_response(
                    Served(route, word(chance), chance.randrange(1000), 1, 0.1, number, None, b"")
                )
            else:
                await respond(service, hostile(chance))
        found = await shown(service)
        assert sum(responses(found).values()) == count
        assert_closed(found)


def test_every_status_that_a_response_may_have_has_series_of_its_own() -> None:
    assert PHRASES.keys() <= set(STATUSES)


def test_a_duration_is_in_the_bucket_that_ends_with_it() -> None:
    slots = Slots()
    metrics = Metrics(slots)
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, 5.0, 5.01, 3600.0):
        metrics.observe(Served("test", "GET", 200, 10, seconds, 0, None, b""))
    first = CELLS["http_request_duration_seconds", "/test"]
    places = [ENDS.index(end) for end in ("0.0005", "0.001", "5.0", "+Inf")]
    counts = [slots.of(0)[first + place] for place in places]
    assert counts == [2, 1, 1, 2]


# Writes.


async def test_refused_writes_are_shown_until_a_write_would_work_though_no_client_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    async def refuse(*_: object) -> None:
        if refused:
            raise Unavailable(refused[-1])

    monkeypatch.setattr(write_state, "RETRY_INTERVAL", 0.01)
    monkeypatch.setattr(SqliteWriter, "commit", refuse)
    monkeypatch.setattr(SqliteWriter, "probe", refuse)
    async with inside(tmp_path) as service:
        assert refusals(await shown(service)) == set()
        for reason, shown_as in (
            (errors.DISK_FULL, errors.DISK_FULL),
            ("The database failed: disk I/O error", errors.FAILED),
            ("As no database ever said", OTHER),
        ):
            refused.append(reason)
            await respond(service, create("Refused"))
            assert refusals(await shown(service)) == {shown_as}
        refused.clear()
        async with asyncio.timeout(TIMEOUT):
            while refusals(await shown(service)):
                pass


def test_the_next_expiry_is_the_first_that_is_not_over() -> None:
    def token(expires: int | None) -> Token:
        return Token(1, "a", "read", "", 0, expires)

    assert scrapes.next_expiry([], 1.0) is None
    assert scrapes.next_expiry([token(None), token(1000)], 1.0) is None
    assert scrapes.next_expiry([token(3000), token(500), token(2000), token(None)], 1.0) == 2.0


async def test_tokens_that_cannot_be_read_refuse_writes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside(tmp_path, auth="writes") as service:
        assert refusals(await shown(service)) == set()
        monkeypatch.setattr(token_table, "MAX_AGE", -1.0)
        assert refusals(await shown(service)) == {token_table.UNREAD}


def refusals(found: Mapping[Series, float]) -> set[str]:
    """Return the reasons for which writes are refused."""
    values = {
        reason: found[series("writes_refused", reason=reason)]
        for reason in FAMILIES["writes_refused"].labels["reason"]
    }
    assert set(values.values()) <= {0, 1}
    return {reason for reason, value in values.items() if value}


def test_writes_that_two_workers_refuse_are_shown_as_refused_not_as_two() -> None:
    slots = Slots(2)
    for number in range(2):
        metrics = Metrics(slots, number)
        metrics.watch_refusal(lambda: errors.DISK_FULL)
        metrics.publish()
    assert refusals(parse(exposition.encode(slots, {}).decode())) == {errors.DISK_FULL}
    slots.release(0, lost=True)
    slots.release(1, lost=True)
    assert refusals(parse(exposition.encode(slots, {}).decode())) == set()


async def test_writes_are_counted_by_what_they_led_to(tmp_path: Path) -> None:
    put = b'{"name":"a"}'
    key, tag = "Idempotency-Key: k", 'If-Match: "9.abcdefgh"'
    async with inside(tmp_path) as service:
        await respond(
            service,
            *(
                create("First"),
                request("PUT", "/api/stores/1", put),
                request("PUT", "/api/stores/1", put),
            ),
            *(create("Keyed", key), create("Keyed", key), create("Other", key)),
            *(
                request("PUT", "/api/stores/9", put),
                request("PUT", "/api/stores/1", b'{"name":"b"}', tag),
            ),
        )
        found = await shown(service)
        results = {
            "stored": 4,
            "replayed": 1,
            "key_reused": 1,
            "not_found": 1,
            "precondition_failed": 1,
        }
        for result in FAMILIES["writes"].labels["result"]:
            assert found[series("writes_total", result=result)] == results.get(result, 0), result
        assert found[series("commit_duration_seconds_count")] == 8
        assert found[series("stores")] == 2
        assert found[series("changes")] == 3
        assert 0 <= found[series("seconds_since_last_change")] < 60
        assert found[series("latest_change_ahead_seconds")] == 0
        assert found[series("wrong_clock_commits_total")] == 0
        assert found[series("write_queue")] == 0


def test_a_write_that_the_database_refuses_is_counted_by_its_outcome() -> None:
    slots = Slots()
    Metrics(slots).observe_writes(
        [Unavailable("a"), Unavailable("b", Outcome.UNKNOWN), ValueError()], 0.2
    )
    for result in ("unavailable", "unknown", "failed"):
        assert slots.of(0)[CELLS["writes", result]] == 1


async def test_writes_that_wait_are_in_the_queue(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        with locked(tmp_path):
            for number in range(3):
                receive(service.connect()[0], create(str(number)))
            found = await shown(service)
        assert found[series("write_queue")] == 3
        assert found[series("connections")] == 4


# What limits refuse.


async def test_what_a_limit_refuses_is_counted_by_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_stores(tmp_path, 1)
    long = b'{"name":"Long","address":"%b"}' % (b"x" * 100_000)
    async with inside(tmp_path) as service:
        runtime, collection = service.service.runtime, service.collection
        monkeypatch.setattr(collection._queue, "limit", 0)
        await respond(service, create("One too many"))
        monkeypatch.undo()
        with monkeypatch.context() as patch:
            patch.setattr(limits, "MAX_RECEIVED_BYTES", 0)
            await respond(service, request("POST", "/api/stores", long)[:-1])
        await respond(service, request("PUT", "/api/stores/1", long))
        with monkeypatch.context() as patch:
            patch.setattr(limits, "MAX_UNSENT_BYTES", 1000)
            for _ in range(2):  # the second one makes the first one leave
                connection, line = service.connect()
                line.stuck = True
                receive(connection, request("GET", "/api/stores/1", None, "Connection: close"))
                receive(connection, request("GET", "/api/stores/1"))
                await settled(connection)
        feed = runtime.application._planners["changes"].__self__  # type: ignore[attr-defined]  # a method of Feed
        monkeypatch.setattr(feed, "_max_listeners", 0)
        await respond(service, request("GET", "/api/changes", None, "Accept: text/event-stream"))
        application: Any = runtime.application
        monkeypatch.setattr(exports, "MAX_WRITTEN", 0)
        await respond(service, request("GET", "/api/export"))
        collection._reader.long_lists.refused += 1
        scrapes = application._planners["metrics"].__self__._batcher
        scrapes.limit = 0
        await respond(service, request("GET", "/metrics"))
        scrapes.limit = 1
        with monkeypatch.context() as patch:
            patch.setattr(runtime.limits.connections, "maximum", 0)
            await respond(service, b"")
        found = await shown(service)
        for reason in FAMILIES["refused"].labels["reason"]:
            assert found[series("refused_total", reason=reason)] == 1, reason


# The route.


async def test_without_metrics_the_route_is_no_route(tmp_path: Path) -> None:
    async with inside(tmp_path, metrics=False) as service:
        for method in ("GET", "POST", "OPTIONS"):
            connection, line = service.connect()
            receive(connection, request(method, "/metrics"))
            await settled(connection)
            assert_error(last_response(line), 404, "Not Found")


async def test_a_database_that_is_away_takes_only_its_own_series_with_it(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["stores", "changes", "seconds_since_last_change", "database_bytes"]
    names += ["latest_change_ahead_seconds"]
    names += ["disk_free_bytes"] if database.url.startswith("sqlite") else []
    async with inside(tmp_path, database=database.url) as service:
        await respond(service, create("First"))
        before = await shown(service)
        assert before[series("ready")] == 1
        assert before[series("database_bytes")] > 4096

        def away() -> None:
            raise Unavailable("The database is away")

        for name in ("check", "state", "figures"):
            monkeypatch.setattr(service.collection, name, away)
        meanwhile = await shown(service)
        assert before.keys() - meanwhile.keys() == set(map(series, names))
        assert meanwhile[series("ready")] == 0
        assert meanwhile[series("writes_total", result="stored")] == 1


async def test_many_scrapes_at_once_take_one_thread_and_the_next_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shows what was counted before it came, also if it came while another was under way."""
    texts: list[bytes] = []
    running: list[int] = []

    async def run_in_thread(work: Callable[[], bytes]) -> bytes:
        running.append(1)
        assert len(running) == 1
        texts.append(await threads.run_in_thread(work))
        running.pop()
        return texts[-1]

    monkeypatch.setattr(scrapes, "run_in_thread", run_in_thread)
    async with inside(tmp_path) as service:
        lines = []
        for number in range(1000):
            if number == 500:
                await until(lambda: running)
                await respond(service, create("Meanwhile"))
            connection, line = service.connect()
            receive(connection, request("GET", "/metrics"))
            lines.append((connection, line))
        await until(lambda: all(connection.exchange is None for connection, _ in lines))
    assert len(texts) == 2
    bodies = [last_response(line).body for _, line in lines]
    assert set(bodies[500:]) == {texts[1]}
    counts = [parse(body.decode())[series("stores")] for body in (bodies[0], bodies[-1])]
    assert counts == [0, 1]


async def test_a_database_that_does_not_respond_keeps_no_scrape_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once, until it responds."""
    questions: list[asyncio.Future[State]] = []

    def state() -> asyncio.Future[State]:
        questions.append(asyncio.get_running_loop().create_future())
        return questions[-1]

    monkeypatch.setattr(scrapes, "DATABASE_TIMEOUT", 0.01)
    async with inside(tmp_path) as service:
        monkeypatch.setattr(service.collection, "state", state)
        for _ in range(3):
            found = await shown(service)
            assert found[series("ready")] == 0
            assert series("stores") not in found
        assert len(questions) == 1
        assert found[series("http_requests_total", route="/metrics", method="GET", status="200")]
        monkeypatch.undo()
        questions[0].set_result(State(7, 9, "abcdefgh"))
        assert (await shown(service))[series("ready")] == 1


async def test_a_bug_behind_it_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside(tmp_path) as service:
        monkeypatch.setattr(service.collection, "state", lambda: 1)
        connection, line = service.connect()
        receive(connection, request("GET", "/metrics"))
        await settled(connection)
        assert_error(last_response(line), 500, "An internal server error occurred")


async def test_the_text_is_what_prometheus_reads(tmp_path: Path) -> None:
    if not (promtool := shutil.which(PROMTOOL)):
        need(PROMTOOL, "promtool is not installed")
    async with inside(tmp_path) as service:
        await respond(service, create("First"))
        response = await asked(service, "GET", "/metrics")
    fields = {
        "content-type": "text/plain; version=0.0.4; charset=utf-8",
        "cache-control": "no-cache",
    }
    assert fields.items() <= response.headers.items()
    done = subprocess.run(
        [promtool, "check", "metrics"], input=response.body, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = parse(response.body.decode())
    assert found[series("disk_free_bytes")] > 0
    assert found[series("process_resident_memory_bytes", worker="0")] > 1_000_000
