"""The routes /openapi.json and /docs, a page that asks no other host.

The OpenAPI document is `pages/openapi.json`. `tests/api/test_openapi.py` compares it with the
service: both have the same routes, methods, statuses, headers, limits and error messages. Its
examples of errors are what the service sends; `make examples` writes them. Swagger UI's files come
from an installed package that never runs.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from storekeeper.api.plan import Planner, constant
from storekeeper.api.routes import files

_PAGES = Path(__file__).parents[1] / "pages"
_INSTALLED = [
    Path(folder) / "static"
    for folder in getattr(find_spec("swagger_ui"), "submodule_search_locations", ())
]
_FILES: dict[bytes, Path | bytes] = {}
for _name in ("docs.css", "docs.js"):
    _FILES[_name.encode()] = _PAGES / _name
for _folder in _INSTALLED:
    for _name in ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"):
        _FILES[_name.encode()] = _folder / _name

# Swagger UI sets styles on elements and has its icons as data URLs. Scripts come only from this
# service, and can connect to no other.
_POLICY = (
    b"script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline';"
    b" img-src 'self' data:; frame-ancestors 'none'"
)


def encoded_document() -> bytes:
    """Return the OpenAPI document as JSON."""
    return (_PAGES / "openapi.json").read_bytes()


_plan_page, _plan_file = files.planners(_PAGES / "docs.html", _FILES, _POLICY)
PLANNERS: Mapping[str, Planner] = {
    "openapi": lambda _, headers: constant(files.respond(_PAGES / "openapi.json", headers)),
    "docs": _plan_page,
    "docs file": _plan_file,
}
