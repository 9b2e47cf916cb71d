"""Long random sequences of requests that combine features, in three ways, against a model of the
decisions."""

import json
import random
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from storekeeper.api import preconditions as conditions
from storekeeper.api import token_table
from storekeeper.api.origins import WebPages
from storekeeper.api.preconditions import Preconditions
from storekeeper.http.cache import ResponseCache
from storekeeper.http.connection import Connection
from tests.harness.asgi import asked as call
from tests.harness.databases import KINDS
from tests.harness.in_process import Careful, Inside, inside, last_response, settled
from tests.harness.process import Response
from tests.harness.tokens import add_token
from tests.harness.wire import PHRASES
from tests.oracles.service_model import ALLOWED_HOST, EPOCH, NAMED, Asked, Expected, Model

thorough = pytest.mark.thorough

STATUSES = {
    "open": (200, 204, 304, 400, 403, 404, 405, 412, 415, 422),
    **dict.fromkeys(("writes", "all"), (200, 204, 304, 400, 401, 403, 404, 405, 412, 415, 422)),
}
"""What must be among the responses to 1,500 requests."""

WAYS: dict[str, type[Connection]] = {"plain": Connection, "careful": Careful}

METHODS = {"GET": 10, "HEAD": 4, "POST": 7, "PUT": 6, "PATCH": 6, "OPTIONS": 1, "DELETE": 1}
NAMES = ["a", "b", "Köln", "a+b", "x" * 30, 'q"q', "%41", "ö&ä"]
QUERIES = {
    b"name": [
        b"a",
        b"%61",
        b"K%c3%B6ln",
        b"a%2Bb",
        b"a+b",
        b"",
        b"%FF",
        b"none",
        b"%C3%B6%26%c3%a4",
    ],
    b"limit": [b"1", b"2", b"3", b"1000", b"0", b"1001", b"x", b"", b"%32", b"-1", b"+1"],
    b"after": [b"0", b"1", b"2", b"3", b"9", b"", b"now", b"%31", b"1.0"],
    b"q": [
        b"a",
        b"K%c3%96LN",
        b"k+O",
        b"1",
        b"02",
        b"",
        b"%FF",
        b"%00",
        b"a&q=a",
        b"a+b+c+d+e+f+g+h+i",
        b"street",
    ],
    b"at": [b"{}", b"{}.%b" % EPOCH, b"{}.aaaaaaaa", b"", b"01", b"tomorrow", b"9999999"],
    b"a%74": [b"{}"],
    b"x": [b"1", b"%"],
    b"": [b""],
}
CONTENTS: list[bytes] = [
    *(json.dumps({"name": name}).encode() for name in NAMES),
    *(json.dumps({"name": name, "address": ""}, ensure_ascii=False).encode() for name in NAMES),
    *(
        b'{"id":9,"address":"1 High Street","name":"a"}',
        b'{"name":1,"name":"a"}',
        b"{}",
        b"[]",
        b"",
        b"{",
    ),
    *(
        b'{"name":"","address":null}',
        b'{"address":null}',
        b'{"address":"","id":3}',
        b'{"address":"2 High Street"}',
        b'{"name":null,"address":1}',
        b'{"name":"\\u0000"}',
        b'{"name":"%b"}' % (b"y" * 31),
        b'{"name":"\xff"}',
    ),
]
FIELDS: dict[bytes, tuple[float, list[bytes]]] = {
    b"origin": (
        0.2,
        [NAMED.encode()] * 3 + [b"http://localhost:80", b"https://evil.example", b"null", b""],
    ),
    b"sec-fetch-site": (0.15, [b"same-origin", b"none", b"cross-site", b""]),
    b"accept-language": (0.1, [b"de"]),
    b"access-control-request-method": (0.1, [b"PUT"]),
    b"content-type": (
        0.8,
        [b"application/json"] * 9
        + [b"text/plain", b"application/json;charset=latin1", b""]
        + [b"application/merge-patch+json", b"Application/json-patch+json; v=1"],
    ),
    b"content-encoding": (0.1, [b"identity", b"gzip"]),
    b"range": (0.05, [b"bytes=0-1"]),
    b"if-match": (
        0.3,
        [b'"{}.%b"' % EPOCH, b'W/"{}.%b-gzip"' % EPOCH] * 4
        + [b"*", b"", b"1", b'"{}.%b", W/"{}.%b-gzip"' % (EPOCH, EPOCH)],
    ),
    b"if-none-match": (
        0.3,
        [b'"{}.%b"' % EPOCH, b'W/"{}.%b;gzip"' % EPOCH] * 4 + [b"*", b",", b"1", b'"{}.a"'],
    ),
    b"idempotency-key": (0.4, [b"k{}", b'"k{}"', b"k{}", b'"k{}"', b"k k", b'"', b"", b"z" * 256]),
}


