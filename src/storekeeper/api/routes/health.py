"""The operator's routes: health and metrics."""

from asyncio import ensure_future
from collections.abc import Callable, Mapping

import msgspec

from storekeeper.api.metrics import Metrics
from storekeeper.api.plan import Planner, RequestPlan, constant
from storekeeper.api.routes.scrapes import Scrapes
from storekeeper.api.routing import Scope
from storekeeper.domain.errors import CLOSED, Unavailable
from storekeeper.http.response import Deferred, Response
from storekeeper.storage.collection import Collection


def planners(
    collection: Collection,
    why_unavailable: Callable[[Scope], str],
    metrics: Metrics | None,
    is_draining: Callable[[], bool],
    *,
    ready_needs_writes: bool,
) -> Mapping[str, Planner]:
    """Return the routes' planners; `why_unavailable` returns why no request of a scope is admitted
    now."""

    async def check() -> Response:
        if is_draining():
            raise Unavailable(CLOSED)
        await collection.check()
        if reason := why_unavailable("read"):
            raise Unavailable(reason)
        reason = why_unavailable("write")
        if not reason:
            reason = await collection.refusal_of_writes(probe=ready_needs_writes)
        if reason and ready_needs_writes:
            raise Unavailable(f"Writes are refused: {reason}")
        body = {"status": "ready", "writes": "ok"}
        if reason:
            body |= {"writes": "refused", "reason": reason}
        return Response(msgspec.json.encode(body))

    live = constant(Response(b'{"status":"live"}'))
    made: dict[str, Planner] = {
        "live": lambda *_: live,
        "ready": lambda *_: RequestPlan(lambda _: Deferred(ensure_future(check()))),
    }
    if metrics:
        made["metrics"] = Scrapes(metrics, collection, check).plan
    return made
