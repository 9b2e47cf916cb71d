"""What the careful reader makes of bytes, without a connection: every refusal, whole and byte by
byte."""

import tracemalloc

import pytest

from storekeeper.http.reader import MAX_FED_BYTES, Phase, RequestReader
from storekeeper.http.request import Request
from storekeeper.http.response import Response
from tests.harness.cases import case
from tests.harness.reading import requests
from tests.harness.refused_requests import ACCEPTED, REFUSED, SMUGGLED
from tests.harness.wire import chunked

CHUNKED = chunked().removesuffix(b"0\r\n\r\n")


def read(data: bytes, size: int) -> list[Request | Response]:
    """Return what the reader makes of data that comes in pieces of that size."""
    found: list[Request | Response] = []
    reader = RequestReader(lambda refusal: found.append(refusal.response), float)
    for start in range(0, len(data), size):
        found += requests(reader, data[start : start + size])
    assert reader.phase in (Phase.IDLE, Phase.DISCARDING)
    return found


def test_a_refusal_is_the_same_however_the_bytes_come() -> None:
    for name, (status, data) in REFUSED.items():
        for size in (len(data + SMUGGLED), 7, 1 if len(data) < 1000 else 101):
            with case((name, size)):
                (refusal,) = read(data + SMUGGLED, size)
                assert isinstance(refusal, Response)
                assert refusal.status == status


def test_a_request_is_the_same_however_the_bytes_come() -> None:
    for name, data in ACCEPTED.items():
        with case(name):
            whole, *others = (
                [vars_of(each) for each in read(data * 2, size)] for size in (2 * len(data), 7, 1)
            )
            assert len(whole) == 2
            assert others == [whole, whole]


def vars_of(read: Request | Response) -> list[object]:
    assert isinstance(read, Request)
    return [read.method, read.target, read.headers, read.version, read.keep_alive, read.body]


@pytest.mark.parametrize("size", [1, 2, 9, 15, 16, 300])
def test_a_body_is_the_same_in_chunks_of_any_size(size: int) -> None:
    body = bytes(range(256)) * 20
    data = chunked(*(body[at : at + size] for at in range(0, len(body), size)))
    for cut in (len(data), 1000, 3):
        (request,) = read(data, cut)
        assert isinstance(request, Request)
        assert request.body == body


def test_a_body_in_many_pieces_takes_no_more_than_one_in_one_piece() -> None:
    data = chunked(*(b"%02d" % (number % 100) for number in range(8000)))
    tracemalloc.start()
    (request,) = read(data, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(request, Request)
    assert len(request.body) == 16_000
    assert peak < 100_000


@pytest.mark.parametrize(("digits", "size"), [(3, 1), (3, 16), (8, 15), (14, 100)])
def test_zeros_before_the_size_of_a_chunk_are_no_extension(digits: int, size: int) -> None:
    """Varnish sends two, others fill up to eight digits; RFC 9112, section 7.1, allows any
    number."""
    count = 20_000 // (digits - 1)
    data = (
        CHUNKED
        + b"%0*x\r\n%b\r\n" % (digits, size, bytes(size)) * count
        + b"0" * digits
        + b"\r\n\r\n"
    )
    for cut in (len(data), 1000, 7):
        (request,) = read(data, cut)
        assert isinstance(request, Request)
        assert request.body == bytes(size) * count


def test_more_zeros_before_a_size_than_any_size_needs_are_framing() -> None:
    data = CHUNKED + b"0" * 100 + b"1\r\n \r\n"
    (refusal,) = read(data + data[len(CHUNKED) :] * 200, 1000)
    assert isinstance(refusal, Response)
    assert refusal.status == 431


@pytest.mark.parametrize("size", [1, 1000])
def test_line_ends_before_a_request_take_no_memory(size: int) -> None:
    reader = RequestReader(NotImplemented, float)
    for _ in range(20):
        reader.feed(b"\r" * size)
        assert not reader._line
    assert reader.phase is Phase.IDLE


def test_nothing_behind_a_request_is_read_with_it_and_a_body_is_read_as_it_comes() -> None:
    reader = RequestReader(NotImplemented, float)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 250000\r\n\r\n"
    data = head + bytes(250_000) + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 2
    ends, bodies, position = [], [], 0
    while position < len(data):
        position, request = reader.feed(data, position)
        assert request
        ends.append(position)
        bodies.append(len(request.body))
    assert ends == [len(data) - 54, len(data) - 27, len(data)]
    assert bodies == [250_000, 0, 0]


def test_of_many_small_chunks_some_are_parsed_at_once() -> None:
    reader = RequestReader(NotImplemented, float)
    reader.feed(CHUNKED)
    position, request = reader.feed(b"1\r\nx\r\n" * 40_000)
    assert MAX_FED_BYTES <= position < MAX_FED_BYTES + 10
    assert request is None


@pytest.mark.parametrize("start", [b"", b"\r", b"\r\n", b"\r\r\n\r"])
def test_the_refusal_of_a_head_behind_line_ends_has_no_content(start: bytes) -> None:
    refused: list[bool] = []
    reader = RequestReader(lambda refusal: refused.append(refusal.method == "HEAD"), float)
    reader.feed(start + b"HEAD /test HTTP/1.1\r\n\r\n")
    assert refused == [True]


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("behind", [b"no field\r\n", b" folded\r\n", b"\0"])
def test_a_refusal_is_told_of_each_field_as_often_as_it_was_sent(behind: bytes, size: int) -> None:
    told: list[object] = []
    reader = RequestReader(lambda refusal: told.append(list(refusal.headers)), float)
    data = (
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nOrigin:\r\nOrigin: b\r\nOrigin: b\r\n"
        + behind
    )
    for start in range(0, len(data), size):
        requests(reader, data[start : start + size])
    assert told == [[(b"origin", b""), (b"origin", b"b"), (b"origin", b"b")]]
