"""The routes /openapi.json and /docs, a page that asks no other host. Imports Starlette, `http` and the domain.

The OpenAPI document is `pages/openapi.json`. `tests/api/test_openapi.py` compares it with the service: every route,
method, status, header, limit and error message that one has, the other has too. Its examples of errors are what the
service sends; `make examples` writes them. Swagger UI's files are those of an installed package that never runs.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from storekeeper.api.conditions import parse_tags
from storekeeper.api.operations import to_starlette
from storekeeper.commands import matches
from storekeeper.http.request import field
from storekeeper.http.response import Response as JsonResponse

_PAGES = Path(__file__).with_name("pages")
_OWN = ("docs.css", "docs.js")
_INSTALLED = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")

# Swagger UI sets styles on elements and has its icons as data URLs; scripts come from this service
# alone, and may connect to no other.
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@cache
def encoded_document() -> bytes:
    """Return the OpenAPI document as JSON."""
    return (_PAGES / "openapi.json").read_bytes()


async def _openapi(_request: Request) -> Response:
    return to_starlette(JsonResponse(encoded_document()))


class _Root:
    """Leads people to the page; programs find nothing (decision 50). A function would not have all methods."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if request.method not in ("GET", "HEAD") or "text/html" not in request.headers.get("accept", "").lower():
            raise HTTPException(404)
        # Relative, so that it holds below a proxy's prefix too.
        headers = {"location": "docs", "cache-control": "no-cache", "vary": "accept"}
        await Response(status_code=302, headers=headers)(scope, receive, send)


class _File(FileResponse):
    """A whole file: Range is ignored (decision 33)."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__({**scope, "headers": []}, receive, send)


async def _file(request: Request) -> Response:
    name = request.path_params.get("name")
    if name not in (None, *_OWN, *_INSTALLED):
        raise HTTPException(404)
    path = (_installed() if name in _INSTALLED else _PAGES) / (name or "docs.html")
    file = _File(path, headers=_HEADERS, stat_result=path.stat())
    del file.headers["last-modified"], file.headers["accept-ranges"]
    tags = parse_tags(field(request.headers.raw, b"if-none-match") or b"")
    if tags is None or not matches(tags, file.headers["etag"]):
        return file
    return Response(status_code=304, headers={name: file.headers[name] for name in ("cache-control", "etag")})


@cache
def _installed() -> Path:
    spec = find_spec("swagger_ui")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("static")


ROUTES = [
    Route("/", _Root()),
    Route("/openapi.json", _openapi),
    Route("/docs", _file),
    Route("/docs/{name}", _file),
]
