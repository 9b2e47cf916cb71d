"""What the access log says about a response, what it never says, and the two formats of the log."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storekeeper.log import events
from tests.harness.client import locked
from tests.harness.in_process import Inside, exchange, inside, receive, tick
from tests.harness.tokens import add_token
from tests.harness.wire import create, request

SECRET = "s3cret"
"""What clients send in every place that no log may show."""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The lines of the log; its format is what it was afterwards."""
    written: list[bytes] = []
    monkeypatch.setattr(events, "_log", lambda: SimpleNamespace(write=written.append))
    monkeypatch.setattr(events, "_due", {})
    yield written
    events.use_format("logfmt")


async def respond(service: Inside, *data: bytes) -> None:
    for each in data:
        await exchange(service, each)


def responses(lines: list[bytes]) -> list[dict[str, Any]]:
    """Return the lines of responses, without their times."""
    found = [json.loads(line) for line in lines]
    for each in found:
        assert each.pop("timestamp").endswith("Z")
        if each["event"] == "response":
            assert 0 <= each.pop("seconds") < 60
            assert each.pop("bytes") > 0 or each["status"] == 0
            assert each.pop("level") == "info"
            assert each.pop("client") == "127.0.0.1"
    return [each for each in found if each.pop("event") == "response"]


async def test_each_response_is_one_line(tmp_path: Path, lines: list[bytes]) -> None:
    token = add_token(f"sqlite:///{tmp_path}/stores.db", "till 7", "write")
    sent = f"Authorization: Bearer {token}"
    async with inside(tmp_path, access_log="all", log_format="json", auth="writes") as service:
        get = request("GET", "/api/stores/1")
        await respond(service, create("First", sent), get, get, get, request("DELETE", "/nowhere"))
        await respond(service, request("GET", "/api/stores", None, "x-request-id: r-1"))
    store = {"route": "/api/stores/{id}", "method": "GET", "status": 200}
    assert responses(lines) == [
        {"route": "/api/stores", "method": "POST", "status": 200, "token": "till 7"},
        *(store, store, store),
        {"route": "other", "method": "other", "status": 404},
        {"route": "/api/stores", "method": "GET", "status": 200, "request_id": "r-1"},
    ]


@pytest.mark.parametrize(("mode", "statuses"), [("off", []), ("errors", [404, 400, 0])])
async def test_only_what_is_asked_for_is_logged(
    tmp_path: Path, lines: list[bytes], mode: str, statuses: list[int]
) -> None:
    async with inside(tmp_path, access_log=mode, log_format="json") as service:
        await respond(service, create("First"), request("GET", "/nowhere"), b"no HTTP\r\n\r\n")
        with locked(tmp_path):
            connection, _ = service.connect()
            receive(connection, create("Left"))
            connection.transport.abort()
            await tick()
    assert [each["status"] for each in responses(lines)] == statuses


async def test_more_lines_than_an_event_may_have_are_all_written(
    tmp_path: Path, lines: list[bytes]
) -> None:
    async with inside(tmp_path, access_log="all") as service:
        await respond(service, *[request("GET", "/test")] * 50)
    assert len(lines) == 50
    assert b" level=info event=response route=/test method=GET status=200 seconds=" in lines[-1]


@pytest.mark.parametrize("format", ["logfmt", "json"])
async def test_no_payload_no_query_no_path_and_no_token_is_in_a_log(
    tmp_path: Path, lines: list[bytes], format: str
) -> None:
    token = add_token(f"sqlite:///{tmp_path}/stores.db", "till", "read")
    body = json.dumps({"name": SECRET, "address": SECRET}).encode()
    async with inside(tmp_path, access_log="all", log_format=format, auth="writes") as service:
        for bearer in (token, token[:-1] + "x", f"skt_{SECRET}", SECRET):
            for data in (
                request("POST", "/api/stores", body, f"Authorization: Bearer {bearer}"),
                request("PUT", f"/api/stores/{SECRET}", body, f"Authorization: Bearer {bearer}"),
                request(
                    "GET",
                    f"/api/stores?name={SECRET}&limit={SECRET}",
                    None,
                    f"Authorization: Bearer {bearer}",
                ),
                request(
                    "GET",
                    f"/{SECRET}?{SECRET}",
                    None,
                    f"Authorization: Basic {bearer}",
                    f"Cookie: {SECRET}",
                ),
                request(
                    SECRET,
                    "/test",
                    None,
                    f"x-request-id: {SECRET} {SECRET}",
                    f"Idempotency-Key: {SECRET}",
                ),
                request("POST", "/api/stores", SECRET.encode(), f"If-Match: {SECRET}"),
                f"{SECRET}\r\n\r\n".encode(),
            ):
                await respond(service, data)
    text = b"".join(lines).decode()
    assert text.count("response") == 28
    assert SECRET not in text
    assert token not in text
    assert token[4:20] not in text


@pytest.mark.parametrize("format", ["logfmt", "json"])
async def test_a_bug_is_logged_with_the_id_of_its_request(
    tmp_path: Path, lines: list[bytes], monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    async with inside(tmp_path, log_format=format) as service:
        monkeypatch.setattr(service.collection, "get", lambda _: 1)
        await respond(service, request("GET", "/api/stores/1", None, "x-request-id: r-1"))
        monkeypatch.setattr(service.collection, "changes", lambda _: 1)
        await respond(service, request("GET", "/api/changes", None, "x-request-id: r-2"))
        await respond(service, request("GET", "/api/changes"))
    ids = [b"r-1" in line or b"r-2" in line for line in lines]
    assert ids == [True, True, False]


def test_a_line_of_json_is_json_whatever_is_in_it(lines: list[bytes]) -> None:
    events.use_format("json")
    reason = 'no "K\u00f6ln"\r\n \x1b[2J \u2028 \x85 \0 \x7f \u202e \udc80'
    events.emit(events.Event.DATABASE_REFUSED, reason=reason)
    events.emit(events.Event.BUG, error=ValueError(reason))
    assert [json.loads(line)["level"] for line in lines] == ["error", "error"]
    assert json.loads(lines[0])["reason"] == reason
    assert all(line.decode().removesuffix("\n").isprintable() for line in lines)
