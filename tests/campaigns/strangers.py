"""Requests of good and hostile parts that many clients send, for `tests/http/test_plain.py`. Pure: made of a seed."""

import random
from collections.abc import Iterator

from tests.campaigns.mutations import MUTATIONS, pieces
from tests.harness.wire import create, request

SEED = 20261122
TRACED = ("X-Request-Id: 7b06d1fd", "Cookie: a=b; c=d", "Accept: */*", "Connection: Keep-Alive", "TE: trailers")
ORDINARY = [
    *(request(method, "/api/stores/1?x=%20", None, *TRACED) for method in ("GET", "HEAD")),
    *(create("A", *TRACED), request("PUT", "/api/stores/1", b"{}", *TRACED), request("POST", "/api/stores", b"")),
    b"GET /api/stores?name=A+B HTTP/1.1\r\nX:\r\nhOST: \t[::1]:80 \t\r\nAuthorization: Bearer \xff\r\n\r\n",
]
LINES = [
    "GET /api/stores/1",
    "GET /api/stores/01",
    "HEAD /api/stores/1",
    "GET /api/stores?name=a",
    "GET /none",
    "PUT /test",
    "PUT /api/stores/1",
    "POST /api/stores",
]
SOME_FIELDS = [
    *(
        "Host: a",
        "host: b:80",
        "Host: a b",
        "X-Request-Id: 1",
        "X-Request-Id: 2",
        "Cookie: a=\xff",
        "X:",
        "Accept : a",
    ),
    *(
        "Content-Length: 0",
        "Content-Length: 1",
        "Origin: http://a",
        "Content-Type: text/plain",
        "content-type: a/json",
    ),
    *("Connection: keep-alive", "connection: close", "Authorization: a", "If-Match: 1", "If-Match: 2", " folded: a"),
]
HOSTILE_FIELDS = [
    *("X-If-Match: 1", "If-Match-X: 1", "X: If-Match: 1", "if-match:1", "IF-MATCH: \t1\t ", "If-Match: \xff\xa0\x85"),
    *(
        "If-Match : 1",
        "If-Match\t: 1",
        " If-Match: 1",
        "\tIf-Match: 1",
        "If-Match",
        ": 1",
        "If-Match:\r\n 1",
        "X\0: 1",
    ),
    *("X: a\nIf-Match: 1", "X: a\rIf-Match: 1", "X: a\r\r\nIf-Match: 1", "X: a\x0bIf-Match: 1", "X: \0", "X: \x7f"),
    *("Content-Length: +1", "Content-Length: 01", "Content-Length: 1, 1", "content-length:1", "Content-Length: "),
    *(
        "Content-Length : 1",
        "Content-Length\n: 1",
        "Content-Length: 1 1",
        "Content-Length: 0x1",
        "Content-Length: \xb2",
    ),
    *(
        "Transfer-Encoding: chunked",
        "TRANSFER-ENCODING: x",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\x0b: x",
    ),
    *("Connection: Keep-Alive, close", "CONNECTION: te", "Proxy-Connection: close", "Connection:", "Connection: x"),
    *("Connection: upgrade\r\nUpgrade: h2c", "Upgrade: h2c", "Expect: 100-continue", "HOST: B", "Host:", "Host: a,b"),
    *(
        "Authorization: Bearer a",
        "Sec-Fetch-Site: none",
        "Sec-Fetch-Site: cross-site",
        "Accept-Language: de",
        "Referer: http://b/",
        "\r\n".join(["X: y"] * 99),
        "Cookie: " + "c" * 1100,
        "X" * 300 + ": y",
    ),
]
# Of some fields each value is another one.
SOME_FIELDS += ["X: 1", "X: 2", "Cookie: b=\t"]
# A condition is read apart from the other fields.
SOME_FIELDS += [
    *('If-None-Match: "1.aaaaaaaa"', 'if-none-match:\tW/"2.aaaaaaaa" , "3.a" '),
    *("If-None-Match: *", "If-None-Match: a"),
]
HOSTILE_FIELDS += [
    field.replace("If-M", "If-None-M").replace("if-m", "if-none-m").replace("IF-M", "IF-NONE-M")
    for field in HOSTILE_FIELDS
    if "if-match" in field.lower()
]
SOME_FIELDS += ['Idempotency-Key: "a-1"', "idempotency-key:\ta-2 ", "Idempotency-Key: a b", "Idempotency-Key:"]
HOSTILE_FIELDS += [
    field.replace("If-None-Match", "Idempotency-Key") for field in HOSTILE_FIELDS if "If-None-M" in field
]
HOSTILE_FIELDS += [
    *('If-None-Match: "\xe9"', "If-None-Match:", 'If-None-Match: "a\r'),
    *('If-None-Match: "a"\r\r', "If-None-Match: \0"),
]
BODIES = ["", "", "", "{", "x", "1\r\nx\r\n0\r\n\r\n", "GET /test HTTP/1.1\r\nHost: a\r\n\r\n"]
HOSTILE_LINES = [
    *("GET /test HTTP/1.0", "GET http://a/test HTTP/1.1", "OPTIONS * HTTP/1.1", "GET * HTTP/1.1", "GET /# HTTP/1.1"),
    *(
        "GET  /test HTTP/1.1",
        "GET /test  HTTP/1.1",
        "GET /test HTTP/1.1 ",
        "get /test HTTP/1.1",
        "GET /test HTTP/1.10",
    ),
    *(
        "GET /te%73t HTTP/1.1",
        "GET /test%00 HTTP/1.1",
        "GET /\xff HTTP/1.1",
        "GET //test HTTP/1.1",
        'GET /" HTTP/1.1',
    ),
    *("GET /test\nX: HTTP/1.1", "GET /test\tHTTP/1.1", "\rGET /test HTTP/1.1", "\nHEAD / HTTP/1.1", "GET /test", ""),
    *("DELETE /test HTTP/1.1", "CONNECT a:80 HTTP/1.1", "FOO / HTTP/1.1", "GET /test HTTP/1.2", "GET /test HTTP/2.0"),
]


