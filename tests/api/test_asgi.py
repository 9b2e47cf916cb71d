"""The ASGI application is complete by itself: called directly, as the specification has it, and
on another server."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from storekeeper.domain.errors import Unavailable
from storekeeper.domain.stores import Payload
from storekeeper.http.response import Fields
from storekeeper.process.service import Service, application
from storekeeper.settings import Settings
from storekeeper.storage.collection import Listing
from tests.harness.asgi import Message, asked, body, called, response_of, scope_of
from tests.harness.client import fill, until
from tests.harness.databases import make, make_file
from tests.harness.in_process import inside, some_stores
from tests.harness.process import TIMEOUT, Response
from tests.harness.stores import shown
from tests.harness.tokens import add_token, now
from tests.harness.wire import assert_error, assert_invalid

TOO_LARGE = "Payload content length greater than maximum allowed: 1048576"


async def test_a_server_may_leave_out_the_raw_path_and_may_add_the_query_to_it(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path) as service:
        await asked(service, "POST", "/api/stores", b'{"name":"\xc3\xbc"}')
        for more in (
            {},
            {"raw_path": b"/api/stores/1"},
            {"raw_path": None},
            {"raw_path": b"/api/stores/%31?x=1"},
        ):
            assert (await asked(service, "GET", "/api/stores/1", query=b"x=1", **more)).json[
                "id"
            ] == 1
        found = await asked(service, "GET", "/api/stores", query=b"name=%C3%BC")
        assert [store["id"] for store in found.json] == [1]
        raw = b"/api/stores?name=%C3%BC"
        assert (
            await asked(service, "GET", "/api/stores", query=b"name=%C3%BC", raw_path=raw)
        ).body == found.body
        assert_error(await asked(service, "GET", "/api/stores/ü 1"), 404, "Store ü 1 not found")
        assert_error(await asked(service, "GET", "/api/stores/"), 404, "Not Found")
        assert_error(await asked(service, "GET", "/nowhere"), 404, "Not Found")


async def test_every_check_sees_the_fields_of_a_server_that_gives_them_only_once(
    tmp_path: Path,
) -> None:
    """ASGI says *iterable*. What is looked at first is the type, what comes later who asks."""
    page = [
        (b"content-type", b"application/json"),
        (b"host", b"a"),
        (b"origin", b"https://elsewhere.example"),
    ]
    async with inside(tmp_path) as service:
        refused = await asked(service, "POST", "/api/stores", b'{"name":"A"}', headers=iter(page))
        assert refused.status == 403
        accepted = await asked(
            service, "POST", "/api/stores", b'{"name":"A"}', headers=iter(page[:2])
        )
        assert accepted.json["id"] == 1


@pytest.mark.parametrize("raw", [True, False])
async def test_below_the_root_path_of_a_server_every_route_is_there(
    tmp_path: Path, raw: bool
) -> None:
    token = add_token(f"sqlite:///{tmp_path}/stores.db", "one", "read")
    fill(tmp_path, [Payload("One")])
    bearer = [(b"authorization", f"Bearer {token}".encode())]
    async with inside(tmp_path, auth="all") as service:

        async def status(path: str, headers: Fields = (), root_path: str = "/a b") -> int:
            more = {"raw_path": path.encode()} if raw else {}
            return (
                await asked(service, "GET", path, headers=headers, root_path=root_path, **more)
            ).status

        root = "/a%20b" if raw else "/a b"
        assert [await status(f"{root}/api/stores{end}", bearer) for end in ("", "/1", "/2")] == [
            200,
            200,
            404,
        ]
        assert [await status(f"{root}{path}") for path in ("/api/stores/1", "/test")] == [401, 200]
        for other in ("/a b", "/ap"):
            assert await status("/api/stores/1", (), other) == 401, (
                "a server may leave the root path out"
            )
        assert await status(f"{root}x/api/stores/1") == 404


async def test_a_body_may_come_in_any_parts(tmp_path: Path) -> None:
    content = b'{"name":"Parts","address":"1 High Street"}'
    async with inside(tmp_path) as service:
        each = [content[at : at + 1] for at in range(len(content))]
        for parts in ([content], each, [b"", content, b"", b""]):
            sent = await called(service.service, scope_of("POST", "/api/stores"), *body(*parts))
            assert response_of(sent).json["address"] == "1 High Street"
        sent = await called(
            service.service, scope_of("POST", "/api/stores"), {"type": "http.request"}
        )
        assert_invalid(response_of(sent), '"value" must be of type object', [])


async def test_the_body_of_an_import_goes_to_a_file(tmp_path: Path) -> None:
    rows = b"name\n" + b"".join(b"Store %d\n" % number for number in range(5000))
    fields = [
        (b"content-type", b"text/csv"),
        (b"content-length", b"%d" % len(rows)),
        (b"host", b"127.0.0.1"),
    ]
    async with inside(tmp_path) as service:
        scope = scope_of("POST", "/api/imports", headers=fields)
        parts = [rows[at : at + 7000] for at in range(0, len(rows), 7000)]
        sent = await called(service.service, scope, *body(*parts))
        assert response_of(sent).json["created"] == 5000
        assert (
            await called(
                service.service,
                scope,
                {"type": "http.request", "body": rows[:9], "more_body": True},
            )
            == []
        )
        sent = await called(
            service.service,
            scope_of("POST", "/api/imports", b"add&dry-run", headers=fields),
            *body(rows),
        )
        assert response_of(sent).status == 200, "the client that left has the slot no more"


async def test_a_client_that_leaves_in_its_body_changes_nothing_and_is_sent_nothing(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path) as service:
        unfinished: Message = {
            "type": "http.request",
            "body": b'{"name":"Never"}',
            "more_body": True,
        }
        assert await called(service.service, scope_of("POST", "/api/stores")) == []
        assert await called(service.service, scope_of("POST", "/api/stores"), unfinished) == []
        assert (await asked(service, "GET", "/api/stores")).body == b"[]"


async def test_the_observer_is_called_once_for_each_response(tmp_path: Path) -> None:
    told: list[tuple[str | None, str, int, bytes]] = []
    async with inside(tmp_path) as service:
        service.service._runtime = replace(
            service.service.runtime,
            observe=lambda of: told.append((of.route, of.method, of.status, of.request_id)),
        )
        await asked(service, "POST", "/api/stores", b'{"name":"A"}')
        id = (b"x-request-id", b"r-1")
        assert (await asked(service, "GET", "/test", headers=[id])).headers["x-request-id"] == "r-1"
        await asked(service, "HEAD", "/api/stores/1")
        await asked(service, "GET", "/nowhere")
        await called(service.service, scope_of("POST", "/api/stores"))  # the client leaves
    assert told == [
        ("stores", "POST", 200, b""),
        ("test", "GET", 200, b"r-1"),
        ("store", "HEAD", 200, b""),
        (None, "GET", 404, b""),
        ("stores", "POST", 0, b""),
    ]


async def test_a_token_that_ends_while_the_body_is_on_its_way_changes_nothing(
    tmp_path: Path,
) -> None:
    ends = now() + 300
    text = add_token(f"sqlite:///{tmp_path}/stores.db", "short", "write", ends)
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.to_thread(until, lambda: now() >= ends)
        return body(b'{"name":"A"}')[0]

    async def send(message: Any) -> None:
        sent.append(message)

    async with inside(tmp_path, auth="writes") as service:
        headers = [(b"authorization", f"Bearer {text}".encode())]
        await service.service(scope_of("POST", "/api/stores", headers=headers), receive, send)
        assert_error(response_of(sent), 401, "The token is invalid: it has expired")
        assert (await asked(service, "GET", "/api/stores")).json == []


async def test_a_body_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        large = [{"type": "http.request", "body": b" " * 2**19, "more_body": True}] * 3
        sent = await called(service.service, scope_of("POST", "/api/stores"), *large)
        assert_error(response_of(sent), 413, TOO_LARGE)
        for length in (b"1048577", b"0" * 5000 + b"9"):
            told = scope_of("PUT", "/api/stores/1", headers=[(b"content-length", length)])
            assert_error(response_of(await called(service.service, told)), 413, TOO_LARGE)


async def test_a_head_that_tells_of_too_large_a_body_is_refused_before_all_else(
    tmp_path: Path,
) -> None:
    headers = [(b"content-length", b"1048577"), (b"sec-fetch-site", b"cross-site")]
    async with inside(tmp_path, auth="all") as service:
        for method, path in (
            ("POST", "/api/stores"),
            ("GET", "/api/stores/1"),
            ("PUT", "/nowhere"),
        ):
            sent = await called(service.service, scope_of(method, path, headers=headers))
            assert_error(response_of(sent), 413, TOO_LARGE)


async def test_blanks_around_the_value_of_a_field_do_not_count(tmp_path: Path) -> None:
    """Some servers leave them there, uvicorn with httptools for one."""
    token = add_token(f"sqlite:///{tmp_path}/stores.db", "one", "write")
    fields = {
        b"host": b"localhost:8098",
        b"sec-fetch-site": b"same-origin",
        b"content-type": b"application/json",
        b"content-encoding": b"identity",
        b"idempotency-key": b'"one"',
        b"authorization": f"Bearer {token}".encode(),
    }
    async with inside(tmp_path, auth="all") as service:
        for blanks in (b"%b", b"%b ", b"\t%b \t"):
            headers = [(name, blanks % value) for name, value in fields.items()]
            created = await asked(
                service, "POST", "/api/stores", b'{"name":"One"}', headers=headers
            )
            assert created.json == shown(1, "One")


async def test_routes_outside_the_contract_have_errors_in_its_form(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        for path in ("/health/live", "/health/ready", "/openapi.json", "/docs"):
            for method in ("POST", "DELETE", "PATCH"):
                refused = await asked(service, method, path)
                assert_error(refused, 405, "Method Not Allowed")
                assert refused.headers["allow"] == "GET, HEAD, OPTIONS"
            assert_error(await asked(service, "GET", f"{path}/nothing"), 404, "Not Found")


NEW = {"version": "3.0", "spec_version": "2.4"}
"""Else a file is not sent to a client that sends no more."""


@pytest.mark.parametrize("path", ["/docs", "/docs/docs.js", "/openapi.json"])
async def test_a_page_is_sent_whole_but_not_again_to_a_browser_that_has_it(
    tmp_path: Path, path: str
) -> None:
    async with inside(tmp_path) as service:
        whole = await asked(service, "GET", path, asgi=NEW)
        assert whole.status == 200
        assert not {"last-modified", "accept-ranges"} & whole.headers.keys()
        for range_ in (b"bytes=0-1", b"bytes=0-1,3-4", b"bytes=abc", b"bytes=99999999-"):
            assert (
                await asked(service, "GET", path, headers=[(b"range", range_)], asgi=NEW) == whole
            )
        tag = whole.headers["etag"].encode()
        for fields in ([b"W/" + tag], [b'"other", ' + tag], [b'"other"', tag], [b"*"]):
            headers = [(b"if-none-match", value) for value in fields]
            again = await asked(service, "GET", path, headers=headers, asgi=NEW)
            assert (again.status, again.body) == (304, b"")
            assert again.headers == {
                name: whole.headers[name] for name in ("cache-control", "etag")
            }
        for value in (b'"other"', tag[1:], b""):
            assert (
                await asked(service, "GET", path, headers=[(b"if-none-match", value)], asgi=NEW)
                == whole
            )


async def test_a_long_list_is_read_no_further_for_a_client_that_is_gone(tmp_path: Path) -> None:
    """A server drops what it is sent then, and says so only to `receive`."""
    some_stores(tmp_path, 9000)
    async with inside(tmp_path) as service:
        sent: list[Message] = []
        left = asyncio.Event()

        async def receive() -> Message:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            left.set()

        await service.service(scope_of("GET", "/api/stores"), receive, send)
        assert len(sent) < 5


async def test_a_bug_is_a_500_that_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside(tmp_path) as service:
        for bug in (KeyError("secret"), RuntimeError("secret")):

            def raises(*_: object, bug: Exception = bug) -> Listing:
                raise bug

            for name in ("list", "write", "check"):
                monkeypatch.setattr(service.collection, name, raises)
            for method, path in (
                ("GET", "/api/stores"),
                ("POST", "/api/stores"),
                ("GET", "/health/ready"),
            ):
                response = await asked(service, method, path, b'{"name":"A"}')
                assert_error(response, 500, "An internal server error occurred")


async def test_readiness_says_when_the_database_does_not_respond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable() -> None:
        raise Unavailable("The database is locked")

    async with inside(tmp_path) as service:
        monkeypatch.setattr(service.collection, "check", unavailable)
        assert_error(
            await asked(service, "GET", "/health/ready"),
            503,
            "The database is locked",
            outcome="none",
        )
        assert (await asked(service, "GET", "/health/live")).status == 200


async def test_a_websocket_is_refused_and_other_kinds_of_connection_are_left_alone(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path) as service:
        scope = {"type": "websocket", "path": "/api/stores", "headers": []}
        assert await called(service.service, scope, {"type": "websocket.connect"}) == [
            {"type": "websocket.close"}
        ]
        assert await called(service.service, {"type": "other", "path": "/"}) == []


async def test_an_unusable_database_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "stores.db").write_bytes(
        b"this is not a database, but a text that is long enough" * 100
    )
    service = Service(Settings(database=f"sqlite:///{tmp_path}/stores.db"))
    start = {"type": "lifespan.startup"}
    sent = await called(service, {"type": "lifespan"}, start)
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]


async def test_tokens_that_cannot_be_read_at_the_start_end_it_so_that_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file that is locked just then."""

    def locked(_database: str) -> None:
        raise Unavailable("locked")

    make_file(tmp_path / "stores.db")
    monkeypatch.setattr("storekeeper.process.service.refuse_tokens", locked)
    service = Service(Settings(database=f"sqlite:///{tmp_path}/stores.db"))
    sent = await called(service, {"type": "lifespan"}, {"type": "lifespan.startup"})
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert not service.cannot_start


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[str]:
    """The address of a plain uvicorn, with another parser, that runs the application with
    settings from variables."""
    make(f"sqlite:///{tmp_path}/stores.db", examples=True)
    variables = {
        "STOREKEEPER_DATABASE": f"sqlite:///{tmp_path}/stores.db",
        "STOREKEEPER_MISSING_STORE": "500",
        "STOREKEEPER_AUTH": "open",
    }
    options = ["--factory", "--http=h11", "--port=0"]
    command = [sys.executable, "-m", "uvicorn", "storekeeper.service:application", *options]
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        server = subprocess.Popen(command, stderr=stderr, env=os.environ | variables)
    try:
        give_up = time.monotonic() + TIMEOUT
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < give_up
            time.sleep(0.01)
        yield found[0]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(TIMEOUT)


def test_it_runs_on_another_server(elsewhere: str) -> None:
    with httpx.Client(base_url=elsewhere, timeout=TIMEOUT) as client:
        assert client.get("/test").text == "OK"
        assert len(client.get("/api/stores").json()) == 3
        created = client.post("/api/stores", json={"name": "Elsewhere", "address": "1 High Street"})
        assert created.json() == shown(4, "Elsewhere", "1 High Street")
        assert client.put("/api/stores/4", json={"name": "Moved"}).json()["address"] is None
        assert client.get("/api/stores/4").json() == shown(4, "Moved")
        assert client.head("/api/stores/4").headers["content-length"] == str(
            len(client.get("/api/stores/4").content)
        )
        missing = client.get("/api/stores/99")
        assert_error(Response(missing.status_code, dict(missing.headers), missing.content), 500)
        large = client.post("/api/stores", content=b" " * (2**20 + 1))
        assert_error(
            Response(large.status_code, dict(large.headers), large.content), 413, TOO_LARGE
        )
        assert len(client.get("/api/stores").json()) == 4


def test_another_server_has_to_be_told_who_needs_a_token(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        application()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(
        "storekeeper: choose which requests need a token, because only this server knows"
    )
