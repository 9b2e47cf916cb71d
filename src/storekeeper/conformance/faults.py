"""Payloads that break the store payload rules, each with what the answer must say of it; this package only."""

from collections.abc import Callable

from storekeeper.conformance.service import Fault, Service

REQUIRED, NO_STRING = '"name" is required', '"name" must be a string'


def missing(service: Service) -> list[Fault]:
    """Name is missing."""
    faults = [Fault("no name", payload, ("name",), REQUIRED) for payload in ({}, {"address": service.name()})]
    return [*faults, Fault("no name but a Name", {"Name": service.name()}, ())]


def empty(service: Service) -> list[Fault]:
    """Name is empty."""
    payloads = [{"name": ""}, {"name": "", "address": service.name()}]
    return [Fault("an empty name", payload, ("name",), REQUIRED) for payload in payloads]


def numeric(service: Service) -> list[Fault]:
    """Name is a number."""
    values = (800_000_000_000 + int(service.marker[-8:], 16), 0, -1.5, 1e300)
    return [
        Fault("a number as name", {"name": value, "address": service.name()}, ("name",), NO_STRING)
        for value in values
    ]


def typed(service: Service) -> list[Fault]:
    """Name is null, a boolean, an array or an object."""
    values: tuple[object, ...] = (None, True, False, [], [service.name()], {}, {"name": service.name()})
    return [
        Fault("a name that is no string", {"name": value, "address": service.name()}, ("name",)) for value in values
    ]


def long(service: Service) -> list[Fault]:
    """Name is longer than 30 characters."""
    names = (
        service.name().ljust(31, "x"),
        service.name().ljust(30, "x") + " ",
        " " + service.name().ljust(30, "x"),
        service.name().ljust(31, "\u00e9"),
        service.name().ljust(32, "x"),
        service.name().ljust(300, "x"),
    )
    never = (REQUIRED, NO_STRING)
    payloads = [{"name": name, "address": service.name()} for name in names]
    return [
        Fault("a name longer than 30", payload, ("name",), never=never) for payload in [*payloads, {"name": names[0]}]
    ]


def address(service: Service) -> list[Fault]:
    """Address is a number, a boolean, an array or an object."""
    values: tuple[object, ...] = (5, 0, -1.5, True, False, [], [service.name()], {}, {"street": "1"})
    never = ('"address" is required', REQUIRED, NO_STRING)
    return [
        Fault(
            "an address that is no string",
            {"name": service.name(), "address": value},
            ("address",),
            never=never,
        )
        for value in values
    ]


FAULTS: dict[str, Callable[[Service], list[Fault]]] = {
    "missing-name": missing,
    "empty-name": empty,
    "number-as-name": numeric,
    "other-type-as-name": typed,
    "31-characters": long,
    "address-of-other-type": address,
}
"""The ways to break the rules, by the name that their checks have."""


def every_fault(service: Service) -> list[Fault]:
    """One of each way and more, all with texts that nobody has used."""
    return [fault for ways in FAULTS.values() for fault in ways(service)]