def mixed(count: int) -> Iterator[bytes]:
    """Yield requests of a few lines, fields and bodies, some of them none; their parts come again and again."""
    chance = random.Random(SEED)
    for _ in range(count):
        fields = [*SOME_FIELDS[: chance.random() < 0.9], *chance.sample(SOME_FIELDS, chance.randrange(4))]
        chance.shuffle(fields)
        head = [chance.choice(LINES) + " HTTP/1.1", *fields, "", chance.choice(["", "", "", "{"])]
        before = chance.choice(
            ["", "", "\r\n", f"{LINES[0]} HTTP/1.1\r\n", f"{LINES[0]} HTTP/1.1\r\n\r\n"]
        )  # what is none
        yield (before + "\r\n".join(head)).encode("latin-1")


def clients(count: int) -> Iterator[list[bytes]]:
    """Yield what so many clients send, in reads: good and hostile parts, damage, and traps for who comes next."""
    chance = random.Random(SEED)
    following = _hostile(chance)
    for _ in range(count):
        data, following = following, _hostile(chance)
        others = [data, following, *ORDINARY]
        if chance.random() < 0.2:
            data = chance.choice(MUTATIONS)(chance, data, others) or data
        sent = [data]
        if chance.random() < 0.2:
            behind = chance.choice([following, unfinished(following), *ORDINARY])
            sent = [data + behind] if chance.random() < 0.5 else [data, behind]
        if chance.random() < 0.1:
            sent.insert(0, chance.choice([b"\r", b"\n", b"\r\n", b"\r\r"]))
        yield pieces(chance, sent) if chance.random() < 0.2 else sent


def _hostile(chance: random.Random) -> bytes:
    line = f"{chance.choice(LINES)} HTTP/1.1" if chance.random() < 0.85 else chance.choice(HOSTILE_LINES)
    fields = [
        *SOME_FIELDS[: chance.random() < 0.95],
        *chance.sample(SOME_FIELDS[3:], chance.choice((0, 0, 1, 2))),
        *chance.sample(HOSTILE_FIELDS, chance.choice((0, 0, 1))),
    ]
    body = chance.choice(BODIES)
    if chance.random() < 0.9:
        fields = [field for field in fields if not field.startswith("Content-Length: ")]
        fields += [f"Content-Length: {len(body)}"] * bool(body)
    chance.shuffle(fields)
    return ("\r\n".join([line, *fields, "", ""]) + body).encode("latin-1")


def unfinished(following: bytes) -> bytes:
    """Return the beginning of a request of which, if they were read on, the following bytes would be the end."""
    return b"POST /test HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(following)
