"""The console at /console/, with the files of `storekeeper/console`; and /, which leads there. Imports `http`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from storekeeper.api import files
from storekeeper.api.errors import NOT_FOUND
from storekeeper.api.plan import Plan, Planner, constant
from storekeeper.api.routes import last_segment
from storekeeper.http.request import Request, field
from storekeeper.http.response import Fields, Headers, Response

_FOLDER = Path(__file__).parents[1] / "console"
_FILES = {path.name.encode(): path for path in _FOLDER.iterdir()}

# Its own scripts, styles and requests alone; no text can become a script or markup.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    b" require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Headers = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
# Relative, so that it holds below a proxy's prefix too.
_TO_PAGE: Headers = ((b"location", b"console/"), (b"cache-control", b"no-cache"), (b"vary", b"accept"))


def _plan_root(method: str, headers: Fields) -> Plan:
    """Lead people to the page; programs find nothing (decision 50)."""
    is_person = b"text/html" in (field(headers, b"accept") or b"").lower()
    return constant(Response(b"", _TO_PAGE, 302) if is_person and method in ("GET", "HEAD") else NOT_FOUND)


def _plan_page(_method: str, headers: Fields) -> Plan:
    return constant(files.respond(_FOLDER / "index.html", headers, _HEADERS))


def _plan_file(_method: str, headers: Fields) -> Plan:
    return Plan(partial(_file, headers))


def _file(headers: Fields, request: Request) -> Response:
    path = _FILES.get(last_segment(request.target))
    return files.respond(path, headers, _HEADERS) if path else NOT_FOUND


PLANNERS: Mapping[str, Planner] = {
    "root": _plan_root,
    "bare console": lambda *_: constant(Response(b"", _TO_PAGE[:2], 302)),
    "console": _plan_page,
    "console file": _plan_file,
}
