"""The client for programs without asyncio.

`aio.py` has the same methods: an editor shows their signatures, so both have them. What they do is
in `core.py`, once.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from storekeeper.client import core, http
from storekeeper.client.core import KEEP, Keep, Lost, Pause, Reply, Request, Steps
from storekeeper.client.following import Event, Follower
from storekeeper.client.model import ChangesPage, Listing, Store

T = TypeVar("T")


class Client:
    """Calls one service. Every method waits for the service for up to `patience` seconds.

    A read is repeated while the service is away. A write has a key, and is repeated with it: it is
    done once, or the client raises Unavailable, whose `key` lets the same be sent again later.
    `http_client` is used instead of one of its own; then `url`, `token` and `timeout` are left to
    it. Use it in a `with` statement, or call `close`.
    """

    def __init__(
        self,
        url: str = "",
        *,
        token: str | None = None,
        patience: float = 60.0,
        timeout: float = 10.0,
        http_client: httpx.Client | None = None,
    ) -> None:
        self.patience = patience
        """Seconds for which a request is repeated while the service is away."""
        self._http = http_client or httpx.Client(**http.options(url, token, timeout))

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def list(self, *, name: str | None = None, at: str | None = None) -> Listing:
        """Return all stores, or those of exactly this name, as of one moment: now, or `at`."""
        return self.run(core.list_stores(name, at, self.patience))

    def search(self, words: str, limit: int = 50) -> tuple[Store, ...]:
        """Return up to `limit` stores that have all these words in name or address."""
        return tuple(self.run(core.search(words, limit, self.patience)))

    def get(self, id: int, *, at: str | None = None) -> Store:
        """Return one store, as it is or as it was at a moment. Raises NotFound."""
        return self.run(core.get(id, at, self.patience))

    def create(
        self, name: str, address: str | None = None, *, tag: str | None = None, key: str = ""
    ) -> Store:
        """Add a store, once however often it is sent; with `tag`, only if the list still has it.

        Without a `key` it gets one of its own.
        """
        return self.run(core.create(name, address, tag, key, self.patience))

    def edit(self, id: int, change: Callable[[Store], Store]) -> Store:
        """Replace a store with what `change` returns of it, based on what it is then.

        If another client saves first, it is read and changed again. Raises NotFound.
        """
        return self.run(core.edit(id, change, self.patience))

    def patch(
        self,
        id: int,
        *,
        name: str | Keep = KEEP,
        address: str | Keep | None = KEEP,
        tag: str | None = None,
        key: str = "",
    ) -> Store:
        """Change one field of a store, or both; the other stays. An address of None removes it.

        With `tag` only if the store still has it; if not, raises Conflict. Raises NotFound.
        """
        return self.run(core.patch(id, name, address, tag, key, self.patience))

    def changes(
        self,
        after: str | None = None,
        *,
        limit: int = 100,
        store: int | None = None,
        latest: bool = False,
    ) -> ChangesPage:
        """Return a page of changes after a cursor; of one store, or the latest ones first.

        Raises EpochEnded after a restore.
        """
        return self.run(core.changes(after, limit, store, self.patience, latest=latest))

    def import_file(
        self, content: bytes, media_type: str, query: Mapping[str, str], *, key: str = ""
    ) -> dict[str, Any]:
        """Import a spreadsheet; `query` has the parameters of POST /api/imports."""
        return self.run(core.import_file(content, media_type, query, key, self.patience))

    def follow(self, cursor: str | None = None) -> Iterator[Event]:
        """Yield each change after a cursor, once and in order, and wait for more, for ever.

        Without a cursor it begins now. Continue later from the cursor of the last event: nothing
        is left out. A Reset says that a backup was restored. Raises Refused, never Unavailable.
        """
        if cursor is None:
            cursor = self.changes("now").next
        follower = Follower(cursor)
        while True:
            request = follower.request()
            if follower.streams:
                yield from self._stream(follower, request)
            else:
                reply = self._send(request)
                if isinstance(reply, Lost):
                    follower.lost()
                else:
                    yield from follower.polled(reply)
            time.sleep(follower.pause)

    def run(self, steps: Steps[T]) -> T:
        """Carry out the steps of `core`."""
        reply: Reply | Lost | None = None
        try:
            while True:
                step = steps.send(reply)
                reply = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    reply = self._send(step)
        except StopIteration as end:
            result: T = end.value
            return result

    def _send(self, request: Request) -> Reply | Lost:
        try:
            response = self._http.request(**http.arguments(request))
        except httpx.RequestError as error:
            return http.lost(error)
        return http.reply(response)

    def _stream(self, follower: Follower, request: Request) -> Iterator[Event]:
        arguments = http.stream_arguments(request)
        try:
            with self._http.stream(**arguments) as response:
                if not follower.opened(response.status_code, http.fields_of(response)):
                    return
                for part in response.iter_raw():
                    yield from follower.received(part)
        except httpx.RequestError as error:
            http.lost(error)
        follower.lost()
