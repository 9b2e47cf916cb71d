"""Pages of other sites: what they may read and write, and on which responses they are told so
(decision 43)."""

from pathlib import Path
from typing import Any

import pytest

from storekeeper.api.origins import WebPages
from storekeeper.domain.errors import Unavailable
from storekeeper.http.deadlines import REQUEST_TIMEOUT
from tests.harness.cases import case
from tests.harness.in_process import exchange, inside, last_response, receive, some_stores, statuses
from tests.harness.process import Response
from tests.harness.wire import chunked, request

SHOP = "https://shop.example"
NAMED = f"Origin: {SHOP}"
OTHER = "Origin: https://shop.example.evil.example"
HERE = b"Host: 127.0.0.1:8080\r\n"
EXPOSED = (
    "etag, link, total-count, retry-after, content-location, idempotent-replayed, www-authenticate"
)
CORS = {
    "access-control-allow-origin": SHOP,
    "access-control-expose-headers": EXPOSED,
    "vary": "origin",
}


def fields(*written: str) -> list[tuple[bytes, bytes]]:
    pairs = [field.encode().partition(b": ") for field in written]
    return [(name.lower(), value) for name, _, value in pairs]


SENT: list[tuple[tuple[str, ...], bool]] = [
    ((), True),
    (("Sec-Fetch-Site: same-origin", "Origin: http://elsewhere.example"), True),
    (("Sec-Fetch-Site: none",), True),
    (("Sec-Fetch-Site: same-site",), False),
    (("Sec-Fetch-Site: cross-site",), False),
    (("Sec-Fetch-Site: cross-site", "Origin: http://stores.example"), False),
    (("Sec-Fetch-Site: cross-site", NAMED), True),
    (("Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none"), False),
    (("Origin: http://stores.example",), True),
    (("Origin: https://STORES.example",), True),
    (("Origin: http://stores.example:81",), False),
    (("Origin: http://elsewhere.example",), False),
    (("Origin: null",), False),
    (("Origin: ",), False),
    ((NAMED,), True),
    ((NAMED, OTHER), False),
    ((NAMED, "Origin: http://stores.example"), False),
]


def test_what_may_change_something_is_admitted_from_our_pages_and_from_named_ones() -> None:
    for sent, admitted in SENT:
        with case(sent):
            headers = fields("Host: stores.example", *sent)
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                assert (WebPages([SHOP]).respond(method, headers) is None) == admitted
            for safe in ("GET", "HEAD", "OPTIONS"):
                assert WebPages([SHOP]).respond(safe, headers) is None


def test_an_opaque_origin_does_not_equal_an_empty_host() -> None:
    assert WebPages().respond("PUT", fields("Host: ", "Origin: null")) is not None


KNOWN = [
    "localhost",
    "LOCALHOST:8080",
    "localhost.",
    "127.0.0.1:8080",
    "[::1]:8080",
    "10.1.2.3",
    "stores.example",
]
KNOWN += ["Stores.Example:443"]
UNKNOWN = [
    "rebound.example:8080",
    "a.stores.example",
    "stores.example.rebound.example",
    "localhost.rebound.example",
]
UNKNOWN += ["127.0.0.1.rebound.example", "%6cocalhost", "[::1].example", ""]


@pytest.mark.parametrize("host", [*KNOWN, *UNKNOWN])
def test_a_page_reaches_the_loopback_address_only_by_a_known_name(host: str) -> None:
    hosts = WebPages(hosts=["stores.example"])
    for mark in (
        "Origin: http://a",
        "Referer: http://a/",
        "Sec-Fetch-Site: none",
        "Accept-Language: de",
    ):
        assert (hosts.respond("GET", fields(f"Host: {host}", mark)) is None) == (host in KNOWN)
    assert hosts.respond("GET", fields(f"Host: {host}", "User-Agent: curl", "Accept: */*")) is None


def cors_of(response: Response) -> dict[str, str]:
    return {
        name: value
        for name, value in response.headers.items()
        if name.startswith("access-") or name == "vary"
    }


