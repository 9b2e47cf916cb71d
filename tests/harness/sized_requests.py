"""Requests whose heads have the greatest length, and longer ones (decisions 15 and 27)."""

from tests.harness.wire import HOST, request

TARGET = 8 * 1024
HEAD = 16 * 1024
FIELDS = 100


def with_target(length: int) -> bytes:
    return request("GET", "/test?" + "t" * (length - 6))


def with_fields(count: int) -> bytes:
    return request("GET", "/test", None, *["a:b"] * (count - 1))


def with_head(size: int) -> bytes:
    """Return a request whose fields, each with its colon, blank and line end, take `size` bytes."""
    used = len(HOST) + len("X: \r\n") + len("Y: \r\n")
    return request("GET", "/test", None, "X: " + "x" * 9000, "Y: " + "y" * (size - used - 9000))


OVER = [
    ("target", 414, with_target(TARGET + 1)),
    ("target", 414, with_target(60_000)),
    ("fields", 431, with_fields(FIELDS + 1)),
    ("fields", 431, with_fields(20_000)),
    ("head", 431, with_head(HEAD + 1)),
    ("head", 431, with_head(200_000)),
    ("field", 431, request("GET", "/test", None, "X: " + "x" * 2**20)),
    ("field name", 431, request("GET", "/test", None, "x" * 20_000 + ": x")),
]

WITHIN = [with_target(TARGET), with_fields(FIELDS), with_head(HEAD)]
