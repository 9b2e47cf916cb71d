"""The operator's routes: health. Imports Starlette, `api` and the domain."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from storekeeper.api.errors import to_response
from storekeeper.collection import Collection
from storekeeper.errors import Unavailable
from storekeeper.http.response import JSON


def routes(collection: Collection) -> Sequence[BaseRoute]:
    """Return the routes, bound to a collection."""

    async def live(_request: Request) -> Response:
        return _json(b'{"status":"live"}')

    async def ready(_request: Request) -> Response:
        try:
            await collection.check()
        except Unavailable as error:
            refusal = to_response(error)
            return Response(refusal.body, refusal.status, _text(refusal.headers))
        return _json(b'{"status":"ready"}')

    return [Route("/health/live", live), Route("/health/ready", ready)]


def _json(body: bytes) -> Response:
    return Response(body, headers=_text(JSON))


def _text(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}
