"""The contract's rules for rejected payloads, and for requests that add no store."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any

from storeapi_check.service import (
    TRIES,
    UNUSED,
    Response,
    Rules,
    Service,
    Skipped,
    Violation,
    Way,
    number,
)
from storeapi_check.writing import METHODS, NO_MORE, Write, require_others

RULES = Rules()
FAILURE = "Validation happens before the operation; on failure no store is created or changed."
GENERIC = "Invalid request payload input"
VIOLATES = "name is not a string, name is missing, name too long, address is not a string"
REQUIRED = '"name" is required'
NOT_A_STRING = '"name" must be a string'
FIXED_MESSAGES = (REQUIRED, NOT_A_STRING, '"address" is required')
Request = Callable[[Service], Response]
WAYS = {
    "missing-name": Way("Name is missing.", "no name", message=REQUIRED),
    "empty-name": Way("Name is empty.", "an empty name", message=REQUIRED),
    "number-as-name": Way("Name is a number.", "a number as name", message=NOT_A_STRING),
    "other-type-as-name": Way(
        "Name is null, a boolean, an array or an object.", "a name that is not a string"
    ),
    "31-characters": Way(
        "Name is longer than 30 characters.",
        "a name longer than 30 characters",
        never=FIXED_MESSAGES,
    ),
    "address-of-other-type": Way(
        "Address is a number, a boolean, an array or an object.",
        "an address that is not a string",
        "address",
        FIXED_MESSAGES,
    ),
}
"""The ways to break the rules of a payload, by the name that their checks have."""


def bad_payloads(service: Service) -> dict[str, list[tuple[dict[str, Any], Way]]]:
    """Return bad payloads for each way, each with its way; no store has any of their texts."""
    new, large = service.name, 800_000_000_000 + int(service.marker[-8:], 16)
    types: tuple[object, ...] = (None, True, False, [], [new()], {}, {"name": new()})
    addresses: tuple[object, ...] = (5, 0, -1.5, True, False, [], [new()], {}, {"street": "1"})
    long = [f"{new():x<31}", f"{new():x<32}", f"{new():x<300}", f"{new():\u00e9<31}"]
    long += [f"{new():x<30} ", f" {new():x<30}"]
    payloads: dict[str, list[dict[str, Any]]] = {
        "missing-name": [{"address": new()}, {}],
        "empty-name": [{"name": "", "address": new()}, {"name": ""}],
        "number-as-name": [{"name": name, "address": new()} for name in (large, 0, -1.5, 1e300)],
        "other-type-as-name": [{"name": name, "address": new()} for name in types],
        "31-characters": [{"name": name, "address": new()} for name in long],
        "address-of-other-type": [{"name": new(), "address": address} for address in addresses],
    }
    payloads["31-characters"].append({"name": f"{new():x<31}"})
    found = {name: [(payload, way) for payload in payloads[name]] for name, way in WAYS.items()}
    found["missing-name"].append(({"Name": new()}, Way("", "no name but a Name", key="")))
    return found


# Requests that add no store


def send_bad(send: Write, service: Service) -> Response:
    """Send a bad payload of each way; raise Skipped if one is accepted, since that breaks a
    different rule."""
    for payloads in bad_payloads(service).values():
        payload, way = payloads[0]
        response = send(service, payload, way)
        if response.status != 400:
            raise Skipped(f"{way.label} is not rejected")
    return response


@RULES.check(FAILURE, "Rejected creates and updates use up no id.", adds=TRIES + 1)
def _rejected_create_takes_no_number(service: Service) -> None:
    first = service.make()
    for _ in range(TRIES):
        for _, write in METHODS:
            send_bad(write, service)
        second = service.make()
        require_others(service, first, second)
        if second.id == first.id + 1:
            return
        first = second


def require_no_growth(send: Request, service: Service) -> None:
    """Raise Violation if the number of stores grows with these requests.

    Other clients may add stores at any time. So the service is to blame only if the number
    repeatedly grows in proportion to the requests, and does not grow in an equally long pause.
    """
    for _ in range(TRIES):
        each, paused = growth(service, send, 1)
        if not each:
            return
        if not paused and grows_in_proportion(service, send, each):
            known = f"{each} for every {len(WAYS)} of these, none while none is sent"
            raise Violation(f"requests that create no store add stores: {known}", send(service))


def grows_in_proportion(service: Service, send: Request, each: int) -> bool:
    """Return whether the requests add `each` stores each time, and a pause adds none."""
    return all(growth(service, send, times) == (times * each, 0) for times in (3, 2, 4))


def growth(service: Service, send: Request, times: int) -> tuple[int, int]:
    """Return how many stores were added while this was sent `times` times, and, if there were
    any, how many in an equally long pause."""
    started = time.monotonic()
    before = service.count()
    for _ in range(times):
        send(service)
    added = service.count() - before
    if not added:
        return 0, 0
    time.sleep(time.monotonic() - started)
    return added, service.count() - before - added


for method, send in METHODS:
    check = partial(require_no_growth, partial(send_bad, send))
    RULES.add(
        f"rejected-{send.__name__}-adds-no-other",
        FAILURE,
        f"{method}: nor under another name.",
        check,
    )


@RULES.check(NO_MORE, "Nor does an update that succeeds.")
def _update_adds_no_other(service: Service) -> None:
    def update(service: Service) -> Response:
        for _ in WAYS:
            store = service.spare()
        return store.response

    require_no_growth(update, service)


# Bad payloads, and what they leave behind


def require_rejection(send: Write, names: Iterable[str], service: Service) -> None:
    """Raise Violation unless each payload that is bad in these ways gets a 400."""
    payloads = bad_payloads(service)
    for name in names:
        for payload, way in payloads[name]:
            response = send(service, payload, way)
            reason = f"{way.label} gets the status {response.status}, not 400"
            response.expect(response.status == 400, reason)


for method, send in METHODS:
    for name, way in WAYS.items():
        check = partial(require_rejection, send, (name,))
        RULES.add(f"{send.__name__}-rejects-{name}", VIOLATES, f"{method}: {way.scope}", check)


@RULES.check(FAILURE, "Rejected creates are not found afterwards.")
def _rejected_create_adds_nothing(service: Service) -> None:
    for payload, way in chain.from_iterable(bad_payloads(service).values()):
        response = service.create(payload, way)
        name = payload.get("name")
        if response.status == 400 and isinstance(name, (str, int)) and name:
            found = service.find(str(name))
            ours = [store for store in found.listed.stores if service.is_ours(store)]
            found.expect(not ours, f"{way.label} got a 400, but now there is such a store")
    response = service.find()
    strays = [store for store in response.listed.stores if number(store) not in service.mine]
    response.expect(not strays, f"a payload got a 400, but the list has {strays[:1]}")


@RULES.check(FAILURE, "A rejected update leaves the store as it was.", adds=1)
def _rejected_update_changes_nothing(service: Service) -> None:
    made = service.make(address="Unchanged")
    for payload, way in chain.from_iterable(bad_payloads(service).values()):
        response = service.replace(made.id, payload, way)
        if response.status != 400:
            service.replace(made.id, {"name": made.name, "address": made.address})
            continue
        service.read(made.id).shows(made, f" after an update with {way.label} that got a 400")
    service.find(made.name).shows(made, " after updates that got a 400")


@RULES.check(
    "Behavior: payload is validated first.",
    "A bad payload for a store that does not exist gets a 400.",
)
def _update_validates_first(service: Service) -> None:
    def update(service: Service, payload: object, way: Way) -> Response:
        return service.replace(UNUSED, payload, way)

    if not service.read(UNUSED, "open").ok:
        require_rejection(update, WAYS, service)


def detect_mode(service: Service) -> None:
    """Learn from rejected payloads whether the service gives details; the majority decides."""
    messages = []
    for payloads in bad_payloads(service).values():
        payload, way = payloads[0]
        messages.append(service.create(payload, way).member("message"))
    service.generic = messages.count(GENERIC) > len(messages) // 2
