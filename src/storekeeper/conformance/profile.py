"""What a service does where the contract is silent: looked at and told, never failed; this package only."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from storekeeper.conformance.service import MISSING, Answer, Kind, Service, Violation, fields
from storekeeper.conformance.wire import TimedOut, Unreachable

Probe = Callable[[Service], str]


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing that the contract leaves open, and what this service does."""

    topic: str
    seen: str


PROBES: list[tuple[str, bool, Probe]] = []


def probe(topic: str, *, writes: bool = False) -> Callable[[Probe], Probe]:
    """Register a look at one topic; `writes` marks what a read-only run leaves out."""

    def register(look: Probe) -> Probe:
        PROBES.append((topic, writes, look))
        return look

    return register


def observe(service: Service) -> Iterator[Observation]:
    """Look at everything that the run allows; a service that stops answering ends it."""
    for topic, writes, look in PROBES:
        if writes and service.read_only:
            continue
        try:
            yield Observation(topic, look(service))
        except TimedOut as error:
            yield Observation(topic, f"no answer: {error}")
            return
        except Unreachable as error:
            yield Observation(topic, f"no answer: {error}")
        except Violation as error:
            yield Observation(topic, f"not seen: {error}")


def told(answer: Answer) -> str:
    """An answer in a few words: the status, and the message of an error."""
    message = answer.document.get("message") if isinstance(answer.document, dict) else None
    return f"{answer.http.status} {message}" if isinstance(message, str) else str(answer.http.status)


def all_told(answers: dict[str, Answer]) -> str:
    """Several answers, those alike together."""
    groups: dict[str, list[str]] = {}
    for label, answer in answers.items():
        groups.setdefault(told(answer), []).append(label)
    return "; ".join(f"{', '.join(labels)}: {text}" for text, labels in groups.items())


def earlier(service: Service, kind: Kind, part: bytes) -> str:
    """What was answered during the checks to a request that the contract leaves open."""
    for answer in service.seen:
        if answer.kind == kind and answer.purpose in {"open", "either"} and part in (answer.http.body or b""):
            return told(answer)
    return "not seen"


@probe("GET /test: its content type")
def test_type(service: Service) -> str:
    """Which text it says it is."""
    return service.raw("GET", "/test").http.header("content-type") or "none"


@probe("GET of a store that does not exist")
def missing_read(service: Service) -> str:
    """Contract: not shown; observed there: 500."""
    return told(service.read(MISSING, "open"))


@probe("PUT to a store that does not exist", writes=True)
def missing_update(service: Service) -> str:
    """Contract: not shown; observed there: 500."""
    return earlier(service, "update", b'"Nowhere"')


@probe("{id} that is not an integer")
def strange_ids(service: Service) -> str:
    """Contract: not shown."""
    ids = ("abc", "1abc", "-1", "%2B1", "1.0", "0x1", "1e0", "%D9%A1", "9" * 40)
    return all_told({f"{id[:9]}…" if len(id) > 20 else id: service.read(id, "open") for id in ids})


@probe("PUT of a bad payload to an {id} that is not an integer", writes=True)
def strange_update(service: Service) -> str:
    """Contract: not shown."""
    return told(service.replace("abc", {}, "open"))


@probe("id in the payload", writes=True)
def id_in_payload(service: Service) -> str:
    """Contract, for PUT: not shown."""
    created, updated = (earlier(service, kind, b'"id"') for kind in ("create", "update"))
    return f"POST: {created}; PUT: {updated}"


@probe("another unknown key in the payload", writes=True)
def unknown_key(service: Service) -> str:
    """Contract, for PUT: not shown."""
    return told(put(service, {"colour": "red"}))


@probe("the same key twice in the payload", writes=True)
def key_twice(service: Service) -> str:
    """Whichever counts."""
    made = service.settle()
    body = f'{{"name": "{made.name}", "address": "first", "address": "last"}}'.encode()
    answer = service.raw("PUT", f"/api/stores/{made.id}", body)
    address = answer.document.get("address") if answer.ok and isinstance(answer.document, dict) else None
    return f"{told(answer)}, the {address} counts" if address else told(answer)


@probe("address null", writes=True)
def address_null(service: Service) -> str:
    """A string or null is returned, a string is sent: null is in between."""
    return told(put(service, {"address": None}))


@probe('address ""', writes=True)
def address_empty(service: Service) -> str:
    """A string, but joi's own refuses it."""
    return earlier(service, "create", b'"address": ""')


@probe("a blank name", writes=True)
def name_blank(service: Service) -> str:
    """Neither missing nor empty."""
    return told(put(service, {"name": "   "}))


@probe("U+0000 in a name", writes=True)
def name_null(service: Service) -> str:
    """A character like others, or none."""
    return told(put(service, {"name": "\0 nothing"}))


@probe("what the 30 characters count", writes=True)
def characters(service: Service) -> str:
    """Told apart by letters of one code point, of two UTF-16 units or of two bytes."""
    if put(service, {"name": "\U0001f3ec" * 30}).ok:
        return "more than code points" if put(service, {"name": "\U0001f3ec" * 31}).ok else "code points"
    return "UTF-16 units" if put(service, {"name": "\u00e9" * 30}).ok else "bytes"


