"""Who may do what: every route and method, every state of a token, every mode."""

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest

from storekeeper.api import token_table
from storekeeper.api.routes.docs import encoded_document
from storekeeper.api.routing import ROUTES
from storekeeper.cli.tokens import SETTLE_DELAY
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.tokens import Token, generate
from storekeeper.storage.sqlite.reads import Reader
from storekeeper.storage.tokens import read_tokens, revoke_token
from tests.harness.client import until as until_so
from tests.harness.databases import KINDS
from tests.harness.in_process import exchange, inside, settled, some_stores, statuses, tick, until
from tests.harness.log_lines import LogLines
from tests.harness.process import Running, ask, serving
from tests.harness.process import run as run_command
from tests.harness.tokens import STATES, add_token, add_tokens, now
from tests.harness.wire import assert_error, request

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
HOST = b"Host: localhost\r\n"

SERVED = None
CELLS = {
    # mode and scope: no token, malformed, unknown, expired, revoked, read, write, Basic
    ("open", "none"): (SERVED,) * 8,
    ("open", "read"): (SERVED,) * 8,
    ("open", "write"): (SERVED,) * 8,
    ("writes", "none"): (SERVED,) * 8,
    ("writes", "read"): (SERVED, 401, 401, 401, 401, SERVED, SERVED, SERVED),
    ("writes", "write"): (401, 401, 401, 401, 401, 403, SERVED, 401),
    ("all", "none"): (SERVED,) * 8,
    ("all", "read"): (401, 401, 401, 401, 401, SERVED, SERVED, 401),
    ("all", "write"): (401, 401, 401, 401, 401, 403, SERVED, 401),
}
READS = {
    "GET": "read",
    "HEAD": "read",
    "POST": "write",
    "PUT": "write",
    "PATCH": "write",
    "DELETE": "write",
    "OPTIONS": "none",
}
ANYBODY = dict.fromkeys(METHODS, "none")
SCOPES = {
    "/api/stores": READS,
    "/api/stores/{id}": READS,
    "/api/changes": READS,
    "/api/changes/stream": READS,
    "/api/export": READS,
    "/api/keys": READS,
    "/api/imports": READS,
    "/api/imports/undo": READS,
    "/api/me": READS,
    "/test": ANYBODY,
    "*": ANYBODY,
    "/health/live": ANYBODY,
    "/health/ready": ANYBODY,
    "/metrics": READS,
    "/openapi.json": ANYBODY,
    "/docs": ANYBODY,
    "/docs/{name}": ANYBODY,
    "/console": ANYBODY,
    "/console/": ANYBODY,
    "/console/{name}": ANYBODY,
    "/": ANYBODY,
}
"""Which scope each method of each route needs, whether the route has it or not."""


def routes() -> set[str]:
    """Return all routes that there are, as the code has them."""
    return {route.path for route in ROUTES}


def test_somebody_has_decided_about_every_route() -> None:
    assert routes() == SCOPES.keys()


async def until_async(ask: Callable[[], Awaitable[int]], expected: int) -> None:
    async with asyncio.timeout(30):
        for _ in count():
            if await ask() == expected:
                return
            await asyncio.sleep(0.01)


def sent(method: str, path: str, authorization: str | None, *fields: str) -> bytes:
    body = b'{"name":"Sent"}' if method in ("POST", "PUT", "PATCH") else None
    target = path.replace("{id}", "1").replace("{name}", "docs.css")
    more = [] if authorization is None else [f"Authorization: {authorization}"]
    return request(method, target, body, *more, *fields, host=HOST)


@pytest.mark.parametrize("mode", ["open", "writes", "all"])
async def test_every_route_and_method_asks_for_its_token(mode: str, tmp_path: Path) -> None:
    some_stores(tmp_path, 1)
    tokens = add_tokens(tmp_path)
    assert tuple(tokens) == STATES
    (tmp_path / "open").mkdir()
    some_stores(tmp_path / "open", 1)
    async with (
        inside(tmp_path, auth=mode) as service,
        inside(tmp_path / "open", auth="open") as served,
    ):
        for path in sorted(routes()):
            for method in METHODS:
                if path == "*" and method != "OPTIONS":
                    continue  # no request
                # A stream that is refused ends.
                target = path.replace("/stream", "/stream?order=desc")
                expected = (await exchange(served, sent(method, target, None))).status
                assert expected not in (401, 403)
                for state, cell in zip(STATES, CELLS[mode, SCOPES[path][method]], strict=True):
                    response = await exchange(service, sent(method, target, tokens[state]))
                    assert response.status == (cell or expected), (method, path, state)
                    assert ("www-authenticate" in response.headers) == (cell is not None)


