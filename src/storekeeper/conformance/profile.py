"""What a service does where the contract is silent: looked at and told, never failed; this package only."""

import json
from collections.abc import Callable

from storekeeper.conformance.client import TimedOut, Unreachable
from storekeeper.conformance.service import MISSING, Kind, Response, Service, Violation

STORES, FORM = "/api/stores", "application/x-www-form-urlencoded"
ABSENT, NOBODY = f"{STORES}/{MISSING}", f"{STORES}?name={{free}}"
ID = b'"id"'
BOTH = b'{"name": 5, "address": 5}'
Look = Callable[[Service], str]
Requests = dict[str, tuple[str, str, bytes | None]]  # method, target and body by what the request is called


def observe(service: Service) -> dict[str, str]:
    """Return what the service does, by topic: all that the run allows; a service that stops responding ends it."""
    seen: dict[str, str] = {}
    for topic, look in (READS if service.read_only else READS | WRITES).items():
        try:
            seen[topic] = look(service) if callable(look) else ask(service, look)
        except (Unreachable, Violation) as error:
            seen[topic] = f"not seen: {error}"
            if isinstance(error, TimedOut):
                break
    return seen


def told(response: Response) -> str:
    """Return a response in a few words: the status, and the message of an error."""
    message = response.member("message")
    return f"{response.http.status} {message}" if isinstance(message, str) else str(response.http.status)


def together(responses: dict[str, Response]) -> str:
    """Return several responses in a few words, those alike together."""
    groups: dict[str, list[str]] = {}
    for label, response in responses.items():
        groups.setdefault(told(response), []).append(label)
    return "; ".join(f"{', '.join(labels)}: {text}".removeprefix(": ") for text, labels in groups.items())


def ask(service: Service, requests: Requests) -> str:
    """Return what comes of these requests; `{free}` in a target is a name that nobody has."""
    free = service.name().replace(" ", "-")
    asked = {label: (method, path.replace("{free}", free), body) for label, (method, path, body) in requests.items()}
    return together({label: service.raw(*request) for label, request in asked.items()})


def earlier(service: Service, kind: Kind, part: bytes) -> str:
    """Return what came during the checks of a request that the contract leaves open."""
    for seen in service.seen:
        if seen.kind == kind and seen.wanted in ("open", "either") and part in (seen.http.body or b""):
            return told(seen)
    return "not seen"


def counts(service: Service) -> str:
    """Tell letters of one code point from those of two UTF-16 units and of two bytes."""
    names = "\u00e9" * 30, "\U0001f3ec" * 30, "\U0001f3ec" * 31
    taken = [service.update({"name": name}, "open").ok for name in names]
    return ("bytes", "UTF-16 units", "code points", "more than code points")[sum(taken)]


def key_twice(service: Service) -> str:
    """Tell which one counts."""
    body = b'{"name": "%s", "address": "first", "address": "last"}' % service.name().encode()
    response = service.raw("PUT", f"{STORES}/{service.spare().id}", body)
    address = response.member("address") if response.ok else None
    return f"{told(response)}, the {address} counts" if address else told(response)


def keys(service: Service) -> str:
    """Tell which fields are named when both are wrong."""
    validation = service.raw("POST", STORES, BOTH).member("validation")
    return json.dumps(validation.get("keys")) if isinstance(validation, dict) else "no validation"


def plus(service: Service) -> str:
    """Tell whether it is a blank, as in a form, or itself."""
    name = service.settle().name.replace(" ", "+")
    response = service.send("filter", "GET", f"{STORES}?name={name}", "open")
    return "a blank" if response.listing and response.listing.count else "itself, or nothing"


def content_types(service: Service) -> str:
    """Make the same valid update under several."""
    types = (None, "application/json; charset=latin-1", "application/merge-patch+json", "text/plain", FORM)
    target, body = f"{STORES}/{service.spare().id}", json.dumps({"name": service.name()}).encode()
    return together({str(kind or "none"): service.raw("PUT", target, body, kind) for kind in types})


def update(payload: object) -> Look:
    """Return the look at what comes of this update."""
    return lambda service: told(service.update(payload, "open"))


def gets(targets: dict[str, str]) -> Requests:
    """Return a GET of each target."""
    return {label: ("GET", target, None) for label, target in targets.items()}


def each(bodies: dict[str, bytes]) -> Requests:
    """Return a POST of each body."""
    return {label: ("POST", STORES, body) for label, body in bodies.items()}


QUERIES = {"twice": "&name=x", "another": "&colour=red", "+": "+x", "no UTF-8": "%FF", "%": "%"}
QUERIES["31 characters"] = "x" * 14
IDS = ("abc", "1abc", "-1", "%2B1", "1.0", "0x1", "1e0", "%D9%A1", "9" * 40)
READS: dict[str, Look | Requests] = {  # in any run; WRITES are looked at besides, unless it is read-only
    "GET /test: its content type": lambda service: service.raw("GET", "/test").http.header("content-type") or "none",
    "GET of a store that does not exist": gets({"": ABSENT}),
    "{id} that is not an integer": gets({id if len(id) < 20 else f"{id[:9]}…": f"{STORES}/{id}" for id in IDS}),
    "query: name twice, another parameter, + for a blank, bytes that are no UTF-8": gets(
        {label: f"{NOBODY}{query}" for label, query in QUERIES.items()}
    ),
    "other methods: HEAD, OPTIONS": {method: (method, NOBODY, None) for method in ("HEAD", "OPTIONS")},
    "a trailing slash, an unknown path": gets({"slash": NOBODY.replace("?", "/?"), "unknown": "/api/unknown"}),
}
WRITES: dict[str, Look | Requests] = {
    "PUT to a store that does not exist": lambda service: earlier(service, "update", b'"Nowhere"'),
    "PUT of a bad payload to an {id} that is not an integer": {"": ("PUT", f"{STORES}/abc", b"{}")},
    "id in the payload": lambda service: (
        f"POST: {earlier(service, 'create', ID)}; PUT: {earlier(service, 'update', ID)}"
    ),
    "another unknown key in the payload": update({"name": "x", "colour": "red"}),
    "the same key twice in the payload": key_twice,
    "address null": update({"name": "x", "address": None}),
    'address ""': lambda service: earlier(service, "create", b'"address": ""'),
    "a blank name": update({"name": "   "}),
    "U+0000 in a name": update({"name": "\0 nothing"}),
    "what the 30 characters count": counts,
    "messages of which the contract gives no text": each(
        {"31 characters": b'{"name": "%s"}' % (b"x" * 31), "name null": b'{"name": null}'}
        | {"name true": b'{"name": true}', "address 5": b'{"name": "x", "address": 5}', "both": BOTH}
    ),
    "keys when both fields are wrong": keys,
    "a payload that is no object, or none": each(
        {body.decode() or "no body": body for body in (b"[]", b'"x"', b"5", b"null", b"")}
    ),
    "a body that is not JSON": each(
        {"cut off": b'{"name": "x"', "not UTF-8": b'{"name": 5, "address": "\xff"}', "NaN": b'{"name": NaN}'}
        | {"two values": b"{} {}", "nested 10,000 deep": b"[" * 10_000 + b"]" * 10_000}
    ),
    "content type of a payload": content_types,
    # The payload has no name, so nobody stores it.
    "a payload of 2 MiB": each({"": b'{"address": "%s"}' % (b"x" * (2 << 20))}),
    "+ in a query stands for": plus,
    "other methods: DELETE and PATCH of a store that does not exist, PUT of the list": {
        method: (method, STORES if method == "PUT" else ABSENT, b"{}") for method in ("DELETE", "PATCH", "PUT")
    },
}
