"""Services that differ only where the contract is silent: all of them conform."""

import json
from collections import Counter
from typing import Any

from tests.storeapi_check.reference import Problem, Reference, Response


class Silent500(Reference):
    """Responds with the contract's 500 where it is silent."""

    def missing(self, operation: str) -> Response:
        return self.error(
            operation, 500, "Internal Server Error", "An internal server error occurred"
        )


class NullForMissing(Reference):
    """Responds with null for a store that does not exist, and 204 to its update."""

    def missing(self, operation: str) -> Response:
        return self.success(operation, None) if operation == "read" else Response(204, b"")


class PlainMissing(Reference):
    """Errors that the contract does not mention are plain text."""

    def missing(self, operation: str) -> Response:
        return Response(404, b"gone", {"content-type": "text/plain"})


class Strict(Reference):
    """Refuses unknown keys, empty addresses, blank names and U+0000, and tells one problem at a
    time."""

    def problems(self, payload: Any, operation: str) -> list[Problem]:
        found = super().problems(payload, operation)[:1]
        if found:
            return found
        unknown = [
            (key, f'"{key}" is not allowed') for key in payload if key not in {"name", "address"}
        ]
        if payload.get("address") == "":
            unknown.append(("address", '"address" is not allowed to be empty'))
        if not payload["name"].strip() or "\0" in payload["name"]:
            unknown.append(("name", '"name" is not allowed'))
        return unknown


class Lenient(Reference):
    """Takes null for no address, and anything that begins with digits for an id."""

    def address_problems(self, payload: Any, operation: str) -> list[Problem]:
        return (
            []
            if payload.get("address", "") is None
            else super().address_problems(payload, operation)
        )

    def find(self, id: str) -> dict[str, Any] | None:
        digits = id[: len(id) - len(id.lstrip("0123456789"))]
        return super().find(digits)


class Units(Reference):
    """Counts UTF-16 units."""

    def length(self, name: str) -> int:
        return len(name.encode("utf-16-le")) // 2


class OtherLooks(Reference):
    """Another order of keys and stores, more members and headers, other messages where the
    contract has none."""

    def all(self) -> list[dict[str, Any]]:
        return self.stores[::-1]

    def show(self, store: dict[str, Any], operation: str) -> Any:
        return dict(reversed(store.items()))

    def encode(self, value: Any) -> bytes:
        return b"\r\n " + super().encode(value).replace(b", ", b" ,\n\t") + b"\n"

    def name_problems(self, payload: Any, operation: str) -> list[Problem]:
        found = super().name_problems(payload, operation)
        return [
            (key, text.replace("length must be less than or", "must be shorter or"))
            for key, text in found
        ]

    def validation(self, keys: Any, operation: str) -> Any:
        return {**super().validation(keys, operation), "details": keys}

    def headers(self, operation: str, status: int, headers: dict[str, str]) -> dict[str, str]:
        return {**{name.title(): value for name, value in headers.items()}, "ETag": '"1"'}


class Html(Reference):
    """Calls the text of /test HTML, as the original's framework does with any string."""

    def test(self) -> Response:
        return self.send("test", 200, b"OK", "text/html; charset=utf-8")


class Empty(Reference):
    """Starts without stores."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = []


class OddExamples(Reference):
    """Its example stores keep no rule for names."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = [
            {"id": 1, "name": "", "address": ""},
            {"id": 2, "name": "x" * 99, "address": None},
        ]


class Fails(Reference):
    """Fails over anything but a JSON object."""

    def problems(self, payload: Any, operation: str) -> list[Problem]:
        return super().problems(payload, operation) if isinstance(payload, dict) else []

    def values(self, payload: Any, before: dict[str, Any] | None, operation: str) -> dict[str, Any]:
        return super().values(payload, before, operation) if isinstance(payload, dict) else {}

    def handle(self, method: str, target: str, body: bytes) -> Response:
        if method in {"POST", "PUT"} and not isinstance(self.parse(body), dict):
            return self.error(
                "other", 500, "Internal Server Error", "An internal server error occurred"
            )
        return super().handle(method, target, body)


class Recording(Reference):
    """Remembers the methods that were used."""

    def __init__(self) -> None:
        super().__init__()
        self.methods: Counter[str] = Counter()

    def handle(self, method: str, target: str, body: bytes) -> Response:
        self.methods[method] += 1
        return super().handle(method, target, body)


class Elsewhere(Recording):
    """No variant: another service, which has none of the paths."""

    def handle(self, method: str, target: str, body: bytes) -> Response:
        return super().handle(method, "/elsewhere", body)


class Hostile(Reference):
    """No variant: puts what terminals, Rich and XML take for their own into its responses."""

    def show(self, store: dict[str, Any], operation: str) -> Any:
        return {**store, "name": "\x1b[31m[red]\0\ud800</failure>&\u202e"}

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()


VARIANTS: tuple[type[Reference], ...] = (
    *(
        Silent500,
        NullForMissing,
        PlainMissing,
        Strict,
        Lenient,
        Units,
        OtherLooks,
        Html,
        Empty,
        OddExamples,
        Fails,
    ),
)
