"""The heads that browsers, libraries and proxies send mean the same on the short way and on the careful one."""

from itertools import count
from pathlib import Path

import pytest

from storekeeper.http.connection import Connection
from storekeeper.stores import Payload
from tests.harness.client import fill
from tests.harness.in_process import Careful, Inside, inside, last_response, run, settled
from tests.harness.process import Response
from tests.harness.stores import shown

CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36"

SHORT = {
    "Chrome": f"""Host: 127.0.0.1:8080
Connection: keep-alive
sec-ch-ua-platform: "Linux"
User-Agent: {CHROME}
sec-ch-ua: "Chromium";v="130", "Not?A_Brand";v="99"
@
Accept: */*
Origin: http://127.0.0.1:8080
Sec-Fetch-Site: same-origin
Sec-Fetch-Mode: cors
Referer: http://127.0.0.1:8080/docs
Accept-Encoding: gzip, deflate, br, zstd
Accept-Language: en-US,en;q=0.9""",
    "Safari": """Host: 127.0.0.1:8080
Origin: http://127.0.0.1:8080
Accept: */*
@
Connection: keep-alive
Sec-Fetch-Site: same-origin
Accept-Language: de-DE,de;q=0.9
Priority: u=3, i""",
    "curl --compressed": """Host: 127.0.0.1:8080
User-Agent: curl/8.11.0
Accept: */*
Accept-Encoding: deflate, gzip, br, zstd
@""",
    "requests": """Host: 127.0.0.1:8080
User-Agent: python-requests/2.32.3
Accept-Encoding: gzip, deflate
Accept: */*
Connection: keep-alive
@""",
    "undici": """host: 127.0.0.1:8080
connection: keep-alive
@
accept: */*
accept-language: *
sec-fetch-mode: cors
user-agent: node
accept-encoding: gzip, deflate""",
    "okhttp": """@
Host: 127.0.0.1:8080
Connection: Keep-Alive
Accept-Encoding: gzip
User-Agent: okhttp/4.12.0""",
    "Go with OpenTelemetry": """Host: 127.0.0.1:8080
User-Agent: Go-http-client/1.1
@
Traceparent: 00-{0:032x}-{0:016x}-01
Accept-Encoding: gzip""",
    ".NET": """Host: 127.0.0.1:8080
traceparent: 00-{0:032x}-{0:016x}-00
@""",
    "Googlebot": """Host: 127.0.0.1:8080
Connection: keep-alive
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8
From: googlebot(at)googlebot.com
User-Agent: Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)
If-Modified-Since: Sat, 23 Nov 2024 10:00:00 GMT
@""",
    "Envoy": """host: 127.0.0.1:8080
user-agent: curl/8.11.0
accept: */*
@
x-forwarded-proto: http
x-request-id: {0:08x}-0000-4000-8000-{0:012x}
x-envoy-expected-rq-timeout-ms: 15000
x-b3-traceid: {0:032x}
x-b3-sampled: 0""",
    "an AWS load balancer": """X-Forwarded-For: 203.0.113.{0}
X-Forwarded-Proto: https
X-Forwarded-Port: 443
Host: 127.0.0.1:8080
X-Amzn-Trace-Id: Root=1-{0:08x}-{0:024x}
@
user-agent: curl/8.11.0""",
    "CloudFront": """Host: 127.0.0.1:8080
User-Agent: Amazon CloudFront
X-Amz-Cf-Id: {0:040x}==
Connection: Keep-Alive
Via: 2.0 {0:032x}.cloudfront.net (CloudFront)
X-Forwarded-For: 203.0.113.{0}
@""",
}
"""Fields by what sends them: `@` stands for those of the request, `{0}` for what is another each time."""

CAREFUL = {
    "Java": """Connection: Upgrade, HTTP2-Settings
@
Host: 127.0.0.1:8080
HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA
Upgrade: h2c
User-Agent: Java-http-client/21.0.5""",
    ".NET Framework": """@
Host: 127.0.0.1:8080
Expect: 100-continue
Connection: Keep-Alive""",
}
"""What needs care: an upgrade that is not taken, a body that is held back."""

ASKED = [
    ("GET", "/api/stores", ""),
    ("GET", "/api/stores/2", ""),
    ("GET", "/api/stores/3", ""),
    ("HEAD", "/api/stores/2", ""),
    ("GET", "/api/stores?limit=1&after=1", ""),
    ("GET", "/api/stores/2", 'If-None-Match: "2.aaaaaaaa", "1.aaaaaaaa"\r\n'),
    ("POST", "/api/stores", 'Idempotency-Key: "{0}"\r\n'),
    ("POST", "/api/stores", "Idempotency-Key: {0}-once-more\r\n"),
    ("PUT", "/api/stores/1", "If-Match: *\r\nIdempotency-Key: {0}\r\n"),
]


def written(fields: str, method: str, target: str, more: str, number: int) -> bytes:
    """Return a request as that client writes it."""
    name = f"Store {number}"
    body = f'{{"name":"{name}"}}' if method in ("POST", "PUT") else ""
    own = more + (f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else "")
    lines = "".join(own if line == "@" else f"{line}\r\n" for line in fields.split("\n"))
    return (f"{method} {target} HTTP/1.1\r\n{lines}\r\n".format(number) + body).encode()


async def sent(service: Inside, way: type[Connection], data: bytes) -> Response:
    connection, line = service.connect(way)
    connection.data_received(data)
    await settled(connection)
    connection.connection_lost(None)
    response = last_response(line)
    response.headers.pop("idempotent-replayed", None)  # of two with one key the second is
    return response


@pytest.mark.parametrize("client", [*SHORT, *CAREFUL])
def test_what_a_real_client_sends_means_the_same_on_both_ways(tmp_path: Path, client: str) -> None:
    fields = SHORT.get(client) or CAREFUL[client]
    fill(tmp_path, [Payload("One"), Payload("Two")])
    numbers = count(1)

    async def scenario() -> None:
        async with inside(tmp_path) as service:
            for _ in range(10):  # what is learned from some heads is used for those that follow
                for method, target, more in ASKED:
                    number = next(numbers)
                    data = written(fields, method, target, more, number)
                    assert (service.service.runtime.plain.read(data) is not None) is (client in SHORT), data
                    short, careful = [await sent(service, way, data) for way in (Connection, Careful)]
                    assert (short.status, short.headers, short.body) == (
                        careful.status,
                        careful.headers,
                        careful.body,
                    )
                    missing = number == 3  # nobody has created it yet
                    assert short.status == (404 if missing else 200)
                    if method == "PUT":
                        assert short.json == shown(1, f"Store {number}")

    run(scenario())
