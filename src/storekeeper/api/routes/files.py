"""Static files, each whole and with a strong tag of its content (decision 33: no Range)."""

from collections.abc import Mapping
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
    page: Path, files: Mapping[bytes, Path | bytes], policy: bytes
) -> tuple[Planner, Planner]:
    """Return the planners of a page and of its files, each a path or its content.

    `policy` is the page's Content-Security-Policy, in addition to that of every page.
    """
    headers = (
        b"content-security-policy: default-src 'none'; base-uri 'none'; form-action 'none'; %b\r\n"
        b"referrer-policy: no-referrer\r\nx-content-type-options: nosniff\r\n" % policy
    )

    def run(fields: Fields, request: Request) -> Response:
        name = last_segment(request.target.partition(b"?")[0])
        if name not in files:
            return NOT_FOUND
        return respond(files[name], fields, headers, Path(name.decode()).suffix)

    def plan_page(_: str, fields: Fields) -> RequestPlan:
        return constant(respond(page, fields, headers))

    def plan_file(_: str, fields: Fields) -> RequestPlan:
        return RequestPlan(partial(run, fields))

    return plan_page, plan_file


def respond(
    file: Path | bytes, request: Fields, headers: bytes = b"", suffix: str = ""
) -> Response:
    """Return a file, a path or its content, or a 304 if the `request` has its tag.

    `headers` are added to the response; `suffix` is the ending of its name, by default the path's.
    """
    whole = _read(file, headers, suffix)
    return not_modified(read_if_none_match(request), whole.tag.decode()) or whole


@cache
def _read(file: Path | bytes, headers: bytes, suffix: str) -> Response:
    content = file
    if isinstance(file, Path):
        content, suffix = file.read_bytes(), file.suffix
    assert isinstance(content, bytes)
    fields = b"content-type: %b\r\n%b%b" % (_TYPES[suffix], NO_CACHE, headers)
    digest = blake2b(content, digest_size=16).hexdigest()
    return Response(content, fields, tag=f'"{digest}"'.encode())
