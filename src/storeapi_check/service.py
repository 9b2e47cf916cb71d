"""The service under check, with its responses so far and our stores, and what a rule is."""

import json
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from storeapi_check.client import Client, Exchange
from storeapi_check.documents import Listing, Store, parse

STORES = "/api/stores"
TRIES = 5  # how many times to try for a moment when no other client writes
AT_ONCE = 10  # how many concurrent requests to send
MAX_NOTE_LENGTH = 1000  # characters of a response that the reason for a failure may quote
UNUSED = 2_000_000_000  # an id that no store has, and that still fits 32 bits


class Violation(Exception):
    """The contract is broken: the reason, and the exchange that proves it."""

    def __init__(self, reason: str, exchange: Exchange) -> None:
        self.reason = brief(reason)
        self.exchange = exchange


class Skipped(Exception):
    """The rule cannot be checked here: the message says why."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to break the rules of a payload: `scope` names the rule, `label` the payload."""

    scope: str
    label: str
    key: str = "name"  # the key that a response must name; "" accepts any
    never: tuple[str, ...] = ()  # messages that belong to other rules
    message: str | None = None  # the contract's own, if there is one


Wanted = Literal["alive", "success", "either", "open"] | Way
"""The response that a request should get.

`alive`: a success. `success`: a success that shows stores. `either`: such a success, or a
refusal. `open`: anything. A Way: the error for a payload that breaks the rules in that way.
"""


@dataclass(slots=True)
class Response(Exchange):
    """An exchange, and the response that it should get; `document` is None unless the body is
    valid JSON."""

    wanted: Wanted = "open"
    document: Any = None
    malformed: str | None = None
    listing: Listing | None = None

    @property
    def ok(self) -> bool:
        """Whether the status is a success; that it must be 200 is a separate rule."""
        return 200 <= self.status < 300

    @property
    def stores(self) -> list[Store]:
        """The stores in it; for a list, one store of each shape."""
        if self.listing is not None:
            return list(self.listing.shapes.values())
        return [self.document] if isinstance(self.document, dict) else []

    @property
    def listed(self) -> Listing:
        """The list in it; raise Violation if it is not a list."""
        if self.listing is None:
            raise Violation(f"status {self.status} instead of a list", self)
        self.expect(not self.listing.fault, str(self.listing.fault))
        return self.listing

    @property
    def single(self) -> Store:
        """The single store in it; raise Violation if it is not a store."""
        self.expect(self.ok, f"status {self.status} instead of a store")
        if not isinstance(self.document, dict):
            raise Violation(self.malformed or "the body is not one JSON object", self)
        return self.document

    def with_id(self, id: int) -> list[Store]:
        """Return the stores in its list that have this id."""
        return [store for store in self.listed.stores if number(store) == id]

    def member(self, *path: str) -> Any:
        """Return the member of the document at this path, or None."""
        value = self.document
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def expect(self, holds: object, reason: str) -> None:
        """Raise Violation with `reason` and this exchange unless `holds` is true."""
        if not holds:
            raise Violation(reason, self)

    def shows(self, wanted: "Made", where: str = "") -> None:
        """Raise Violation unless it is this store, or lists it once; here a missing address
        counts as null."""
        stores = [self.single] if self.listing is None else self.with_id(wanted.id)
        self.expect(len(stores) == 1, f"the store {wanted.id} is there {len(stores)} times{where}")
        store = stores[0] | {"id": number(stores[0])}
        for key in ("id", "name", "address"):
            found, right = store.get(key), getattr(wanted, key)
            self.expect(found == right, f"its {key} is {found!r}, not {right!r}{where}")

    def made(self, name: str, address: str | None = None) -> "Made":
        """Return the store as it was sent, with its id; raise Violation if it has no id."""
        id = number(self.single)
        self.expect(id is not None, "the store has no id")
        return Made(id or 0, name, address, self)


@dataclass(frozen=True, slots=True)
class Made:
    """A store of ours as it was sent, with the id that it got."""

    id: int
    name: str
    address: str | None
    response: Response


