"""The contract in a few lines, in memory, each of its sentences in one method: what mutants
break one by one."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import RemoteDisconnected
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from storeapi_check.client import Client, Exchange, Unreachable

JSON = "application/json; charset=utf-8"
GENERIC = "Invalid request payload input"
Store = dict[str, Any]
Problem = tuple[str, str]


@dataclass
class Response:
    """A response before it goes out."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Reference:
    """A service that keeps the contract. `operation` is test, list, filter, read, create or
    update."""

    generic: ClassVar[bool] = False

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sent: Mapping[str, str] = {}
        self.memory: dict[Any, Any] = {}  # for mutants that remember what they should not
        self.stores: list[Store] = [
            {"id": 1, "name": "Central", "address": "1 High Street"},
            {"id": 2, "name": "Station", "address": None},
            {"id": 3, "name": "Harbour", "address": "3 Quay"},
        ]

    def ask(self, method: str, target: str, body: bytes, sent: Mapping[str, str]) -> Response:
        """Respond to one request with these header fields, names in lower case."""
        self.sent = sent
        return self.handle(method, target, body)

    def handle(self, method: str, target: str, body: bytes) -> Response:
        """Respond to one request; requests come one after another."""
        parts = urlsplit(target)
        query = parse_qs(parts.query, keep_blank_values=True)
        with self.lock:
            match (method, *parts.path.split("/")[1:]):
                case ["GET", "test"]:
                    return self.test()
                case ["GET", "api", "stores"]:
                    return self.listing(query.get("name", [""])[0])
                case ["GET", "api", "stores", id]:
                    return self.read(id)
                case ["POST", "api", "stores"]:
                    return self.create(self.parse(body))
                case ["PUT", "api", "stores", id]:
                    return self.update(id, self.parse(body))
        return self.error("other", 404, "Not Found", "Not Found")

    def parse(self, body: bytes) -> Any:
        """The payload; invalid JSON is not an object either."""
        try:
            return json.loads(body)
        except ValueError:
            return None

    # The operations

    def test(self) -> Response:
        return self.send("test", 200, b"OK", "text/plain; charset=utf-8")

    def listing(self, name: str) -> Response:
        if name == "":
            return self.success("list", [self.show(store, "list") for store in self.all()])
        return self.success("filter", [self.show(store, "filter") for store in self.matching(name)])

    def all(self) -> list[Store]:
        return self.stores

    def matching(self, name: str) -> list[Store]:
        return [store for store in self.stores if self.matches(store, name)]

    def matches(self, store: Store, name: str) -> bool:
        return bool(store["name"] == name)

    def read(self, id: str) -> Response:
        store = self.find(id)
        return self.success("read", self.show(store, "read")) if store else self.missing("read")

    def find(self, id: str) -> Store | None:
        return next(
            (store for store in self.stores if id.isdigit() and store["id"] == int(id)), None
        )

    def create(self, payload: Any) -> Response:
        problems = self.problems(payload, "create")
        if problems:
            return self.reject("create", problems)
        return self.success("create", self.show(self.add(payload), "create"))

    def add(self, payload: Any) -> Store:
        store = {"id": self.next_id(payload), **self.values(payload, None, "create")}
        self.stores.append(store)
        return store

    def next_id(self, payload: Any) -> Any:
        return len(self.stores) + 1

    def update(self, id: str, payload: Any) -> Response:
        problems = self.problems(payload, "update")
        if problems:
            return self.reject("update", problems)
        store = self.find(id)
        if store is None:
            return self.missing("update")
        self.replace(store, payload)
        return self.success("update", self.show(store, "update"))

    def replace(self, store: Store, payload: Any) -> None:
        store.update(self.values(payload, store, "update"))

    def values(self, payload: Any, before: Store | None, operation: str) -> Store:
        return {"name": payload["name"], "address": payload.get("address")}

    # The rules of a payload

    def problems(self, payload: Any, operation: str) -> list[Problem]:
        if not isinstance(payload, dict):
            return [("value", '"value" must be of type object')]
        return [*self.name_problems(payload, operation), *self.address_problems(payload, operation)]

    def name_problems(self, payload: Any, operation: str) -> list[Problem]:
        if "name" not in payload or payload["name"] == "":
            return [("name", '"name" is required')]
        if not isinstance(payload["name"], str):
            return [("name", '"name" must be a string')]
        if self.length(payload["name"]) > self.limit(operation):
            return [("name", '"name" length must be less than or equal to 30 characters long')]
        return []

    def length(self, name: str) -> int:
        return len(name)

    def limit(self, operation: str) -> int:
        return 30

    def address_problems(self, payload: Any, operation: str) -> list[Problem]:
        if isinstance(payload.get("address", ""), str):
            return []
        return [("address", '"address" must be a string')]

    # The responses

    def show(self, store: Store, operation: str) -> Any:
        return store

    def success(self, operation: str, value: Any) -> Response:
        return self.send(operation, self.success_status(operation), self.encode(value), JSON)

    def success_status(self, operation: str) -> int:
        return 200

    def encode(self, value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False).encode()

    def missing(self, operation: str) -> Response:
        return self.error(operation, 404, "Not Found", "No such store")

    def reject(self, operation: str, problems: list[Problem]) -> Response:
        if self.is_generic(operation, problems):
            return self.error(operation, 400, "Bad Request", GENERIC)
        keys = [key for key, _ in problems]
        message = ". ".join(message for _, message in problems)
        return self.error(operation, 400, "Bad Request", message, self.validation(keys, operation))

    def is_generic(self, operation: str, problems: list[Problem]) -> bool:
        return self.generic

    def validation(self, keys: Any, operation: str) -> Any:
        return {"source": "payload", "keys": keys}

    def error(
        self, operation: str, status: int, phrase: str, message: str, validation: Any = None
    ) -> Response:
        body = self.error_body(operation, status, phrase, message)
        if validation is not None:
            body["validation"] = validation
        return self.send(operation, status, self.encode(body), JSON)

    def error_body(self, operation: str, status: int, phrase: str, message: str) -> Store:
        return {"statusCode": status, "error": phrase, "message": message}

    def send(self, operation: str, status: int, body: bytes, content_type: str) -> Response:
        headers = {"content-type": content_type, "cache-control": "no-cache"}
        return Response(status, body, self.headers(operation, status, headers))

    def headers(self, operation: str, status: int, headers: dict[str, str]) -> dict[str, str]:
        return headers


