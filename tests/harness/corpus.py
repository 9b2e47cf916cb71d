"""One request of every kind, good and bad, as raw bytes: both adapters must give the same
responses."""

from collections.abc import Iterator

from tests.harness.payloads import BROKEN, VIOLATIONS, encoded
from tests.harness.refused_requests import ACCEPTED, REFUSED
from tests.harness.sized_requests import OVER
from tests.harness.wire import PAYLOAD, SLOW, chunked, create, request

MANY = 1200
"""Stores with one name, whose list is streamed."""

TARGETS = [
    *(
        "/test",
        "/test?x=1",
        "/test/",
        "/api/stores",
        "/api/stores/",
        "/api/stores?name=Many",
        "/api/stores?name=",
    ),
    *(
        "/api/stores?name=none",
        "/api/stores?name=%ff",
        "/api/stores?name=a&name=b",
        "/api/stores?name=a+%C3%BC",
    ),
    *(
        "/api/stores?limit=2",
        "/api/stores?name=Many&limit=1000&after=9",
        "/api/stores?limit=0&after=x",
    ),
    *(
        "/api/stores/1",
        "/api/stores/01",
        "/api/stores/%31",
        "/api/stores/1?x",
        "/api/stores/0",
        "/api/stores/999999",
    ),
    *(
        "/api/stores/abc",
        "/api/stores/%D9%A1",
        "/api/stores/" + "9" * 30,
        "/api/stores/%2F",
        "/api/stores/a/b",
    ),
    *(
        "/",
        "/nowhere",
        "//",
        "/%74est",
        "/api%2Fstores",
        "*",
        "http://a/test",
        "http://a/api/stores/1",
        "/%ff%00",
    ),
    *(
        "/health/live",
        "/health/ready",
        "/health/live/",
        "/health",
        "/openapi.json",
        "/docs/",
        "/docs/nothing",
    ),
]

METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "TRACE"]
CONDITIONS = [
    *(
        "If-None-Match: *",
        'If-None-Match: "1.a", W/"b"',
        "If-None-Match: 1",
        "If-Match: *",
        'If-Match: "1.a"',
    ),
    *("If-Match: 1", "Idempotency-Key: k", 'Idempotency-Key: "k"', "Idempotency-Key: a b"),
]
TYPES = [
    "application/json",
    "application/x+json; charset=utf-8",
    "text/plain",
    "application/json; charset=latin-1",
]


def corpus() -> Iterator[tuple[str, bytes]]:
    for method in METHODS:
        for target in TARGETS:
            yield f"{method} {target}", request(method, target)
    for field in CONDITIONS:
        for target in ("/api/stores", "/api/stores?name=Many", "/api/stores/1", "/test"):
            yield from (
                (f"{method} {target} {field}", request(method, target, None, field))
                for method in ("GET", "HEAD")
            )
        for method, target in (
            ("POST", "/api/stores"),
            ("PUT", "/api/stores/2"),
            ("PUT", "/api/stores/none"),
            ("PATCH", "/api/stores/2"),
        ):
            yield f"{method} {target} {field}", request(method, target, b'{"name":"C"}', field)
    for method, target in (
        ("POST", "/api/stores"),
        ("PUT", "/api/stores/2"),
        ("PUT", "/api/stores/none"),
        ("PATCH", "/api/stores/2"),
    ):
        yield from writes(method, target)
    yield from ((name, data) for name, (_, data) in REFUSED.items())
    yield from ACCEPTED.items()
    yield from ((f"{what} {status} {len(data)}", data) for what, status, data in OVER)
    yield (
        "a slow one, a write, garbage",
        request("GET", SLOW) + create("Before") + b"garbage\r\n\r\n",
    )
    yield "too large", request("POST", "/api/stores", b" " * (2**20 + 1))


def writes(method: str, target: str) -> Iterator[tuple[str, bytes]]:
    payloads = [encoded(payload) for payload, _, _ in VIOLATIONS]
    for body in (*payloads, *BROKEN):
        yield (
            f"{method} {body!r:.40}",
            request(method, target, body if isinstance(body, bytes) else b""),
        )
    for kind in TYPES:
        field = f"Content-Type: {kind}"
        yield (
            f"{method} {kind}",
            request(method, target, None, field, "Content-Length: 12") + b'{"name":"T"}',
        )
    for body in (
        PAYLOAD,
        b'{"name":"\xc3\xbc","address":""}',
        b'{"id":9,"name":"A","more":[1e400]}',
    ):
        yield f"{method} {body!r}", request(method, target, body)
        yield f"{method} {body!r} chunked", chunked(body, method=method, target=target)
        yield (
            f"{method} {body!r} upgrade",
            request(method, target, body, "Connection: Upgrade", "Upgrade: h2c"),
        )
        yield f"{method} {body!r} twice", request(method, target, body) * 2


CORPUS = list(corpus())
