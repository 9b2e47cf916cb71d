"""Mutants whose responses look wrong: the liveness route, status, headers, JSON, and the looks
of a store."""

import json
from collections.abc import Callable
from typing import Any

from tests.storeapi_check.mutants import STORE_OPERATIONS, breaks
from tests.storeapi_check.reference import JSON, GenericReference, Reference, Response, Store

# The liveness route

for wrong, body in {"in lower case": b"ok", "with a line end": b"OK\n", "as JSON": b'"OK"'}.items():
    breaks(
        f"OK {wrong}",
        "test-returns-ok",
        test=lambda self, b=body: self.send("test", 200, b, "text/plain"),
    )
breaks("OK called JSON", "test-returns-ok", test=lambda self: self.send("test", 200, b"OK", JSON))
breaks(
    "OK with 201", "test-returns-ok", test=lambda self: self.send("test", 201, b"OK", "text/plain")
)
breaks("no /test", "test-returns-ok", test=lambda self: self.missing("test"))
breaks(
    "OK cacheable",
    "success-has-cache-control",
    test=lambda self: Response(200, b"OK", {"content-type": "text/plain"}),
)

# Headers and status


def header(
    operation: str, failed: bool, name: str, value: str | None
) -> Callable[..., dict[str, str]]:
    """Another value, or none, for one header of one operation's successes or errors."""

    def headers(
        self: Reference, asked: str, status: int, headers: dict[str, str]
    ) -> dict[str, str]:
        if asked == operation and (status >= 400) == failed:
            headers = {key: text for key, text in headers.items() if key != name}
            return headers if value is None else {**headers, name: value}
        return headers

    return headers


for operation in STORE_OPERATIONS:
    for name, value in (
        ("content-type", "application/json"),
        ("content-type", "application/json;charset=UTF-8"),
        ("cache-control", None),
        ("cache-control", "no-cache, no-store"),
    ):
        breaks(
            f"{name} {value} on {operation}",
            f"success-has-{name}",
            headers=header(operation, False, name, value),
        )
for operation in ("create", "update"):
    for of, mode in ((Reference, "detailed"), (GenericReference, "generic")):
        for name, value in (("content-type", "application/problem+json"), ("cache-control", None)):
            breaks(
                f"{name} {value} on {mode} errors of {operation}",
                f"error-has-{name}",
                of=of,
                headers=header(operation, True, name, value),
            )
    breaks(
        f"422 on {operation}",
        f"{operation}-rejects-missing-name",
        reject=lambda self, asked, problems, wrong=operation: (
            self.error(asked, 422, "Unprocessable Content", "no")
            if asked == wrong
            else Reference.reject(self, asked, problems)
        ),
    )
for operation in STORE_OPERATIONS:
    breaks(
        f"201 on {operation}",
        "success-has-status-200",
        success_status=lambda self, asked, wrong=operation: 201 if asked == wrong else 200,
    )
breaks(
    "no headers on an empty array",
    "success-has-cache-control",
    success=lambda self, operation, value: (
        Response(200, b"[]", {"content-type": JSON})
        if value == []
        else Reference.success(self, operation, value)
    ),
)

# A store as it is shown


def shows(operation: str, change: Callable[[Store], Any]) -> Callable[..., Any]:
    """Another look of stores in the responses of one operation."""
    return lambda self, store, asked: change(store) if asked == operation else store


def without_null(store: Store) -> Store:
    return {key: value for key, value in store.items() if value is not None}


LOOKS: dict[str, tuple[str, Callable[[Store], Any]]] = {
    "an extra property": ("store-has-three-properties", lambda store: {**store, "version": 1}),
    "no address instead of null": ("store-has-three-properties", without_null),
    "id as a string": ("store-id-is-an-integer", lambda store: {**store, "id": str(store["id"])}),
    "id as a float": ("store-id-is-an-integer", lambda store: {**store, "id": float(store["id"])}),
    "address as an array": (
        "store-address-is-a-string-or-null",
        lambda store: {**store, "address": []},
    ),
}
for operation in STORE_OPERATIONS:
    for look, (check, change) in LOOKS.items():
        breaks(f"{look} on {operation}", check, show=shows(operation, change))
for operation, check in (
    ("list", "list-has-every-store"),
    ("filter", "create-without-address-gives-null"),
    ("read", "create-without-address-gives-null"),
    ("create", "create-without-address-gives-null"),
    ("update", "update-without-address-gives-null"),
):
    blank = shows(operation, lambda store: {**store, "address": store["address"] or ""})
    breaks(f"empty address instead of null on {operation}", check, show=blank)
breaks(
    "name as an object",
    "store-name-is-a-string",
    show=shows("read", lambda store: {**store, "name": {}}),
)
breaks(
    "create returns an array",
    "create-returns-the-new-store",
    show=shows("create", lambda store: [store]),
)
breaks(
    "create returns a wrapper",
    "create-returns-the-new-store",
    show=shows("create", lambda s: {"store": s}),
)
breaks("create returns null", "create-returns-the-new-store", show=shows("create", lambda _: None))
breaks(
    "update returns null", "update-returns-the-updated-store", show=shows("update", lambda _: None)
)
breaks(
    "create returns only the id",
    "store-has-three-properties",
    show=shows("create", lambda s: {"id": s["id"]}),
)

# JSON

ENCODINGS: dict[str, Callable[[Any], bytes]] = {
    "trailing text": lambda value: json.dumps(value).encode() + b" end",
    "Latin-1": lambda value: json.dumps(value, ensure_ascii=False).encode("latin-1", "replace"),
    "a key twice": lambda value: json.dumps(value).encode().replace(b'{"id"', b'{"name": "", "id"'),
}
for wrong, encode in ENCODINGS.items():
    breaks(f"JSON with {wrong}", "bodies-are-json", encode=lambda self, value, e=encode: e(value))
