"""The response cache: the bytes of a request lead to the response that they got.

The same bytes and the same database give the same response: that is the whole proof. The change
token tells whether the database is the same. It is taken before a response is read, so a
response is never older than the token.
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
    """The responses of one process. `change_token` returns the collection's; while it is None,
    nothing is cached."""

    def __init__(self, change_token: Callable[[], object | None]) -> None:
        self._change_token = change_token
        self._token: object | None = None
        self._responses: dict[bytes, Cached] = {}
        self._size = 0

    def get(self, request: bytes) -> Cached | None:
        """Return the response to these bytes if it is cached and the database is the same."""
        cached = self._responses.get(request)
        if cached is None and self._token is not None:
            return None  # the token may be an old one: then it differs when something is found
        token = self._change_token()
        if token == self._token:
            return cached
        self.drop()
        self._token = token
        return None

    def put(self, request: bytes, response: Cached) -> None:
        """Cache a response that was read after the latest `get`."""
        if self._token is None or len(response.rest) > MAX_RESPONSE_BYTES:
            return
        size = len(request) + len(response.rest)
        if self._size + size > MAX_CACHED_BYTES:
            self.drop()
        self._responses[request] = response
        self._size += size

    def drop(self) -> None:
        """Forget all responses."""
        self._responses.clear()
        self._size = 0
