"""The response cache: the finished bytes of GETs, while nothing has changed. Imports `http` and the domain.

A cached response is never stale, by any process's write. The proof:

1. Let W be a write that was acknowledged before a client sent request R. By the collection's promise,
   `change_token()` differs from then on from every token before W's commit.
2. `revalidate` compares the token before the first request of a loop iteration is looked up, and drops all responses
   if it differs. What it leaves, or `put` adds later in the iteration, was read after a token was found current.
3. All bytes that are read in one loop iteration arrived in the kernel before that iteration polled, so before
   `revalidate` ran: a request that is complete by its connection's first read in an iteration was sent before it.
4. So if W was acknowledged before R was sent, W was acknowledged before `revalidate` ran, and by 1 and 2 R's response
   has W.
5. Step 3 does not hold in three cases, and none of them uses `checked`: a pipelined request, or one that waited, may
   have been sent later (the connection looks up only the first request of a read); libuv reads on after a read of
   `LARGE_READ` bytes; and libuv polls again within an iteration when more than `MAX_POLLED_CONNECTIONS` may be ready.
   In the last two each read revalidates.
6. A streamed list enters the cache when its last part was sent, under the token of its beginning: if that is no
   longer the cache's token, it does not enter.
"""

import asyncio
import sys
from collections.abc import Callable

from storekeeper.errors import StorekeeperError

MAX_CACHED_BYTES = 24 * 2**20
"""Bytes of all cached responses."""

MAX_RESPONSE_BYTES = 8 * 2**20
"""Bytes of one cached response: a list of 100,000 stores fits."""

MAX_POLLED_CONNECTIONS = 900 if sys.platform == "linux" else 450
"""Connections up to which libuv polls only once in a loop iteration: it takes 1024 events at a time, and except on
Linux a connection that can be both read and written has two."""

LARGE_READ = 64 * 1024
"""Bytes of a read after which libuv may read on within the iteration."""

_NO_TOKEN = -1


class Recording:
    """A streamed response's bytes while they are sent; `token` is the change token that they belong to."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.size = 0
        self.parts: list[bytes] = []

    def add(self, data: bytes) -> None:
        """Record a part, unless the response is too long already."""
        self.size += len(data)
        if self.size <= MAX_RESPONSE_BYTES:
            self.parts.append(data)
        else:
            self.parts.clear()


class ResponseCache:
    """The cached responses of one process, by cache key: the bytes that follow the start of the response's head.

    `change_token` is the collection's. `checked` is true from `revalidate` until the loop iteration ends.
    """

    __slots__ = ("_bytes", "_change_token", "_loop", "_recording", "_responses", "_token", "checked", "get")

    def __init__(self, change_token: Callable[[], int | None]) -> None:
        self._change_token = change_token
        self._loop = asyncio.get_running_loop()
        self._responses: dict[bytes | None, bytes] = {}
        self._bytes = 0
        self._token: int = _NO_TOKEN
        self._recording = False
        self.checked = False
        self.get = self._responses.get
        """Return the response of a key, or None. Call it only while `checked`, or right after `revalidate`."""

    def revalidate(self, connections: int) -> None:
        """Drop everything if the collection may have changed.

        Call only from `data_received`. Called elsewhere, the `call_soon` that clears `checked` would run after the
        next poll.
        """
        try:
            token = self._change_token()
        except StorekeeperError:
            token = None  # the request itself meets the error, and responds with it
        if token is None or token != self._token:
            self.drop()
            self._token = _NO_TOKEN if token is None else token
        if connections < MAX_POLLED_CONNECTIONS:
            self.checked = True
            self._loop.call_soon(self._end_of_iteration)

    def put(self, key: bytes, response: bytes) -> None:
        """Cache a response that was read after the latest `revalidate`."""
        if self._token == _NO_TOKEN or len(response) > MAX_RESPONSE_BYTES:
            return
        self._remove(key)
        size = len(response) + len(key)
        if self._bytes + size > MAX_CACHED_BYTES:
            self.drop()
        self._bytes += size
        self._responses[key] = response

    def record(self) -> Recording | None:
        """Begin to record a streamed response that began after the latest `revalidate`. Return None if it cannot.

        One at a time, so that many clients of a long list do not each hold a copy.
        """
        if self._recording or self._token == _NO_TOKEN:
            return None
        self._recording = True
        return Recording(self._token)

    def finish(self, recording: Recording, key: bytes | None, *, complete: bool) -> None:
        """End a recording; cache it if it is complete and nothing was written since it began."""
        self._recording = False
        if complete and key is not None and recording.token == self._token and recording.size <= MAX_RESPONSE_BYTES:
            self.put(key, b"".join(recording.parts))

    def drop(self) -> None:
        """Forget all responses."""
        self._responses.clear()
        self._bytes = 0

    def _remove(self, key: bytes) -> None:
        before = self._responses.pop(key, None)
        if before is not None:
            self._bytes -= len(before) + len(key)

    def _end_of_iteration(self) -> None:
        self.checked = False
