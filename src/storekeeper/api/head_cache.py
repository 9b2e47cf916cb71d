"""The head cache: from the bytes of a request's head to the parsed request and its plan. Imports `http`.

Clients send the same few heads again and again; those are looked up instead of parsed. A plan is a function of the
head alone, so it is cached with it.
"""

from typing import NamedTuple

from storekeeper.http.request import Request

MAX_CACHED_BYTES = 8 * 2**20
"""Bytes that all cached heads may take, with their parsed requests."""

MAX_CACHED_HEAD_BYTES = 1024
"""Bytes of one cached head."""

_UNCACHED_FIELDS = (b"transfer-encoding", b"expect", b"upgrade", b"connection")


class CachedHead(NamedTuple):
    """A request without its body, and the length of the body that follows such a head."""

    request: Request
    length: int


class HeadCache:
    """The remembered heads of one process, by their bytes; `requests` has those of requests without a body."""

    __slots__ = ("_bytes", "_heads", "get", "requests")

    def __init__(self) -> None:
        self._heads: dict[bytes, CachedHead] = {}
        self.requests: dict[bytes, Request] = {}
        self._bytes = 0
        self.get = self._heads.get
        """Return the cached head of these bytes, or None."""

    def put(self, data: bytes, request: Request, length: int) -> None:
        """Cache the head of `data`, if that is exactly this request with a body of `length` bytes."""
        end = data.find(b"\r\n\r\n") + 4
        if len(data) != end + length or end > MAX_CACHED_HEAD_BYTES:
            return
        if any(name in _UNCACHED_FIELDS for name, _ in request.headers):
            return
        size = end + request.size
        if self._bytes + size > MAX_CACHED_BYTES:
            self._heads.clear()
            self.requests.clear()
            self._bytes = 0
        self._bytes += size
        # Without the body, which would stay in memory with it.
        head, without_body = data[:end], request.with_body(b"")
        self._heads[head] = CachedHead(without_body, length)
        if not length:
            self.requests[head] = without_body
