"""How a mutant is made: the reference with one sentence of the contract broken."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.storeapi_check.reference import Reference


@dataclass(frozen=True)
class Mutant:
    """What is wrong, the service, and the checks that must fail (others may fail too)."""

    name: str
    service: type[Reference]
    checks: frozenset[str]


MUTANTS: list[Mutant] = []
STORE_OPERATIONS = ("list", "filter", "read", "create", "update")


def breaks(
    name: str, *checks: str, of: type[Reference] = Reference, **methods: Callable[..., Any]
) -> None:
    """Add the mutant whose methods replace the reference's."""
    MUTANTS.append(Mutant(name, type("Mutated", (of,), methods), frozenset(checks)))


def mutant(name: str, *checks: str) -> Callable[[type[Reference]], type[Reference]]:
    """Add the mutant that has a class of its own."""

    def add(service: type[Reference]) -> type[Reference]:
        MUTANTS.append(Mutant(name, service, frozenset(checks)))
        return service

    return add
