"""The operator's routes for which nobody needs a token: health. Imports `http` and the domain."""

from asyncio import ensure_future
from collections.abc import Callable, Mapping

import msgspec

from storekeeper.api.errors import deferred
from storekeeper.api.plan import Plan, Planner, constant
from storekeeper.api.routes import Scope
from storekeeper.collection import Collection
from storekeeper.errors import Unavailable
from storekeeper.http.request import Request
from storekeeper.http.response import Deferred, Response


def planners(
    collection: Collection, unknown: Callable[[Scope], str], *, ready_needs_writes: bool
) -> Mapping[str, Planner]:
    """Return the routes' planners; `unknown` returns why no request of a scope is admitted now."""

    async def check() -> Response:
        await collection.check()
        if reason := unknown("read"):
            raise Unavailable(reason)
        reason = unknown("write") or await collection.refusal_of_writes(probe=ready_needs_writes)
        if reason and ready_needs_writes:
            raise Unavailable(f"Writes are refused: {reason}")
        writes = {"writes": "refused", "reason": reason} if reason else {"writes": "ok"}
        return Response(msgspec.json.encode({"status": "ready"} | writes))

    def ready(_request: Request) -> Deferred:
        return deferred(ensure_future(check()), lambda response: response)

    live = constant(Response(b'{"status":"live"}'))
    return {"live": lambda *_: live, "ready": lambda *_: Plan(ready)}
