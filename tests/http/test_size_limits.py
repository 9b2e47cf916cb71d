"""How long a request may be (decisions 15 and 27): the limit itself, the first byte over it,
however it arrives."""

import select
from pathlib import Path

import pytest

from tests.harness.cases import case
from tests.harness.client import create as store
from tests.harness.client import nothing_changes
from tests.harness.in_process import inside, settled
from tests.harness.process import Running
from tests.harness.sized_requests import FIELDS, HEAD, OVER, TARGET, WITHIN
from tests.harness.wire import HOST, Wire, assert_error, create, dial, request

BODY = 2**20

TOO_LARGE = "Payload content length greater than maximum allowed: 1048576"
MANY = request("GET", "/test", None, "X-Padding: " + "p" * 900) * 150
"""Requests that fill a packet, before the one that matters."""

CHUNKS = b"POST /api/stores HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"


def in_parts(wire: Wire, data: bytes, size: int) -> None:
    """Send with a response to something else in between, so that the parts arrive one by one."""
    for start in range(0, len(data), size):
        wire.send(data[start : start + size])
        select.select([wire.client], [], [], 0.002)


def send_until_refused(wire: Wire, block: bytes, most: int, more: int) -> None:
    """Send until the response is there and `more` blocks beyond, as a client does that does not
    look."""
    for _ in range(most):
        wire.send(block)
        if select.select([wire.client], [], [], 0)[0]:
            break
    for _ in range(more):
        wire.send(block)


def test_a_request_up_to_the_limits_is_served(service: Running) -> None:
    for data in WITHIN:
        with dial(service) as wire:
            wire.send(data * 3)
            assert [wire.response().body for _ in range(3)] == [b"OK"] * 3
            in_parts(wire, data, 1000)
            assert wire.response().body == b"OK"


@pytest.mark.parametrize("size", [700, 5000, 2**21], ids=["small parts", "parts", "whole"])
def test_a_request_over_a_limit_is_refused(service: Running, size: int) -> None:
    for what, status, data in OVER:
        with case(what), dial(service) as wire:
            in_parts(wire, data, size)  # which fails if the service closes before it has read all
            refused = wire.response()
            assert_error(refused, status)
            assert refused.headers["connection"] == "close"
            assert str(TARGET if what == "target" else HEAD) in refused.json["message"]
            wire.assert_closed()


def test_a_head_that_begins_behind_many_requests_has_the_same_limits(service: Running) -> None:
    """It is not charged with what came before it in the same packet."""
    for data in (*WITHIN, create("Behind many")):
        with dial(service) as wire:
            for cut in (1, 50):
                wire.send(MANY + data[:cut])
                assert {wire.response().status for _ in range(150)} == {200}
                in_parts(wire, data[cut:], max(5, len(data) // 10))
                assert wire.response().status == 200


def test_framing_without_an_end_is_refused_while_it_is_sent(service: Running) -> None:
    for start, status in (
        (b"GET /", 414),
        (b"GET /test HTTP/1.1\r\nX: ", 431),
        (MANY + b"GET /test HTTP/1.1\r\nX", 431),
        (
            CHUNKS + b"1;",
            431,
        ),  # chunk extensions and trailers are not a body, but they cost the same
        (CHUNKS + b"0\r\nX: ", 431),
    ):
        with dial(service) as wire:
            wire.send(start)
            for _ in range(start.count(b"GET /test HTTP/1.1") - 1):
                assert wire.response().body == b"OK"
            send_until_refused(wire, b"x" * 10_000, most=1000, more=10)
            assert_error(wire.response(), status)
            wire.assert_closed()


# The body (decision 15).


LENGTH = b"POST /api/stores HTTP/1.1\r\n" + HOST + b"Content-Length: 52428800\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "block"),
    [
        (LENGTH, b" " * 2**16),
        *((CHUNKS, b"%x\r\n%b\r\n" % (size, b" " * size)) for size in (16, 2**20 + 1)),
    ],
    ids=["length", "small chunks", "large chunk"],
)
def test_a_client_in_the_middle_of_50_megabytes_sees_the_413_and_no_reset(
    service: Running, head: bytes, block: bytes
) -> None:
    store(service, "Unchanged")
    repeated = block * max(1, 2**16 // len(block))
    with nothing_changes(service), dial(service) as wire:
        wire.send(head)
        send_until_refused(wire, repeated, most=50 * BODY // len(repeated), more=10)
        response = wire.response()
        assert_error(response, 413, TOO_LARGE)
        assert response.headers["connection"] == "close"
        wire.assert_closed()


def with_extensions(size: int) -> bytes:
    """Return a request whose chunks have extensions and a trailer of `size` bytes in all."""
    chunks = [
        b"%x;%b\r\n%b\r\n" % (len(part), b"e" * 999, part) for part in (b'{"name":', b'"A"', b"}")
    ]
    trailer = b"X: " + b"x" * (size - 3 * 1000 - len("X: \r\n")) + b"\r\n\r\n"
    return CHUNKS + b"".join(chunks) + b"0\r\n" + trailer


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (with_extensions(HEAD), 200),
        (with_extensions(HEAD + 1), 431),
        (CHUNKS + b'c\r\n{"name":"A"}\r\n0\r\n' + b"a:b\r\n" * FIELDS + b"\r\n", 200),
        (CHUNKS + b'c\r\n{"name":"A"}\r\n0\r\n' + b"a:b\r\n" * (FIELDS + 1) + b"\r\n", 431),
        (
            CHUNKS
            + b"".join(b"1;%b\r\n \r\n" % (b"e" * 200) for _ in range(90))
            + b"2\r\n{}\r\n0\r\n\r\n",
            431,
        ),
    ],
    ids=["bytes", "one byte more", "fields", "one field more", "a little in each chunk"],
)
async def test_extensions_and_trailers_have_one_limit_however_they_are_cut(
    tmp_path: Path, data: bytes, status: int
) -> None:
    async with inside(tmp_path) as service:
        for size in (len(data), 1000, 7, 1):
            connection, line = service.connect()
            for start in range(0, len(data), size):
                connection.data_received(data[start : start + size])
            await settled(connection)
            assert (size, line.sent[:13]) == (size, b"HTTP/1.1 %d " % status)
