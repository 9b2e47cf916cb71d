import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from black_box import Answer, Running, run
from storekeeper.api import docs, operations
from storekeeper.api.openapi import document
from storekeeper.api.resource import ALLOWED

FRAMING = {"connection", "content-length", "content-type", "transfer-encoding"}
"""What HTTP itself puts around every answer, which OpenAPI leaves out."""

HEAD = "Host: a\r\n"
RAW = {
    400: f"GET /api/stores HTTP/1.1\r\n{HEAD}Content-Length: x\r\n\r\n",
    413: f"POST /api/stores HTTP/1.1\r\n{HEAD}Content-Length: 1048577\r\n\r\n",
    414: f"GET /{'a' * 9000} HTTP/1.1\r\n{HEAD}\r\n",
    431: f"GET /test HTTP/1.1\r\n{HEAD}X: {'a' * 20000}\r\n\r\n",
    501: f"FOO /test HTTP/1.1\r\n{HEAD}\r\n",
    505: f"GET /test HTTP/2.0\r\n{HEAD}\r\n",
}


def operations_of(paths: dict[str, Any]) -> list[tuple[str, str]]:
    return [(method, path) for path, item in paths.items() for method in item]


def resolved(reference: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference inside the document."""
    here: Any = document()
    for step in reference["$ref"].split("/")[1:] if "$ref" in reference else ():
        here = here[step]
    return here if "$ref" in reference else reference


def assert_documented(method: str, path: str, answer: Answer) -> None:
    """The status is documented, with each of its headers, and the body is of the documented type and schema."""
    response = resolved(document()["paths"][path][method]["responses"][str(answer.status)])
    documented = response.get("headers", {})
    sent = answer.headers.keys() - FRAMING
    assert path == "/docs" or sent == documented.keys()
    if method == "head" or answer.status == 204:
        assert answer.body == b""
        return
    [(kind, media)] = response["content"].items()
    assert answer.headers["content-type"] == kind
    body = answer.json if kind.startswith("application/json") else answer.body.decode()
    schema = {"$ref": "#/schema", "schema": media["schema"], "components": document()["components"]}
    Draft202012Validator(schema).validate(body)


def test_the_document_is_valid_openapi() -> None:
    validate(document())


def test_the_command_and_the_route_give_the_same_document(service: Running) -> None:
    served = service.request("GET", "/openapi.json")
    assert served.status == 200
    assert run("openapi").stdout == served.body + b"\n"
    assert served.json == json.loads(json.dumps(document()))


@pytest.mark.parametrize(("method", "path"), operations_of(document()["paths"]))
def test_every_documented_operation_answers_as_documented(service: Running, method: str, path: str) -> None:
    created = service.request("POST", "/api/stores", {"name": "Documented"}).json["id"]
    body = {"name": "Documented"} if method in ("post", "put") else None
    answer = service.request(method.upper(), path.replace("{id}", str(created)), body)
    assert answer.status == (204 if method == "options" else 200)
    assert_documented(method, path, answer)


def test_every_route_and_method_that_there_is_is_documented() -> None:
    contract = {"test": "/test", "stores": "/api/stores", "store": "/api/stores/{id}"}
    there = {
        (method.lower(), path)
        for route, path in contract.items()
        for method in ALLOWED[route]  # type: ignore[index]
    }
    others = [route.path for route in (*operations.routes(None), *docs.routes())]  # type: ignore[arg-type, attr-defined]
    for path in others:
        there |= {(method, path) for method in ("get", "head", "options")}
    # The files that belong to the page are part of it, and `/` leads people there.
    assert {pair for pair in there if pair[1] not in ("/", "/docs/{name}")} == set(operations_of(document()["paths"]))


@pytest.mark.parametrize(
    ("method", "path", "target", "body", "headers", "status"),
    [
        ("post", "/api/stores", "/api/stores", {"name": ""}, {}, 400),
        ("post", "/api/stores", "/api/stores", {"name": "a"}, {"content-type": "text/plain"}, 415),
        ("put", "/api/stores/{id}", "/api/stores/1", {"name": 1}, {}, 400),
        ("put", "/api/stores/{id}", "/api/stores/999999", {"name": "a"}, {}, 404),
        ("put", "/api/stores/{id}", "/api/stores/1", {"name": "a"}, {"content-encoding": "gzip"}, 415),
        ("get", "/api/stores/{id}", "/api/stores/none", None, {}, 404),
        ("get", "/api/stores", "/api/stores?name=a&name=b", None, {}, 400),
    ],
)
def test_what_a_request_is_refused_with_is_documented(
    service: Running, method: str, path: str, target: str, body: object, headers: dict[str, str], status: int
) -> None:
    answer = service.request(method.upper(), target, body, headers)
    assert answer.status == status
    assert_documented(method, path, answer)


@pytest.mark.parametrize("status", RAW)
def test_what_the_http_layer_refuses_is_documented(service: Running, status: int) -> None:
    head, _, body = service.raw(RAW[status].encode()).partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    answer = Answer(int(first.split()[1]), dict(field.split(": ", 1) for field in fields), body)
    assert answer.status == status
    for method, path in operations_of(document()["paths"]):
        if method != "head":
            assert_documented(method, path, answer)


@pytest.mark.parametrize("examples", [3, pytest.param(12, marks=pytest.mark.thorough)])
def test_random_requests_made_from_the_document_meet_no_contradiction(
    fresh: Running, tmp_path: Path, examples: int
) -> None:
    """Schemathesis, all of its checks; `make fuzz-api` asks longer."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        "--checks=all",
        f"--max-examples={examples}",
    ]
    options = ["--seed=1", "--generation-deterministic", "--no-color"]
    url = f"http://127.0.0.1:{fresh.port}/openapi.json"
    done = subprocess.run([*command, *options, url], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
