"""The contract's rules for payloads that are rejected; this package only."""

from collections.abc import Callable
from functools import partial
from typing import Any

from storekeeper.conformance.rules import FAILURE, Rule, Rules
from storekeeper.conformance.service import MISSING, Fault, Response, Service

RULES = Rules()
GENERIC = "Invalid request payload input"
VIOLATES = "name is not a string, name is missing, name too long, address is not a string"
REQUIRED, NO_STRING = '"name" is required', '"name" must be a string'
NAME, ADDRESS = ("name",), ("address",)
Faults = Callable[[Service], list[Fault]]
Send = Callable[[Service, dict[str, Any], Fault], Response]


def missing(service: Service) -> list[Fault]:
    """Name is missing."""
    named = Fault("no name but a Name", {"Name": service.name()}, ())
    return [*(Fault("no name", payload, NAME, REQUIRED) for payload in ({"address": service.name()}, {})), named]


def empty(service: Service) -> list[Fault]:
    """Name is empty."""
    payloads = {"name": "", "address": service.name()}, {"name": ""}
    return [Fault("an empty name", payload, NAME, REQUIRED) for payload in payloads]


def numeric(service: Service) -> list[Fault]:
    """Name is a number."""
    values = (800_000_000_000 + int(service.marker[-8:], 16), 0, -1.5, 1e300)
    return [Fault("a number as name", named(service, value), NAME, NO_STRING) for value in values]


def typed(service: Service) -> list[Fault]:
    """Name is null, a boolean, an array or an object."""
    values: tuple[object, ...] = (None, True, False, [], [service.name()], {}, {"name": service.name()})
    return [Fault("a name that is no string", named(service, value), NAME) for value in values]


def long(service: Service) -> list[Fault]:
    """Name is longer than 30 characters."""
    names = [service.name().ljust(length, "x") for length in (31, 32, 300)]
    names += [service.name().ljust(30, "x") + " ", " " + service.name().ljust(30, "x")]
    names += [service.name().ljust(31, "\u00e9")]
    payloads = [*(named(service, name) for name in names), {"name": service.name().ljust(31, "x")}]
    return [Fault("a name longer than 30", payload, NAME, never=(REQUIRED, NO_STRING)) for payload in payloads]


def address(service: Service) -> list[Fault]:
    """Address is a number, a boolean, an array or an object."""
    values: tuple[object, ...] = (5, 0, -1.5, True, False, [], [service.name()], {}, {"street": "1"})
    payloads = [{"name": service.name(), "address": value} for value in values]
    never = ('"address" is required', REQUIRED, NO_STRING)
    return [Fault("an address that is no string", payload, ADDRESS, never=never) for payload in payloads]


def named(service: Service, name: object) -> dict[str, Any]:
    """Return the payload of a bad name."""
    return {"name": name, "address": service.name()}


WAYS: dict[str, Faults] = {
    "missing-name": missing,
    "empty-name": empty,
    "number-as-name": numeric,
    "other-type-as-name": typed,
    "31-characters": long,
    "address-of-other-type": address,
}
"""The ways to break the rules, by the name that their checks have."""


def every_fault(service: Service) -> list[Fault]:
    """Return some of each way, all with texts that nobody has used."""
    return [fault for faults in WAYS.values() for fault in faults(service)]


def each_way(service: Service) -> list[Fault]:
    """Return one of each way."""
    return [faults(service)[0] for faults in WAYS.values()]


def rejects(send: Send, faults: Faults, service: Service) -> None:
    """Violation unless each of these payloads gets a 400."""
    for fault in faults(service):
        response = send(service, fault.payload, fault)
        status = response.http.status
        response.expect(status == 400, f"{fault.label} gets the status {status}, not 400")


for method, send in (("POST", Service.create), ("PUT", Service.update)):
    for way, faults in WAYS.items():
        scope = f"{method}: {faults.__doc__}"
        RULES.append(Rule(f"{send.__name__}-rejects-{way}", VIOLATES, scope, partial(rejects, send, faults)))


@RULES.check(FAILURE)
def rejected_create_adds_nothing(service: Service) -> None:
    """Rejected creates are not found afterwards."""
    for fault in every_fault(service):
        response = service.create(fault.payload, fault)
        name = fault.payload.get("name")
        if response.http.status == 400 and isinstance(name, (str, int)) and name:
            found = service.find(str(name))
            ours = [store for store in found.listed.stores if service.is_ours(store)]
            found.expect(not ours, f"{fault.label} got a 400, and yet there is such a store now")
    response = service.everything()
    strays = [store for store in response.listed.stores if store.get("id") not in service.mine]
    response.expect(not strays, f"a payload got a 400, and yet the list has {strays[:1]}")


@RULES.check(FAILURE, adds=1)
def rejected_update_changes_nothing(service: Service) -> None:
    """After a rejected update the store is as before."""
    made = service.make(address="Unchanged")
    for fault in every_fault(service):
        response = service.replace(made.id, fault.payload, fault)
        if response.http.status != 400:
            service.replace(made.id, {"name": made.name, "address": made.address})
            continue
        service.read(made.id).shows(made, f" after an update with {fault.label} that got a 400")
    service.find(made.name).shows(made, " after updates that got a 400")


@RULES.check("Behavior: payload is validated first.")
def update_validates_first(service: Service) -> None:
    """A bad payload for a store that does not exist gets a 400."""
    if not service.read(MISSING, "open").ok:
        rejects(lambda service, payload, fault: service.replace(MISSING, payload, fault), every_fault, service)


def detect_mode(service: Service) -> None:
    """Learn from rejected payloads whether the service gives details; the majority decides."""
    generic = [service.create(fault.payload, fault).member("message") == GENERIC for fault in each_way(service)]
    service.generic = sum(generic) > len(generic) // 2
