"""The contract as an OpenAPI 3.1 document. Imports `api` and the domain, whose types its schemas are made from.

`tests/test_openapi.py` compares it with the service: every route, method, status and header that one has, the other
has too.
"""

from typing import Any

import msgspec

from storekeeper import __version__
from storekeeper.api.resource import ALLOWED
from storekeeper.http.response import MAX_BODY_BYTES, ErrorBody, error_response, phrase
from storekeeper.stores import EXAMPLES, Payload, Store

Json = dict[str, Any]

ANY_ROUTE = (400, 408, 413, 414, 431, 500, 501, 503, 505)
"""Statuses that every route may have: those of the HTTP layer, of a bug, and of a stop."""

_MEANINGS = {
    400: "The request is not valid; nothing was changed.",
    404: "No store has that id.",
    408: "The request was not complete within 10 seconds of its first byte.",
    413: f"The body is over {MAX_BODY_BYTES} bytes.",
    414: "The target is over 8192 bytes.",
    415: "The Content-Type or Content-Encoding is not that of JSON in UTF-8.",
    431: "The headers are over 16384 bytes or 100 fields.",
    500: "A bug; or, with `--missing-store 500`, no store has that id.",
    501: "HTTP has no such method or transfer coding.",
    503: "The database is not available now; `outcome` says whether a write may have happened.",
    505: "The request is not HTTP/1.x.",
}

_EXAMPLE_MESSAGES = {
    404: "Store 99 not found",
    500: "An internal server error occurred",
    501: "HTTP has no such method or transfer coding.",
    503: "The database is locked",
}

_STORE = {"id": 2, "name": EXAMPLES[1].name, "address": EXAMPLES[1].address}
_PAYLOAD = {"name": EXAMPLES[1].name, "address": EXAMPLES[1].address}


