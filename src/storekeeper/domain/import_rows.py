"""Domain: what the database finds of a row of an import, and what a plan decides of it (decisions
59, 62)."""

from enum import IntEnum
from typing import NamedTuple


class FieldIs(IntEnum):
    """What becomes of one field of a store."""

    KEEP = 0
    """It is not given, as it is already, or as it was when the row was made."""
    WRITE = 1
    """Only the row changed it."""
    CONFLICT = 2
    """Both changed it, or it is not known what it was."""
    DECIDED = 3
    """Both changed it, and a person decided."""


class Base(IntEnum):
    """What a row began with."""

    UNKNOWN = 0
    """It has a version of another history, or one from before its store."""
    IGNORED = 1
    """It says nothing of it, or the store is still as it was; so what differs is written."""
    HISTORY = 2
    """Its store at its version."""
    MEMORY = 3
    """What the source last gave for its key."""
    OTHER = 4
    """Its version is of the store with its id, but its name or key means another one."""


class Found(NamedTuple):
    """What the database has for a row.

    `id` and `store_version` are of the store that it means, if there is one; `matches` is how many
    have its key, two at most. `base` is a `Base`, and `name_is` and `address_is` are a `FieldIs`.
    `changes` says whether the content would be another. Rows with one key begin at `first_line`,
    and the last of them at `last_line`; None if there is only one. So do those that attach one key,
    from `first_attach` to `last_attach`. `given` is the name in the file,
    up to the part that a report shows; `name` and `address` are those after the change, the address
    up to the part that is searched. `remembers` says whether the source's memory would change.
    `attaches`: the store would get a key, unless it has `other_key` in that column, or unless
    `key_of` has the key. Without a store, `like` is the one that is like the row; so are the stores
    up to `last_like`, and the rows from `first_alike` to `last_alike`, if these differ.
    """

    place: int
    line: int
    key: str | None
    version: str | None
    wrong: str | None
    id: int | None
    store_version: int | None
    matches: int
    base: int
    name_is: int
    address_is: int
    changes: int
    first_line: int | None
    last_line: int | None
    first_attach: int | None
    last_attach: int | None
    given: str | None
    name: str | None
    address: str | None
    remembers: int
    attach: str | None
    attaches: int
    other_key: str | None
    key_of: int | None
    like: int | None
    last_like: int | None
    first_alike: int | None
    last_alike: int | None


class Decision(NamedTuple):
    """What a row becomes: the change `seq` of the store `id`; from then on there are `total`
    stores. Without a `seq` only the source's memory changes.

    `name_is` and `address_is` are a `FieldIs`. `attaches` is 1 if the store gets a key, and
    `remembers` is 1 if the source's memory becomes what the row has.
    """

    seq: int | None
    place: int
    id: int
    is_new: int
    total: int
    folded: str
    folded_name: str
    name_is: int
    address_is: int
    attaches: int
    remembers: int


class InConflict(NamedTuple):
    """A row in conflict that the report lists."""

    place: int
    name_is: int
    address_is: int
