"""The response cache: the finished bytes of GETs, while nothing has changed. Imports `http` and the domain.

A cached response is never stale, by any process's write. The proof:

1. Let W be a write that was acknowledged before a client sent request R. By the collection's promise,
   `change_token()` differs from then on from every token before W's commit.
2. `get` asks for the token each time, so after R was read, and thus after W's commit. If it differs from the token
   that the cache has, all responses are dropped.
3. A response that is put was read from the database after the cache took its token. A read is put at once, with no
   `get` in between. A streamed list is put when its last part was sent, but only if the cache still has the token of
   its beginning.
4. So a response that `get` returns was read after a token that is still the current one when R is there: by 1, W's
   commit was before that token. So the response has W.
"""

from collections.abc import AsyncIterator, Callable

from storekeeper.errors import StorekeeperError
from storekeeper.http.generations import Generations
from storekeeper.http.response import LAST_CHUNK, Response, encode_chunk, encode_fields, encode_rest, framed_headers

MAX_CACHED_BYTES = 24 * 2**20
"""Bytes of all cached responses."""

MAX_RESPONSE_BYTES = 8 * 2**20
"""Bytes of one cached response: a list of 100,000 stores fits."""


class ResponseCache:
    """The cached responses of one process, by cache key: the bytes that follow the start of the response's head.

    `change_token` is the collection's.
    """

    __slots__ = ("_change_token", "_recording", "_responses", "_token", "_young")

    def __init__(self, change_token: Callable[[], bytes | None]) -> None:
        self._change_token = change_token
        self._responses: Generations[bytes] = Generations(MAX_CACHED_BYTES, _size)
        self._young = self._responses.young
        self._token: bytes | None = None
        self._recording = False

    def __len__(self) -> int:
        return len(self._responses)

    def get(self, key: bytes) -> bytes | None:
        """Return the response of a key, if it is cached and the collection has not changed since."""
        response = self._young.get(key) or self._responses.get(key)
        return response if response is not None and self._is_current() else None

    def admits(self, key: bytes) -> bool:
        """Tell whether the response that is read next shall be put: somebody asked for it before."""
        if not self._responses.admits(key):
            return False
        if self._token is None:
            self._is_current()  # takes the token
        return self._token is not None

    def put(self, key: bytes, response: bytes) -> None:
        """Cache a response that was read after the latest `get` or `admits`."""
        if self._token is not None and len(response) <= MAX_RESPONSE_BYTES:
            self._responses.put(key, response)

    def record(self, key: bytes, response: Response) -> AsyncIterator[bytes]:
        """Return the parts of a streamed 200 that began after the latest `admits`; cache it when all were sent."""
        assert response.stream is not None
        head = encode_rest(encode_fields(framed_headers(response)), None, close=False, chunked=True)
        # The token of now: later the list's beginning could be older than the cache's token.
        return self._record(key, head, response.stream, self._token)

    async def _record(
        self, key: bytes, head: bytes, stream: AsyncIterator[bytes], token: bytes | None
    ) -> AsyncIterator[bytes]:
        if self._recording:  # one at a time, so that many clients of a long list do not each hold a copy
            async for part in stream:
                yield part
            return
        self._recording, size = True, 0
        parts = [head]
        try:
            async for part in stream:
                yield part
                size += len(part)
                if size > MAX_RESPONSE_BYTES:
                    parts.clear()
                else:
                    parts += encode_chunk(part)
        finally:
            self._recording = False
        if token == self._token and size <= MAX_RESPONSE_BYTES:
            self.put(key, b"".join((*parts, LAST_CHUNK)))

    def drop(self) -> None:
        """Forget all responses."""
        self._responses.clear()

    def _is_current(self) -> bool:
        """Tell whether the cache's token is still the collection's; if not, drop everything and take the new one."""
        try:
            token = self._change_token()
        except StorekeeperError:
            token = None  # the request itself meets the error, and responds with it
        if token == self._token and token is not None:
            return True
        self.drop()
        self._token = token
        return False


def _size(key: bytes, response: bytes) -> int:
    return len(key) + len(response)
