"""The route /metrics: what all processes count, and what the database says about itself.

One scrape at a time has a thread; all requests that come meanwhile get the text of the next one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from storekeeper.api.metrics import Metrics
from storekeeper.api.plan import RequestPlan
from storekeeper.concurrency.batcher import MAX_QUEUED, Batcher
from storekeeper.concurrency.threads import run_in_thread
from storekeeper.domain.changes import NOW, ChangesQuery
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.tokens import Token
from storekeeper.http.request import Request
from storekeeper.http.response import NO_CACHE, Deferred, Response
from storekeeper.storage.collection import Collection, completed

DATABASE_TIMEOUT = 1.0
"""Seconds that a scrape waits for the database; after that, the series that need it are absent."""

_TEXT = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n" + NO_CACHE


class Scrapes:
    """Responds to scrapes; `check` raises Unavailable while the service is not ready."""

    def __init__(
        self, metrics: Metrics, collection: Collection, check: Callable[[], Awaitable[object]]
    ) -> None:
        self._metrics = metrics
        self._collection = collection
        self._check = check
        self._asking: asyncio.Future[Mapping[str, float | None]] | None = None
        self._batcher = Batcher(self._serve, max_batch=MAX_QUEUED)
        metrics.watch(lambda: self._batcher.refused, "refused", "scrapes")

    def plan(self, *_: object) -> RequestPlan:
        """Return the plan of a scrape."""
        return RequestPlan(self._run)

    def _run(self, _request: Request) -> Deferred:
        return Deferred(self._batcher.add(None))

    async def _serve(self, scrapes: Sequence[None], _deadline: float) -> Sequence[Response]:
        """Return one response for all these scrapes."""
        asked = await self._ask()
        self._metrics.publish()

        def encode() -> bytes:
            from storekeeper.api import exposition  # noqa: PLC0415 - it takes 0.1 s

            return exposition.encode(self._metrics.slots, asked)

        return [Response(await run_in_thread(encode), _TEXT)] * len(scrapes)

    async def _ask(self) -> Mapping[str, float | None]:
        """Return what the database says, or that it is not ready if it does not respond in time."""
        # The database gets no other question while an earlier one has no answer.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._numbers())
        done, _ = await asyncio.wait({self._asking}, timeout=DATABASE_TIMEOUT)
        if not done:
            return {"ready": 0}
        return self._asking.result()

    async def _numbers(self) -> Mapping[str, float | None]:
        numbers: dict[str, float | None] = {"ready": 0}
        with suppress(Unavailable):
            state = await completed(self._collection.state())
            numbers |= {"stores": state.total, "changes": state.version}
            latest = ChangesQuery(NOW, 1, newest_first=True)
            for change in (await completed(self._collection.changes(latest))).changes:
                age = time.time() - change.at / 1000
                numbers["seconds_since_last_change"] = max(0.0, age)
                numbers["latest_change_ahead_seconds"] = max(0.0, -age)
            numbers |= await self._collection.figures()
            expiry = next_expiry(await self._collection.tokens(), time.time())
            numbers["next_token_expiry_timestamp_seconds"] = expiry
        with suppress(Unavailable):
            await self._check()
            numbers["ready"] = 1
        return numbers


def next_expiry(tokens: Sequence[Token], now: float) -> float | None:
    """Return when the first token expires that has not yet; all in seconds since 1970."""
    expiries = [token.expires / 1000 for token in tokens if token.expires is not None]
    return min((expiry for expiry in expiries if expiry > now), default=None)
