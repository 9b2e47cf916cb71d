"""The response cache: the finished bytes of GETs, while nothing has changed them. Imports `http` and the domain.

A cached response is never stale, by any process's write. The proof:

1. Let W be a write that was acknowledged before a client sent request R. By the collection's promise,
   `change_token()` differs from then on from every token before W's commit.
2. `get` asks for the token each time that it has a response, so after R was read, and thus after W's commit. If it
   differs from the token that the cache has, the cache takes it, and then reads the collection's state, which has all
   commits before that token: W is one of them. It drops the stores that changed since the state that it had, and if
   there was any change, everything that is not one store.
3. A response that is put was read from the database after the cache took its token and its state. A read is put at
   once, with no `get` in between. A streamed list is put when its last part was sent, but only if the cache still has
   the token of its beginning.
4. So what the cache has is as of a state that it had, and, by 2, nothing in it has changed up to the state that it
   has. That one was read after a token that is still the current one when R is there: by 1, W's commit was before
   that token. So the response has W.
"""

from collections.abc import AsyncIterator

from storekeeper.api.routes import STORE
from storekeeper.collection import Collection
from storekeeper.errors import StorekeeperError
from storekeeper.http.generations import Generations
from storekeeper.http.response import LAST_CHUNK, Response, encode_chunk, encode_fields, encode_rest, framed_headers

MAX_STORES_BYTES = 4 * 2**20
"""Bytes of all cached responses with one store, which outlive changes of others."""

MAX_CACHED_BYTES = 20 * 2**20
"""Bytes of all other cached responses."""

MAX_RESPONSE_BYTES = 8 * 2**20
"""Bytes of one cached response: a list of 100,000 stores fits."""


class ResponseCache:
    """The cached responses of one process, by target: the bytes that follow the start of the response's head."""

    def __init__(self, collection: Collection) -> None:
        self._change_token = collection.change_token
        self._stores: Generations[bytes] = Generations(MAX_STORES_BYTES, _size)
        self._others: Generations[bytes] = Generations(MAX_CACHED_BYTES, _size)
        self._young_stores, self._old_stores = self._stores.young, self._stores.old
        self._young_others, self._old_others = self._others.young, self._others.old
        self._token: object | None = None
        self._recording = False

    def get(self, key: bytes) -> bytes | None:
        """Return the response of a key, if it is cached and has not changed since."""
        response = self._young_stores.get(key) or self._young_others.get(key)
        if response is None and (key in self._old_stores or key in self._old_others):
            response = self._find(key)
        return response if response is None or self._revalidate() else self._find(key)

    def _find(self, key: bytes) -> bytes | None:
        return self._stores.get(key) or self._others.get(key)

    def admits(self, key: bytes) -> bool:
        """Tell whether to `put` the response that is read next: somebody has asked for it before."""
        if not self._others.seen(key):
            return False
        if self._token is None:
            self._revalidate()
        return self._token is not None

    def put(self, key: bytes, response: bytes) -> None:
        """Cache a response that was read after the latest `get` or `admits`."""
        if self._token is not None and len(response) <= MAX_RESPONSE_BYTES:
            id = key[len(STORE) :]
            # Only the spelling that `_catch_up` forgets: `/api/stores/01` would stay when the store 1 changes.
            one = key.startswith(STORE) and id.isdigit() and not id.startswith(b"0")
            (self._stores if one else self._others).put(key, response)

    def record(self, key: bytes, response: Response) -> AsyncIterator[bytes]:
        """Return the parts of a streamed 200 that began after the latest `admits`; cache it when all were sent."""
        assert response.stream is not None
        head = encode_rest(encode_fields(framed_headers(response)), None, close=False, chunked=True)
        # The present token: by the first call of the generator, the cache may have a newer one than the list's start.
        return self._record(key, head, response.stream, self._token)

    async def _record(
        self, key: bytes, head: bytes, stream: AsyncIterator[bytes], token: object | None
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
        self._stores.clear()
        self._others.clear()

    def _revalidate(self) -> bool:
        """Tell whether the cache's token is still the collection's; if not, take that and drop what has changed."""
        try:
            token = self._change_token()
            if token == self._token and token is not None:
                return True
            self._catch_up(token)
        except StorekeeperError:  # the request itself meets the error, and responds with it
            self._catch_up(None)
        return False

    def _catch_up(self, token: object | None) -> None:
        """Take a token, and drop the responses that have changed since the former one."""
        self._token = None
        if token is None:
            self.drop()
            return
        self.drop()
        self._token = token


def _size(key: bytes, response: bytes) -> int:
    return len(key) + len(response)
