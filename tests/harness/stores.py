"""Stores and their changes as tests expect them, by the fields that a store has. Quick to
import."""

import re
from typing import Any

from msgspec.structs import astuple

from storekeeper.domain.commands import ChangeRow
from storekeeper.domain.stores import Payload, Store
from storekeeper.storage.sql import CONTENT

HistoryRow = tuple[Any, ...]
"""seq, store_id and content of a change, as in `Database.changes`."""


def fields(*values: str | None) -> dict[str, Any]:
    """Return what clients see of a store besides its id: the values of its fields, null for missing
    ones."""
    return dict.fromkeys(CONTENT) | dict(zip(CONTENT, values, strict=False))


def shown(id: int, *values: str | None) -> dict[str, Any]:
    """Return what clients see of a store."""
    return {"id": id} | fields(*values)


def content(of: Payload | Store) -> list[Any]:
    """Return how clients describe a store."""
    return [getattr(of, name) for name in CONTENT]


def an_export(*stores: tuple[Any, ...]) -> bytes:
    """Return an export of stores, each as in `shown`, without versions and without values that need
    quotes."""
    rows = [[*shown(0, ""), "version"], *([*shown(*store).values(), ""] for store in stores)]
    return b"".join(b"%b\r\n" % ",".join(str(cell or "") for cell in row).encode() for row in rows)


def without_versions(export: bytes) -> bytes:
    return re.sub(rb",\d+\.[a-z2-7]{8}\r\n", b",\r\n", export)


def shown_with(id: int, of: Payload | Store) -> dict[str, Any]:
    """Return what clients see of the store with this content."""
    return {"id": id} | dict(zip(CONTENT, content(of), strict=True))


class _InAnyEpoch(Store, frozen=True):
    """A store that equals the same store of any epoch, since each test's database has a different
    one."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and astuple(self)[:-1] == astuple(other)[:-1]

    def __hash__(self) -> int:
        return hash(astuple(self)[:-1])


def a_store(id: int, name: str, address: str | None, version: int) -> Store:
    """Return a store as the collection holds it, of any epoch."""
    return _InAnyEpoch(*[id, *fields(name, address).values(), version, ""])


def a_store_with(id: int, of: Payload | Store, version: int, epoch: str | None = None) -> Store:
    """Return the store with this content, of any epoch unless one is given."""
    values: list[Any] = [id, *content(of), version, epoch or ""]
    return _InAnyEpoch(*values) if epoch is None else Store(*values)


def a_change(
    seq: int, id: int, of: Payload, at: int, count: int, token_number: int = 0
) -> ChangeRow:
    """Return a row of the table of changes."""
    return (seq, id, *astuple(of), at, count, token_number, None)


def store_of(change: ChangeRow, epoch: str) -> Store:
    """Return the store as a row of the table of changes has it."""
    row: list[Any] = [*change[1 : 2 + len(CONTENT)], change[0], epoch]
    return Store(*row)


def a_row(seq: int, id: int, name: str, address: str | None = None) -> HistoryRow:
    """Return a row of `Database.changes`."""
    return (seq, id, *fields(name, address).values())