class Requests:
    """Random requests. Some come again, as they were or with the values of fields in other
    words."""

    def __init__(
        self, seed: int, auth: str, tokens: list[bytes], version: Callable[[], int]
    ) -> None:
        self._random = random.Random(seed)
        self._authorizations = [b"Bearer %b" % token for token in tokens] * 4 + [
            b"Basic x",
            b"bearer skt_1",
            b"Bearer",
        ]
        self._with_tokens = 0.1 if auth == "open" else 0.9
        self._version = version
        self._sent: list[Asked] = []

    def next(self) -> Asked:
        if self._sent and self._random.random() < 0.4:
            keyed = [
                asked
                for asked in self._sent[-200:]
                if asked.body and asked.values(b"idempotency-key")
            ]
            return self._again(
                self._random.choice(self._random.choice([self._sent[-40:], keyed]) or self._sent)
            )
        method = self._random.choices([*METHODS], [*METHODS.values()])[0]
        writes = method in ("POST", "PUT", "PATCH")
        content = self._random.choice(CONTENTS) if writes else b""
        asked = Asked(method, self._target(method), self._fields(), content)
        self._sent.append(asked)
        return asked

    def _again(self, asked: Asked) -> Asked:
        fields = [*asked.fields]
        if self._random.random() < 0.5:
            self._random.shuffle(fields)
            fields = [(name, _other_words(name, value)) for name, value in fields]
        if self._random.random() < 0.2:
            fields = [field for field in fields if field[0] != b"authorization"]
            fields.append((b"authorization", self._random.choice(self._authorizations)))
        # With a key that makes it another request.
        content = (
            self._random.choice(CONTENTS)
            if asked.body and self._random.random() < 0.3
            else asked.body
        )
        return asked._replace(fields=fields, body=content)

    def _target(self, method: str) -> bytes:
        here = self._random.random()
        listed = b"/api/stores" if here < 0.5 else b"/api/stores/" + self._id()
        store = b"/api/stores/" + self._id()
        path = {"POST": b"/api/stores", "PUT": store, "PATCH": store}.get(method, listed)
        if here > 0.9:
            path = self._random.choice([b"/test", b"/api/stores/", b"/none", listed])
        count = self._random.choice([0, 0, 0, 1, 1, 2, 3])
        return path + (b"?" + b"&".join(self._parameter() for _ in range(count)) if count else b"")

    def _parameter(self) -> bytes:
        name = self._random.choice([*QUERIES])
        return b"%b=%b" % (name, self._filled(self._random.choice(QUERIES[name])))

    def _id(self) -> bytes:
        return self._random.choice(
            [b"%d" % self._random.randint(1, 9), b"1", b"02", b"0", b"x", b"%31x", b"9" * 30]
        )

    def _fields(self) -> list[tuple[bytes, bytes]]:
        hosts = [b"localhost:80"] * 9 + [ALLOWED_HOST.upper().encode(), b"evil.example", b"[::1]"]
        fields = [(b"host", self._random.choice(hosts))]
        for name, (often, values) in FIELDS.items():
            lines = (self._random.random() < often) * self._random.choice([1] * 9 + [2])
            fields += [(name, self._filled(self._random.choice(values))) for _ in range(lines)]
        if self._random.random() < self._with_tokens:
            sent = 1 if self._random.random() < 0.95 else 2
            fields += [
                (b"authorization", self._random.choice(self._authorizations)) for _ in range(sent)
            ]
        return fields

    def _filled(self, value: bytes) -> bytes:
        while b"{}" in value:
            late = max(0, self._version() - self._random.randint(-1, 4))
            value = value.replace(b"{}", b"%d" % late, 1)
        return value


def _other_words(name: bytes, value: bytes) -> bytes:
    """Return a value that means the same."""
    if name == b"idempotency-key" and value.startswith(b"k") and b" " not in value:
        return b'"%b"' % value
    if name == b"if-match" and value.startswith(b'"'):
        return b", W/" + value
    return value


class Client:
    """Sends each request in one of the ways. In what is sent and received, the epoch is the
    model's."""

    def __init__(self, service: Inside, epoch: bytes) -> None:
        self._service = service
        self._connections = {way: service.connect(kind) for way, kind in WAYS.items()}
        self._epoch = epoch

    async def send(self, way: str, asked: Asked) -> Response:
        fields = [(name, value.replace(EPOCH, self._epoch)) for name, value in asked.fields]
        target = asked.target.replace(EPOCH, self._epoch)
        response = await self._send(way, asked._replace(target=target, fields=fields))
        headers = {
            name: value.replace(self._epoch.decode(), EPOCH.decode())
            for name, value in response.headers.items()
        }
        return Response(response.status, headers, response.body.replace(self._epoch, EPOCH))

    async def _send(self, way: str, asked: Asked) -> Response:
        method, target, fields, content = asked
        if way == "asgi":
            path, _, query = target.partition(b"?")
            more = {"raw_path": path, "query": query, "headers": fields}
            return await call(self._service, method, path.decode(), content, **more)
        connection, line = self._connections[way]
        length = b"content-length: %d\r\n" % len(content) if content else b""
        head = b"".join([b"%b: %b\r\n" % field for field in fields])
        connection.data_received(
            b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method.encode(), target, head, length) + content
        )
        await settled(connection)
        response = last_response(line)
        line._sent.clear()
        del response.headers["date"]
        return response


