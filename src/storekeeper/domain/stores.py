"""Domain: a store, and its rules with their exact messages."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.reasons import Reason, Violation

MAX_NAME_LENGTH = 30
"""Characters of a name: Unicode code points (decision 7)."""

# Longer than the name of any store.
NO_NAME = "?" * (MAX_NAME_LENGTH + 1)

MAX_CONTENT_BYTES = 2**20
"""Bytes of a store's name and address as JSON: of the body of a POST, and of a row of a file."""

MAX_INTEGER = 2**63 - 1
"""The greatest integer of a column, in both databases."""

MAX_EXTERNAL_LENGTH = 200
"""Characters of a key of an outside system, and of the name of its column."""


RULES: Mapping[Reason, str] = {
    Reason.REQUIRED: "is required",
    Reason.TOO_LONG: "length must be less than or equal to {} characters long",
    Reason.HAS_NULLS: "must not contain null characters",
    Reason.NOT_TEXT: "must be a string",
    Reason.NOT_ALLOWED: "is not allowed",
}
"""The contract's words for each rule, after the name of the field."""

_NOT_OBJECT = Violation(Reason.NOT_OBJECT, sentence='"value" must be of type object')


class Payload(msgspec.Struct, frozen=True):
    """The complete content of a store, which a client sends to create or replace the store."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
    address: str | None = None


class PayloadPatch(msgspec.Struct, frozen=True):
    """The fields of a store that a client sends to change only these; UNSET are the others."""

    name: (
        Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_LENGTH)] | msgspec.UnsetType
    ) = msgspec.UNSET
    address: str | msgspec.UnsetType | None = msgspec.UNSET

    def applied_to(self, name: str, address: str | None) -> Payload:
        """Return what a store with this content becomes."""
        return Payload(
            name if self.name is msgspec.UNSET else self.name,
            address if self.address is msgspec.UNSET else self.address,
        )


class Store(msgspec.Struct, frozen=True):
    """A store of the collection. Clients see `id`, `name` and `address`.

    `version` is the number of the latest change that wrote it; `epoch` names the history of that
    number.
    """

    id: int
    name: str
    address: str | None
    version: int
    epoch: str


class Replay(Store, frozen=True):
    """A store as an earlier request with the same Idempotency-Key left it (decision 36)."""


EXAMPLES = (
    Payload("Main Street", "1 Main Street, Springfield"),
    Payload("Harbour", "20 Quay Road, Portsmouth"),
    Payload("Airport Kiosk"),
)
"""The example stores of an empty collection."""


def check_payload(value: object, *, reject_unknown: bool = False) -> Payload:
    """Return the payload in `value`, a decoded JSON value. Raises InvalidInput, which has every
    violation.

    Keys that are not fields are ignored; with `reject_unknown`, they are violations (decision 4).
    """
    if type(value) is not dict:
        raise InvalidInput("payload", whole=_NOT_OBJECT)
    name = value.get("name", "")
    address = value.get("address")
    broken: dict[str, Reason] = {}
    if reason := _broken_by_name(name):
        broken["name"] = reason
    if "address" in value and (reason := _broken_by_address(address)):
        broken["address"] = reason
    _raise_if_broken(value, broken, reject_unknown=reject_unknown)
    return Payload(name, address)


def check_patch(value: object, *, reject_unknown: bool = False) -> PayloadPatch:
    """Return the patch in `value`, a JSON merge patch (RFC 7396). Raises InvalidInput, which has
    every violation.

    Null removes a field: the address, never the name (decision 56).
    """
    if type(value) is not dict:
        raise InvalidInput("payload", whole=_NOT_OBJECT)
    name = value.get("name", msgspec.UNSET)
    address = value.get("address", msgspec.UNSET)
    broken: dict[str, Reason] = {}
    if name is None:
        broken["name"] = Reason.REQUIRED
    elif name is not msgspec.UNSET and (reason := _broken_by_name(name)):
        broken["name"] = reason
    if address not in (None, msgspec.UNSET) and (reason := _broken_by_address(address)):
        broken["address"] = reason
    _raise_if_broken(value, broken, reject_unknown=reject_unknown)
    return PayloadPatch(name, address)


def _raise_if_broken(
    value: dict[str, object], broken: dict[str, Reason], *, reject_unknown: bool
) -> None:
    if reject_unknown:
        unknown = [key for key in value if key not in Payload.__struct_fields__]
        broken |= dict.fromkeys(unknown, Reason.NOT_ALLOWED)
    if broken:
        violations = {
            field: Violation(reason, rule_of(reason, field)) for field, reason in broken.items()
        }
        raise InvalidInput("payload", violations)


def max_length(field: str) -> int:
    """Return how many characters a name may have, or a key of an outside system."""
    return MAX_NAME_LENGTH if field == "name" else MAX_EXTERNAL_LENGTH


def rule_of(reason: Reason, field: str) -> str:
    """Return the contract's words for the rule that a field breaks."""
    return RULES[reason].format(max_length(field))


def _broken_by_name(name: object) -> Reason | None:
    if type(name) is not str:
        return Reason.NOT_TEXT
    if not name:
        return Reason.REQUIRED
    if len(name) > MAX_NAME_LENGTH:
        return Reason.TOO_LONG
    return _broken_by_nulls(name)


def _broken_by_address(address: object) -> Reason | None:
    if type(address) is not str:
        return Reason.NOT_TEXT
    return _broken_by_nulls(address)


def _broken_by_nulls(text: str) -> Reason | None:
    # PostgreSQL cannot store U+0000; both databases refuse it (decision 10).
    return Reason.HAS_NULLS if "\0" in text else None
