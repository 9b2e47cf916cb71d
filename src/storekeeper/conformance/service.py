"""The service under check: its five operations, what it answered so far, and which stores are ours; this package."""

import json
import secrets
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from storekeeper.conformance.client import Client
from storekeeper.conformance.documents import Listing, Malformed, Store, parse
from storekeeper.conformance.wire import Exchange

Kind = Literal["test", "list", "filter", "read", "create", "update", "other"]
Purpose = Literal["success", "invalid", "either", "open"]
"""What the contract wants of an answer: a success, a validation error, a success or whatever, nothing."""
GENERIC = "Invalid request payload input"
MISSING = 2_000_000_000
"""An id that no store has, and that still fits 32 bits."""


class Violation(Exception):
    """The contract is broken: why, and the exchange that shows it."""

    def __init__(self, reason: str, exchange: Exchange | None) -> None:
        super().__init__(reason)
        self.exchange = exchange


@dataclass(frozen=True, slots=True)
class Fault:
    """A payload that breaks the store payload rules: what is wrong with it, and with which fields.

    Without `keys` it is left open which fields an answer names.
    """

    label: str
    payload: dict[str, Any]
    keys: tuple[str, ...]
    message: str | None = None
    """The message that the contract gives for it; None where it only wants field and rule named."""
    never: tuple[str, ...] = ()
    """Messages that name another rule."""


@dataclass(slots=True)
class Answer:
    """One answer with what was wanted of it. `document` is None where there is no (valid) JSON."""

    kind: Kind
    purpose: Purpose
    http: Exchange
    document: Any = None
    malformed: str | None = None
    listing: Listing | None = None
    fault: Fault | None = None

    @property
    def ok(self) -> bool:
        """Whether the service calls it a success; whether it is status 200 is a rule of its own."""
        return 200 <= self.http.status < 300

    @property
    def stores(self) -> list[Store]:
        """The stores in it; of a list one for each shape that occurred."""
        if self.listing is not None:
            return list(self.listing.shapes.values())
        return [self.document] if isinstance(self.document, dict) else []


@dataclass(frozen=True, slots=True)
class Made:
    """A store of ours as it was sent, with the id that it got."""

    id: int
    name: str
    address: str | None
    answer: Answer