CASES = {
    "a store": (request("GET", "/api/stores/1", host=HERE), 200),
    "only its head": (request("HEAD", "/api/stores/1", host=HERE), 200),
    "a list in parts": (request("GET", "/api/stores", host=HERE), 200),
    "text": (request("GET", "/test", host=HERE), 200),
    "no such store": (request("GET", "/api/stores/9999", host=HERE), 404),
    "no such path": (request("GET", "/nowhere", host=HERE), 404),
    "no such method": (request("DELETE", "/api/stores", host=HERE), 405),
    "the methods": (request("OPTIONS", "/api/stores", host=HERE), 204),
    "the document": (request("GET", "/openapi.json", host=HERE), 200),
    "the page": (request("GET", "/docs", host=HERE), 200),
    "health": (request("GET", "/health/live", host=HERE), 200),
    "nothing new": (request("GET", "/api/stores/1", None, "If-None-Match: *", host=HERE), 304),
    "nothing new in the list": (
        request("GET", "/api/stores", None, "If-None-Match: *", host=HERE),
        304,
    ),
    "too late": (
        request("PUT", "/api/stores/1", b'{"name":"A"}', 'If-Match: "0.other"', host=HERE),
        412,
    ),
    "too late to add": (
        request("POST", "/api/stores", b'{"name":"A"}', 'If-Match: "0.other"', host=HERE),
        412,
    ),
    "a bad query": (request("GET", "/api/stores?name=a&name=b", host=HERE), 400),
    "a bad payload": (request("PUT", "/api/stores/1", b"{}", host=HERE), 400),
    "too long, as it says": (
        request("PUT", "/api/stores/1", None, "Content-Length: 1048577", host=HERE),
        413,
    ),
    "a long field": (request("GET", "/test", None, "a: " + "b" * 17_000, host=HERE), 431),
    "a field too many": (request("GET", "/test", None, *["a: b"] * 100, host=HERE), 431),
    "an unknown coding": (
        request("POST", "/api/stores", None, "Transfer-Encoding: br", host=HERE),
        501,
    ),
}


def with_field(data: bytes, field: str) -> bytes:
    return data.replace(HERE, HERE + field.encode() + b"\r\n", 1)


async def test_every_response_to_a_named_origin_says_so(tmp_path: Path) -> None:
    """Several times, because a response may come from the cache, which has no client's origin."""
    some_stores(tmp_path, 1500)
    async with inside(tmp_path, cors_origin=[SHOP]) as service:
        for name, (data, status) in CASES.items():
            with case(name):
                for _ in range(3):
                    named = await exchange(service, with_field(data, NAMED))
                    assert (named.status, cors_of(named)) == (status, CORS)
                    others = [with_field(data, OTHER), data]
                    for refused in others if not data.startswith((b"P", b"DEL")) else others[1:]:
                        response = await exchange(service, refused)
                        assert (response.status, cors_of(response)) == (status, {"vary": "origin"})
                        assert response.body == named.body


async def test_without_a_named_origin_no_response_has_a_field_for_pages(tmp_path: Path) -> None:
    some_stores(tmp_path, 1)
    async with inside(tmp_path) as service:
        for name, (data, status) in CASES.items():
            with case(name):
                for sent in (data, with_field(data, OTHER)):
                    response = await exchange(service, sent)
                    assert cors_of(response) == {}
                    from_elsewhere = sent is not data and data.startswith((b"PUT", b"DEL", b"POST"))
                    assert response.status == (403 if from_elsewhere and status <= 412 else status)


