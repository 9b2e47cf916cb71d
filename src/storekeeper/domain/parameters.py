"""Domain: how the values of parameters and options are read, and what they must be."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.domain.stores import MAX_INTEGER


class Parameter(NamedTuple):
    """A parameter of a query, or an option of a command.

    `parse` gets the value, or all values of one that `is_repeatable`; for a wrong one it returns
    None or raises ValueError. A blank value counts as absent, unless it `takes_blank`. None of
    those that it `excludes` can be used with it.
    """

    parse: Callable[[Any], Any]
    must_be: str
    excludes: Sequence[str] = ()
    is_repeatable: bool = False
    takes_blank: bool = False

    def read(self, values: Sequence[bytes]) -> Any:
        """Return what the values mean, None if they are wrong."""
        try:
            if self.is_repeatable:
                return self.parse(values)
            return self.parse(values[0]) if len(values) == 1 else None
        except ValueError:  # not UTF-8, for example
            return None


def read(
    sent: Mapping[str, Sequence[bytes]], parameters: Mapping[str, Parameter]
) -> dict[str, Any]:
    """Return the values of those parameters that were sent; raises InvalidInput with every
    violation."""
    found: dict[str, Any] = {}
    violations: dict[str, Violation] = {}
    for name, parameter in parameters.items():
        values = sent.get(name, ())
        if not values or (list(values) == [b""] and not parameter.takes_blank):
            continue
        value = parameter.read(values)
        if value is None:
            violations[name] = Violation(Reason.MALFORMED, f"must be {parameter.must_be}")
        else:
            found[name] = value
    for name in found:
        for other in parameters[name].excludes:
            if other in found:
                violations[name] = Violation(
                    Reason.EXCLUSIVE, "must not be used together with", other=other
                )
    if violations:
        raise InvalidInput("query", violations)
    return found


def parse_flag(value: bytes) -> bool | None:
    """Return what a switch says, None if that is neither true nor false."""
    # Empty means true here: who sends `?dry-run` must not import.
    return {b"": True, b"true": True, b"1": True, b"false": False, b"0": False}.get(value)


FLAG = Parameter(parse_flag, "true or false", takes_blank=True)
"""A switch."""


_ID = re.compile(rb"[0-9]{1,19}")


def parse_ids(most: int) -> Callable[[bytes], Sequence[int] | None]:
    """Return what reads ids with commas between them, `most` of them at most."""

    def parse(value: bytes) -> Sequence[int] | None:
        texts = value.split(b",")
        if len(texts) > most or not all(map(_ID.fullmatch, texts)):
            return None
        ids = [int(text) for text in texts]
        return None if max(ids) > MAX_INTEGER else ids

    return parse


def one_of(*choices: str) -> Callable[[bytes], str | None]:
    """Return what reads one of these words."""
    return {choice.encode(): choice for choice in choices}.get
