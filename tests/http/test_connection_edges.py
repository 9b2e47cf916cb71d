"""The edges of a connection: Expect, Upgrade, bytes that are not HTTP, clients that close."""

import socket

import pytest

from tests.harness.cases import case
from tests.harness.client import assert_success, nothing_changes
from tests.harness.client import create as store
from tests.harness.process import Running
from tests.harness.wire import (
    SLOW,
    Wire,
    assert_error,
    assert_invalid,
    chunked,
    create,
    dial,
    exchange,
    request,
)

READY = {"status": "ready", "writes": "ok"}


def sends_in_two(wire: Wire, data: bytes) -> None:
    """Send a head, and its body once the service says so."""
    head, _, body = data.partition(b"\r\n\r\n")
    wire.send(head + b"\r\n\r\n")
    assert wire.response().status == 100
    wire.send(body)


# Expect: 100-continue.


@pytest.mark.parametrize("field", ["Expect: 100-continue", "EXPECT: 100-Continue"])
def test_a_client_that_expects_it_is_told_to_continue(service: Running, field: str) -> None:
    with dial(service) as wire:
        for _ in range(2):
            sends_in_two(wire, create("Expected", field))
            assert wire.response().json["name"] == "Expected"
        # Behind a request under way it is its turn later.
        head, _, body = create("Turn", field).partition(b"\r\n\r\n")
        wire.send(create("First") + request("GET", SLOW) + head + b"\r\n\r\n")
        assert wire.response().json["name"] == "First"
        assert wire.response().json == READY
        assert wire.response().status == 100
        wire.send(body)
        assert wire.response().json["name"] == "Turn"


def test_a_body_that_is_too_large_is_refused_without_asking_for_it(service: Running) -> None:
    head = request("POST", "/api/stores", None, "Expect: 100-continue", "Content-Length: 1048577")
    assert_error(exchange(service, head), 413)


def test_a_client_that_does_not_wait_or_expects_something_else_is_not_told_to_continue(
    service: Running,
) -> None:
    with dial(service) as wire:
        for field in (
            "Expect: 100-continue",
            "Expect: 200-ok",
            "Expect:",
            "Expect: 100-continue, x",
        ):
            wire.send(create("First") + create("Impatient", field) + request("GET", "/test"))
            assert [wire.response().json["name"] for _ in range(2)] == ["First", "Impatient"]
            assert wire.response().body == b"OK"
    old = create("Old", "Expect: 100-continue").replace(b"HTTP/1.1", b"HTTP/1.0")
    assert exchange(service, old).json["name"] == "Old"


def test_an_expectation_without_a_body_leaves_nothing_behind(service: Running) -> None:
    """No 100 comes after the response of the request that expected it."""
    with dial(service) as wire:
        wire.send(create("First") + request("POST", "/api/stores", b"", "Expect: 100-continue"))
        assert wire.response().json["name"] == "First"
        assert_invalid(wire.response(), '"value" must be of type object', [])
        wire.send(request("GET", "/test", None, "Connection: close"))
        assert wire.response().body == b"OK"
        wire.assert_closed()


# Upgrade (decision 28).

H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk",
)
WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: eA==",
)


@pytest.mark.parametrize("fields", [H2C, WEBSOCKET], ids=["h2c", "websocket"])
def test_an_upgrade_is_ignored_and_the_request_is_carried_out_with_its_body(
    service: Running, fields: tuple[str, ...]
) -> None:
    with_length = create("Upgrade", *fields)
    in_chunks = chunked(
        b'{"name":"Up', b'grade"}', fields="".join(field + "\r\n" for field in fields).encode()
    )
    plain = request("GET", "/api/stores?name=Upgrade", None, *fields)
    with dial(service) as wire:
        for data in (with_length, in_chunks, with_length + in_chunks):
            wire.send(data + plain + request("GET", "/test"))
            for _ in range(data.count(b"Host:")):
                assert wire.response().json["name"] == "Upgrade"
            found = wire.response()
            assert "upgrade" not in found.headers
            assert {each["name"] for each in found.json} == {"Upgrade"}
            assert wire.response().body == b"OK"
        for split in range(0, 60, 7):  # the body may come in another packet
            with case(split):
                at = len(with_length) - 50 + split
                wire.send(with_length[:at])
                wire.send(with_length[at:] + request("GET", "/test"))
                assert wire.response().json["name"] == "Upgrade"
                assert wire.response().body == b"OK"


def test_an_upgrade_that_closes_or_expects_does_both(service: Running) -> None:
    closing = create("Upgrade", "Connection: Upgrade, close", "Upgrade: h2c")
    assert exchange(service, closing).headers["connection"] == "close"
    with dial(service) as wire:
        sends_in_two(wire, create("Upgrade", "Expect: 100-continue", *H2C))
        assert wire.response().json["name"] == "Upgrade"


def test_an_upgrade_that_has_to_be_refused_is(service: Running) -> None:
    store(service, "There")
    with nothing_changes(service):
        too_large = request("POST", "/api/stores", None, *H2C, "Content-Length: 1048577")
        assert_error(exchange(service, too_large), 413)
        assert_error(exchange(service, request("POST", "/api/stores", b"{}", *H2C, host=b"")), 400)


# Decision 29.


@pytest.mark.parametrize(
    "rest",
    [
        b"\0\0\0\0",
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"}}\r\n",
        b"\x01" + create("Never"),
    ],
)
def test_garbage_behind_requests_does_not_take_their_responses_away(
    service: Running, rest: bytes
) -> None:
    with dial(service) as wire:
        wire.send(
            create("Written")
            + request("GET", SLOW)
            + request("GET", "/test")
            + create("Last")
            + rest
        )
        written = wire.response()
        assert_success(written)
        assert wire.response().json == READY
        assert wire.response().body == b"OK"
        assert wire.response().json["name"] == "Last"
        refused = wire.response()
        assert_error(refused, 400)
        assert refused.headers["connection"] == "close"
        wire.assert_closed()
    assert service.request("GET", f"/api/stores/{written.json['id']}").json["name"] == "Written"
    assert service.request("GET", "/api/stores?name=Never").json == []


# A client that has said all.


@pytest.mark.parametrize("target", ["/test", "/api/stores/1", "/nowhere", SLOW])
def test_a_client_that_closes_its_side_gets_its_responses(service: Running, target: str) -> None:
    def last_says_so() -> bool:
        with dial(service) as wire:
            wire.send(create("Half closed") + request("GET", target) + create("Last"))
            wire.client.shutdown(socket.SHUT_WR)
            assert wire.response().json["name"] == "Half closed"
            assert wire.response().status in (200, 404)
            last = wire.response()
            assert last.json["name"] == "Last"
            wire.assert_closed()
            return last.headers.get("connection") == "close"

    # The responses may be faster than the client's end; behind a slow one they hardly ever are.
    assert any(last_says_so() for _ in range(5)) or target != SLOW


def test_a_client_that_closes_in_the_middle_of_a_request_gets_nothing(service: Running) -> None:
    store(service, "There")
    for sent in (b"", b"\r\n", b"GET /te", create("Cut")[:-3]):
        with nothing_changes(service), dial(service) as wire:
            wire.send(sent)
            wire.client.shutdown(socket.SHUT_WR)
            wire.assert_closed()


def test_the_closing_of_the_connection_leaves_nothing_unread_in_the_middle(
    service: Running,
) -> None:
    with dial(service) as wire:
        wire.send(request("GET", SLOW) + request("GET", "/test", None, "Connection: close"))
        assert wire.response().json == READY
        assert wire.response().body == b"OK"
        wire.assert_closed()
