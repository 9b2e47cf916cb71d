"""Domain: a store, and its rules with their exact messages."""

from typing import Annotated

import msgspec

from storekeeper.domain.errors import InvalidInput

MAX_NAME_LENGTH = 30
"""Characters of a name: Unicode code points (decision 7)."""

MAX_CONTENT_BYTES = 2**20
"""Bytes of a store's name and address as JSON: of the body of a POST, and of a row of a file."""

MAX_INTEGER = 2**63 - 1
"""The greatest integer of a column, in both databases."""

MAX_EXTERNAL_LENGTH = 200
"""Characters of a key of an outside system, and of the name of its column."""


class Payload(msgspec.Struct, frozen=True):
    """The complete content of a store, which a client sends to create or replace the store."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
    address: str | None = None


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
        raise InvalidInput("payload", '"value" must be of type object')
    name = value.get("name", "")
    address = value.get("address")
    violations: dict[str, str] = {}
    if broken := _broken_by_name(name):
        violations["name"] = broken
    if "address" in value and (broken := _broken_by_address(address)):
        violations["address"] = broken
    if reject_unknown:
        violations |= {
            key: f'"{key}" is not allowed' for key in value if key not in Payload.__struct_fields__
        }
    if violations:
        raise InvalidInput("payload", violations)
    return Payload(name, address)


def _broken_by_name(name: object) -> str | None:
    if type(name) is not str:
        return '"name" must be a string'
    if not name:
        return '"name" is required'
    if len(name) > MAX_NAME_LENGTH:
        return f'"name" length must be less than or equal to {MAX_NAME_LENGTH} characters long'
    # PostgreSQL cannot store U+0000; both databases refuse it (decision 10).
    return '"name" must not contain null characters' if "\0" in name else None


def _broken_by_address(address: object) -> str | None:
    if type(address) is not str:
        return '"address" must be a string'
    return '"address" must not contain null characters' if "\0" in address else None
