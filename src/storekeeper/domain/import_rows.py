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
    """What the database has for a row."""

    place: int
    line: int
    key: str | None
    version: str | None
    wrong: str | None
    """What `problems.encode_wrong` returned for it."""

    id: int | None
    """The store that the row means, if there is one."""

    store_version: int | None
    matches: int
    """How many stores have its key, two at most."""

    base: int
    """A `Base`."""

    name_is: int
    address_is: int
    """A `FieldIs`, as `name_is`."""

    changes: int
    """Whether the content of the store would change."""

    first_line: int | None
    last_line: int | None
    """Where the first and the last row with this key begin, if there are several."""

    first_attach: int | None
    last_attach: int | None
    """The same for the rows that attach this key."""

    given: str | None
    """The name in the file, up to the part that a report shows."""

    name: str | None
    address: str | None
    """Those after the change, the address up to the part that is searched."""

    remembers: int
    """Whether the source's memory would change."""

    attach: str | None
    attaches: int
    """Whether the store would get the key `attach`."""

    other_key: str | None
    """The key that the store has in that column already, which keeps it from this one."""

    key_of: int | None
    """The store that has this key already."""

    like: int | None
    last_like: int | None
    """Without a store, the one that is like the row, and the last such store if there are
    several."""

    first_alike: int | None
    last_alike: int | None
    """The lines of the rows that are like that store; the last only if there are several."""


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
