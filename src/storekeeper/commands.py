"""Domain: the commands that write, and the one pure function that decides what a batch of them writes.

Both databases carry out what `apply` returns; no other code contains a rule of a write. Imports only the domain.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from storekeeper.stores import Payload, Store


class Create(msgspec.Struct, frozen=True):
    """Add a store."""

    payload: Payload


class Replace(msgspec.Struct, frozen=True):
    """Replace name and address of the store of that id, a non-negative integer; nothing if there is none."""

    id: int
    payload: Payload


Command: TypeAlias = Create | Replace

Change: TypeAlias = tuple[int, int, str, str | None, int, int, int]
"""A row of `tables.CHANGES`, in the order of its columns. It contains the row of its store."""


class Present(msgspec.Struct, frozen=True):
    """What the database says of the collection before a batch, inside the batch's transaction."""

    count: int
    """How many stores there are."""

    version: int
    at: int = 0
    """When the latest change was, in milliseconds since 1970."""

    versions: Mapping[int, int] = {}
    """The version of each store of `touched` that exists, by its id."""


class Batch(msgspec.Struct, frozen=True):
    """What a batch of commands does, and the collection's `count`, `version` and `at` after it."""

    count: int
    version: int
    at: int
    results: list[Store | None]
    """For each command the store as it left it; None if a replace found no store."""

    created: list[Change]
    """The latest change of each new store."""

    replaced: list[Change]
    """The latest change of each store that existed before."""

    changes: list[Change]
    """One for each command that found its store, in the order of their versions."""


def touched(commands: Iterable[Command]) -> set[int]:
    """Return the ids of the stores whose versions `apply` needs to know."""
    return {command.id for command in commands if isinstance(command, Replace)}


def apply(commands: Iterable[Command], present: Present, now: int) -> Batch:
    """Decide what commands do, one after another, to the collection as it is at present.

    `now` is in milliseconds since 1970; no change is earlier than the one before it (decision 41). Ids are dense, so
    the count gives the next one (decision 25).
    """
    count, version, at = present.count, present.version, max(now, present.at)
    results: list[Store | None] = []
    changes: list[Change] = []
    latest: dict[int, Change] = {}
    for command in commands:
        if isinstance(command, Create):
            id = count = count + 1
            previous = 0
        elif (before := latest.get(command.id)) or command.id in present.versions:
            id = command.id
            previous = before[0] if before else present.versions[id]
        else:
            results.append(None)
            continue
        version += 1
        name, address = command.payload.name, command.payload.address
        latest[id] = change = (version, id, name, address, at, previous, count)
        changes.append(change)
        results.append(Store(id, name, address, version))
    if len(latest) == len(changes) and count - present.count in (0, len(changes)):
        # No store twice, and only creates or only replaces: nearly every batch.
        created, replaced = (changes, []) if count > present.count else ([], changes)
    else:
        created = [change for id, change in latest.items() if id > present.count]
        replaced = [change for id, change in latest.items() if id <= present.count]
    return Batch(count, version, at, results, created, replaced, changes)