@pytest.mark.parametrize("mode", ["open", "writes", "all"])
async def test_a_client_is_told_who_it_is_and_what_it_may(mode: str, tmp_path: Path) -> None:
    some_stores(tmp_path, 1)
    tokens = add_tokens(tmp_path)
    anybody = {"name": None, "scope": "write" if mode == "open" else "read"}
    async with inside(tmp_path, auth=mode) as service:
        for state in ("no token", "read", "write"):
            response = await exchange(service, sent("GET", "/api/me", tokens[state]))
            if mode == "all" and state == "no token":
                assert response.status == 401
            elif mode == "open" or state == "no token":
                assert json.loads(response.body) == anybody
            else:
                assert json.loads(response.body)["scope"] == state
                assert isinstance(json.loads(response.body)["name"], str)
            assert response.status == 401 or response.headers["vary"] == "authorization"


async def test_a_refusal_says_what_is_missing(tmp_path: Path) -> None:
    tokens = add_tokens(tmp_path)
    realm = 'Bearer realm="storekeeper"'
    async with inside(tmp_path, auth="all") as service:
        for method, state, status, message, challenge in (
            ("GET", "no token", 401, "Reading needs a token", realm),
            ("POST", "Basic", 401, "Writing needs a token", realm),
            ("GET", "malformed", 401, None, f'{realm}, error="invalid_token"'),
            (
                "POST",
                "expired",
                401,
                "The token is invalid: it has expired",
                f'{realm}, error="invalid_token"',
            ),
            ("GET", "revoked", 401, None, f'{realm}, error="invalid_token"'),
            ("POST", "read", 403, None, f'{realm}, error="insufficient_scope", scope="write"'),
        ):
            refused = await exchange(service, sent(method, "/api/stores", tokens[state]))
            assert_error(refused, status, message)
            assert refused.headers["www-authenticate"] == challenge
        good = tokens["write"]
        assert good is not None
        for written in (good.replace("Bearer", "bearer"), good.replace(" ", "   ")):
            assert (await exchange(service, sent("GET", "/api/stores", written))).status == 200
        longer = (f"{good}{' ' * 300}x", f"{good}x", f"{good} {good}")
        for wrong in ("Bearer", "Bearer ", *longer, good.swapcase(), good[:-1]):
            expected = 401
            assert (await exchange(service, sent("GET", "/api/stores", wrong))).status == expected
        twice = sent("GET", "/api/stores", good, f"Authorization: {good}")
        assert_error(
            await exchange(service, twice),
            400,
            "The request has more than one Authorization header",
        )


async def test_what_needs_a_token_is_refused_before_its_body_is_read(tmp_path: Path) -> None:
    tokens = add_tokens(tmp_path)
    async with inside(tmp_path, auth="writes") as service:
        for state, expected in (
            ("no token", [401]),
            ("unknown", [401]),
            ("read", [403]),
            ("write", []),
        ):
            connection, line = service.connect()
            head = sent("DELETE", "/api/stores", tokens[state], "Content-Length: 9000")
            connection.data_received(head.replace(b"DELETE", b"POST"))
            await tick()
            assert statuses(line) == expected