class Local(Client):
    """A client that hands its requests to a reference in this process, without a socket."""

    def __init__(self, reference: Reference) -> None:
        super().__init__("http://reference", 7.0)
        self.reference = reference

    def send(self, exchange: Exchange, more: Mapping[str, str] = {}) -> None:
        sent = {name.lower(): text for name, text in more.items()}
        try:
            response = self.reference.ask(
                exchange.method, exchange.target, exchange.body or b"", sent
            )
        except (
            Exception
        ) as error:  # whatever a mutant raises: over a socket it closes the connection
            raise Unreachable(RemoteDisconnected("left"), exchange) from error
        exchange.head = [f"{exchange.method} {exchange.target} HTTP/1.1"]
        exchange.status, exchange.headers = response.status, [*response.headers.items()]
        exchange.excerpt = (
            b"" if exchange.method == "HEAD" or response.status == 204 else response.body
        )
        if exchange.sink and response.status == 200:
            exchange.sink(exchange.excerpt)
        else:
            exchange.content = exchange.excerpt


class GenericReference(Reference):
    """The contract in its generic mode."""

    generic = True


@contextmanager
def served(reference: Reference, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of a reference while it is served on a free port, one thread for each
    connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def response(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            response = reference.ask(
                self.command, self.path, body, {k.lower(): v for k, v in self.headers.items()}
            )
            self.send_response_only(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else response.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = response  # noqa: N815 - names of http.server

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that leaves does not matter here; a mutant that fails shows in the
            responses."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