@dataclass(slots=True)
class Service:
    """One service. Everything that it answers is kept in `seen`, lists without their stores."""

    client: Client
    read_only: bool = False
    marker: str = field(default_factory=lambda: f"Check-{secrets.token_hex(4)}")
    seen: list[Answer] = field(default_factory=list)
    mine: set[int] = field(default_factory=set)
    added: int = 0
    generic: bool = False
    names: int = 0
    subject: Made | None = None
    changing: int | None = None

    def name(self) -> str:
        """A name that nobody has used, at most 20 characters."""
        self.names += 1
        return f"{self.marker} {self.names:03}"

    def send(
        self,
        kind: Kind,
        method: str,
        path: str,
        payload: object = ...,
        *,
        purpose: Purpose = "success",
        fault: Fault | None = None,
        escaped: bool = False,
    ) -> Answer:
        """One exchange, kept in `seen`. The payload goes as JSON in UTF-8, or in ASCII with `escaped`."""
        body = None if payload is ... else json.dumps(payload, ensure_ascii=escaped).encode()
        headers = [] if body is None else [("Content-Type", "application/json")]
        listing = Listing(self.is_ours if kind == "list" else bool) if kind in {"list", "filter"} else None
        sink = listing.feed if listing else None
        http = self.client.exchange(method, path, headers=headers, body=body, sink=sink)
        answer = Answer(kind, purpose, http, fault=fault)
        read_body(answer, listing)
        self.seen.append(answer)
        return answer

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str | None = "application/json",
    ) -> Answer:
        """One exchange of which the contract says nothing, its body sent as it is."""
        headers = [("Content-Type", content_type)] if content_type and body is not None else []
        answer = Answer("other", "open", self.client.exchange(method, path, headers=headers, body=body))
        read_body(answer, None)
        self.seen.append(answer)
        return answer

    def is_ours(self, store: Store) -> bool:
        """Whether this run made the store."""
        text = f"{store.get('name')} {store.get('address')}"
        return self.marker in text or number(store) in self.mine

    def test(self) -> Answer:
        """GET /test."""
        return self.send("test", "GET", "/test")

    def everything(self) -> Listing:
        """The whole list; Violation when it is none. Only stores of ours are kept of it."""
        return listed(self.send("list", "GET", "/api/stores"))

    def find(self, name: str) -> Answer:
        """The answer to a filter."""
        return self.send("filter", "GET", f"/api/stores?name={quote(name, safe='')}")

    def found(self, name: str) -> list[Store]:
        """What a filter finds; Violation when the answer is no list."""
        return listed(self.find(name)).stores

    def read(self, id: int | str, purpose: Purpose = "success") -> Answer:
        """GET one store, the id as it is written."""
        return self.send("read", "GET", f"/api/stores/{id}", purpose=purpose)

    def look(self, id: int) -> Store:
        """A store that exists; Violation when the answer is none."""
        return single(self.read(id))

    def create(
        self,
        payload: object,
        purpose: Purpose = "success",
        fault: Fault | None = None,
        *,
        escaped: bool = False,
    ) -> Answer:
        """POST a payload."""
        answer = self.send("create", "POST", "/api/stores", payload, purpose=purpose, fault=fault, escaped=escaped)
        if answer.ok:
            self.added += 1
            self.mine |= {given for given in [number(answer.document)] if given is not None}
        return answer

    def replace(
        self,
        id: int | str,
        payload: object,
        purpose: Purpose = "success",
        fault: Fault | None = None,
        *,
        escaped: bool = False,
    ) -> Answer:
        """PUT a payload."""
        path = f"/api/stores/{id}"
        return self.send("update", "PUT", path, payload, purpose=purpose, fault=fault, escaped=escaped)

    def make(self, name: str | None = None, address: str | None = None) -> Made:
        """Add a store of ours, its address sent only when there is one."""
        name = name or self.name()
        answer = self.create(fields(name, address))
        given = number(single(answer))
        if given is None:
            raise Violation("the new store has no id", answer.http)
        return Made(given, name, address, answer)

    def settle(self) -> Made:
        """The one store of ours that stays as it is, made when it is first needed."""
        if self.subject is None:
            self.subject = self.make(address="The address stays")
        return self.subject

    def spare(self, address: str | None = None) -> Made:
        """The one store of ours that checks change, with a new name and perhaps an address."""
        if self.changing is None:
            self.changing = self.make().id
        name = self.name()
        return Made(self.changing, name, address, self.replace(self.changing, fields(name, address)))


def fields(name: str, address: str | None = None) -> dict[str, str]:
    """The payload for a name and perhaps an address."""
    return {"name": name} if address is None else {"name": name, "address": address}


def read_body(answer: Answer, listing: Listing | None) -> None:
    """Parse what came: as a list where one is wanted and the status is 200, else as one JSON value."""
    http = answer.http
    if listing is not None and http.status == 200:
        listing.finish()
        answer.listing, answer.malformed = listing, listing.fault
        return
    try:
        answer.document = parse(http.content)
    except Malformed as error:
        answer.malformed = str(error)


def listed(answer: Answer) -> Listing:
    """The list that an answer is; Violation when it is none."""
    if answer.listing is None:
        raise Violation(f"status {answer.http.status} instead of a list", answer.http)
    if answer.listing.fault:
        raise Violation(answer.listing.fault, answer.http)
    return answer.listing


def single(answer: Answer) -> Store:
    """The one store that an answer is; Violation when it is none."""
    if not answer.ok:
        raise Violation(f"status {answer.http.status} instead of a store", answer.http)
    if not isinstance(answer.document, dict):
        raise Violation(answer.malformed or "the body is not one JSON object", answer.http)
    return answer.document


def number(store: object) -> int | None:
    """A store's id as a number, whatever its JSON type: that it must be an integer is a rule of its own."""
    id = store.get("id") if isinstance(store, dict) else None
    try:
        return int(id) if isinstance(id, (int, float, str)) else None
    except (ValueError, OverflowError):
        return None


def differs(store: Store, id: int, name: str, address: str | None) -> str | None:
    """How a store is another than it should be; None when it is not. An absent address passes for null here."""
    wanted: dict[str, Any] = {"id": id, "name": name, "address": address}
    have = {"id": number(store), "name": store.get("name"), "address": store.get("address")}
    wrong = [key for key in wanted if have[key] != wanted[key]]
    return f"{wrong[0]} is {have[wrong[0]]!r}, not {wanted[wrong[0]]!r}" if wrong else None


def ids_of(stores: list[Store]) -> list[int | None]:
    """The ids of stores."""
    return [number(store) for store in stores]
