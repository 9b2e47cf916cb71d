"""The operator's routes: health. Imports Starlette, `api` and the domain."""

from collections.abc import Callable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from storekeeper.api.errors import to_response
from storekeeper.api.token_table import UNDECIDED
from storekeeper.collection import Collection
from storekeeper.errors import Unavailable
from storekeeper.http.response import JSON


def routes(
    collection: Collection, decided: Callable[[], bool] = lambda: True, ready_needs_writes: bool = False
) -> Sequence[BaseRoute]:
    """Return the routes, bound to a collection; `decided` tells whether it is known who needs a token."""

    async def live(_request: Request) -> Response:
        return _json(b'{"status":"live"}')

    async def ready(_request: Request) -> Response:
        try:
            await collection.check()
            if not decided():
                raise Unavailable(UNDECIDED)
            reason = await _refusal_of_writes(collection)
            if reason and ready_needs_writes:
                raise Unavailable(f"Writes are refused: {reason}")
        except Unavailable as error:
            refusal = to_response(error)
            return Response(refusal.body, refusal.status, _text(refusal.headers))
        writes = {"writes": "refused", "reason": reason} if reason else {"writes": "ok"}
        return _json(msgspec.json.encode({"status": "ready"} | writes))

    return [Route("/health/live", live), Route("/health/ready", ready)]


async def _refusal_of_writes(collection: Collection) -> str:
    try:
        await collection.check_writes()
    except Unavailable as error:
        return str(error)
    return ""


def _json(body: bytes) -> Response:
    return Response(body, headers=_text(JSON))


def _text(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}
