"""Domain: the commands that write, and the one pure function that decides what a batch of them writes.

Both databases carry out what `apply` returns; no other code contains a rule of a write. Imports only the domain.
"""

from collections.abc import Iterable
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


class Present(msgspec.Struct, frozen=True):
    """What the database says of the collection before a batch: how many stores it has, and its version."""

    count: int
    version: int


class Batch(msgspec.Struct, frozen=True):
    """What a batch of commands does, and the collection's `count` and `version` after it."""

    count: int
    version: int
    results: list[Store | None]
    """For each command the store as it left it; None if a replace found no store."""

    created: list[Store]
    """New stores, each as the batch leaves it."""

    replaced: list[Store]
    """Stores that existed before, each once, as the batch leaves it."""

    changes: list[Store]
    """One for each command that found its store, in the order of their versions."""


def apply(commands: Iterable[Command], present: Present) -> Batch:
    """Decide what commands do, one after another, to the collection as it is at present.

    Ids are dense (decision 25), so that the count alone says which stores exist.
    """
    before, count, version = present.count, present.count, present.version
    results: list[Store | None] = []
    changes: list[Store] = []
    latest: dict[int, Store] = {}
    for command in commands:
        if isinstance(command, Create):
            id = count = count + 1
        elif 1 <= command.id <= count:
            id = command.id
        else:
            results.append(None)
            continue
        version += 1
        store = latest[id] = Store(id, command.payload.name, command.payload.address, version)
        changes.append(store)
        results.append(store)
    if len(latest) == len(changes) and count - before in (0, len(changes)):
        # No store twice, and only creates or only replaces: nearly every batch.
        created, replaced = (changes, []) if count > before else ([], changes)
    else:
        created = [store for store in latest.values() if store.id > before]
        replaced = [store for store in latest.values() if store.id <= before]
    return Batch(count, version, results, created, replaced, changes)
