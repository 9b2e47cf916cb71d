"""The contract in a few requests: a system that fails one is left out.

The floor does not implement the contract, so only the measured requests are checked for it.
"""

import json
from collections.abc import Callable
from typing import Any

from bench.seeds import compact, store, stores
from bench.servers import Server, UnavailableError, send

SEED = 5
INVALID_PAYLOADS: list[tuple[bytes, str, list[str] | None]] = [
    (b'{"name":5}', '"name" must be a string', ["name"]),
    (b"{}", '"name" is required', ["name"]),
    (b'{"name":""}', '"name" is required', ["name"]),
    (
        compact({"name": "x" * 31}),
        '"name" length must be less than or equal to 30 characters long',
        ["name"],
    ),
    (b'{"name":"a","address":null}', '"address" must be a string', ["address"]),
    (
        b'{"name":1,"address":2}',
        '"name" must be a string. "address" must be a string',
        ["name", "address"],
    ),
    (b'{"name":', "Invalid request payload JSON format", None),
]


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise UnavailableError(f"not the contract: {what}: {got!r:.150} instead of {wanted!r:.150}")


def request(
    server: Server, method: str, path: str, payload: object = None, status: int = 200
) -> bytes:
    """Return the body of a response, after checking its status and the contract's two headers."""
    body = None
    if payload:
        body = payload if isinstance(payload, bytes) else compact(payload)
    with server.connect() as connection:
        response, content = send(connection, method, path, body)
    what = f"{method} {path} {body.decode() if body else ''}"
    expect(what, response.status, status)
    kind = "text/plain" if path == "/test" else "application/json"
    expect(what, response.headers["content-type"], f"{kind}; charset=utf-8")
    expect(what, response.headers["cache-control"], "no-cache")
    return content


def check_reads(server: Server) -> None:
    expect("GET /test", request(server, "GET", "/test"), b"OK")
    expect("the list", request(server, "GET", "/api/stores"), compact(list(stores(SEED))))
    expect("one store", request(server, "GET", "/api/stores/3"), compact(store(3)))
    expect(
        "by name", request(server, "GET", "/api/stores?name=Store%20000003"), compact([store(3)])
    )
    expect("no such name", request(server, "GET", "/api/stores?name=store%20000003"), b"[]")
    expect("empty name", request(server, "GET", "/api/stores?name="), compact(list(stores(SEED))))


def check_writes(server: Server) -> None:
    new = {"id": SEED + 1, "name": "Ünïted", "address": None}
    created = request(server, "POST", "/api/stores", {"name": "Ünïted", "id": 99})
    expect("create", created, compact(new))
    new.update(name=" ", address="")
    path = f"/api/stores/{SEED + 1}"
    expect("replace", request(server, "PUT", path, {"name": " ", "address": ""}), compact(new))
    expect("read after replace", request(server, "GET", path), compact(new))
    new["address"] = None
    expect("replace without address", request(server, "PUT", path, {"name": " "}), compact(new))
    for payload, message, keys in INVALID_PAYLOADS:
        for method, target in ("POST", "/api/stores"), ("PUT", path):
            body: dict[str, Any] = {"statusCode": 400, "error": "Bad Request", "message": message}
            if keys is not None:
                body["validation"] = {"source": "payload", "keys": keys}
            expect(
                f"{method} {payload!r}",
                json.loads(request(server, method, target, payload, 400)),
                body,
            )
    expect("nothing changed", request(server, "GET", path), compact(new))


def check_measured(server: Server) -> None:
    """Check the requests that are measured on the floor, and that it reads its own writes."""
    expect("one store", request(server, "GET", "/api/stores/3"), compact(store(3)))
    expect(
        "by name", request(server, "GET", "/api/stores?name=Store%20000003"), compact([store(3)])
    )
    for method, id, path in (("POST", SEED + 1, "/api/stores"), ("PUT", 3, "/api/stores/3")):
        payload = {"name": f"Bench {id}", "address": f"Lane {id}"}
        changed = compact({"id": id, **payload})
        expect(method, request(server, method, path, payload), changed)
        expect(f"read after {method}", request(server, "GET", f"/api/stores/{id}"), changed)
        expect(
            "by its new name",
            request(server, "GET", f"/api/stores?name=Bench%20{id}"),
            b"[%b]" % changed,
        )


TESTS: dict[str, tuple[Callable[[Server], None], ...]] = {
    "contract": (check_reads, check_writes),
    "measured": (check_measured,),
    "none": (),
}
"""The tests that a system must pass before it is measured, by its `smoke_test`."""