def differs(asked: Asked, response: Response, expected: Expected) -> str:
    """Return what a response has that the model does not, or the other way round."""
    fields = {**response.headers}
    content = expected.body
    if isinstance(content, dict):
        message = content["message"]
        if message is None:
            message = json.loads(response.body)["message"] if response.body else ""
        error = {
            "statusCode": expected.status,
            "error": PHRASES[expected.status],
            **content,
            "message": message,
        }
        content = json.dumps(error, ensure_ascii=False, separators=(",", ":")).encode()
    length = fields.pop("content-length", None)
    told = None if expected.status in (204, 304) else str(len(content))
    if asked.method == "HEAD":
        told = length if isinstance(expected.body, dict) else told
        content = b""
    got, wanted = (
        (response.status, fields, length, response.body),
        (expected.status, expected.fields, told, content),
    )
    return "" if got == wanted else f"{asked}\n{got}\n{wanted}"


async def epoch_of(service: Inside, token: bytes) -> bytes:
    response = await call(
        service, "GET", "/api/stores", headers=[(b"authorization", b"Bearer " + token)]
    )
    return response.headers["etag"].strip('"').partition(".")[2].encode()


async def play(folder: Path, url: str, auth: str, seed: int, count: int) -> set[tuple[int, bool]]:
    """Send requests, and compare; return which statuses there were, and whether they were
    replays."""
    scopes = {"one": "write", "two": "write", "three": "read"}
    tokens = {add_token(url, name, scope).encode(): scope for name, scope in scopes.items()}
    model, seen = Model(auth, tokens), set()
    requests = Requests(seed, auth, [*tokens], lambda: len(model.changes))
    ways = random.Random(seed)
    reads: list[Asked] = []
    async with inside(
        folder, database=url, auth=auth, cors_origin=[NAMED], allowed_host=[ALLOWED_HOST]
    ) as service:
        client = Client(service, await epoch_of(service, next(iter(tokens))))
        for _ in range(count):
            asked = ways.choice(reads[-8:]) if reads and ways.random() < 0.2 else requests.next()
            reads += [asked] * (asked.method == "GET")  # to come again: a response may be cached
            expected = model.respond(asked)
            difference = differs(
                asked, await client.send(ways.choice([*WAYS, "asgi"]), asked), expected
            )
            assert not difference, difference
            seen.add((expected.status, "idempotent-replayed" in expected.fields))
    return seen


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens stay known, however busy the machine is."""
    monkeypatch.setattr(token_table, "MAX_AGE", 300.0)


@pytest.mark.parametrize(("kind", "auth"), [*product(["sqlite"], STATUSES), ("postgres", "all")])
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 1500), *(pytest.param(n, 10_000, marks=thorough) for n in (2, 3))]
)
async def test_every_response_is_what_the_decisions_say(
    tmp_path: Path, kind: str, auth: str, seed: int, count: int
) -> None:
    with KINDS[kind](tmp_path) as database:
        seen = await play(tmp_path, database.url, auth, seed, count)
    assert {(200, True)} | {(status, False) for status in STATUSES[auth]} <= seen


def forgets_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "_COMPRESSED", re.compile(rb"(?!)"))


def knows_all_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WebPages, "_is_known", lambda *_: True)


def drops_nothing_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(cache: ResponseCache, request: bytes) -> Any:
        monkeypatch.setattr(cache, "_numbers", cache._current())
        return cache._responses.get(request)

    monkeypatch.setattr(ResponseCache, "get", get)


def shares_keys_among_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    owned = Preconditions.key

    def of_nobody(asked: Preconditions, sent: str, _token_number: int, content: Any) -> Any:
        return owned(asked, sent, 0, content)

    monkeypatch.setattr(Preconditions, "key", of_nobody)


BREAKS = (
    (forgets_proxies, "open"),
    (knows_all_hosts, "open"),
    (drops_nothing_that_changed, "open"),
    (shares_keys_among_tokens, "all"),
)


@pytest.mark.parametrize(("break_it", "auth"), BREAKS)
async def test_a_service_that_breaks_a_decision_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
    auth: str,
) -> None:
    break_it(monkeypatch)
    with pytest.raises(AssertionError, match=r"Asked\("):
        await play(tmp_path, f"sqlite:///{tmp_path}/stores.db", auth, 1, 1500)
