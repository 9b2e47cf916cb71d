"""The OpenAPI document and the service say the same: routes, statuses, fields, limits, examples."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from jsonschema import Draft202012Validator

from storekeeper import __version__
from storekeeper.api import query
from storekeeper.api.query import MAX_LIMIT
from storekeeper.api.routes import docs
from storekeeper.api.routing import ROUTES
from storekeeper.concurrency import batcher
from storekeeper.domain.errors import InvalidInput, Outcome
from storekeeper.domain.stores import MAX_NAME_LENGTH, Payload, PayloadPatch, Store
from storekeeper.http import deadlines
from storekeeper.http.request import MAX_FIELDS, MAX_HEAD_BYTES, MAX_TARGET_BYTES
from storekeeper.http.response import MAX_BODY_BYTES, ErrorBody
from storekeeper.storage.sqlite import writer
from tests.harness.cases import case
from tests.harness.client import locked
from tests.harness.command import run
from tests.harness.in_process import exchange, inside, receive, settled, some_stores
from tests.harness.process import Response, Running
from tests.harness.schemathesis import SCHEMATHESIS
from tests.harness.wire import HOST, create, request

FRAMING = {"connection", "content-length", "content-type", "transfer-encoding"}
"""What HTTP itself puts around every response, which OpenAPI leaves out."""

DOCUMENT = json.loads(docs.encoded_document())

REFUSALS = {"304", "400", "401", "403", "404", "410", "412", "415", "422"}


def operations_of(paths: dict[str, Any]) -> list[tuple[str, str]]:
    return [(method, path) for path, item in paths.items() for method in item]


def resolved(reference: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference inside the document."""
    here: Any = DOCUMENT
    for step in reference["$ref"].split("/")[1:] if "$ref" in reference else ():
        here = here[step]
    return here if "$ref" in reference else reference


def assert_documented(method: str, path: str, response: Response) -> None:
    """The status is documented, with the headers that it has, and the body is of the documented
    type and schema."""
    responses = DOCUMENT["paths"][path][method]["responses"]
    described = resolved(responses.get(str(response.status), responses["default"]))
    sent, may = response.headers.keys() - FRAMING, described["headers"]
    assert sent <= may.keys()
    assert sent >= {name for name, header in may.items() if header.get("required")}
    if "content" not in described:
        assert response.body == b""
        return
    kind = response.headers["content-type"]
    media = described["content"][kind]
    body = response.json if kind.startswith("application/json") else response.body.decode()
    schema = {"$ref": "#/schema", "schema": media["schema"], "components": DOCUMENT["components"]}
    Draft202012Validator(schema).validate(body)


