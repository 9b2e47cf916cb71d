"""The head cache: from the bytes of a plain head to the request and its plan. Imports `http` and `api`.

Many clients send the same few heads again and again; those are looked up instead of read. A plan is a function of the
head alone, so it is cached with it.
"""

from storekeeper.api.generations import Generations
from storekeeper.http.request import Request

MAX_CACHED_BYTES = 4 * 2**20
"""Bytes that the cached heads may take with their requests: as much for those with a body as for the others."""

MAX_CACHED_HEAD_BYTES = 1024
"""Bytes of one cached head."""

QUOTE_BYTES = 70
"""Bytes that a plan takes for each quotation mark of its head: an entity tag, which has two, is a string in a set."""


class HeadCache:
    """The remembered heads of one process; `requests` has those of requests without a body, by all their bytes."""

    __slots__ = ("_bodiless", "_with_body", "requests")

    def __init__(self) -> None:
        self._bodiless: Generations[Request] = Generations(MAX_CACHED_BYTES, _size)
        self._with_body: Generations[tuple[Request, int]] = Generations(MAX_CACHED_BYTES, _size_with_body)
        self.requests = self._bodiless.young

    def __len__(self) -> int:
        return len(self._bodiless) + len(self._with_body)

    def get(self, data: bytes) -> Request | None:
        """Return the request that `data` is, if its head is cached."""
        end = data.find(b"\r\n\r\n") + 4
        if end == len(data):
            return self._bodiless.get(data)
        cached = self._with_body.get(data[:end])
        if cached is None or cached[1] != len(data) - end:
            return None
        return cached[0].with_body(data[end:])

    def offer(self, data: bytes, request: Request) -> None:
        """Cache the head of `data`, which is this request, if it was offered before."""
        end = len(data) - len(request.body)
        if end > MAX_CACHED_HEAD_BYTES:
            return
        if end == len(data):
            if self._bodiless.admits(data):
                self._bodiless.put(data, request)
        elif self._with_body.admits(head := data[:end]):
            self._with_body.put(head, (request.with_body(b""), len(request.body)))


def _size(head: bytes, request: Request) -> int:
    return _size_of_head(head, request)


def _size_with_body(head: bytes, cached: tuple[Request, int]) -> int:
    return _size_of_head(head, cached[0])


def _size_of_head(head: bytes, request: Request) -> int:
    return len(head) + request.size + QUOTE_BYTES * head.count(b'"')
