"""The header fields and parameters of the OpenAPI document. Imports `api`."""

from typing import Any

from storekeeper.api.query import MAX_LIMIT

Json = dict[str, Any]

_TAGS = r'^(\*|((W/)?"[!#-~]*")?([ \t]*,[ \t]*((W/)?"[!#-~]*")?)*)$'
_KEY = r'^([!#-\[\]-~]{1,255}|"[!#-\[\]-~]{1,255}")$'


def _header(description: str, type: str = "string") -> Json:
    return {"description": description, "schema": {"type": type}}


HEADERS: Json = {
    "cache-control": _header("Caches must revalidate before reuse."),
    "date": _header("When the response was made (RFC 9110, 6.6.1)."),
    "retry-after": _header("Only with 503: seconds after which it is worth trying again."),
    "www-authenticate": _header("Which token is needed, and what is wrong with the one that was sent (RFC 6750)."),
    "etag": _header("The version and the epoch, in quotes. A list's tag changes with every change of any store."),
    "content-location": _header("The path of the store that was written."),
    "idempotent-replayed": _header(
        "`true`: an earlier request with this key was carried out, and this is its response."
    ),
    "link": _header('The next page, `rel="next"`; absent on the last.'),
    "total-count": _header("How many stores there are, whatever the page; absent with `name`.", "integer"),
}


def parameters() -> Json:
    """Return the parameters that several operations have, or that need more than a line."""
    tags = "Entity tags in quotes, with commas between them, or `*`. "
    unless = tags + "GET: 304 if there is one of them. PUT: 412 if the store has one of them."
    match = tags + "Write only if the store (POST: the list) still has one of them; else 412."
    key = "A name of your own for this request: sent again with it, it is carried out once. Kept for 24 hours."
    moment = (
        "As it was at a moment of the past: a version, a cursor `version.epoch` as in a tag, or a time that ends in"
        " `Z`. An empty value means now. Not together with `name`."
    )
    return {
        "limit": _parameter(
            "limit", "At most so many stores.", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}
        ),
        "after": _parameter(
            "after", "Only stores with greater ids.", {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
        ),
        "at": _parameter("at", moment, {"type": "string"}, example=""),
        "if-match": _parameter("If-Match", match, {"type": "string", "pattern": _TAGS}, place="header", example="*"),
        "if-none-match": _parameter(
            "If-None-Match", unless, {"type": "string"}, place="header", example='"0.a2b3c4d5"'
        ),
        "idempotency-key": _parameter("Idempotency-Key", key, {"type": "string", "pattern": _KEY}, place="header"),
    }


def _parameter(
    name: str, description: str, schema: Json, *, place: str = "query", example: str | None = None
) -> Json:
    parameter = {"name": name, "in": place, "description": description, "schema": schema}
    return parameter if example is None else parameter | {"example": example}
