"""A connection, byte by byte: keep-alive, the order of responses, the framing of requests.

Expect, Upgrade and ends are in test_connection_edges.py, refusals in test_refusals.py, time in
test_deadlines.py.
"""

import json
import socket

import pytest

from tests.harness.cases import case
from tests.harness.client import assert_success, nothing_changes
from tests.harness.client import create as store
from tests.harness.process import Running
from tests.harness.stores import shown
from tests.harness.wire import (
    HOST,
    PAYLOAD,
    SLOW,
    Wire,
    assert_error,
    chunked,
    create,
    dial,
    exchange,
    request,
)

# Keep-alive and its end.


def test_a_connection_serves_one_request_after_another_also_behind_errors_of_the_resource(
    service: Running,
) -> None:
    with dial(service) as wire:
        for number in range(20):
            wire.send(create(f"Store {number}"))
            created = wire.response()
            assert_success(created)
            wire.send(request("GET", f"/api/stores/{created.json['id']}"))
            assert wire.response().body == created.body
        for data, status in (
            (request("GET", "/api/stores/none"), 404),
            (request("POST", "/api/stores", b"{"), 400),
            (request("DELETE", "/test"), 405),
            (request("GET", "/nowhere"), 404),
            (request("PUT", "/api/stores/1", b"x" * 2**20), 400),
        ):
            wire.send(data)
            response = wire.response()
            assert_error(response, status)
            assert "connection" not in response.headers
        wire.send(request("GET", "/test"))
        assert wire.response().body == b"OK"


TARGETS = ["/test", "/api/stores/1", "/api/stores", "/nowhere", SLOW]
ENDING = {
    "1.1": [
        HOST + field
        for field in (
            b"Connection: close\r\n",
            b"CONNECTION: Close\r\n",
            b"Connection: x, close\r\n",
        )
    ],
    "1.0": [b"", HOST, b"Connection: keep-alive\r\n"],
}


@pytest.mark.parametrize("version", ENDING)
def test_a_client_that_closes_or_is_old_gets_its_response_and_the_end(
    service: Running, version: str
) -> None:
    store(service, "There")
    for target in TARGETS:
        for fields in ENDING[version]:
            with case((target, fields)):
                response = exchange(
                    service, f"GET {target} HTTP/{version}\r\n".encode() + fields + b"\r\n"
                )
                assert response.headers["connection"] == "close"
                assert "transfer-encoding" not in response.headers
                assert response.body == service.request("GET", target).body


def test_the_response_to_head_ends_with_its_head(service: Running) -> None:
    store(service, "There")
    for target in TARGETS:
        with case(target), dial(service) as wire:
            for _ in range(2):
                wire.send(request("HEAD", target) + request("GET", "/test"))
                assert int(wire.response(to="HEAD").headers["content-length"]) > 0
                assert wire.response().body == b"OK"


# Pipelining.


def test_pipelined_requests_get_their_responses_in_order(service: Running) -> None:
    """100 mixed ones in one packet, slow and quick, right and wrong; each sees the writes before
    it."""
    id = store(service, "Pipelined")
    sent: list[bytes] = []
    expected: list[tuple[str, int, object]] = []
    for number in range(20):
        put = json.dumps({"name": f"Pipelined {number}"}).encode()
        value: object = shown(id, f"Pipelined {number}")
        sent += [
            request("PUT", f"/api/stores/{id}", put),
            request("GET", f"/api/stores/{id}"),
            request("HEAD", f"/api/stores/{id}"),
            request("GET", (SLOW, "/nowhere")[number % 2]),
            request("PUT", f"/api/stores/{id}", b"[]"),
        ]
        slow = ("GET", 200, None) if number % 2 == 0 else ("GET", 404, None)
        expected += [
            ("PUT", 200, value),
            ("GET", 200, value),
            ("HEAD", 200, None),
            slow,
            ("PUT", 400, None),
        ]
    with dial(service) as wire:
        wire.send(b"".join(sent))
        for method, status, value in expected:
            response = wire.response(to=method)
            assert response.status == status
            assert value in (None, response.json if response.body else None)


def test_requests_behind_a_connection_close_are_not_carried_out(service: Running) -> None:
    store(service, "Before")
    with nothing_changes(service), dial(service) as wire:
        last = request("GET", "/api/stores/1", None, "Connection: close")
        wire.send(request("GET", "/test") + last + create("Never"))
        assert wire.response().body == b"OK"
        response = wire.response()
        assert response.headers["connection"] == "close"
        assert response.json["id"] == 1
        wire.assert_closed()


def test_more_pipelined_requests_and_bodies_than_may_wait_all_get_their_responses(
    service: Running,
) -> None:
    body = json.dumps({"name": "Large", "address": "x" * 600_000}).encode()
    with dial(service) as wire:
        wire.send(create("First") + request("GET", "/api/stores/1") * 500 + request("GET", "/test"))
        assert wire.response().status == 200
        assert len({wire.response().body for _ in range(500)}) == 1
        assert wire.response().body == b"OK"
        wire.send(request("POST", "/api/stores", body) * 6)
        ids = [wire.response().json["id"] for _ in range(6)]
    assert ids == list(range(ids[0], ids[0] + 6))


# However the bytes arrive.


def split_bytes(wire: Wire, data: bytes) -> None:
    wire.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for position in range(len(data)):
        wire.send(data[position : position + 1])


@pytest.mark.parametrize(
    "data",
    [
        create("Byte by byte", "X-Field: value"),
        chunked(PAYLOAD[:10], PAYLOAD[10:]),
        b"\r\n\r\n" + create("Empty lines before"),
        request(
            "POST", "/api/stores", PAYLOAD, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"
        ),
        chunked(PAYLOAD[:10], PAYLOAD[10:], fields=b"Connection: upgrade\r\nUpgrade: h2c\r\n"),
    ],
    ids=["length", "chunked", "empty lines", "upgrade", "upgrade chunked"],
)
def test_a_request_may_arrive_byte_by_byte_or_with_others_in_one_packet(
    service: Running, data: bytes
) -> None:
    with dial(service) as wire:
        split_bytes(wire, data)
        first = wire.response().json
        split_bytes(wire, request("GET", f"/api/stores/{first['id']}"))
        assert wire.response().json == first
        wire.send(data * 3 + request("GET", "/test"))
        assert [wire.response().json for _ in range(3)] == [
            first | {"id": first["id"] + more} for more in (1, 2, 3)
        ]
        assert wire.response().body == b"OK"


def test_a_get_may_have_a_body_which_means_nothing(service: Running) -> None:
    id = store(service, "Read")
    with dial(service) as wire:
        for _ in range(3):
            wire.send(
                request("GET", f"/api/stores/{id}", b"{GET /test HTTP/1.1}")
                + request("GET", "/test")
            )
            assert wire.response().json["name"] == "Read"
            assert wire.response().body == b"OK"
        wire.send(
            chunked(b"ignored", method="GET", target=f"/api/stores/{id}") + request("GET", "/test")
        )
        assert wire.response().json["name"] == "Read"
        assert wire.response().body == b"OK"


def test_trailers_are_dropped_and_never_seen_as_headers(service: Running) -> None:
    """Decision 27; a content-type, which would be refused, shows whether they are."""
    trailers = b"".join(b"X-%d: y\r\n" % number for number in range(98))
    data = (
        chunked(PAYLOAD)[:-2]
        + trailers
        + b"Content-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n"
    )
    with dial(service) as wire:
        for _ in range(2):
            wire.send(data + create("Next"))
            assert wire.response().json["name"] == "Chunked"
            assert wire.response().json["name"] == "Next"
