"""The contract as an OpenAPI 3.1 document. Imports `api` and the domain, whose types its schemas are made from.

`tests/api/test_openapi.py` compares it with the service: every route, method, status, header and error message that
one has, the other has too.
"""

from typing import Any

import msgspec

from storekeeper import __version__
from storekeeper.api import examples
from storekeeper.api.openapi_fields import HEADERS, parameters
from storekeeper.api.routes import ALLOWED
from storekeeper.http.request import MAX_FIELDS, MAX_HEAD_BYTES, MAX_TARGET_BYTES
from storekeeper.http.response import MAX_BODY_BYTES, ErrorBody
from storekeeper.stores import EXAMPLES, Payload, Store

Json = dict[str, Any]

ANY_REQUEST = {
    400: "It is not valid HTTP/1.1, or its `Host` is missing, repeated or not valid.",
    408: "It was not complete within 10 seconds of its first byte.",
    413: f"Its body is over {MAX_BODY_BYTES:,} bytes.",
    414: f"Its target is over {MAX_TARGET_BYTES:,} bytes.",
    431: f"Its headers are over {MAX_HEAD_BYTES:,} bytes or {MAX_FIELDS} fields.",
    500: "A bug of the service.",
    501: "HTTP has no such method or transfer coding.",
    503: "The database is not available now, or too much is waiting: try again after `retry-after` seconds. With"
    " `outcome` `none` nothing was changed; with `unknown` the write may have happened.",
    505: "It is not HTTP/1.x.",
}
"""When any request, on any route, gets which error."""

_DESCRIPTION = "\n".join(
    (
        "Every error has the body `ErrorBody`. A 4xx means that nothing was changed.",
        "A path with GET takes HEAD too, OPTIONS names a path's methods; another method is 405, another path 404.",
        "",
        "**Errors that any request can get.** They are listed here alone; at each operation they are `default`.",
        "",
        "| Status | When |",
        "|---|---|",
        *(f"| {status} | {when} |" for status, when in ANY_REQUEST.items()),
    )
)

_CANNOT_BE_UNDONE = (
    "The service assigns the id: one more than the number of stores before. **This cannot be undone:** there is no"
    " DELETE, so a store stays for good. A PUT can still change its name and its address. To try again safely after a"
    " lost response, send an `Idempotency-Key`."
)

_REPLACES_BOTH = (
    "Replaces the name and the address; the id stays. **Leaving `address` out erases the address**: send it again to"
    " keep it. Null is refused. An id that no store has is 404: a PUT never adds a store. To change only what"
    " you have read, send its `etag` as `If-Match`."
)

_PAGES = (
    "All at once; with `limit` page by page: follow `link` until a page has none. Pages never shift, since no store"
    " is ever deleted; with `at`, all pages are of one moment. To poll cheaply, send the last `etag` as"
    " `If-None-Match`."
)

_NAME = "Required, and not empty. Blanks are kept, a character is a Unicode code point."
_ADDRESS = "Optional, a string. Null is refused: to have no address, leave it out. In a PUT, that erases the address."

_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "skt_",
    "description": "A token of `storekeeper token add`. The operator decides who needs one: nobody, writers, all.",
}

_STORE = {"id": 2} | msgspec.structs.asdict(EXAMPLES[1])
_PAYLOAD = {name: value for name, value in _STORE.items() if name != "id" and value is not None}