@probe("messages of which the contract gives no text", writes=True)
def messages(service: Service) -> str:
    """Too long, no string, and both fields wrong."""
    payloads = {
        "31 characters": {"name": "x" * 31},
        "name null": {"name": None},
        "name true": {"name": True},
        "address 5": {"name": "x", "address": 5},
        "both": {"name": 5, "address": 5},
    }
    return all_told({label: service.create(payload, "open") for label, payload in payloads.items()})


@probe("keys when both fields are wrong", writes=True)
def keys(service: Service) -> str:
    """One or both."""
    document = service.create({"name": 5, "address": 5}, "open").document
    validation = document.get("validation") if isinstance(document, dict) else None
    return json.dumps(validation.get("keys")) if isinstance(validation, dict) else "no validation"


@probe("a payload that is no object, or none", writes=True)
def no_object(service: Service) -> str:
    """JSON, but not what is asked for."""
    bodies = (b"[]", b'"x"', b"5", b"null", b"")
    return all_told({body.decode() or "no body": service.raw("POST", "/api/stores", body) for body in bodies})


@probe("a body that is not JSON", writes=True)
def no_json(service: Service) -> str:
    """Cut off, not UTF-8, NaN, trailing text, nested too deep."""
    bodies = {
        "cut off": b'{"name": "x"',
        "not UTF-8": b'{"name": 5, "address": "\xff"}',
        "NaN": b'{"name": NaN}',
        "two values": b"{} {}",
        "nested 10,000 deep": b"[" * 10_000 + b"]" * 10_000,
    }
    return all_told({label: service.raw("POST", "/api/stores", body) for label, body in bodies.items()})


@probe("content type of a payload", writes=True)
def content_types(service: Service) -> str:
    """The same valid update under several."""
    made = service.settle()
    body = json.dumps(fields(made.name, made.address)).encode()
    types = ("none", "application/json; charset=latin-1", "application/merge-patch+json", "text/plain")
    path = f"/api/stores/{made.id}"
    form = "application/x-www-form-urlencoded"
    return all_told(
        {kind: service.raw("PUT", path, body, None if kind == "none" else kind) for kind in (*types, form)}
    )


@probe("a payload of 2 MiB", writes=True)
def large(service: Service) -> str:
    """Contract, of a size limit: not shown. The payload has no name, so nobody stores it."""
    body = b'{"address": "%s"}' % (b"x" * (2 << 20))
    return told(service.raw("POST", "/api/stores", body))


@probe("query: name twice, another parameter, + for a blank, bytes that are no UTF-8")
def queries(service: Service) -> str:
    """Contract: only name, once, is shown."""
    nobody = service.name().replace(" ", "-")
    targets = {
        "twice": f"name={nobody}&name={nobody}x",
        "another": f"name={nobody}&colour=red",
        "+": f"name={nobody}+x",
        "no UTF-8": f"name={nobody}%FF",
        "%": f"name={nobody}%",
        "31 characters": f"name={nobody.ljust(31, 'x')}",
    }
    return all_told({label: service.raw("GET", f"/api/stores?{query}") for label, query in targets.items()})


@probe("+ in a query stands for", writes=True)
def plus(service: Service) -> str:
    """A blank, as in a form, or itself."""
    made = service.settle()
    answer = service.send("filter", "GET", f"/api/stores?name={made.name.replace(' ', '+')}", purpose="open")
    return "a blank" if answer.listing and answer.listing.count else "itself, or nothing"


@probe("other methods: HEAD, OPTIONS")
def safe_methods(service: Service) -> str:
    """Contract: GET, POST and PUT."""
    path = f"/api/stores?name={service.name().replace(' ', '-')}"
    return all_told({method: service.raw(method, path) for method in ("HEAD", "OPTIONS")})


@probe("other methods: DELETE and PATCH of a store that does not exist, PUT of the list", writes=True)
def methods(service: Service) -> str:
    """Contract: GET, POST and PUT."""
    answers = {method: service.raw(method, f"/api/stores/{MISSING}", b"{}") for method in ("DELETE", "PATCH")}
    return all_told({**answers, "PUT": service.raw("PUT", "/api/stores", b"{}")})


@probe("a trailing slash, an unknown path")
def paths(service: Service) -> str:
    """Contract: neither."""
    nobody = service.name().replace(" ", "-")
    slash = service.raw("GET", f"/api/stores/?name={nobody}")
    return all_told({"slash": slash, "unknown": service.raw("GET", "/api/unknown")})


def put(service: Service, change: dict[str, object]) -> Answer:
    """An update of the store that is there for this, and its values back again."""
    made = service.settle()
    answer = service.replace(made.id, {**fields(made.name, made.address), **change}, "open")
    if answer.ok:
        service.replace(made.id, fields(made.name, made.address), "open")
    return answer
