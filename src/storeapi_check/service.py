"""The service under check, with its responses so far and stores of ours, and what a rule is;
this package only."""

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
TRIES = 5  # how often a moment is looked for in which no other client writes
AT_ONCE = 10  # how many requests go at the same time
MAX_NOTE_LENGTH = 1000  # characters that a report quotes of a response, beside the exchange
UNUSED = 2_000_000_000  # an id that no store has, and that still fits 32 bits


class Violation(Exception):
    """The contract is broken: why, and the exchange that shows it."""

    def __init__(self, reason: str, exchange: Exchange) -> None:
        self.reason, self.exchange = brief(reason), exchange


class Skipped(Exception):
    """The rule cannot be observed here: the message says why."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to break the rules of a payload: `scope` says which rule is checked, `label` what
    the payload has."""

    scope: str
    label: str
    key: str = "name"  # "" leaves open which one a response names
    never: tuple[str, ...] = ()  # messages that name another rule
    message: str | None = None  # the contract's own, if there is one


Wanted = Literal["alive", "success", "either", "open"] | Way
"""What a request should get. `alive`: a success. `success`: one that shows stores. `either`:
that, or a refusal. `open`: anything. A Way: the error for a payload that breaks the rules in
that way."""


@dataclass(slots=True)
class Response(Exchange):
    """An exchange with what was wanted of it. `document` is None where there is no (valid) JSON."""

    wanted: Wanted = "open"
    document: Any = None
    malformed: str | None = None
    listing: Listing | None = None

    @property
    def ok(self) -> bool:
        """Whether the service calls it a success; whether it is status 200 is a rule of its own."""
        return 200 <= self.status < 300

    @property
    def stores(self) -> list[Store]:
        """The stores in it; of a list one for each shape that occurred."""
        if self.listing is not None:
            return list(self.listing.shapes.values())
        return [self.document] if isinstance(self.document, dict) else []

    @property
    def listed(self) -> Listing:
        """The list that it is; raise Violation when it is none."""
        if self.listing is None:
            raise Violation(f"status {self.status} instead of a list", self)
        self.expect(not self.listing.fault, str(self.listing.fault))
        return self.listing

    @property
    def single(self) -> Store:
        """The one store that it is; raise Violation when it is none."""
        self.expect(self.ok, f"status {self.status} instead of a store")
        if not isinstance(self.document, dict):
            raise Violation(self.malformed or "the body is not one JSON object", self)
        return self.document

    def with_id(self, id: int) -> list[Store]:
        """Return the stores of its list that have this id."""
        return [store for store in self.listed.stores if number(store) == id]

    def member(self, *path: str) -> Any:
        """Return a member of the document, or with more names one of that member; None when
        there is none."""
        value = self.document
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def expect(self, holds: object, reason: str) -> None:
        """Raise Violation with `reason` and this exchange unless it holds."""
        if not holds:
            raise Violation(reason, self)

    def shows(self, wanted: "Made", where: str = "") -> None:
        """Raise Violation unless it is this store, or lists it once; a missing address counts as
        null here."""
        stores = [self.single] if self.listing is None else self.with_id(wanted.id)
        self.expect(len(stores) == 1, f"the store {wanted.id} is there {len(stores)} times{where}")
        have_all = stores[0] | {"id": number(stores[0])}
        for key in ("id", "name", "address"):
            have, right = have_all.get(key), getattr(wanted, key)
            self.expect(have == right, f"its {key} is {have!r}, not {right!r}{where}")

    def made(self, name: str, address: str | None = None) -> "Made":
        """Return the store that it shows, as it was sent; raise Violation when it has no id."""
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
    """One service. All its responses are in `seen`, lists without their stores; `mine` are the
    ids of our stores."""

    client: Client
    read_only: bool = False
    marker: str = field(default_factory=lambda: f"Check-{secrets.token_hex(4)}")
    seen: list[Response] = field(default_factory=list)
    mine: set[int] = field(default_factory=set)
    added: int = 0
    generic: bool = False
    announces: bool = False
    names: int = 0  # that were used
    timeouts: int = 0
    settled: Made | None = None  # what `settle` made
    spare_id: int | None = None  # of what `spare` made

    def name(self) -> str:
        """Return a name that nobody has used, at most 20 characters."""
        self.names += 1
        return f"{self.marker} {self.names:03}"

    def send(
        self, method: str, path: str, body: object = None, wanted: Wanted = "open", **more: str
    ) -> Response:
        """Make one exchange and keep it in `seen`; send bytes as they are, `more` as fields,
        such as `if_match`."""
        if not (body is None or isinstance(body, bytes)):
            body = json.dumps(body, ensure_ascii=False).encode()
        response = Response(method, path, body, wanted=wanted)
        listing = Listing(self.is_ours if path == STORES else bool)
        if method == "GET" and path.partition("?")[0] == STORES:
            response.sink = listing.feed
        self.client.send(
            response, {name.title().replace("_", "-"): value for name, value in more.items()}
        )
        if response.sink and response.status == 200:
            listing.feed(b"", last=True)
            response.listing, response.malformed = listing, listing.fault
        else:
            response.document, response.malformed = parse(response.content)
        self.seen.append(response)
        return response

    def is_ours(self, store: Store) -> bool:
        """Return whether this run made the store."""
        return (
            self.marker in f"{store.get('name')} {store.get('address')}"
            or number(store) in self.mine
        )

    def test(self) -> Response:
        """GET /test."""
        return self.send("GET", "/test", wanted="alive")

    def find(self, name: str | None = None) -> Response:
        """GET the stores of a name; without one the whole list, of which only stores of ours are
        kept."""
        query = "" if name is None else f"?name={quote(name, safe='', errors='surrogatepass')}"
        return self.send("GET", STORES + query, wanted="success")

    def count(self) -> int:
        """Return how many stores there are."""
        return self.find().listed.count

    def read(self, id: int | str, wanted: Wanted = "success") -> Response:
        """GET one store, the id as it is written."""
        return self.send("GET", f"{STORES}/{id}", wanted=wanted)

    def create(self, payload: object, wanted: Wanted = "success", **more: str) -> Response:
        """POST a payload."""
        response = self.send("POST", STORES, payload, wanted, **more)
        given = number(response.document)
        self.added += response.ok
        self.mine |= {given} if response.ok and given is not None else set()
        return response

    def replace(
        self, id: int | str, payload: object, wanted: Wanted = "success", **more: str
    ) -> Response:
        """PUT a payload."""
        return self.send("PUT", f"{STORES}/{id}", payload, wanted, **more)

    def update(self, payload: object, wanted: Wanted = "success") -> Response:
        """PUT a payload to a store of ours that had another name, and an address."""
        return self.replace(self.spare().id, payload, wanted)

    def make(self, name: str | None = None, address: str | None = None) -> Made:
        """Add a store of ours, its address sent only when there is one."""
        name = name or self.name()
        return self.create(fields(name, address)).made(name, address)

    def settle(self) -> Made:
        """Return the one store of ours that stays as it is, made when it is first needed."""
        self.settled = self.settled or self.make(address="The address stays")
        return self.settled

    def spare(self, name: str | None = None, address: str | None = "Before") -> Made:
        """Return the one store of ours that checks change, with a new name and address; make it
        when first needed."""
        if self.spare_id is None:
            self.spare_id = self.make().id
        name = name or self.name()
        return Made(
            self.spare_id, name, address, self.replace(self.spare_id, fields(name, address))
        )

    def at_once(
        self, send: Callable[[dict[str, str]], Response]
    ) -> list[tuple[Response, dict[str, str]]]:
        """Send payloads of their own at the same time; return each response with its payload."""
        payloads = [fields(self.name(), f"Crowd {index}") for index in range(AT_ONCE)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(zip(pool.map(send, payloads), payloads, strict=True))


def brief(text: str) -> str:
    """Return the beginning of a text that a service may have made as long as it likes."""
    return text if len(text) <= MAX_NOTE_LENGTH else f"{text[:MAX_NOTE_LENGTH]} \u2026"


def fields(name: str, address: str | None = None) -> dict[str, str]:
    """Return the payload for a name and perhaps an address."""
    return {"name": name} if address is None else {"name": name, "address": address}


def number(store: Any) -> int | None:
    """Return a store's id as a number, whatever its JSON type: that it must be an integer is a
    rule of its own."""
    try:
        return int(store["id"])
    except (TypeError, ValueError, KeyError, OverflowError):
        return None


# What a rule is: one function, its sentence, and how it fails.
Check = Callable[[Service], object]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the contract."""

    name: str
    sentence: str  # the contract's own
    scope: str  # which part of it the check looks at
    check: Check
    writes: bool = True  # a read-only run leaves it out
    adds: int = 0  # how many stores at most
    detailed: bool = False  # a service in generic mode does not show it
    announced: bool = False  # only a service that announces what lies beyond the contract has it
    late: bool = False  # it looks at the responses to all other checks


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one rule; a failed one says why and has the exchange that shows it."""

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
        """Add a function under its own name."""

        def add(check: Check) -> Check:
            self.add(check.__name__.strip("_").replace("_", "-"), sentence, scope, check, **marks)
            return check

        return add
