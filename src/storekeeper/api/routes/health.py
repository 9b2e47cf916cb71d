"""The operator's routes: health and metrics."""

import time
from asyncio import ensure_future
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from storekeeper.api.metrics import Metrics
from storekeeper.api.plan import Plan, Planner, constant
from storekeeper.api.routing import Scope
from storekeeper.concurrency.threads import run_in_thread
from storekeeper.domain.changes import NOW, ChangesQuery
from storekeeper.domain.errors import CLOSED, Unavailable
from storekeeper.http.response import NO_CACHE, Deferred, Response
from storekeeper.storage.collection import Collection, completed

_TEXT = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n" + NO_CACHE


def planners(
    collection: Collection,
    unknown: Callable[[Scope], str],
    metrics: Metrics | None,
    is_draining: Callable[[], bool],
    *,
    ready_needs_writes: bool,
) -> Mapping[str, Planner]:
    """Return the routes' planners; `unknown` returns why no request of a scope is admitted now."""

    async def check() -> Response:
        if is_draining():
            raise Unavailable(CLOSED)
        await collection.check()
        if reason := unknown("read"):
            raise Unavailable(reason)
        reason = unknown("write") or await collection.refusal_of_writes(probe=ready_needs_writes)
        if reason and ready_needs_writes:
            raise Unavailable(f"Writes are refused: {reason}")
        writes = {"writes": "refused", "reason": reason} if reason else {"writes": "ok"}
        return Response(msgspec.json.encode({"status": "ready"} | writes))

    live = constant(Response(b'{"status":"live"}'))
    made: dict[str, Planner] = {
        "live": lambda *_: live,
        "ready": lambda *_: Plan(lambda _: Deferred(ensure_future(check()))),
    }
    if metrics:
        scrape = partial(_scrape, metrics, collection, check)
        made["metrics"] = lambda *_: Plan(lambda _: Deferred(ensure_future(scrape())))
    return made


async def _scrape(
    metrics: Metrics, collection: Collection, check: Callable[[], Awaitable[object]]
) -> Response:
    metrics.publish()
    asked: dict[str, float | None] = {"ready": 0}
    with suppress(Unavailable):
        asked |= await _numbers(collection)
        asked |= await collection.figures()
    with suppress(Unavailable):
        await check()
        asked["ready"] = 1

    def encode() -> bytes:
        from storekeeper.api import exposition  # noqa: PLC0415 - it takes 0.1 s

        return exposition.encode(metrics.slots, asked)

    return Response(await run_in_thread(encode), _TEXT)


async def _numbers(collection: Collection) -> Mapping[str, float]:
    state = await completed(collection.state())
    latest = await completed(collection.changes(ChangesQuery(NOW, 1, newest_first=True)))
    numbers: dict[str, float] = {"stores": state.total, "changes": state.version}
    for change in latest.changes:
        age = time.time() - change.at / 1000
        numbers["seconds_since_last_change"] = max(0.0, age)
        numbers["latest_change_ahead_seconds"] = max(0.0, -age)
    return numbers
