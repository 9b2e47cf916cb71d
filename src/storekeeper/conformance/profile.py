"""What a service does where the contract is silent: reported, and never a failure; this package only."""

import json
from collections.abc import Callable, Iterable

from storekeeper.conformance.client import Unreachable
from storekeeper.conformance.service import STORES, UNUSED, Response, Service, Violation, brief

FORM = "application/x-www-form-urlencoded"
CONTENT_TYPES = "", "application/json; charset=latin-1", "application/merge-patch+json", "text/plain", FORM
ABSENT, NOBODY = f"{STORES}/{UNUSED}", f"{STORES}?name=No-such-store-yet"
BOTH, NO_OBJECTS = b'{"name": 5, "address": 5}', (b"[]", b'"x"', b"5", b"null", b"")
Look = Callable[[Service], str]


def observe(service: Service) -> dict[str, str]:
    """Return what the service does, by topic, as far as the run allows; stop when the service stops responding."""
    seen: dict[str, str] = {}
    for topic, look in (READS if service.read_only else READS | WRITES).items():
        try:
            seen[topic] = look(service)
        except (Unreachable, Violation) as error:
            seen[topic] = f"not seen: {error.reason}"
            if isinstance(error.__cause__, TimeoutError):
                break
    return seen


def _told(response: Response) -> str:
    message = response.member("message")
    return brief(f"{response.status} {message}") if isinstance(message, str) else str(response.status)


def _together(responses: Iterable[tuple[str, Response]]) -> str:
    """Return several responses in a few words, those alike together."""
    groups: dict[str, list[str]] = {}
    for label, response in responses:
        groups.setdefault(_told(response), []).append(label)
    return "; ".join(f"{', '.join(labels)}: {text}".removeprefix(": ") for text, labels in groups.items())


def _ask(requests: dict[str, tuple[str, str, bytes | None]]) -> Look:
    """Return the look at these requests: method, target and body by what each is called."""
    return lambda service: _together((label, service.send(*request)) for label, request in requests.items())


def _gets(targets: dict[str, str]) -> Look:
    return _ask({label: ("GET", target, None) for label, target in targets.items()})


def _posts(bodies: dict[str, bytes]) -> Look:
    return _ask({label: ("POST", STORES, body) for label, body in bodies.items()})


def _update(payload: object) -> Look:
    return lambda service: _told(service.update(payload, "open"))


def _earlier(service: Service, method: str, part: bytes = b'"id"') -> str:
    """Return the response that the checks got to a request which the contract leaves open."""
    found = (seen for seen in service.seen if seen.method == method and seen.wanted in ("open", "either"))
    return next((_told(seen) for seen in found if part in (seen.body or b"")), "not seen")


def _counted(service: Service) -> str:
    names = "\u00e9" * 30, "\U0001f3ec" * 30, "\U0001f3ec" * 31
    taken = [service.update({"name": name}, "open").ok for name in names]
    return ("bytes", "UTF-16 units", "code points", "more than code points")[sum(taken)]


def _key_twice(service: Service) -> str:
    body = b'{"name": "%s", "address": "first", "address": "last"}' % service.name().encode()
    response = service.update(body, "open")
    address = response.member("address") if response.ok else None
    return f"{_told(response)}, the {address} counts" if address else _told(response)


def _keys(service: Service) -> str:
    validation = service.send("POST", STORES, BOTH).member("validation")
    return json.dumps(validation.get("keys")) if isinstance(validation, dict) else "no validation"


def _plus(service: Service) -> str:
    name = service.settle().name.replace(" ", "+")
    response = service.send("GET", f"{STORES}?name={name}")
    return "a blank" if response.listing and response.listing.count else "itself, or nothing"


def _content_types(service: Service) -> str:
    target, body = f"{STORES}/{service.spare().id}", json.dumps({"name": service.name()}).encode()
    return _together((kind or "none", service.send("PUT", target, body, content_type=kind)) for kind in CONTENT_TYPES)


QUERIES = {"twice": "&name=x", "another": "&colour=red", "+": "+x", "no UTF-8": "%FF", "%": "%"}
QUERIES["31 characters"] = "x" * 14
IDS = ("abc", "1abc", "-1", "%2B1", "1.0", "0x1", "1e0", "%D9%A1", "9" * 40)
READS: dict[str, Look] = {  # in any run; WRITES are looked at besides, unless it is read-only
    "GET /test: its content type": lambda service: service.send("GET", "/test").header("content-type") or "none",
    "GET of a store that does not exist": _gets({"": ABSENT}),
    "{id} that is not an integer": _gets({id if len(id) < 20 else f"{id[:9]}…": f"{STORES}/{id}" for id in IDS}),
    "query: name twice, another parameter, + for a blank, bytes that are no UTF-8": _gets(
        {label: f"{NOBODY}{query}" for label, query in QUERIES.items()}
    ),
    "other methods: HEAD, OPTIONS": _ask({method: (method, NOBODY, None) for method in ("HEAD", "OPTIONS")}),
    "a trailing slash, an unknown path": _gets({"slash": NOBODY.replace("?", "/?"), "unknown": "/api/unknown"}),
}
WRITES: dict[str, Look] = {
    "PUT to a store that does not exist": lambda service: _earlier(service, "PUT", b'"Nowhere"'),
    "PUT of a bad payload to an {id} that is not an integer": _ask({"": ("PUT", f"{STORES}/abc", b"{}")}),
    "id in the payload": lambda service: f"POST: {_earlier(service, 'POST')}; PUT: {_earlier(service, 'PUT')}",
    "another unknown key in the payload": _update({"name": "x", "colour": "red"}),
    "the same key twice in the payload": _key_twice,
    "address null": _update({"name": "x", "address": None}),
    'address ""': lambda service: _earlier(service, "POST", b'"address": ""'),
    "a blank name": _update({"name": "   "}),
    "U+0000 in a name": _update({"name": "\0 nothing"}),
    "what the 30 characters count": _counted,
    "messages of which the contract gives no text": _posts(
        {"31 characters": b'{"name": "%s"}' % (b"x" * 31), "name null": b'{"name": null}'}
        | {"name true": b'{"name": true}', "address 5": b'{"name": "x", "address": 5}', "both": BOTH}
    ),
    "keys when both fields are wrong": _keys,
    "a payload that is no object, or none": _posts({body.decode() or "no body": body for body in NO_OBJECTS}),
    "a body that is not JSON": _posts(
        {"cut off": b'{"name": "x"', "not UTF-8": b'{"name": 5, "address": "\xff"}', "NaN": b'{"name": NaN}'}
        | {"two values": b"{} {}", "nested 10,000 deep": b"[" * 10_000 + b"]" * 10_000}
    ),
    "content type of a payload": _content_types,
    # The payload has no name, so nobody stores it.
    "a payload of 2 MiB": _posts({"": b'{"address": "%s"}' % (b"x" * (2 << 20))}),
    "+ in a query stands for": _plus,
    "other methods: DELETE and PATCH of a store that does not exist, PUT of the list": _ask(
        {"DELETE": ("DELETE", ABSENT, b"{}"), "PATCH": ("PATCH", ABSENT, b"{}"), "PUT": ("PUT", STORES, b"{}")}
    ),
}
