"""The kit's client: what it reads, what it refuses to read, and what it makes of rude services."""

import socket
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import storeapi_check
from storeapi_check import CannotCheck, examine
from storeapi_check.client import (
    MAX_BODY_BYTES,
    MAX_EXCERPT_BYTES,
    MAX_LIST_BYTES,
    Client,
    Exchange,
    Unreachable,
)
from storeapi_check.running import hold
from storeapi_check.service import Service
from tests.harness.machine import need
from tests.storeapi_check.reference import Local, Reference, Response, served
from tests.storeapi_check.variants import Elsewhere

GIB = 1 << 30
OK = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: no-cache\r\n"
    b"Content-Length: 2\r\n\r\nOK"
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\n"
Behaviour = Callable[[socket.socket, bytes], None]


@contextmanager
def rude(behaviour: Behaviour) -> Iterator[str]:
    """The address of a server that behaves so on every connection."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                behaviour(self.request, self.request.recv(65536))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def says(response: bytes) -> Behaviour:
    """Send these bytes and close."""
    return lambda connection, _: connection.sendall(response)


def hangs(connection: socket.socket, _: bytes) -> None:
    """Never respond: wait until the client leaves."""
    connection.recv(1)


def drips(connection: socket.socket, _: bytes) -> None:
    """Send a response so slowly that it never ends."""
    for byte in HEAD * 100:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)  # this is the behaviour itself


def floods(head: bytes, piece: bytes) -> Behaviour:
    """Send a GiB, or as much of it as the client takes."""

    def flood(connection: socket.socket, request: bytes) -> None:
        connection.sendall(head)
        for _ in range(GIB // len(piece) if request else 0):
            connection.sendall(piece)

    return flood


def only_test(then: Behaviour) -> Behaviour:
    """Respond to GET /test, and treat everything else in another way."""

    def behave(connection: socket.socket, request: bytes) -> None:
        if request.startswith(b"GET /test "):
            connection.sendall(OK)
        else:
            then(connection, request)

    return behave


MEBIBYTE = b" " * (1 << 20)
RUDE: dict[str, tuple[Behaviour, str]] = {
    "closes without a word": (says(b""), "closed the connection without a response"),
    "closes within the head": (says(b"HTTP/1.1 200 OK\r\nConte"), "header field"),
    "closes within the body": (
        says(HEAD + b"Content-Length: 9\r\n\r\n[1"),
        "closed the connection",
    ),
    "closes within a chunk": (
        says(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"),
        "closed the connection",
    ),
    "hangs": (hangs, "not complete in time"),
    "drips": (drips, "not complete in time"),
    "hangs after /test": (only_test(hangs), "not complete in time"),
    "drips after /test": (only_test(drips), "not complete in time"),
    "sends a GiB": (
        floods(HEAD + b"Content-Length: %d\r\n\r\n" % GIB, MEBIBYTE),
        "longer than 1 MiB",
    ),
    "sends a GiB without a length": (floods(HEAD + b"\r\n", MEBIBYTE), "longer than 1 MiB"),
    "sends a GiB in chunks": (
        floods(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + MEBIBYTE + b"\r\n"),
        "longer than 1 MiB",
    ),
    "sends a GiB as a list": (only_test(floods(HEAD + b"\r\n", MEBIBYTE)), "longer than 256 MiB"),
    "sends a line without an end": (floods(b"HTTP/1.1 200 ", MEBIBYTE), "not HTTP/1"),
    "sends header fields without an end": (
        floods(HEAD, b"X-Field: value\r\n" * 4096),
        "more than 100 headers",
    ),
    "sends interim responses without an end": (
        floods(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 4096),
        "not complete in time",
    ),
    "speaks SSH": (says(b"SSH-2.0-OpenSSH_9.6\r\n"), "SSH-2.0-OpenSSH_9.6"),
    "speaks TLS": (says(b"\x15\x03\x01\x00\x02\x02\x46\n"), "not HTTP/1"),
    "speaks HTTP/2": (says(b"\0\0\x12\x04\0\0\0\0\0" + b"\n"), "not HTTP/1"),
    "sends noise": (says(bytes(range(256)) * 100), "not HTTP"),
    "has no status": (says(b"HTTP/1.1 OK\r\n\r\n"), "not HTTP/1"),
    "has no length": (says(HEAD + b"Content-Length: ten\r\n\r\n"), "Content-Length is"),
    "has a bad chunk": (
        says(HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
        "a chunk is not valid",
    ),
    "has a long chunk": (
        says(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"),
        "a chunk is not valid",
    ),
    "has a field without a colon": (says(b"HTTP/1.1 200 OK\r\nnothing\r\n\r\n"), "header field"),
}


@pytest.mark.parametrize(("behaviour", "reason"), RUDE.values(), ids=RUDE)
def test_what_does_not_speak_http_cannot_be_checked(
    behaviour: Behaviour, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with rude(behaviour) as url:
        assert (
            storeapi_check.run(url, read_only=True, timeout=0.4 if "in time" in reason else 30) == 2
        )
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"storekeeper: cannot check {url}: ")
    assert err.count("\n") == 1
    assert reason in err


def test_a_port_where_nobody_listens_cannot_be_checked(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert storeapi_check.run(f"http://127.0.0.1:{port}") == 2
    expected = (
        f"storekeeper: cannot check http://127.0.0.1:{port}: connection refused (GET /test)\n"
    )
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://127.0.0.1", "must look like"),
        ("127.0.0.1:8080", "must look like"),
        ("http://", "must look like"),
        ("http://127.0.0.1:99999", "Port out of range"),
        ("http://127.0.0.1:0", "must have a port from 1 to 65535"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://127.0.0.1/?a=b", "no user, query or fragment"),
        ("http://me@127.0.0.1/", "no user, query or fragment"),
        (
            "http://me:secret@127.0.0.1/",
            "http://***@127.0.0.1/: the address must have no user, query or fragment",
        ),
        ("http://127.0.0.1/a b", "without spaces"),
        ("http://nowhere.invalid", "no host of that name"),
    ],
)
def test_a_bad_address_cannot_be_checked(
    url: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert storeapi_check.run(url) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert "secret" not in said


def test_no_more_is_read_than_the_limit() -> None:
    taken = []

    def flood(connection: socket.socket, _: bytes) -> None:
        connection.sendall(HEAD + b"\r\n")
        while True:
            connection.sendall(MEBIBYTE)
            taken.append(len(MEBIBYTE))

    with rude(flood) as url:
        client = Client(url, 10.0)
        with pytest.raises(Unreachable, match="longer than 1 MiB") as caught:
            client.send(Exchange("GET", "/test"))
    assert caught.value.exchange is not None
    assert len(caught.value.exchange.excerpt) <= MAX_EXCERPT_BYTES
    assert (
        sum(taken) < MAX_BODY_BYTES + (32 << 20) < MAX_LIST_BYTES
    )  # the rest is what sockets buffer


def test_a_service_that_goes_away_cannot_be_checked() -> None:
    """What it did before is not a verdict."""
    left = iter(range(40))
    reference = Reference()

    def behave(connection: socket.socket, request: bytes) -> None:
        if next(left, None) is None:
            return
        head, _, body = request.partition(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        connection.sendall(raw(reference.handle(method, target, body)))

    with rude(behave) as url, pytest.raises(CannotCheck, match="it stopped responding"):
        examine(url)


def raw(response: Response) -> bytes:
    """A response as HTTP/1.0 that ends with the connection."""
    lines = [
        f"HTTP/1.0 {response.status} Whatever",
        *(f"{name}: {text}" for name, text in response.headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + response.body


class Breaks(Reference):
    """Leaves without a response when a name is an array."""

    def name_problems(self, payload: dict[str, object], operation: str) -> list[tuple[str, str]]:
        if isinstance(payload.get("name"), list):
            raise ConnectionAbortedError
        return super().name_problems(payload, operation)


def test_a_request_that_gets_no_response_breaks_its_rule() -> None:
    """The service lives on, so this is a verdict."""
    failed = {result.rule.name: result for result in hold(Service(Local(Breaks())), "").failed}
    assert "create-rejects-other-type-as-name" in failed
    assert "no response" in failed["create-rejects-other-type-as-name"].note
    assert "message-for-a-number" not in failed


class Hangs(Breaks):
    """Does not come back when a name is an array, until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def handle(self, method: str, target: str, body: bytes) -> Response:
        if b'"name": [' in body:
            self.released.wait()
        return super().handle(method, target, body)


