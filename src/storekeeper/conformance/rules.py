"""What a rule of the contract is here: one function, its sentence, and how it fails; this package only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from storekeeper.conformance.service import Answer, Service, Violation
from storekeeper.conformance.wire import Exchange

Check = Callable[[Service], None]
State = Literal["passed", "failed", "skipped"]


class Skipped(Exception):
    """The rule cannot be observed here: the message says why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the sentence is the contract's own, and `scope` says which part of it the check looks at.

    `adds` is how many stores the check adds at most.
    """

    name: str
    sentence: str
    scope: str
    check: Check
    writes: bool
    adds: int = 0
    detailed: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one rule; a failed one says why and has the exchange that shows it."""

    rule: Rule
    state: State
    note: str = ""
    exchange: Exchange | None = None


RULES: list[Rule] = []


def rule(
    *, writes: bool = False, adds: int = 0, detailed: bool = False, late: bool = False
) -> Callable[[Check], Check]:
    """Register a check under its function's name; its docstring is the sentence that it holds, then the scope.

    `writes` marks what a read-only run leaves out, `detailed` what a service in generic mode does not show,
    `late` what looks at the answers to all other checks.
    """

    def register(check: Check) -> Check:
        name = check.__name__.replace("_", "-")
        sentence, _, scope = (" ".join(part.split()) for part in (check.__doc__ or "").partition("\n\n"))
        RULES.append(Rule(name, sentence, scope, check, writes or adds > 0, adds, detailed, late))
        return check

    return register


def expect(answer: Answer, holds: object, reason: str) -> None:
    """Violation with `reason` and this exchange unless it holds."""
    if not holds:
        raise Violation(reason, answer.http)