def test_the_document_is_valid_openapi(tmp_path: Path) -> None:
    """To import the validator, each process of tests would need a twelfth of its start."""
    file = tmp_path / "openapi.json"
    file.write_bytes(docs.encoded_document())
    command = [sys.executable, "-m", "openapi_spec_validator", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_the_command_and_the_route_give_the_same_document(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        served = await exchange(service, get("/openapi.json"))
    assert served.status == 200
    assert run("openapi").stdout == served.body
    assert served.json == DOCUMENT
    assert DOCUMENT["info"]["version"] == __version__


async def test_every_documented_operation_responds_as_documented(tmp_path: Path) -> None:
    some_stores(tmp_path, 1)
    body = b'{"name":"Documented"}'
    async with inside(tmp_path) as service:
        for method, path in operations_of(DOCUMENT["paths"]):
            with case((method, path)):
                sent = body if method in ("post", "put", "patch") else None
                data = request(method.upper(), path.replace("{id}", "1"), sent)
                if path == "/api/imports":
                    data = imports(b"id,name\n,Documented\n", "dry-run&match=id")
                if path == "/api/changes/stream":
                    data = request("HEAD", path)  # it has no end
                if path == "/api/imports/undo":
                    data = request("POST", f"{path}?from=1&to=1")
                response = await exchange(service, data)
                assert response.status == 200
                assert_documented(method, path, response)


def test_every_route_and_method_that_there_is_is_documented_but_head_and_options() -> None:
    """Those go with every GET, as the description says."""
    there = {
        (method.lower(), route.path)
        for route in ROUTES
        for method in route.methods
        # The files that belong to the pages are part of them.
        if method not in ("HEAD", "OPTIONS") and not route.path.startswith(("/docs/", "/console"))
    }
    assert there == set(operations_of(DOCUMENT["paths"]))


A = b'{"name":"a"}'
STORES, STORE = "/api/stores", "/api/stores/{id}"
REFUSED: list[tuple[str, str, bytes, int]] = [
    ("post", STORES, request("POST", STORES, b'{"name":""}'), 400),
    ("post", STORES, request("POST", STORES, A, 'If-Match: "0.a2b3c4d5"'), 412),
    ("post", STORES, request("POST", STORES, A).replace(b"application/json", b"text/plain"), 415),
    ("put", STORE, request("PUT", "/api/stores/1", b'{"name":1}'), 400),
    ("put", STORE, request("PUT", "/api/stores/1", A, "If-Match: a"), 400),
    ("put", STORE, request("PUT", "/api/stores/999999", A), 404),
    ("put", STORE, request("PUT", "/api/stores/1", A, "If-None-Match: *"), 412),
    ("put", STORE, request("PUT", "/api/stores/1", A, "Content-Encoding: gzip"), 415),
    ("patch", STORE, request("PATCH", "/api/stores/1", b'{"name":null}'), 400),
    ("patch", STORE, request("PATCH", "/api/stores/999999", A), 404),
    ("patch", STORE, request("PATCH", "/api/stores/1", A, "If-None-Match: *"), 412),
    ("patch", STORE, request("PATCH", "/api/stores/1", A, "Content-Encoding: gzip"), 415),
    ("get", STORE, request("GET", "/api/stores/1", None, "If-None-Match: *"), 304),
    ("get", STORE, request("GET", "/api/stores/1?at=x"), 400),
    ("get", STORE, request("GET", "/api/stores/none"), 404),
    ("get", STORES, request("GET", f"{STORES}?limit=1"), 200),
    ("get", STORES, request("GET", STORES, None, "If-None-Match: *"), 304),
    ("get", STORES, request("GET", f"{STORES}?name=a&name=b"), 400),
    ("get", STORES, request("GET", f"{STORES}?limit=0"), 400),
    ("get", "/api/changes", request("GET", "/api/changes", None, "If-None-Match: *"), 304),
    ("get", "/api/changes", request("GET", "/api/changes?order=down"), 400),
    ("get", "/api/changes", request("GET", "/api/changes?after=99999"), 410),
    ("get", "/openapi.json", request("GET", "/openapi.json", None, "If-None-Match: *"), 304),
]


async def test_what_a_request_is_refused_with_is_documented(tmp_path: Path) -> None:
    some_stores(tmp_path, 2)
    async with inside(tmp_path) as service:
        for method, path, data, status in REFUSED:
            with case(data):
                response = await exchange(service, data)
                assert response.status == status
                assert_documented(method, path, response)


def documented_examples() -> dict[tuple[str, str], Any]:
    """Give the body of each example of an error in the document, by the names of its response
    and of itself."""
    responses = DOCUMENT["components"]["responses"]
    return {
        (name, title): example["value"]
        for name, response in responses.items()
        for media in response.get("content", {}).values()
        for title, example in media.get("examples", {}).items()
    }


def post(body: bytes, *fields: str) -> bytes:
    return request("POST", "/api/stores", body, *fields)


def get(target: str, *fields: str) -> bytes:
    return request("GET", target, None, *fields)


def imports(body: bytes, query: str = "") -> bytes:
    fields = ("Content-Type: text/csv", f"Content-Length: {len(body)}")
    return request("POST", f"/api/imports?{query}", None, *fields) + body


CHANGED = 'If-Match: "1.a2b3c4d5"'
"""A tag of an epoch that no collection is likely to have."""

REQUESTS = {
    "InvalidPayload": {
        "name is missing": post(b'{"address":"20 Quay Road, Portsmouth"}'),
        "name is too long": post(b'{"name":"%b"}' % (b"a" * (MAX_NAME_LENGTH + 1))),
        "address is null": post(b'{"name":"Harbour","address":null}'),
        "both are wrong": post(b'{"name":7,"address":null}'),
        "not JSON": post(b"name=Harbour"),
        "no object": post(b'["Harbour"]'),
        "If-Match has no quotes": post(b'{"name":"Harbour"}', "If-Match: 1"),
        "Idempotency-Key has a blank": post(b'{"name":"Harbour"}', "Idempotency-Key: a b"),
    },
    "InvalidQuery": {
        "name is given twice": get("/api/stores?name=Harbour&name=Airport"),
        "limit and after are wrong": get("/api/stores?limit=0&after=x"),
        "at is not a moment": get("/api/stores/1?at=yesterday"),
    },
    "InvalidImport": {
        "no column is known": imports(b"Store Name,City\nHarbour,Portsmouth\n"),
        "the list has stores": imports(b"name\nHarbour\n"),
        "not UTF-8": imports(b"name\nCaf\xe9\n", "match=name"),
    },
    "RefusedImport": {
        "a name is too long": imports(
            b"id,name\n1,%b\n" % (b"a" * (MAX_NAME_LENGTH + 1)), "match=id"
        ),
        "an id occurs twice": imports(b"id,name\n1,Harbour\n1,Airport\n", "match=id"),
    },
    "NotFound": {"no store has that id": get("/api/stores/99")},
    "Gone": {"a moment of another epoch": get("/api/stores?at=1.a2b3c4d5")},
    "PreconditionFailed": {
        "the store has changed": request("PUT", "/api/stores/1", b'{"name":"Harbour"}', CHANGED),
        "the list has changed": post(b'{"name":"Harbour"}', CHANGED),
    },
    "KeyReused": {
        "the key was sent with another request": post(
            b'{"name":"Harbour"}', "Idempotency-Key: order-17"
        )
    },
    "UnsupportedMediaType": {
        "no JSON": post(b"name=Harbour").replace(
            b"application/json", b"application/x-www-form-urlencoded"
        ),
        "compressed": post(b"{}", "Content-Encoding: gzip"),
    },
    "UnsupportedPatch": {
        "a list of operations": request("PATCH", "/api/stores/1", b"[]").replace(
            b"application/json", b"application/json-patch+json"
        ),
    },
    "AnyError": {
        "400: no valid Host": get("/test").replace(HOST, b""),
        "403: a page with a name that is not known": get(
            "/test", "Origin: http://a.example"
        ).replace(HOST, b"Host: a.example\r\n"),
        "413: body too large": post(b"").replace(
            b"Length: 0", b"Length: %d" % (MAX_BODY_BYTES + 1)
        ),
        "414: target too long": get("/" + "a" * MAX_TARGET_BYTES),
        "431: headers too large": get("/test", "X: " + "a" * MAX_HEAD_BYTES),
        "501: unknown method": request("FETCH", "/test"),
        "505: another HTTP": get("/test").replace(b"HTTP/1.1", b"HTTP/2.0"),
    },
}
"""For each example of an error that a single request can cause: that request."""


async def test_an_example_of_an_error_is_what_the_service_sends(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        await exchange(service, create("Another request", "Idempotency-Key: order-17"))
        for name, requests in REQUESTS.items():
            for title, data in requests.items():
                with case(title):
                    response = await exchange(service, data)
                    assert_example(name, title, response.json)
                    assert_documented(*dict(references())[name], response)


def test_every_example_of_an_error_has_its_request() -> None:
    """But those of the gate, which `test_gate.py` has, and those that take a fault or time."""
    known = {(name, title) for name, requests in REQUESTS.items() for title in requests}
    rest = {
        name
        for name, title in documented_examples().keys() - known
        if not title.startswith(("408", "50"))
    }
    assert known <= documented_examples().keys()
    assert rest == {"Unauthorized", "Forbidden"}


def assert_example(name: str, title: str, sent: dict[str, Any]) -> None:
    """The example is what the service sent; `make examples` writes that into the document."""
    if of_any_version(sent) == of_any_version(documented_examples()[name, title]):
        return
    assert "WRITE_EXAMPLES" in os.environ, (
        f"{name}, {title}: the service sends {sent}; `make examples` writes it"
    )
    file = Path(docs.__file__).parents[1] / "pages" / "openapi.json"
    before, start, rest = file.read_text().partition(f'{json.dumps(title)}: {{"value": ')
    _, end = json.JSONDecoder().raw_decode(rest)
    file.write_text(f"{before}{start}{json.dumps(sent)}{rest[end:]}")


def of_any_version(error: dict[str, Any]) -> dict[str, Any]:
    """Return an error's body without the collection's present version and epoch."""
    message = re.sub(r"is \S+ now", "is … now", error["message"])
    cursor = (
        {"cursor": re.sub(r"\d+\.[a-z2-7]{8}", "…", error["cursor"])} if "cursor" in error else {}
    )
    return error | {"message": message} | cursor


def references() -> Iterator[tuple[str, tuple[str, str]]]:
    """Give each response that operations refer to, with one of them."""
    for method, path in operations_of(DOCUMENT["paths"]):
        for response in DOCUMENT["paths"][path][method]["responses"].values():
            if "$ref" in response:
                yield response["$ref"].rpartition("/")[2], (method, path)


async def test_the_examples_that_take_a_fault_or_time_are_what_the_service_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = {}
    async with inside(tmp_path, missing_store="500") as service:

        async def body(data: bytes) -> Any:
            connection, line = service.connect()
            receive(connection, data)
            connection.sweep(connection.reader.began + deadlines.REQUEST_TIMEOUT + 0.1)
            await settled(connection)
            return json.loads(line.sent.partition(b"\r\n\r\n")[2])

        sent["408: too slow"] = await body(b"GET /te")
        sent["500: a bug"] = await body(request("GET", "/api/stores/99"))
        monkeypatch.setattr(writer, "LOCK_TIMEOUT", 0.1)
        with locked(tmp_path):
            sent["503: nothing was changed"] = await body(create("Never"))
        monkeypatch.setattr(writer, "LOCK_TIMEOUT", 1.0)
        monkeypatch.setattr(batcher, "RESPONSE_TIMEOUT", 0.1)
        with locked(tmp_path):
            sent["503: the write may have happened"] = await body(create("Perhaps"))
    titles = {title for name, title in documented_examples() if name == "AnyError"}
    assert sent.keys() == titles - REQUESTS["AnyError"].keys()
    for title, error in sent.items():
        assert_example("AnyError", title, error)


def test_the_errors_of_any_request_are_described_once_and_each_has_an_example() -> None:
    text = DOCUMENT["info"]["description"]
    statuses = {
        value["statusCode"]
        for (name, _), value in documented_examples().items()
        if name == "AnyError"
    }
    assert [int(status) for status in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == sorted(
        statuses
    )
    for method, path in operations_of(DOCUMENT["paths"]):
        responses = DOCUMENT["paths"][path][method]["responses"]
        assert responses["default"] == {"$ref": "#/components/responses/AnyError"}
        assert responses.keys() <= {"200", *REFUSALS, "502", "504", "default"}
        assert responses["502"] == responses["504"] == {"$ref": "#/components/responses/FromProxy"}


def test_the_limits_are_those_of_the_service() -> None:
    text = DOCUMENT["info"]["description"]
    assert f"Its body is over {MAX_BODY_BYTES:,} bytes." in text
    assert f"Its target is over {MAX_TARGET_BYTES:,} bytes." in text
    assert f"Its headers are over {MAX_HEAD_BYTES:,} bytes or {MAX_FIELDS} fields." in text
    assert DOCUMENT["components"]["parameters"]["limit"]["schema"]["maximum"] == MAX_LIMIT


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/api/stores", query._OF_LISTS),
        ("/api/stores/{id}", query._OF_STORES),
        ("/api/changes", query._OF_CHANGES),
        ("/api/imports", query._OF_IMPORTS),
    ],
)
def test_every_parameter_that_a_query_may_have_is_documented(
    path: str, read: Mapping[str, object]
) -> None:
    operations = DOCUMENT["paths"][path]
    described = [
        resolved(parameter)
        for parameter in operations.get("get", operations.get("post"))["parameters"]
    ]
    assert {each["name"] for each in described if each["in"] == "query"} == read.keys()


MOMENTS = ["", "0", "7", "7.abcdefgh", "2026-11-24T12:00:00Z", "2026-11-24T12:00:00.123456Z"]


def test_the_pattern_of_a_moment_takes_what_the_service_takes() -> None:
    pattern = DOCUMENT["components"]["parameters"]["at"]["schema"]["pattern"]
    for asked in (
        around.format(value)
        for value in MOMENTS
        for around in ("{}", "{} ", "x{}", "{}.", "-{}", "0{}")
    ):
        with nullcontext() if re.search(pattern, asked) else pytest.raises(InvalidInput):
            query.parse_store_query(f"at={asked}".encode().replace(b" ", b"+"))


CURSORS = [
    "",
    "0",
    "7",
    "7.abcdefgh",
    "9" * 18,
    "now",
    "-1",
    "07",
    "7.",
    "7.abc",
    "7.ABCDEFGH",
    "x",
]


@pytest.mark.parametrize("name", ["from", "to"])
def test_the_patterns_of_an_undo_take_what_the_service_takes(name: str) -> None:
    parameters = DOCUMENT["paths"]["/api/imports/undo"]["post"]["parameters"]
    [pattern] = [each["schema"]["pattern"] for each in parameters if each.get("name") == name]
    for cursor in CURSORS:
        asked = urlencode({"from": "1", "to": "1"} | {name: cursor}).encode()
        with nullcontext() if re.search(pattern, cursor) else pytest.raises(InvalidInput):
            query.parse_undo_query(asked)


async def test_a_parameter_of_the_query_may_be_empty_and_the_document_says_so(
    tmp_path: Path,
) -> None:
    some_stores(tmp_path, 1)
    async with inside(tmp_path) as service:
        for path in (STORES, STORE, "/api/changes"):
            for parameter in map(resolved, DOCUMENT["paths"][path]["get"]["parameters"]):
                if parameter["in"] == "query":
                    empty = f"{path.replace('{id}', '1')}?{parameter['name']}="
                    assert (await exchange(service, get(empty))).status == 200
                    assert parameter["schema"]["type"] == "string" or parameter["allowEmptyValue"]
                    assert "examples" not in parameter, (
                        "of several, one empty, Postman makes a parameter `value`"
                    )


def test_only_the_operations_that_may_need_a_token_take_one_and_each_other_one_says_so() -> None:
    # Tools that take the first choice, as Postman does, then ask for the token.
    assert DOCUMENT["security"] == [{"token": []}, {}]
    open_paths = {route.path for route in ROUTES if route.is_open}
    for method, path in operations_of(DOCUMENT["paths"]):
        # Generators that see `security` at an operation make a client with a token of it.
        own = DOCUMENT["paths"][path][method].get("security")
        assert own == ([] if path in open_paths else None)


def test_the_schemas_have_the_fields_of_the_types() -> None:
    """With their types and limits; what clients do not see, and what is only said to people,
    aside."""
    _, types = msgspec.json.schema_components(
        (Store, Payload, PayloadPatch, ErrorBody), ref_template="#/components/schemas/{name}"
    )
    for name, own in types.items():
        documented = DOCUMENT["components"]["schemas"][name]
        hidden = {"version", "epoch"} if name == "Store" else set()  # clients see them as the tag
        assert documented["required"] == [field for field in own["required"] if field not in hidden]
        assert documented["properties"].keys() == own["properties"].keys() - hidden
        for field, schema in documented["properties"].items():
            told = {
                key: value
                for key, value in schema.items()
                if key not in ("description", "format", "pattern")
            }
            # A client may leave the address out, but not send null.
            sent = (
                {"type": "string"}
                if (name, field) == ("Payload", "address")
                else own["properties"][field]
            )
            if field == "outcome":
                sent = {"type": "string", "enum": list(Outcome)}
            assert told == {key: value for key, value in sent.items() if key != "description"}


def schemas_in(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield from [part] if isinstance(part.get("type"), str) else []
        part = list(part.values())
    for inner in part if isinstance(part, list) else ():
        yield from schemas_in(inner)


def test_generated_clients_have_64_bits_for_ids_and_patterns_that_their_languages_read() -> None:
    """Java refuses a maximum that its type does not hold; Go and PHP refuse `\\u` in a regular
    expression."""
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}
    small = [{"type": "integer"}, limit, limit]  # a status; of stores, of changes
    for schema in schemas_in([DOCUMENT["paths"], DOCUMENT["components"]]):
        if schema["type"] == "integer" and schema.get("format") != "int64":
            small.remove(schema)
        assert "\\u" not in schema.get("pattern", "")


def test_every_enumeration_has_a_type_and_no_empty_member_and_an_operation_one_type() -> None:
    """Of an empty member generators make a name; of two types of a 200, the union of both."""
    for schema in enumerations_in([DOCUMENT["paths"], DOCUMENT["components"]]):
        assert schema["type"] == "string"
        assert all(schema["enum"])
    for method, path in operations_of(DOCUMENT["paths"]):
        kinds = DOCUMENT["paths"][path][method]["responses"]["200"]["content"]
        assert len(kinds) == 1 or path == "/api/export", "an export has the type that was asked for"


def enumerations_in(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield from [part] if "enum" in part else []
        part = list(part.values())
    for inner in part if isinstance(part, list) else ():
        yield from enumerations_in(inner)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [12])
def test_random_requests_made_from_the_document_meet_no_contradiction(
    fresh: Running, tmp_path: Path, count: int
) -> None:
    """Schemathesis, all of its checks; `make fuzz-api` asks longer."""
    command = [*SCHEMATHESIS, f"--max-examples={count}"]
    options = ["--seed=1", "--generation-deterministic", "--no-color"]
    url = f"http://127.0.0.1:{fresh.port}/openapi.json"
    done = subprocess.run(
        [*command, *options, url], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert fresh.request("GET", "/api/stores").json, "no request has found its way"