def test_a_service_that_hangs_again_and_again_cannot_be_checked() -> None:
    """Once is a broken rule, twice ends the run: no rule is worth waiting for each request."""
    service = Hangs()
    with served(service) as url:
        try:
            with pytest.raises(CannotCheck, match=r"not complete in time \((POST|PUT) /api/stores"):
                examine(url, timeout=0.6)
        finally:
            service.released.set()


@pytest.mark.parametrize(
    ("status", "phrase"),
    [(401, "requires authentication"), (403, "forbids"), (429, "many"), (503, "unavailable")],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_service_that_lets_nobody_in_cannot_be_checked(
    status: int, phrase: str, method: str
) -> None:
    class Closed(Reference):
        def handle(self, asked: str, target: str, body: bytes) -> Response:
            if asked == method and target != "/test":
                return self.error("other", status, "Closed", "closed")
            return super().handle(asked, target, body)

    with served(Closed()) as url, pytest.raises(CannotCheck, match=phrase):
        examine(url)


def test_another_service_is_left_alone() -> None:
    """A wrong address must not cost its owner a store, or whatever a POST makes there."""
    other = Elsewhere()
    with (
        served(other) as url,
        pytest.raises(CannotCheck, match="no Store Resource API there: GET /test gets"),
    ):
        examine(url)
    assert other.methods == {"GET": 2}


def test_where_a_service_redirects_to_is_said() -> None:
    response = (
        b"HTTP/1.1 301 Moved\r\nLocation: https://stores.example/\r\nContent-Length: 0\r\n\r\n"
    )
    with (
        rude(says(response)) as url,
        pytest.raises(CannotCheck, match=r"; it redirects to https://stores\.example/$"),
    ):
        examine(url)


def answered(response: bytes, method: str = "GET") -> Exchange:
    """What the client makes of a response."""
    with rude(says(response)) as url:
        Client(url + "/prefix/", 5.0).send(exchange := Exchange(method, "/x"))
    return exchange


def test_the_client_sees_every_field_and_byte() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    exchange = answered(interim + b"HTTP/1.1 203 Odd Phrase\r\nA: 1\r\na:  2 \r\nB:\r\n\r\n\0\xff")
    assert (exchange.status, exchange.phrase, exchange.content) == (203, "Odd Phrase", b"\0\xff")
    assert exchange.headers == [("A", "1"), ("a", "2"), ("B", "")]
    assert (exchange.header("a"), exchange.header("b"), exchange.header("c")) == ("1, 2", "", None)
    assert exchange.target == "/prefix/x"
    assert exchange.version == "HTTP/1.1"
    assert answered(b"HTTP/1.0 200 OK\r\n\r\n").version == "HTTP/1.0"


def test_a_chunked_body_is_put_together() -> None:
    exchange = answered(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n0A\r\n0123456789\r\n0\r\n"
        b"Trailer: 1\r\n\r\n"
    )
    assert exchange.content == b"abc0123456789"


@pytest.mark.parametrize(
    ("response", "method"),
    [
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "GET"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD"),
    ],
)
def test_a_response_without_a_body_is_whole(response: bytes, method: str) -> None:
    assert answered(response, method).content == b""


def test_ipv6_and_default_ports_are_written_as_they_must_be() -> None:
    assert Client("http://[::1]:8080/", 1.0).authority == "[::1]:8080"
    assert Client("https://stores.example/api", 1.0).authority == "stores.example"
    assert Client("http://stores.example:80", 1.0).authority == "stores.example"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    make += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    try:
        done = subprocess.run(
            [*make, "-keyout", path, "-out", f"{path}.crt"], capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        need("openssl", f"no certificate: {error}")
    assert done.returncode == 0
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[str]:
    """The address of a reference over TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with served(Reference(), context) as url:
        yield url.replace("http:", "https:")


def test_https_is_checked_like_http(
    secure: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert examine(secure, read_only=True).conforms


def test_a_certificate_that_nobody_trusts_cannot_be_checked(secure: str) -> None:
    with pytest.raises(CannotCheck, match="certificate is not trusted"):
        examine(secure)


def test_http_to_a_tls_port_cannot_be_checked(secure: str) -> None:
    with pytest.raises(CannotCheck, match=r"closed the connection|not HTTP"):
        examine(secure.replace("https:", "http:"))


def test_https_to_a_plain_port_cannot_be_checked() -> None:
    with served(Reference()) as url, pytest.raises(CannotCheck, match="no TLS there"):
        examine(url.replace("http:", "https:"))
