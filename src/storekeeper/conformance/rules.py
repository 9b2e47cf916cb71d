"""What a rule of the contract is here: one function, its sentence, and how it fails; this package only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from storekeeper.conformance.client import Exchange
from storekeeper.conformance.service import Service

Check = Callable[[Service], object]
State = Literal["passed", "failed", "skipped"]

# Sentences of the contract that several rules hold.
ALL = "When absent or empty: all stores are returned."
EXACT = "name is exactly equal to the given value (case-sensitive, whole-string comparison) are returned"
ADDED = "id = (count of stores before the add) + 1, name from the payload, address from the payload or null when"
CHANGED = "the store with that id gets name from the payload and address from the payload (null when not sent)."
NUMBER = "Assigned on creation as the number of stores existing at that moment plus one."
NO_MORE = f"{NUMBER} Never taken from the client."
THREE = "A store returned by create, update or read always carries exactly three properties: id, name, address."
FAILURE = "Validation happens before the operation; on failure no store is created or changed."


class Skipped(Exception):
    """The rule cannot be observed here: the message says why."""


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
    state: State
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
