"""The routes /openapi.json and /docs, a page that loads nothing from other hosts. Imports Starlette and `api`.

The OpenAPI document is `pages/openapi.json`. `tests/api/test_openapi.py` compares it with the service: every route,
method, status, header, limit and error message that one has, the other has too. Its examples of errors are what the
service sends; `make examples` writes them. Swagger UI's files come from an installed package; nothing of that package
runs here.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from storekeeper import __version__
from storekeeper.api.operations import to_starlette
from storekeeper.http.response import Response as JsonResponse

_PAGES = Path(__file__).with_name("pages")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_OWN = ("docs.css", "docs.js")
_INSTALLED = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")

# Swagger UI sets styles on elements and has its icons as data URLs; scripts come from this service
# alone, and may connect to no other.
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "accept-ranges": "none",
    "cache-control": "no-cache",
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@cache
def encoded_document() -> bytes:
    """Return the OpenAPI document as indented JSON."""
    document = msgspec.json.decode((_PAGES / "openapi.json").read_bytes())
    document["info"]["version"] = __version__
    return msgspec.json.format(msgspec.json.encode(document))


async def _openapi(_request: Request) -> Response:
    return to_starlette(JsonResponse(encoded_document()))


async def _root(request: Request) -> Response:
    """Lead a person to the page; to a program there is nothing here (decision 50)."""
    if request.method not in ("GET", "HEAD") or "text/html" not in request.headers.get("accept", "").lower():
        raise HTTPException(404)
    # Relative, so that it holds below a proxy's prefix too.
    return Response(status_code=302, headers={"location": "docs", "cache-control": "no-cache", "vary": "accept"})


async def _page(request: Request) -> Response:
    return _file(request, _PAGES / "docs.html")


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name in _OWN:
        return _file(request, _PAGES / name)
    if name in _INSTALLED:
        return _file(request, _installed() / name)
    raise HTTPException(404)


def _file(request: Request, path: Path) -> Response:
    # Range is ignored, as everywhere (decision 33): Starlette's error for a bad one is not the contract's.
    request.scope["headers"] = [field for field in request.scope["headers"] if field[0] != b"range"]
    return FileResponse(path, headers=_HEADERS)


@cache
def _installed() -> Path:
    spec = find_spec("swagger_ui")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("static")


ROUTES = [
    Route("/", _root, methods=_METHODS),
    Route("/openapi.json", _openapi),
    Route("/docs", _page),
    Route("/docs/{name}", _asset),
]