@dataclass(slots=True)
class Service:
    """One service: `seen` has all its responses, `mine` the ids of our stores."""

    client: Client
    read_only: bool = False
    marker: str = field(default_factory=lambda: f"Check-{secrets.token_hex(4)}")
    seen: list[Response] = field(default_factory=list)
    mine: set[int] = field(default_factory=set)
    added: int = 0
    generic: bool = False
    announces: bool = False
    names: int = 0  # how many we have used
    timeouts: int = 0
    settled: Made | None = None  # the store that `settle` made
    spare_id: int | None = None  # the id of the store that `spare` made

    def name(self) -> str:
        """Return an unused name of at most 20 characters."""
        self.names += 1
        return f"{self.marker} {self.names:03}"

    def send(
        self, method: str, path: str, body: object = None, wanted: Wanted = "open", **more: str
    ) -> Response:
        """Make one exchange and keep it in `seen`; bytes are sent as they are, `more` as header
        fields (`if_match`)."""
        if not (body is None or isinstance(body, bytes)):
            body = json.dumps(body, ensure_ascii=False).encode()
        response = Response(method, path, body, wanted=wanted)
        # Of the whole list, which may be long, only our stores are kept.
        listing = Listing(self.is_ours if path == STORES else bool)
        if method == "GET" and path.partition("?")[0] == STORES:
            response.sink = listing.feed
        headers = {name.title().replace("_", "-"): value for name, value in more.items()}
        self.client.send(response, headers)
        if response.sink and response.status == 200:
            listing.feed(b"", last=True)
            response.listing, response.malformed = listing, listing.fault
        else:
            response.document, response.malformed = parse(response.content)
        self.seen.append(response)
        return response

    def is_ours(self, store: Store) -> bool:
        """Return whether this run made the store."""
        text = f"{store.get('name')} {store.get('address')}"
        return self.marker in text or number(store) in self.mine

    def test(self) -> Response:
        """GET /test."""
        return self.send("GET", "/test", wanted="alive")

    def find(self, name: str | None = None) -> Response:
        """GET the stores with a name; without one, the whole list, and keep only our stores."""
        query = "" if name is None else f"?name={quote(name, safe='', errors='surrogatepass')}"
        return self.send("GET", STORES + query, wanted="success")

    def count(self) -> int:
        """Return how many stores there are."""
        return self.find().listed.count

    def read(self, id: int | str, wanted: Wanted = "success") -> Response:
        """GET one store, with the id as it is written."""
        return self.send("GET", f"{STORES}/{id}", wanted=wanted)

    def create(self, payload: object, wanted: Wanted = "success", **more: str) -> Response:
        """POST a payload."""
        response = self.send("POST", STORES, payload, wanted, **more)
        if response.ok:
            self.added += 1
            id = number(response.document)
            if id is not None:
                self.mine.add(id)
        return response

    def replace(
        self, id: int | str, payload: object, wanted: Wanted = "success", **more: str
    ) -> Response:
        """PUT a payload."""
        return self.send("PUT", f"{STORES}/{id}", payload, wanted, **more)

    def patch(self, id: int, patch: object, **more: str) -> Response:
        """PATCH a store."""
        return self.send("PATCH", f"{STORES}/{id}", patch, "open", **more)

    def update(self, payload: object, wanted: Wanted = "success") -> Response:
        """PUT a payload to our spare store, which had another name, and an address."""
        return self.replace(self.spare().id, payload, wanted)

    def make(self, name: str | None = None, address: str | None = None) -> Made:
        """Add a store of ours; the address is sent only if there is one."""
        name = name or self.name()
        return self.create(fields(name, address)).made(name, address)

    def settle(self) -> Made:
        """Return our one store that never changes; make it when it is first needed."""
        self.settled = self.settled or self.make(address="The address stays")
        return self.settled

    def spare(self, name: str | None = None, address: str | None = "Before") -> Made:
        """Return our one store that checks change, with a new name and address; make it when it
        is first needed."""
        if self.spare_id is None:
            self.spare_id = self.make().id
        name = name or self.name()
        response = self.replace(self.spare_id, fields(name, address))
        return Made(self.spare_id, name, address, response)

    def at_once(
        self, send: Callable[[dict[str, str]], Response]
    ) -> list[tuple[Response, dict[str, str]]]:
        """Send different payloads at the same time; return each response with its payload."""
        payloads = [fields(self.name(), f"Crowd {index}") for index in range(AT_ONCE)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(zip(pool.map(send, payloads), payloads, strict=True))


def brief(text: str) -> str:
    """Return the beginning of a text, since a service may make it as long as it likes."""
    return text if len(text) <= MAX_NOTE_LENGTH else f"{text[:MAX_NOTE_LENGTH]} \u2026"


def fields(name: str, address: str | None = None) -> dict[str, str]:
    """Return the payload for a name and, if there is one, an address."""
    return {"name": name} if address is None else {"name": name, "address": address}


def number(store: Any) -> int | None:
    """Return a store's id as a number, whatever its JSON type: that it must be an integer is a
    separate rule."""
    try:
        return int(store["id"])
    except (TypeError, ValueError, KeyError, OverflowError):
        return None


# A rule: a function, and the sentence of the contract that it checks.
Check = Callable[[Service], object]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the contract."""

    name: str
    sentence: str  # of the contract
    scope: str  # which part of the sentence is checked
    check: Check
    writes: bool = True  # a read-only run skips it
    adds: int = 0  # how many stores at most
    detailed: bool = False  # cannot be seen in generic mode
    announced: bool = False  # only for services that announce features beyond the contract
    late: bool = False  # looks at the responses to all other checks


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one rule; a failed one has the reason, and the exchange that proves it."""

    rule: Rule
    state: Literal["passed", "failed", "skipped"]
    note: str = ""
    exchange: Exchange | None = None


class Rules(list[Rule]):
    """The rules of one module, in the order in which a reader expects them."""

    def add(self, name: str, sentence: str, scope: str, check: Check, **marks: Any) -> None:
        """Add a rule."""
        self.append(Rule(name, sentence, scope, check, **marks))

    def check(self, sentence: str, scope: str = "", **marks: Any) -> Callable[[Check], Check]:
        """Return a decorator that adds a function under its own name."""

        def add(check: Check) -> Check:
            self.add(check.__name__.strip("_").replace("_", "-"), sentence, scope, check, **marks)
            return check

        return add
