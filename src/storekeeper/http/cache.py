"""The response cache: the bytes of a request lead to the response that they got.

The same bytes and the same stores give the same response, and the numbers of the collection say
whether the stores are the same: that is the whole proof. A response enters the cache in the
transaction in which it was read, and leaves it in one in which the numbers were.
"""

from collections.abc import Callable

import msgspec

MAX_CACHED_BYTES = 8 * 2**20
"""Bytes of all requests and their responses. When they would be more, all are dropped."""

MAX_RESPONSE_BYTES = 64 * 1024
"""Bytes of one cached response."""


class Cached(msgspec.Struct, gc=False):
    """A 200: what follows the start of its head, and its route for the observer."""

    rest: bytes
    route: str | None


class ResponseCache:
    """The responses of one process. `numbers` returns the collection's in this batch; while it
    is None, nothing is cached."""

    def __init__(self, numbers: Callable[[], object | None]) -> None:
        self._current = numbers
        self._numbers: object | None = None
        self._responses: dict[bytes, Cached] = {}
        self._size = 0

    def get(self, request: bytes) -> Cached | None:
        """Return the response to these bytes if it is cached and the stores are the same."""
        cached = self._responses.get(request)
        if cached is not None and self._current() != self._numbers:
            self._begin_again()
            return None
        return cached

    def put(self, request: bytes, response: Cached) -> None:
        """Cache a response that was read in the transaction that is under way."""
        if self._current() != self._numbers:
            self._begin_again()
        if self._numbers is None or len(response.rest) > MAX_RESPONSE_BYTES:
            return
        size = len(request) + len(response.rest)
        if self._size + size > MAX_CACHED_BYTES:
            self.drop()
        self._responses[request] = response
        self._size += size

    def _begin_again(self) -> None:
        """Drop all responses: they are of other numbers."""
        self.drop()
        self._numbers = self._current()

    def drop(self) -> None:
        """Forget all responses."""
        self._responses.clear()
        self._size = 0
