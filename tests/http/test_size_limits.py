"""How long a request may be (decisions 15 and 27): the limit itself, the first byte over it, however it arrives."""

import select
from pathlib import Path

import pytest

from tests.harness.cases import case
from tests.harness.client import create as store
from tests.harness.client import nothing_changes
from tests.harness.in_process import inside, settled
from tests.harness.process import Running
from tests.harness.sized_requests import FIELDS, HEAD, OVER, TARGET, WITHIN
from tests.harness.wire import HOST, Wire, assert_error, create, dial, exchange, request

BODY = 2**20

TOO_LARGE = "Payload content length greater than maximum allowed: 1048576"
MANY = request("GET", "/test", None, "X-Padding: " + "p" * 900) * 150
"""Requests that fill a packet, before the one that matters."""


def in_parts(wire: Wire, data: bytes, size: int) -> None:
    """Send with a response to something else in between, so that the parts arrive one by one."""
    for start in range(0, len(data), size):
        wire.send(data[start : start + size])
        select.select([wire.client], [], [], 0.002)


@pytest.mark.parametrize("data", WITHIN, ids=["target", "fields", "head"])
def test_a_request_up_to_the_limits_is_served(service: Running, data: bytes) -> None:
    with dial(service) as wire:
        wire.send(data * 3)
        assert [wire.response().body for _ in range(3)] == [b"OK"] * 3
        in_parts(wire, data, 1000)
        assert wire.response().body == b"OK"


def test_a_request_over_a_limit_is_refused(service: Running) -> None:
    for what, status, data in OVER:
        with case(what):
            refused = exchange(service, data)
            assert_error(refused, status)
            assert refused.headers["connection"] == "close"
            assert str(TARGET if what == "target" else HEAD) in refused.json["message"]


@pytest.mark.parametrize("size", [700, 5000, 70_000])
def test_it_is_refused_when_it_arrives_in_parts(service: Running, size: int) -> None:
    for what, status, data in OVER:
        with case(what), dial(service) as wire:
            try:
                in_parts(wire, data, size)
            except (BrokenPipeError, ConnectionResetError):
                pytest.fail(f"the service closed before it had read the {what}")
            assert_error(wire.response(), status)
            wire.assert_closed()


@pytest.mark.parametrize("data", [*WITHIN, create("Behind many")], ids=["target", "fields", "head", "create"])
def test_a_head_that_begins_behind_many_requests_has_the_same_limits(service: Running, data: bytes) -> None:
    """It is not charged with what came before it in the same packet."""
    with dial(service) as wire:
        for cut in (1, 20, 50):
            wire.send(MANY + data[:cut])
            assert {wire.response().status for _ in range(150)} == {200}
            in_parts(wire, data[cut:], max(5, len(data) // 10))
            assert wire.response().status == 200


def test_a_head_without_an_end_is_refused_while_it_is_sent(service: Running) -> None:
    for start, status in (
        (b"GET /", 414),
        (b"GET /test HTTP/1.1\r\nX: ", 431),
        (MANY + b"GET /test HTTP/1.1\r\nX", 431),
    ):
        with dial(service) as wire:
            wire.send(start)
            for _ in range(start.count(b"\r\n\r\n")):
                assert wire.response().body == b"OK"
            for _ in range(1000):
                wire.send(b"x" * 10_000)
                if select.select([wire.client], [], [], 0.001)[0]:
                    break
            assert_error(wire.response(), status)


# The body (decision 15).


def send_until_refused(wire: Wire, block: bytes, most: int, more: int) -> None:
    """Send until the response is there and `more` blocks beyond, as a client does that does not look."""
    for _ in range(most):
        wire.send(block)
        if select.select([wire.client], [], [], 0)[0]:
            break
    for _ in range(more):
        wire.send(block)


def test_a_client_in_the_middle_of_50_megabytes_sees_the_413_and_no_reset(service: Running) -> None:
    store(service, "Unchanged")
    with nothing_changes(service), dial(service) as wire:
        wire.send(b"POST /api/stores HTTP/1.1\r\n" + HOST + b"Content-Length: 52428800\r\n\r\n")
        send_until_refused(wire, b" " * 2**16, most=800, more=64)
        response = wire.response()
        assert_error(response, 413, TOO_LARGE)
        assert response.headers["connection"] == "close"
        wire.assert_closed()


@pytest.mark.parametrize("size", [1, 1000, 2**16, 2**20 + 1])
def test_chunks_are_refused_as_soon_as_they_are_too_much(service: Running, size: int) -> None:
    store(service, "Unchanged")
    with nothing_changes(service), dial(service) as wire:
        wire.send(b"POST /api/stores HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%b\r\n" % (size, b" " * size)
        repeated = chunk * max(1, 2**16 // len(chunk))
        send_until_refused(wire, repeated, most=50 * BODY // len(repeated), more=10)
        assert_error(wire.response(), 413, TOO_LARGE)
        wire.assert_closed()


@pytest.mark.parametrize(
    "endless", [b"1;" + b"e" * 70_000, b"0\r\n" + b"X: trailer\r\n" * 5000], ids=["ext", "trailer"]
)
def test_endless_framing_is_refused_too(service: Running, endless: bytes) -> None:
    """Chunk extensions and trailers are no body, but they cost the same."""
    with dial(service) as wire:
        wire.send(b"POST /api/stores HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + endless)
        send_until_refused(wire, endless[-60_000:], most=1000, more=10)
        assert_error(wire.response(), 431)
        wire.assert_closed()


CHUNKS = b"POST /api/stores HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"


def with_extensions(size: int) -> bytes:
    """Return a request whose chunks have extensions and a trailer of `size` bytes in all."""
    chunks = [b"%x;%b\r\n%b\r\n" % (len(part), b"e" * 999, part) for part in (b'{"name":', b'"A"', b"}")]
    trailer = b"X: " + b"x" * (size - 3 * 1000 - len("X: \r\n")) + b"\r\n\r\n"
    return CHUNKS + b"".join(chunks) + b"0\r\n" + trailer


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (with_extensions(HEAD), 200),
        (with_extensions(HEAD + 1), 431),
        (CHUNKS + b'c\r\n{"name":"A"}\r\n0\r\n' + b"a:b\r\n" * FIELDS + b"\r\n", 200),
        (CHUNKS + b'c\r\n{"name":"A"}\r\n0\r\n' + b"a:b\r\n" * (FIELDS + 1) + b"\r\n", 431),
        (CHUNKS + b"".join(b"1;%b\r\n \r\n" % (b"e" * 200) for _ in range(90)) + b"2\r\n{}\r\n0\r\n\r\n", 431),
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
