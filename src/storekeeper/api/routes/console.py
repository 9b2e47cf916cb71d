"""The console at /console/, with the files of `storekeeper/console`; and /, which leads there."""

import json
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from storekeeper.api.errors import NOT_FOUND
from storekeeper.api.plan import Planner, RequestPlan, constant
from storekeeper.api.routes import files
from storekeeper.domain import search
from storekeeper.domain.stores import MAX_EXTERNAL_LENGTH, MAX_NAME_LENGTH
from storekeeper.http.request import field
from storekeeper.http.response import MAX_BODY_BYTES, NO_CACHE, Fields, Response

_FOLDER = Path(__file__).parents[2] / "console"
_LIMITS = f"""// The limits of the service, from `domain`.
export const MAX_NAME = {MAX_NAME_LENGTH};
export const MAX_KEY = {MAX_EXTERNAL_LENGTH};
export const MAX_QUERY = {search.MAX_LENGTH};
export const MAX_BODY = {MAX_BODY_BYTES};
"""
_FILES: dict[bytes, Path | bytes] = {path.name.encode(): path for path in _FOLDER.iterdir()}
_FILES[b"limits.js"] = _LIMITS.encode()


def _folding() -> str:
    """Return what the page needs to fold texts as the search does, so that it marks what was
    found."""
    marks = filter(unicodedata.combining, map(chr, range(search.LAST_COMBINING + 1)))
    ignored = [f"\\u{{{ord(mark):x}}}" for mark in marks]
    ignored += [f"\\u{{{first:x}}}-\\u{{{last:x}}}" for first, last in search.INVISIBLE]
    return f"""// How the search folds texts, from `domain/search.py`.
export const SPELLINGS = {json.dumps(search.TYPED)};
export const IGNORED = /[{"".join(ignored)}]/gu;
export const PLAIN_SIGNS = {json.dumps(search.PLAIN_SIGNS)};
"""


_FILES[b"folding.js"] = _folding().encode()

# Only its own scripts, styles and requests; no text can become a script or markup.
_POLICY = (
    b"script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
# Relative, so that it also works below a proxy's prefix.
_TO_PAGE = b"location: console/\r\n" + NO_CACHE


def _plan_root(method: str, headers: Fields) -> RequestPlan:
    """Lead people to the page; programs find nothing (decision 50)."""
    is_person = b"text/html" in (field(headers, b"accept") or b"").lower()
    if is_person and method in ("GET", "HEAD"):
        return constant(Response(b"", _TO_PAGE + b"vary: accept\r\n", 302))
    return constant(NOT_FOUND)


_plan_page, _plan_file = files.planners(_FOLDER / "index.html", _FILES, _POLICY)
PLANNERS: Mapping[str, Planner] = {
    "root": _plan_root,
    "bare console": lambda *_: constant(Response(b"", _TO_PAGE, 302)),
    "console": _plan_page,
    "console file": _plan_file,
}