def document() -> Json:
    """Return the whole document, ready to be encoded."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Store Resource API",
            "version": __version__,
            "summary": "One list of a company's stores.",
            "description": "Every error has the body `ErrorBody`. A 4xx means that nothing was changed.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": "stores"}, {"name": "operations"}],
        "paths": _contract() | _operations(),
        "components": {"schemas": _schemas(), "responses": _responses(), "headers": _headers()},
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
    many = {"type": "array", "items": _ref("schemas", "Store")}
    one = _ref("schemas", "Store")
    text = {"text/plain; charset=utf-8": {"schema": {"type": "string", "const": "OK"}, "example": "OK"}}
    return {
        "/api/stores": _path(
            "stores",
            get=_operation("listStores", "List all stores, or those of one name", _json(many, [_STORE])),
            post=_operation("createStore", "Add a store", _json(one, _STORE), 415, body=True),
            query=[name],
        ),
        "/api/stores/{id}": _path(
            "store",
            get=_operation("getStore", "Read one store", _json(one, _STORE), 404),
            put=_operation(
                "replaceStore", "Replace a store's name and address", _json(one, _STORE), 404, 415, body=True
            ),
            segment=[id],
        ),
        "/test": _path("test", get=_operation("test", "Tell that the service is running", text)),
    }


def _operations() -> Json:
    paths = {}
    for probe, meaning in (("live", "the process is alive"), ("ready", "the database can be read too")):
        schema = {"type": "object", "properties": {"status": {"const": probe}}, "required": ["status"]}
        operation = _operation(probe, f"Tell that {meaning}", _json(schema, {"status": probe}), tag="operations")
        paths[f"/health/{probe}"] = _path("test", get=operation)
    schema = {"type": "object", "required": ["openapi", "info", "paths"]}
    own = _operation("openapi", "Read this document", _json(schema, None), tag="operations")
    page = {"text/html; charset=utf-8": {"schema": {"type": "string"}}}
    docs = _operation("docs", "Show this document as a page", page, tag="operations")
    return paths | {"/openapi.json": _path("test", get=own), "/docs": _path("test", get=docs)}


def _path(route: Any, *, query: Any = (), segment: Any = (), **operations: Json) -> Json:
    """Complete a path with HEAD and OPTIONS, which every GET has; GET and HEAD alone have the `query` parameters."""
    assert {method.upper() for method in operations} | {"HEAD", "OPTIONS"} == set(ALLOWED[route])
    get = operations["get"]
    operations["head"] = _head_operation(get)
    operations["options"] = {
        "operationId": get["operationId"] + "Options",
        "summary": "List the methods of this path",
        "tags": get["tags"],
        "responses": {"204": _ref("responses", "Allowed")} | _errors(),
    }
    for method, operation in operations.items():
        parameters = [*segment, *(query if method in ("get", "head") else ())]
        if method == "options":  # OPTIONS takes any id
            parameters = [parameter | {"schema": {"type": "string"}} for parameter in parameters]
        if parameters:
            operation["parameters"] = parameters
    return operations


def _head_operation(get: Json) -> Json:
    responses = {
        status: {"description": "As GET, without the body."} if "$ref" in response else response | {"content": {}}
        for status, response in get["responses"].items()
    }
    return get | {
        "operationId": get["operationId"] + "Head",
        "summary": get["summary"] + ": the headers alone",
        "responses": responses,
    }


def _operation(id: str, summary: str, content: Json, *errors: int, body: bool = False, tag: str = "stores") -> Json:
    headers = {name: _ref("headers", name) for name in ("cache-control", "date")}
    operation: Json = {
        "operationId": id,
        "summary": summary,
        "tags": [tag],
        "responses": {"200": {"description": "Done.", "headers": headers, "content": content}} | _errors(*errors),
    }
    if body:
        schema = _ref("schemas", "Payload")
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": _PAYLOAD}},
        }
    return operation


def _errors(*more: int) -> Json:
    return {str(status): _ref("responses", _key(status)) for status in sorted({*ANY_ROUTE, *more})}


def _json(schema: Json, example: object) -> Json:
    media: Json = {"schema": schema}
    if example is not None:
        media["example"] = example
    return {"application/json; charset=utf-8": media}


def _responses() -> Json:
    allow = {name: _ref("headers", name) for name in ("allow", "cache-control", "date")}
    statuses = sorted(_MEANINGS)
    return {_key(status): _error(status) for status in statuses} | {
        "Allowed": {"description": "The methods are in `allow`.", "headers": allow},
    }


def _error(status: int) -> Json:
    names = ["cache-control", "date"] + (["retry-after"] if status == 503 else [])
    message = _EXAMPLE_MESSAGES.get(status, phrase(status))
    example = msgspec.json.decode(error_response(status, message).body)
    return {
        "description": _MEANINGS[status],
        "headers": {name: _ref("headers", name) for name in names},
        "content": _json(_ref("schemas", "ErrorBody"), example),
    }


def _headers() -> Json:
    def header(description: str, schema: Json) -> Json:
        return {"description": description, "schema": schema}

    return {
        "allow": header("The methods of this path.", {"type": "string"}),
        "cache-control": header("Caches must revalidate before reuse.", {"type": "string"}),
        "date": header("When the response was made (RFC 9110, 6.6.1).", {"type": "string"}),
        "retry-after": header("Seconds after which it is worth trying again.", {"type": "string"}),
    }


def _schemas() -> Json:
    _, schemas = msgspec.json.schema_components(
        (Store, Payload, ErrorBody), ref_template="#/components/schemas/{name}"
    )
    for schema in schemas.values():
        schema["description"] = schema["description"].partition("\n")[0]
    # The contract has three properties; the version is the collection's own.
    del schemas["Store"]["properties"]["version"]
    schemas["Store"]["required"].remove("version")
    schemas["Store"]["additionalProperties"] = False
    for field in ("name", "address"):
        # Decision 10; JSON Schema has no keyword for it but a pattern.
        schemas["Payload"]["properties"][field] = _text(schemas["Payload"]["properties"][field])
    return schemas


def _text(schema: Json) -> Json:
    """Restrict the schema of a field to what a client may send: a string, not null, and without U+0000."""
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return rest | {"type": "string", "pattern": "^[^\\u0000]*$"}


def _key(status: int) -> str:
    return phrase(status).replace(" ", "")


def _ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}