async def test_a_refusal_in_the_middle_of_a_request_is_readable_once_its_origin_was_read(
    tmp_path: Path,
) -> None:
    async with inside(tmp_path, cors_origin=[SHOP], allowed_host=["stores.example"]) as service:
        origin = NAMED.encode() + b"\r\n"
        long = await exchange(service, chunked(b" " * 600_000, b" " * 600_000, fields=origin))
        assert (long.status, cors_of(long)) == (413, CORS)
        for begun, cors in (
            (b"GET /test HTTP/1.1\r\n" + origin + b"X: ", CORS),
            (b"GET /test HTTP/1.1\r\n" + origin, CORS),
            (b"GET /test HTTP/1.1\r\n" + origin[:-2], {"vary": "origin"}),
            (request("PUT", "/api/stores/1", None, NAMED, "Content-Length: 9"), CORS),
            (chunked(b"{", fields=origin)[:-5], CORS),
        ):
            connection, line = service.connect()
            receive(connection, begun)
            connection.sweep(connection.loop.time() + REQUEST_TIMEOUT + 1)
            late = last_response(line)
            assert (late.status, cors_of(late)) == (408, cors)


HEAD = chunked(fields=NAMED.encode() + b"\r\n").removesuffix(b"0\r\n\r\n")
REFUSED_LATE = {
    "an invalid size": (HEAD + b"x\r\n", 400),
    "more than its chunk": (HEAD + b"1\r\n{}", 400),
    "an invalid trailer": (HEAD + b"0\r\n:\r\n", 400),
    "a long extension": (HEAD + b"0;" + b"a" * 17_000, 431),
    "trailers without end": (HEAD + b"0\r\n" + b"a:\r\n" * 101, 431),
    "two lengths": (
        request("PUT", "/test", None, NAMED, "Content-Length: 1", "Content-Length: 2"),
        400,
    ),
    "an invalid length": (request("PUT", "/test", None, NAMED, "Content-Length: x"), 400),
    "an invalid line after it": (request("GET", "/test", None, NAMED, "a field: b"), 400),
    "a folded line behind it": (request("GET", "/test", None, NAMED, " a: b"), 400),
    "a line too long behind it": (request("GET", "/test", None, NAMED, "a: " + "b" * 17_000), 431),
    "no host": (request("GET", "/test", None, NAMED, host=b""), 400),
}


@pytest.mark.parametrize("size", [1, 2**20])
async def test_a_refusal_of_what_follows_its_origin_is_readable_however_the_bytes_are_cut(
    size: int, tmp_path: Path
) -> None:
    async with inside(tmp_path, cors_origin=[SHOP], allowed_host=["stores.example"]) as service:
        seen = {}
        for case, (data, _) in REFUSED_LATE.items():
            connection, line = service.connect()
            for start in range(0, len(data), size):
                receive(connection, data[start : start + size])
            refused = last_response(line)
            seen[case] = refused.status, cors_of(refused)
        assert seen == {case: (status, CORS) for case, (_, status) in REFUSED_LATE.items()}


async def test_a_503_is_readable_and_a_preflight_needs_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside(tmp_path, cors_origin=[SHOP]) as service:

        def unavailable(*_: object) -> None:
            raise Unavailable("The database is locked")

        for name in ("get", "list", "write", "check"):
            monkeypatch.setattr(service.collection, name, unavailable)
        for method, target, body in (
            ("GET", "/api/stores", None),
            ("POST", "/api/stores", b'{"name":"A"}'),
            ("GET", "/health/ready", None),
        ):
            locked = await exchange(service, request(method, target, body, NAMED, host=HERE))
            assert (locked.status, cors_of(locked)) == (503, CORS)
        for target in (
            "/api/stores",
            "/api/stores/1",
            "/nowhere",
            "/health/ready",
            "/openapi.json",
        ):
            asked = request(
                "OPTIONS", target, None, NAMED, "Access-Control-Request-Method: PUT", host=HERE
            )
            allowed = await exchange(service, asked)
            assert (allowed.status, allowed.body) == (204, b"")
            assert cors_of(allowed) == {
                **CORS,
                "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH",
                "access-control-allow-headers": "authorization, content-type, if-match,"
                " if-none-match,"
                " idempotency-key, last-event-id",
                "access-control-max-age": "600",
            }
            refused = await exchange(service, asked.replace(NAMED.encode(), OTHER.encode()))
            assert cors_of(refused) == {"vary": "origin"}


