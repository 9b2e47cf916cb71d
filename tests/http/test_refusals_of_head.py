"""A HEAD that the HTTP layer refuses gets no content (RFC 9110, section 9.3.2), however its
bytes arrive."""

from pathlib import Path

import pytest

from storekeeper.http import deadlines
from tests.harness.in_process import Inside, inside, receive, settled
from tests.harness.refused_requests import REFUSED
from tests.harness.wire import HOST, request

LINE = b"HEAD /test HTTP/1.1\r\n"
TO_HEAD = {
    case: (status, data.replace(b"GET ", b"HEAD ", 1).replace(b"POST ", b"HEAD ", 1))
    for case, (status, data) in REFUSED.items()
    if data.startswith((b"GET /", b"POST /"))
} | {
    "a target that is too long": (414, request("HEAD", "/" + "t" * 8192)),
    "too many fields": (431, request("HEAD", "/test", None, *["a: b"] * 101)),
    "a head that is too large": (431, request("HEAD", "/test", None, "X: " + "x" * 20_000)),
    "a target that begins with a null": (400, b"HEAD \0"),
    "a target without a slash": (400, b"HEAD test HTTP/1.1\r\n"),
}
NO_HEAD = [
    *(
        method + b"/ HTTP/1.1\r\n"
        for method in (b"HEADER ", b"HEAD\r\n", b"HEAD\t", b"head ", b"XHEAD ")
    ),
    *(
        request("HEAD", "/test") + other
        for other in (b"hello\r\n", b"\0", b"GET /te\x01st", b"GET \0", b"POST /x\r\n\r\n")
    ),
    b"GET /HEAD HTTP/3.0\r\n",
]
LATE = {
    **dict.fromkeys(
        [b"HEAD ", b"HEAD  ", b"HEAD /te", LINE, LINE + HOST + b"Content-Length: 9\r\n\r\nx"], True
    ),
    **dict.fromkeys([b"HEAD", b"GET /HEAD ", b"H"], False),
}


async def refusal(
    service: Inside, data: bytes, size: int, *, late: bool = False
) -> tuple[bytes, bytes]:
    """Return head and content of the last response to data that arrives in pieces of a size."""
    connection, line = service.connect()
    for at in range(0, len(data), size):
        receive(connection, data[at : at + size])
    if late:
        connection.sweep(connection.reader.began + 11)
    await settled(connection)
    assert line.ended
    head, _, content = line.sent[line.sent.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
    return head, content


@pytest.fixture(autouse=True)
def _short_discard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "DISCARD_TIMEOUT", 0.0)


async def test_it_gets_the_head_of_a_refusal_and_no_content(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        for case, (status, data) in TO_HEAD.items():
            for size in (len(data), len(data) // 2 + 1, 1 if len(data) < 300 else 999):
                head, content = await refusal(service, data, size)
                assert (case, size, content) == (case, size, b"")
                assert head.startswith(b"HTTP/1.1 %d " % status), (case, head)
                assert b"\r\ncontent-length: " in head
        head, content = await refusal(service, b"HEAD " + b" " * 30_000, 999)
        assert (head[:13], content) == (b"HTTP/1.1 414 ", b"")


async def test_what_only_resembles_a_head_gets_content(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        for data in NO_HEAD:
            for size in (len(data), 1):
                _, content = await refusal(service, data, size)
                assert content.startswith(b"{"), data


async def test_a_head_that_is_late_gets_no_content(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        for before in (b"", request("HEAD", "/test"), request("GET", "/test"), b"\r\n"):
            for data, is_head in LATE.items():
                for size in (100, 1):
                    head, content = await refusal(service, before + data, size, late=True)
                    assert head.startswith(b"HTTP/1.1 408 ")
                    assert (before, data, content == b"") == (before, data, is_head)
