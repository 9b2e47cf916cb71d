"""Domain: what the undo of an import or of an undo does, decided by one class (decision 61)."""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import msgspec

from storekeeper.domain.changes import Cursor
from storekeeper.domain.commands import Key, Tags
from storekeeper.domain.intake import Numbers
from storekeeper.domain.problems import MAX_LISTED, Texts
from storekeeper.domain.search import fold, folded


class Undo(msgspec.Struct, frozen=True):
    """Which import to undo, by its first and its last change, and who does that."""

    first: Cursor
    last: Cursor
    dry_run: bool = False
    if_match: Tags | None = None
    idempotency_key: Key | None = None
    token_number: int = 0
    user: str | None = None
    proxy_user: str | None = None


class Field(IntEnum):
    """What becomes of a field that an import may have changed."""

    UNTOUCHED = 0
    """The import did not change it."""
    UNDONE = 1
    """It still is as the import made it, so that it becomes what it was."""
    STAYS = 2
    """It was changed since."""


class KeyIs(IntEnum):
    """What becomes of the key that an import attached to a store, or that an undo took away."""

    DETACHED = -1
    AS_IT_IS = 0
    ATTACHED = 1
    STAYS = 2
    """Another store has it now, or the store has another one."""


class Made(NamedTuple):
    """A change that an import made, of the store `id`, and what becomes of it.

    `previous` is the number of the store's change before, None if the import created the store.
    `name_is` and `address_is` are a `Field`, `key_is` is a `KeyIs`. `name` and `address` are those
    after the undo, the address up to the part that is searched.
    """

    seq: int
    id: int
    previous: int | None
    name_is: int
    address_is: int
    key_is: int
    name: str
    address: str | None


class Undone(NamedTuple):
    """The change `seq` that undoes the change `made`; the rest is as in `Made`."""

    seq: int
    made: int
    id: int
    previous: int
    name_is: int
    address_is: int
    key_is: int
    folded: str
    folded_name: str


class UndoneChange(msgspec.Struct, frozen=True):
    """What an undo makes of a store."""

    id: int
    old: Texts
    new: Texts


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an undo leaves as it is: a store that the import created, or fields and keys that were
    changed since."""

    id: int
    created: bool = False
    fields: list[str] = []


class UndoCounts(msgspec.Struct, rename="camel"):
    """What an undo did or, for a dry run, would do; `version` is the collection's after it.

    `undone` is how many stores became what they were, at least in part, and `kept` how many stay as
    they are, at least in part; `created` of these were created by the import. `first` and `last`
    are the cursors of its own changes, with which it can be undone; None if it has none.
    """

    dry_run: bool
    undone: int = 0
    kept: int = 0
    created: int = 0
    version: str = ""
    first: str | None = msgspec.field(default=None, name="from")
    last: str | None = msgspec.field(default=None, name="to")


class UndoReport(UndoCounts, rename="camel"):
    """The counts, and the first MAX_LISTED of what is undone and of what stays."""

    changes: list[UndoneChange] = msgspec.field(default_factory=list)
    stays: list[Kept] = msgspec.field(default_factory=list)


class UndoPlan:
    """Decides what becomes of the changes of an import. What it keeps does not grow with them."""

    def __init__(self, undo: Undo, numbers: Numbers) -> None:
        self.undo = undo
        self.numbers = numbers
        version = str(Cursor(numbers.version, numbers.epoch))
        self.report = UndoReport(undo.dry_run, version=version)

    def decide(self, rows: Iterable[Made]) -> Iterator[Undone]:
        """Yield what undoes the next changes, in their order."""
        for row in rows:
            if (undone := self._decide(row)) is not None:
                yield undone

    def _decide(self, row: Made) -> Undone | None:
        report = self.report
        if row.previous is None:
            report.created += 1
            self._keep(Kept(row.id, created=True))
            return None
        parts = {"name": row.name_is, "address": row.address_is}
        fields = [name for name, is_ in parts.items() if is_ == Field.STAYS]
        if row.key_is == KeyIs.STAYS:
            fields.append("key")
        if fields:
            self._keep(Kept(row.id, fields=fields))
        undoes_key = row.key_is in (KeyIs.DETACHED, KeyIs.ATTACHED)
        if Field.UNDONE not in parts.values() and not undoes_key:
            return None
        report.undone += 1
        return Undone(
            seq=self.numbers.version + report.undone,
            made=row.seq,
            id=row.id,
            previous=row.previous,
            name_is=row.name_is,
            address_is=row.address_is,
            key_is=row.key_is,
            folded=folded(row.name, row.address),
            folded_name=fold(row.name),
        )

    def _keep(self, kept: Kept) -> None:
        self.report.kept += 1
        if len(self.report.stays) < MAX_LISTED:
            self.report.stays.append(kept)