def document() -> Json:
    """Return the whole document, ready to be encoded."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Store Resource API",
            "version": __version__,
            "summary": "One list of a company's stores.",
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # Relative to the document, so that it holds below a proxy's prefix too.
        "servers": [{"url": ".", "description": "This service"}],
        "tags": [{"name": "stores"}, {"name": "operations"}],
        "paths": _contract() | _operations(),
        "components": {
            "schemas": _schemas(),
            "responses": _responses(),
            "parameters": parameters(),
            "securitySchemes": {"token": _TOKEN},
        },
    }


def _contract() -> Json:
    name = {
        "name": "name",
        "in": "query",
        "description": "Only the stores with exactly this name; an empty value means all stores.",
        "schema": {"type": "string"},
        "examples": {"one name": {"value": "Harbour"}, "all stores": {"value": ""}},
    }
    id = {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "The store's id, in decimal digits.",
        "schema": {"type": "integer", "minimum": 1},
        "example": 2,
    }
    one = _json(_ref("schemas", "Store"), _STORE)
    many = _json({"type": "array", "items": _ref("schemas", "Store")}, [_STORE])
    text = {"text/plain; charset=utf-8": {"schema": {"type": "string", "const": "OK"}, "example": "OK"}}
    body = {
        "required": True,
        "content": {"application/json": {"schema": _ref("schemas", "Payload"), "example": _PAYLOAD}},
    }
    moment, match = _ref("parameters", "at"), _ref("parameters", "if-match")
    unless, key = _ref("parameters", "if-none-match"), _ref("parameters", "idempotency-key")
    listed = ("etag",), ("link", "total-count")
    written = ("etag", "content-location"), ("idempotent-replayed",)
    return {
        "/api/stores": _path(
            "stores",
            get=_operation(
                "listStores",
                "List all stores, or those of one name",
                many,
                *_READ,
                *("InvalidQuery", "Gone"),
                also=listed,
            )
            | {
                "description": _PAGES,
                "parameters": [name, _ref("parameters", "limit"), _ref("parameters", "after"), moment, unless],
            },
            post=_operation("createStore", "Add a store", one, *_WRITTEN, also=written)
            | {"description": _CANNOT_BE_UNDONE, "parameters": [match, key], "requestBody": body},
        ),
        "/api/stores/{id}": _path(
            "store",
            get=_operation(
                "getStore", "Read one store", one, *_READ, *("InvalidQuery", "NotFound", "Gone"), also=(("etag",), ())
            )
            | {"parameters": [id, moment, unless]},
            put=_operation(
                "replaceStore", "Replace a store's name and address", one, "NotFound", *_WRITTEN, also=written
            )
            | {"description": _REPLACES_BOTH, "parameters": [id, match, unless, key], "requestBody": body},
        ),
        "/test": _path("test", get=_operation("test", "Tell that the service is running", text)),
    }


def _operations() -> Json:
    paths = {}
    for probe, meaning in (("live", "the process is alive"), ("ready", "the database can be read too")):
        example: Json = {"status": probe}
        properties: Json = {"status": {"const": probe}}
        if probe == "ready":
            example["writes"] = "ok"
            properties["writes"] = {"type": "string", "enum": ["ok", "refused"]}
            properties["reason"] = {"type": "string", "description": "Why writes are refused, while they are."}
        schema = {"type": "object", "properties": properties, "required": list(example)}
        operation = _operation(probe, f"Tell that {meaning}", _json(schema, example), tag="operations")
        paths[f"/health/{probe}"] = _path("test", get=operation)
    schema = {"type": "object", "required": ["openapi", "info", "paths"]}
    own = _operation("openapi", "Read this document", _json(schema, None), tag="operations")
    page = {"text/html; charset=utf-8": {"schema": {"type": "string"}}}
    docs = _operation("docs", "Show this document as a page", page, tag="operations")
    return paths | {"/openapi.json": _path("test", get=own), "/docs": _path("test", get=docs)}


def _path(route: Any, **operations: Json) -> Json:
    """Return the operations of a path: all that it has, but HEAD and OPTIONS, which the description tells of."""
    assert {method.upper() for method in operations} | {"HEAD", "OPTIONS"} == set(ALLOWED[route])
    return operations


def _operation(
    id: str,
    summary: str,
    content: Json,
    *others: str,
    tag: str = "stores",
    also: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> Json:
    """Return an operation; `also` are the headers that its 200 has beside those of every response, or may have."""
    headers = _headers_of(*also[0], may=also[1])
    responses = {"200": {"description": "Done.", "headers": headers, "content": content}}
    responses |= {_STATUS[name]: _ref("responses", name) for name in sorted(others, key=_STATUS.__getitem__)}
    # Whether a token is needed depends on --auth.
    security: Json = {"security": [{}, {"token": []}]} if "Unauthorized" in others else {}
    return {
        "operationId": id,
        "summary": summary,
        "tags": [tag],
        **security,
        "responses": responses | {"default": _ref("responses", "AnyError")},
    }


def _json(schema: Json, example: object) -> Json:
    media: Json = {"schema": schema}
    if example is not None:
        media["example"] = example
    return {"application/json; charset=utf-8": media}


def _headers_of(*names: str, may: tuple[str, ...] = ()) -> Json:
    always = {name: {**HEADERS[name], "required": True} for name in ("cache-control", "date", *names)}
    return always | {name: HEADERS[name] for name in may}


_STATUS = {
    "NotModified": "304",
    "InvalidPayload": "400",
    "InvalidQuery": "400",
    "Unauthorized": "401",
    "Forbidden": "403",
    "NotFound": "404",
    "Gone": "410",
    "PreconditionFailed": "412",
    "UnsupportedMediaType": "415",
    "KeyReused": "422",
}
"""The status of each response that only some operations have."""

_GATE = ("Unauthorized", "Forbidden")
_READ = ("NotModified", *_GATE)
_WRITTEN = (*_GATE, "InvalidPayload", "PreconditionFailed", "UnsupportedMediaType", "KeyReused")


def _responses() -> Json:
    missing = "No store has that id. (With the setting `missing_store = 500`: the 500 of a bug.)"
    media_type = "The `Content-Type` is not that of JSON in UTF-8, or there is a `Content-Encoding`."
    any_error = "An error that any request can get; the description of the API lists them."
    payload = "The payload breaks a rule, or a field of the head is malformed."
    query = "A parameter is malformed, given twice, or a moment later than now."
    gone = "`at` is of another epoch: of the collection before a backup was restored. `cursor` is the present moment."
    changed = "The condition does not hold: somebody was faster. Read again, then decide; `etag` is the current tag."
    reused = "The `Idempotency-Key` was sent with another request before."
    return {
        "NotModified": {
            "description": "What there is has one of the tags of `If-None-Match`: use what you have.",
            "headers": _headers_of("etag"),
        },
        "InvalidPayload": _error(payload, examples.PAYLOAD | examples.CONDITIONS),
        "InvalidQuery": _error(query, examples.QUERY),
        "Unauthorized": _error(
            "The request needs a token, or its token is invalid.", examples.UNAUTHORIZED, "www-authenticate"
        ),
        "Forbidden": _error(
            "The token permits reading alone, or a page sent this that may not.",
            examples.FORBIDDEN,
            may=("www-authenticate",),
        ),
        "NotFound": _error(missing, examples.MISSING),
        "Gone": _error(gone, examples.GONE),
        "PreconditionFailed": _error(changed, examples.CHANGED, "etag"),
        "UnsupportedMediaType": _error(media_type, examples.MEDIA_TYPE),
        "KeyReused": _error(reused, examples.REUSED),
        "AnyError": _error(any_error, examples.ANY_REQUEST, may=("retry-after",)),
    }


def _error(description: str, refused: examples.Refused, *headers: str, may: tuple[str, ...] = ()) -> Json:
    media = {
        "schema": _ref("schemas", "ErrorBody"),
        "examples": {name: {"value": body} for name, body in examples.bodies(refused).items()},
    }
    return {
        "description": description,
        "headers": _headers_of(*headers, may=may),
        "content": {"application/json; charset=utf-8": media},
    }


def _schemas() -> Json:
    _, schemas = msgspec.json.schema_components(
        (Store, Payload, ErrorBody), ref_template="#/components/schemas/{name}"
    )
    for name, description in _DESCRIPTIONS.items():
        schemas[name]["description"] = description
    store, payload, error = (schemas[name]["properties"] for name in ("Store", "Payload", "ErrorBody"))
    for own in ("version", "epoch"):  # the collection's; clients see them as the tag
        del store[own]
        schemas["Store"]["required"].remove(own)
    schemas["Store"]["additionalProperties"] = False
    store["address"]["description"] = "Null if the store has none."
    payload["name"] = _text(payload["name"]) | {"description": _NAME}
    payload["address"] = _text(payload["address"]) | {"description": _ADDRESS}
    error["outcome"]["description"] = "Only with 503: whether a write may have happened."
    error["cursor"]["description"] = "Only with 410: the present moment."
    return schemas


_DESCRIPTIONS = {
    "Store": "A store of the collection.",
    "Payload": "The content of a store, complete: what a PUT leaves out, it erases. Other keys are ignored.",
    "ErrorBody": "The body of every error. `validation` is there if a payload, a query or a header breaks a rule.",
    "Validation": "The part of the request that breaks a rule, and the names of the offending fields.",
}


def _text(schema: Json) -> Json:
    """Restrict the schema of a field to what a client may send: a string, not null, and without U+0000."""
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    # JSON Schema has no keyword for it but a pattern; PostgreSQL cannot store U+0000.
    return rest | {"type": "string", "pattern": "^[^\\u0000]*$"}


def _ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}
