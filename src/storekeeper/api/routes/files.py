"""Static files, each whole and with a strong tag of its content (decision 33: no Range)."""

from collections.abc import Callable
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path

from storekeeper.api.errors import NOT_FOUND
from storekeeper.api.plan import Planner, RequestPlan, constant
from storekeeper.api.preconditions import not_modified, read_if_none_match
from storekeeper.api.routing import last_segment
from storekeeper.http.request import Request
from storekeeper.http.response import NO_CACHE, Fields, Response

_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json; charset=utf-8",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
}


def planners(
    page: Path, find: Callable[[bytes], Path | None], policy: bytes
) -> tuple[Planner, Planner]:
    """Return the planners of a page and of its files; `find` returns the file of a name.

    `policy` is the page's Content-Security-Policy, in addition to that of every page.
    """
    headers = (
        b"content-security-policy: default-src 'none'; base-uri 'none'; form-action 'none'; %b\r\n"
        b"referrer-policy: no-referrer\r\nx-content-type-options: nosniff\r\n" % policy
    )

    def run(fields: Fields, request: Request) -> Response:
        path = find(last_segment(request.target.partition(b"?")[0]))
        return respond(path, fields, headers) if path else NOT_FOUND

    def plan_page(_: str, fields: Fields) -> RequestPlan:
        return constant(respond(page, fields, headers))

    def plan_file(_: str, fields: Fields) -> RequestPlan:
        return RequestPlan(partial(run, fields))

    return plan_page, plan_file


def respond(path: Path, request: Fields, headers: bytes = b"") -> Response:
    """Return a file, or a 304 if the `request` has its tag; `headers` are added to the response."""
    file = _read(path, headers)
    return not_modified(read_if_none_match(request), file.tag.decode()) or file


@cache
def _read(path: Path, headers: bytes) -> Response:
    content = path.read_bytes()
    fields = b"content-type: %b\r\n%b%b" % (_TYPES[path.suffix], NO_CACHE, headers)
    digest = blake2b(content, digest_size=16).hexdigest()
    return Response(content, fields, tag=f'"{digest}"'.encode())