async def test_a_revoked_token_is_not_good_after_a_second(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    assert SETTLE_DELAY > 1.5 * token_table.MAX_AGE
    async with inside(tmp_path, auth="all") as service:
        late = f"Bearer {add_token(url, 'late', 'read')}"
        connection, line = service.connect()

        async def status() -> int:
            connection.data_received(sent("GET", "/api/stores", late))
            await settled(connection)
            return statuses(line)[-1]

        for expected in (200, 401):
            began = asyncio.get_running_loop().time()
            await until_async(status, expected)
            assert asyncio.get_running_loop().time() - began < token_table.MAX_AGE
            revoke_token(url, "late", now())


@pytest.mark.parametrize(("standstill", "good"), [(0.0, True), (1.5, False)])
async def test_what_is_known_of_tokens_is_as_old_as_the_beginning_of_its_read(
    standstill: float, good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stands still in a read finds what was true before a token was revoked."""
    monkeypatch.setattr(token_table, "MAX_AGE", 0.2)

    class Source:
        async def tokens(self) -> Sequence[Token]:
            await asyncio.sleep(standstill * token_table.MAX_AGE)
            return [Token(7, "ci", "read", "hash", now())]

    tokens = token_table.TokenTable(Source())  # type: ignore[arg-type]  # nothing else is asked of it
    await tokens.refresh()
    admitted = tokens.admit("hash", "read")
    assert (admitted if good else getattr(admitted, "status", None)) == (7 if good else 503)


@pytest.mark.parametrize(
    ("mode", "without", "ready"), [("all", 401, (503, None)), ("writes", 200, (200, "refused"))]
)
async def test_without_its_database_no_token_is_good_and_none_is_bad(
    mode: str,
    without: int,
    ready: tuple[int, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some_stores(tmp_path, 1)
    tokens = add_tokens(tmp_path)
    monkeypatch.setattr(token_table, "REFRESH_INTERVAL", 0.02)
    away = False
    async with inside(tmp_path, auth=mode) as service:
        collection = service.collection
        read = collection.tokens

        def unless_away() -> object:
            if away:
                raise Unavailable("The connection was lost")
            return read()

        monkeypatch.setattr(collection, "tokens", unless_away)

        async def seen(state: str) -> int:
            return (await exchange(service, sent("GET", "/api/stores/{id}", tokens[state]))).status

        assert [await seen(state) for state in ("read", "unknown", "no token")] == [
            200,
            401,
            without,
        ]
        away = True
        monkeypatch.setattr(token_table, "MAX_AGE", 0.2)
        await until_async(lambda: seen("read"), 503)
        assert [await seen(state) for state in ("unknown", "revoked", "no token")] == [
            503,
            503,
            without,
        ]
        health = await exchange(service, request("GET", "/health/ready", host=HOST))
        assert (health.status, health.json.get("writes")) == ready
        assert "The tokens cannot be read now" in health.body.decode()
        away = False
        await until_async(lambda: seen("read"), 200)
        await until_async(lambda: seen("unknown"), 401)


async def test_a_bug_in_one_read_of_the_tokens_does_not_end_their_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_tokens(tmp_path)
    monkeypatch.setattr(token_table, "REFRESH_INTERVAL", 0.02)
    bugs: list[Exception] = []
    monkeypatch.setattr(token_table, "emit", lambda _event, error: bugs.append(error))
    read = Reader.tokens

    def fails_once(reader: Reader) -> object:
        if not bugs:
            raise ValueError("a bug")
        return read(reader)

    async with inside(tmp_path, auth="all") as service:
        monkeypatch.setattr(Reader, "tokens", fails_once)
        await until(lambda: bugs)
        later = f"Bearer {add_token(f'sqlite:///{tmp_path}/stores.db', 'later', 'read')}"

        async def seen() -> int:
            return (await exchange(service, sent("GET", "/api/stores", later))).status

        await until_async(seen, 200)


async def test_a_backup_from_before_the_first_token_opens_nothing(tmp_path: Path) -> None:
    some_stores(tmp_path, 1)
    for mode, read in (("writes", 200), ("all", 401)):
        async with inside(tmp_path, auth=mode) as service:
            for authorization in (None, f"Bearer {generate()}"):
                assert (
                    await exchange(service, sent("POST", "/api/stores", authorization))
                ).status == 401
            assert (await exchange(service, sent("GET", "/api/stores", None))).status == read


async def test_wrong_tokens_are_logged_once_a_minute_without_their_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = LogLines(monkeypatch)
    tokens = add_tokens(tmp_path)
    async with inside(tmp_path, auth="all") as service:
        await exchange(service, sent("GET", "/api/stores", tokens["unknown"]))
        (line,) = logged
        assert line.endswith('reason="it is unknown or was revoked"')
        for state in ("unknown", "revoked", "expired", "malformed", "no token"):
            await exchange(service, sent("GET", "/api/stores", tokens[state]))
        assert logged == [line]
        logged.now += 60
        await exchange(service, sent("GET", "/api/stores", tokens["malformed"]))
        assert logged[1].endswith('reason="it is not a Storekeeper token" suppressed=4')


async def test_the_use_of_a_token_is_written_once_an_hour_and_by_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = add_tokens(tmp_path)
    monkeypatch.setattr(token_table, "REFRESH_INTERVAL", 0.02)
    url = f"sqlite:///{tmp_path}/stores.db"
    before = now()

    def used() -> dict[str, int | None]:
        return {token.name: token.used for token in read_tokens(url)}

    async with inside(tmp_path, auth="all") as service:
        for state in ("read", "expired", "revoked"):
            await exchange(service, sent("GET", "/api/stores", tokens[state]))
        await until(lambda: used()["read"])
        first = used()
        assert {name for name, at in first.items() if at is not None} == {"read"}
        assert before <= (first["read"] or 0) <= now()
        version = service.collection._connection.pragma("data_version")
        for _ in range(5):
            await exchange(service, sent("GET", "/api/stores", tokens["read"]))
            await asyncio.sleep(0.03)
        assert used() == first
        assert service.collection._connection.pragma("data_version") == version, (
            "nobody has written"
        )


async def test_a_use_that_cannot_be_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = add_tokens(tmp_path)
    monkeypatch.setattr(token_table, "REFRESH_INTERVAL", 0.02)
    monkeypatch.setattr(token_table, "RETRY_INTERVAL", 0.2)
    attempts: list[float] = []
    async with inside(tmp_path, auth="all") as service:
        collection = service.collection
        write = collection.mark_used

        async def refuse_once(numbers: Sequence[int], now: int) -> None:
            attempts.append(asyncio.get_running_loop().time())
            if len(attempts) == 1:
                raise Unavailable("The disk is full")
            await write(numbers, now)

        monkeypatch.setattr(collection, "mark_used", refuse_once)
        await exchange(service, sent("GET", "/api/stores", tokens["read"]))
        await until(lambda: attempts)
        read = read_tokens
        await until(lambda: any(token.used for token in read(f"sqlite:///{tmp_path}/stores.db")))
        assert attempts[1] - attempts[0] > 0.1
        await asyncio.sleep(0.1)
        assert len(attempts) == 2, "what is written is left alone"


async def test_a_use_that_was_noted_by_a_clock_far_ahead_is_noted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = add_tokens(tmp_path)["read"]
    monkeypatch.setattr(token_table, "REFRESH_INTERVAL", 0.02)
    url = f"sqlite:///{tmp_path}/stores.db"
    async with inside(tmp_path, auth="all") as service:
        (number,) = (token.number for token in read_tokens(url) if token.name == "read")
        await service.collection.mark_used([number], now() + 10**12)
        await asyncio.sleep(0.1)
        await exchange(service, sent("GET", "/api/stores", token))
        await until(lambda: any((token.used or 10**15) <= now() for token in read_tokens(url)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "stopped", [False, True], ids=["running", "one process is stopped meanwhile"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_served_to_a_token_once_revoke_has_returned(
    kind: str, stopped: bool, tmp_path: Path
) -> None:
    """By two workers on SQLite, and by two instances on PostgreSQL."""
    with ExitStack() as stack:
        url = stack.enter_context(KINDS[kind](tmp_path)).url
        text = add_token(url, "load", "read")
        arguments = [("--auth=all", "--workers=2")] if kind == "sqlite" else [("--auth=all",)] * 2
        services = [
            stack.enter_context(serving(tmp_path, *more, database=url)) for more in arguments
        ]
        returned = threading.Event()
        wrong: list[int] = []
        seen = Counter[int]()

        def load(service: Running) -> None:
            with closing(service.connection()) as connection:
                for _ in range(200_000):
                    after = returned.is_set()
                    status = ask(
                        connection, "GET", "/api/stores", None, {"authorization": f"Bearer {text}"}
                    ).status
                    seen[status] += 1
                    if after and status == 200:
                        wrong.append(status)
                    if after and status == 401:
                        return

        threads = [
            threading.Thread(target=load, args=(service,))
            for service in services * (8 // len(services))
        ]
        for thread in threads:
            thread.start()
        until_so(lambda: seen[200] > 1000)
        process = _a_worker(services[0]) if kind == "sqlite" else services[0].process.pid
        if stopped:
            os.kill(process, signal.SIGSTOP)
        assert run_command("token", "revoke", "load", "--database", url).returncode == 0
        returned.set()
        if stopped:
            os.kill(process, signal.SIGCONT)
        for thread in threads:
            thread.join(30)
    assert not wrong
    assert seen[401] >= 8


def _a_worker(service: Running) -> int:
    found = subprocess.run(
        ["pgrep", "-P", str(service.process.pid)], capture_output=True, text=True, check=True
    )
    return max(int(pid) for pid in found.stdout.split())


async def test_the_document_has_the_very_refusals_and_the_scheme(tmp_path: Path) -> None:
    tokens = add_tokens(tmp_path)
    document = json.loads(encoded_document())
    responses = document["components"]["responses"]
    documented = {
        name: [
            example["value"]
            for media in responses[name]["content"].values()
            for example in media["examples"].values()
        ]
        for name in ("Unauthorized", "Forbidden")
    }
    received: dict[str, list[object]] = {"Unauthorized": [], "Forbidden": []}
    for name, mode, method, state, fields in (
        ("Unauthorized", "writes", "POST", "no token", ()),
        ("Unauthorized", "all", "GET", "no token", ()),
        ("Unauthorized", "writes", "POST", "expired", ()),
        ("Forbidden", "writes", "POST", "read", ()),
        ("Forbidden", "writes", "POST", "write", ("Sec-Fetch-Site: cross-site",)),
        ("Forbidden", "writes", "POST", "write", ("Origin: http://rebound.example",)),
    ):
        async with inside(tmp_path, auth=mode) as service:
            data = sent(method, "/api/stores", tokens[state], *fields)
            if "rebound" in str(fields):
                data = data.replace(HOST, b"Host: rebound.example\r\n")
            received[name].append((await exchange(service, data)).json)
    assert received == documented
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            guarded = operation.get("security", document["security"])
            assert bool(guarded) == (SCOPES[path][method.upper()] != "none")