async def test_what_a_page_of_another_site_sends_changes_nothing_on_any_route(
    tmp_path: Path,
) -> None:
    some_stores(tmp_path, 1)
    async with inside(tmp_path) as service:
        before = await exchange(service, request("GET", "/api/stores", host=HERE))
        for target in (
            "/api/stores",
            "/api/stores/1",
            "/test",
            "/nowhere",
            "/docs",
            "/health/live",
        ):
            for method in ("POST", "PUT", "DELETE"):
                for mark in (OTHER, "Origin: null", "Sec-Fetch-Site: cross-site"):
                    sent = request(method, target, b'{"name":"Evil"}', mark, host=HERE)
                    refused = await exchange(service, sent)
                    assert refused.status == refused.json["statusCode"] == 403
                    assert refused.json["error"] == "Forbidden"
        after = await exchange(service, request("GET", "/api/stores", host=HERE))
        assert after.body == before.body


@pytest.mark.parametrize("sign", ["Accept-Language: en", "Referer: http://rebound.example:8080/"])
async def test_a_rebound_name_reads_nothing_and_writes_nothing(sign: str, tmp_path: Path) -> None:
    """Such a page's GET has neither Origin nor Sec-Fetch-Site; and the next client may ask for
    the same bytes."""
    some_stores(tmp_path, 1)
    rebound = b"Host: rebound.example:8080\r\n"
    async with inside(tmp_path, allowed_host=["stores.example"]) as service:
        for _ in range(3):
            for target in (
                "/api/stores",
                "/api/stores/1",
                "/openapi.json",
                "/docs",
                "/health/ready",
                "/",
            ):
                read = request("GET", target, None, sign, host=rebound)
                refused = await exchange(service, read)
                assert refused.status == 403
                assert b"--allowed-host" in refused.body
                for host in (HERE, b"Host: stores.example\r\n"):
                    fine = await exchange(service, request("GET", target, None, sign, host=host))
                    assert fine.status in (200, 404)
            own = request(
                "POST",
                "/api/stores",
                b'{"name":"E"}',
                "Origin: http://rebound.example:8080",
                host=rebound,
            )
            assert (await exchange(service, own)).status == 403
            program = await exchange(service, request("GET", "/api/stores", host=rebound))
            assert (program.status, len(program.json)) == (200, 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "::ffff:127.0.0.1"])
async def test_at_every_form_of_the_loopback_address_a_rebound_name_is_refused(
    host: str, tmp_path: Path
) -> None:
    async with inside(tmp_path, host=host, auth="open") as service:
        sent = request(
            "GET", "/api/stores", None, "Accept-Language: en", host=b"Host: rebound.example\r\n"
        )
        assert (await exchange(service, sent)).status == 403


@pytest.mark.parametrize(
    ("settings", "status"), [({"host": "0.0.0.0"}, 200), ({"auth": "all"}, 401)]
)
async def test_off_the_loopback_address_or_where_all_need_a_token_any_name_is_good(
    settings: dict[str, Any], status: int, tmp_path: Path
) -> None:
    async with inside(tmp_path, **settings) as service:
        sent = request(
            "GET", "/api/stores", None, "Accept-Language: en", host=b"Host: stores.example\r\n"
        )
        assert (await exchange(service, sent)).status == status


@pytest.mark.parametrize(
    "framing", ["Content-Length: 9000", "Transfer-Encoding: chunked", "Expect: 100-continue"]
)
async def test_what_is_refused_by_its_head_is_refused_before_its_body_is_read(
    framing: str, tmp_path: Path
) -> None:
    async with inside(tmp_path) as service:
        length = ["Content-Length: 3"] if "Expect" in framing else []
        for mark, expected in ((OTHER, [403]), ("X: y", [])):
            connection, line = service.connect()
            receive(
                connection,
                request("POST", "/api/stores", None, framing, *length, mark, host=HERE),
            )
            received = [status for status in statuses(line) if status != 100]
            assert received == expected
            assert (b" 100 Continue" in line.sent) == ("Expect" in framing and not expected)
            assert line.ended == bool(expected)
            assert (b"connection: close" in line.sent) == bool(expected)
