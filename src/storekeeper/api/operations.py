"""The operator's routes for which nobody needs a token: health. Imports Starlette, `http` and the domain."""

from collections.abc import Callable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse
from starlette.routing import BaseRoute, Route

from storekeeper.api.errors import to_response
from storekeeper.api.routes import Scope
from storekeeper.collection import Collection
from storekeeper.errors import Unavailable
from storekeeper.http.response import Response, framed_headers


def routes(collection: Collection, unknown: Callable[[Scope], str], ready_needs_writes: bool) -> Sequence[BaseRoute]:
    """Return the routes, bound to a collection; `unknown` tells why no request of a scope is admitted now."""

    async def live(_request: Request) -> StarletteResponse:
        return to_starlette(Response(b'{"status":"live"}'))

    async def ready(_request: Request) -> StarletteResponse:
        try:
            await collection.check()
            if reason := unknown("read"):
                raise Unavailable(reason)
            reason = unknown("write") or await collection.refusal_of_writes(probe=ready_needs_writes)
            if reason and ready_needs_writes:
                raise Unavailable(f"Writes are refused: {reason}")
        except Unavailable as error:
            return to_starlette(to_response(error))
        writes = {"writes": "refused", "reason": reason} if reason else {"writes": "ok"}
        return to_starlette(Response(msgspec.json.encode({"status": "ready"} | writes)))

    return [Route("/health/live", live), Route("/health/ready", ready)]


def to_starlette(response: Response) -> StarletteResponse:
    """Convert a response to Starlette's class."""
    converted = StarletteResponse(response.body, response.status)
    converted.raw_headers = framed_headers(response)
    return converted
