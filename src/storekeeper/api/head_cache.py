"""The head cache: what the bytes of a request's head were parsed and planned to. Imports `http` and `api`.

Clients send the same few heads again and again; those are looked up instead of parsed. A plan is a function of the
head alone, so it is remembered with it.
"""

from typing import NamedTuple

from storekeeper.http.request import Request

MAX_CACHED_BYTES = 8 * 2**20
"""Bytes that all remembered heads may take, with what they mean."""

MAX_CACHED_HEAD_BYTES = 1024
"""Bytes of a head that is remembered."""

_UNCOMMON = (b"transfer-encoding", b"expect", b"upgrade", b"connection")


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
        """Return what a head means, or None."""

    def put(self, data: bytes, request: Request, length: int) -> None:
        """Remember the head of these bytes, if they are just this request with a body of that `length`."""
        end = data.find(b"\r\n\r\n") + 4
        if len(data) != end + length or end > MAX_CACHED_HEAD_BYTES:
            return
        if any(name in _UNCOMMON for name, _ in request.headers):
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
